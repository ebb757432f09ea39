//! Command lines that users copy into a shell. Heeler itself never runs them.

pub(super) use heeler_core::shell_words::quote;
use heeler_protocol::control::{OsText, TestProgram};

/// Value of a configured variable that is not printed, because it may be secret. In a command, the variable
/// is taken from the shell, which stops with a message if the variable is not set there.
pub const HIDDEN_VALUE: &str = "(hidden, see --show-env)";

/// Returns the quoted [`exact_filter`] of a name.
pub(super) fn test_filter(name: &str) -> String {
    quote(exact_filter(name).as_bytes())
}

/// Returns a filter expression of `heeler run -E` that selects the tests with this name.
#[must_use]
pub fn exact_filter(name: &str) -> String {
    let mut filter = String::from("test(=");
    let is_inside = |at: usize| at > 0 && at + 1 < name.len();
    for (at, character) in name.char_indices() {
        match character {
            '\\' | '(' | ')' => filter.extend(['\\', character]),
            // A filter ignores blanks at both ends of a text.
            _ if character.is_control() || character == ' ' && !is_inside(at) => {
                filter.extend(character.escape_unicode());
            }
            _ => filter.push(character),
        }
    }
    filter.push(')');
    filter
}

/// Returns a command line that runs a program with additional words in its working directory, in a subshell.
#[must_use]
pub(super) fn command_line(given: &TestProgram, words: &str) -> String {
    format!("(cd {} && {} {words})", quote(given.cwd.as_bytes()), program_words(given))
}

/// Returns a command line that runs one test of a program with Heeler, for a test that the framework's own
/// options can't select, or a program that needs Heeler's side of a dialogue.
#[must_use]
pub(super) fn heeler_command_line(program: &TestProgram, framework: &str, name: &str) -> String {
    let mut words = environment_words(program);
    words.extend(["heeler", "run"].map(str::to_owned));
    words.push(program_path(program));
    words.extend(["--framework", framework, "-E"].map(str::to_owned));
    words.push(test_filter(name));
    if !program.args.is_empty() {
        words.push("--".to_owned());
    }
    words.extend(program.args.iter().map(|word| quote(word.as_bytes())));
    format!("(cd {} && {})", quote(program.cwd.as_bytes()), words.join(" "))
}

/// Returns the start of a command line: configured environment, program, arguments.
pub(super) fn program_words(program: &TestProgram) -> String {
    let mut words = environment_words(program);
    words.push(program_path(program));
    words.extend(program.args.iter().map(|arg| quote(arg.as_bytes())));
    words.join(" ")
}

/// Returns the program's path as a word, relative to its working directory if it is inside it.
fn program_path(program: &TestProgram) -> String {
    let path = relative_path(program.path.as_bytes(), program.cwd.as_bytes());
    let local: &[u8] = if path.starts_with(b"/") { b"" } else { b"./" };
    quote(&[local, path].concat())
}

/// Returns the part of a command line that sets the program's configured environment.
pub(super) fn environment_words(program: &TestProgram) -> Vec<String> {
    let mut words = Vec::new();
    for (name, _) in program.env.iter().filter(|(_, value)| value.is_none()) {
        words.extend(["-u".to_owned(), quote(name.as_bytes())]);
    }
    // The shell itself sets only variables with the names of its own variables.
    if !words.is_empty() || program.env.iter().any(|(name, _)| !is_shell_name(name.as_bytes())) {
        words.insert(0, "env".to_owned());
    }
    for name in &program.reproduction.variables {
        let found = program.tool_env.iter().find(|(known, _)| known == name);
        words.extend(found.map(|(name, value)| format!("{}={}", name.to_text(), quote_value(value))));
    }
    for (name, value) in &program.env {
        let Some(value) = value else { continue };
        words.push(match is_shell_name(name.as_bytes()) {
            true if value.as_bytes() == HIDDEN_VALUE.as_bytes() => {
                let name = name.to_text();
                format!("{name}=\"${{{name}?hidden, see --show-env}}\"")
            }
            true => format!("{}={}", name.to_text(), quote_value(value)),
            false => quote(&[name.as_bytes(), b"=", value.as_bytes()].concat()),
        });
    }
    words
}

fn is_shell_name(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.iter().all(is_part) && name.first().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns a path relative to the directory, if the path is inside it.
fn relative_path<'a>(path: &'a [u8], dir: &[u8]) -> &'a [u8] {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).and_then(|rest| rest.strip_prefix(b"/")).unwrap_or(path)
}

fn quote_value(value: &OsText) -> String {
    if value.as_bytes().is_empty() { String::new() } else { quote(value.as_bytes()) }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests paste the commands into a real shell")]
mod tests {
    use heeler_protocol::control::ReproductionHints;

    use super::*;

    #[test]
    fn filter_of_a_command_selects_the_name() {
        for (name, expected) in [
            ("A.b", "'test(=A.b)'"),
            ("f (x)\\", r"'test(=f \(x\)\\)'"),
            (" a b ", r"'test(=\u{20}a b\u{20})'"),
            ("a\nb", r"'test(=a\u{a}b)'"),
        ] {
            assert_eq!(test_filter(name), expected);
        }
    }

    #[test]
    fn hidden_variable_is_taken_from_the_shell_by_name() {
        let hidden = |name: &str| (name.into(), Some(HIDDEN_VALUE.into()));
        let env = vec![hidden("A"), hidden("b.c")];
        let given = TestProgram { env, ..TestProgram::default() };
        let words = environment_words(&given).join(" ");
        assert_eq!(words, "env A=\"${A?hidden, see --show-env}\" 'b.c=(hidden, see --show-env)'");
        let run = |variables: &[(&str, &str)]| {
            let script = format!("({words} env)");
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script]).env_remove("A").envs(variables.iter().copied()).output().unwrap()
        };
        let without = run(&[]);
        assert!(String::from_utf8_lossy(&without.stderr).contains("A: hidden, see --show-env"));
        assert!(!without.status.success());
        assert!(String::from_utf8_lossy(&run(&[("A", "1 2")]).stdout).contains("A=1 2\n"));
    }

    #[test]
    fn command_line_has_configured_environment_and_arguments() {
        let given = TestProgram {
            suite: "s".into(),
            path: "/src/build/prog".into(),
            args: vec!["--data dir".into()],
            tool_env: Vec::new(),
            env: vec![("A".into(), Some("1 2".into())), ("B".into(), None), ("C".into(), Some("".into()))],
            cwd: "/src".into(),
            framework: None,
            test_arguments: std::collections::BTreeMap::new(),
            entries: Vec::new(),
            unbuilt: None,
            reproduction: Default::default(),
            resources: Default::default(),
        };
        assert_eq!(
            command_line(&given, "-x"),
            "(cd /src && env -u B A='1 2' C= ./build/prog '--data dir' -x)"
        );
        let with_heeler = heeler_command_line(&given, "gtest", "A.b*");
        let expected = "(cd /src && env -u B A='1 2' C= heeler run ./build/prog --framework gtest -E 'test(=A.b*)' \
                        -- '--data dir')";
        assert_eq!(with_heeler, expected);
        let loaded = TestProgram {
            tool_env: vec![("LD_LIBRARY_PATH".into(), "/a b".into()), ("X".into(), "1".into())],
            reproduction: ReproductionHints {
                variables: vec!["LD_LIBRARY_PATH".into()],
                options: Vec::new(),
            },
            env: Vec::new(),
            args: Vec::new(),
            ..given.clone()
        };
        assert_eq!(command_line(&loaded, "-x"), "(cd /src && LD_LIBRARY_PATH='/a b' ./build/prog -x)");
        let elsewhere = TestProgram { cwd: "/else where".into(), env: Vec::new(), args: Vec::new(), ..given };
        assert_eq!(command_line(&elsewhere, "-x"), "(cd '/else where' && /src/build/prog -x)");
    }
}
