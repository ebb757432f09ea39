//! Commands as tests: `command = "./check.sh"` is one test, and each file of `pattern = ["checks/*.sh"]` is
//! a test.

use std::path::Path;

use heeler_config::find_files;
use heeler_protocol::control::{CommandTest, ListedTest, OsText, TestProgram};

use super::{super::arguments::ProgramArguments, PhaseDisplay, SourceContext, SourcesError, TestSource};
use heeler_sys::program_search::find_program;

/// Arguments: the commands' working directory, the command or an empty text, then the paths and globs of
/// test files.
pub(super) struct CommandSource;

impl TestSource for CommandSource {
    fn name(&self) -> &'static str {
        CommandTest::FRAMEWORK
    }

    fn command_line_arguments(&self, _command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        // On the command line, `--framework command` makes a program a test.
        None
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let [dir, command, patterns @ ..] = arguments else { return Ok(Vec::new()) };
        let (dir, command) = (dir.as_path(), command.to_text());
        let dir = &std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let suite = context.suite.map_or(CommandTest::FRAMEWORK, |suite| suite.name.as_str());
        let command = (!command.is_empty()).then(|| parse_command(&command, dir)).transpose()?;
        let entries = if patterns.is_empty() {
            command.iter().map(|command| entry(suite.to_owned(), command)).collect()
        } else {
            let patterns: Vec<String> =
                patterns.iter().map(|pattern| pattern.to_text().into_owned()).collect();
            let files = find_files(suite, dir, &patterns)?;
            files.iter().map(|file| file_entry(file, dir, command.as_ref())).collect()
        };
        Ok(vec![TestProgram {
            framework: Some(CommandTest::FRAMEWORK.to_owned()),
            entries,
            ..TestProgram::new(suite.to_owned(), &dir.join("heeler.toml"), dir)
        }])
    }
}

/// Splits a command like a shell, and finds its program.
fn parse_command(command: &str, dir: &Path) -> Result<CommandTest, SourcesError> {
    let words = shlex::split(command).unwrap_or_default();
    let Some((name, args)) = words.split_first() else {
        return Err(SourcesError::Command { what: "command", command: command.to_owned() });
    };
    let Some(path) = find_program(name, dir) else {
        return Err(SourcesError::NoCommand {
            what: "command",
            command: command.to_owned(),
            program: name.clone(),
        });
    };
    Ok(CommandTest {
        path: path.as_path().into(),
        args: args.iter().map(|word| OsText::from(word.as_str())).collect(),
        ..CommandTest::default()
    })
}

/// Returns the test of a file, which runs by itself or as the last argument of a command. The test's name is
/// the file's path relative to the directory.
fn file_entry(file: &Path, dir: &Path, command: Option<&CommandTest>) -> ListedTest {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let name = file.strip_prefix(dir).unwrap_or(&file).to_string_lossy().into_owned();
    let command = match command {
        None => CommandTest { path: file.as_path().into(), ..CommandTest::default() },
        Some(command) => {
            let args = command.args.iter().cloned().chain([OsText::from(file.as_path())]).collect();
            CommandTest { args, ..command.clone() }
        }
    };
    ListedTest { file: Some(file.to_string_lossy().into_owned()), ..entry(name, &command) }
}

fn entry(name: String, command: &CommandTest) -> ListedTest {
    ListedTest {
        name,
        selector: Some(command.clone().with_skip_code().to_selector()),
        ..ListedTest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(test: &ListedTest) -> (String, Vec<String>) {
        let command = CommandTest::from_selector(test.selector.as_deref().unwrap()).unwrap();
        let args = command.args.iter().map(|arg| arg.to_text().into_owned()).collect();
        (command.path.to_text().into_owned(), args)
    }

    #[test]
    fn file_is_a_test_by_itself_or_of_a_command() {
        let dir = Path::new("/w");
        let file = Path::new("/w/t/a b.t");
        let own = file_entry(file, dir, None);
        assert_eq!((own.name.as_str(), words(&own)), ("t/a b.t", ("/w/t/a b.t".to_owned(), vec![])));
        let shell = parse_command("sh -e 'x y'", dir).unwrap();
        let (path, args) = words(&file_entry(file, dir, Some(&shell)));
        assert!(path.ends_with("/sh"), "{path}");
        assert_eq!(args, ["-e", "x y", "/w/t/a b.t"]);
    }

    #[test]
    fn wrong_commands_are_named() {
        let error = |command: &str| parse_command(command, Path::new("/w")).unwrap_err().to_string();
        assert!(error("'open").contains("unclosed quote"));
        assert!(error("./none x").contains("./none not found"));
    }
}
