//! Programs named by path: `heeler run PROGRAM…`, or the paths and globs of `programs = […]`.

use std::path::{Path, PathBuf};

use heeler_config::{SuiteConfig, find_programs, suite_name_from_path, suite_names_without_base};
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments, PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    plain_program,
};

/// The arguments are paths; those of a suite may be globs.
pub(super) struct ProgramsSource;

impl TestSource for ProgramsSource {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let paths: Vec<OsText> = command_line.programs.iter().map(|path| absolute_text(path)).collect();
        (!paths.is_empty()).then_some(paths)
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        match context.suite {
            Some(suite) => suite_programs(arguments, suite, &context.config.dir),
            None => named_programs(arguments, context),
        }
    }
}

/// Returns the programs that the command line names.
fn named_programs(
    arguments: &[OsText],
    context: &SourceContext<'_>,
) -> Result<Vec<TestProgram>, SourcesError> {
    let absolute = |path: &OsText| {
        let path = path.as_path();
        std::path::absolute(path).map_err(|source| SourcesError::Path { path: path.to_owned(), source })
    };
    let paths = arguments.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    let cwd =
        std::env::current_dir().map_err(|source| SourcesError::Path { path: PathBuf::from("."), source })?;
    let names = if context.config.file.is_some() {
        paths.iter().map(|path| suite_name_from_path(&context.config.dir, path)).collect()
    } else {
        suite_names_without_base(&paths)
    };
    let program = |(path, name): (&PathBuf, String)| TestProgram {
        framework: context.framework.map(str::to_owned),
        ..plain_program(name, path, &cwd)
    };
    Ok(paths.iter().zip(names).map(program).collect())
}

/// Returns the programs of a suite, which must exist.
fn suite_programs(
    patterns: &[OsText],
    suite: &SuiteConfig,
    dir: &Path,
) -> Result<Vec<TestProgram>, SourcesError> {
    let patterns: Vec<String> = patterns.iter().map(|pattern| pattern.to_text().into_owned()).collect();
    let mut programs = Vec::new();
    for found in find_programs(&suite.name, dir, &patterns)? {
        let path = std::path::absolute(&found.path)
            .map_err(|source| SourcesError::Path { path: found.path.clone(), source })?;
        programs.push(plain_program(found.suite, &path, dir));
    }
    Ok(programs)
}
