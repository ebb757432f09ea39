//! Finds the test programs of the command line and of the suites, and builds them where needed.

use std::path::{Path, PathBuf};

use heeler_protocol::control::{OsText, TestProgram};

use super::{
    arguments::ProgramArguments,
    cargo::{self, CargoBuild, CargoError, CargoProgram},
};
use heeler_config::{
    Config, FindProgramsError, SuiteConfig, SuiteSource, find_programs, suite_name_from_path,
};
use heeler_server::discovery::ProgramSource;

/// Error while finding the test programs.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourcesError {
    /// A path can't be made absolute.
    #[error("find {}", path.display())]
    Path {
        /// The path, unchanged.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The build command of a suite failed.
    #[error("build the suite \"{suite}\"")]
    Build { suite: String, source: CargoError },
    /// The cargo build failed.
    #[error("build tests with cargo")]
    Cargo(#[source] CargoError),
    /// The paths or globs of a suite can't be resolved.
    #[error(transparent)]
    Programs(#[from] FindProgramsError),
}

/// Returns the programs that the command line names; without any, those of the suites.
///
/// `say` receives a label and a text about the current build, for the display.
///
/// # Errors
/// A build fails, or a suite's programs do not exist. A program of the command line that does not exist is no
/// error here: it is reported together with the results.
pub(super) fn find_sources(
    config: &Config,
    arguments: &ProgramArguments,
    say: &mut dyn FnMut(&str, &str),
) -> Result<Vec<ProgramSource>, SourcesError> {
    let mut sources = Vec::new();
    for path in &arguments.programs {
        sources.push(program_source(config, path, arguments.framework.clone())?);
    }
    if let Some(dir) = &arguments.cargo {
        sources.extend(cargo_sources(dir, &arguments.cargo_args, say)?);
    }
    if !sources.is_empty() || arguments.cargo.is_some() {
        return Ok(sources);
    }
    for suite in &config.suites {
        sources.extend(suite_sources(config, suite, say)?);
    }
    Ok(sources)
}

/// Returns a program that the command line names.
pub(super) fn program_source(
    config: &Config,
    path: &Path,
    framework: Option<String>,
) -> Result<ProgramSource, SourcesError> {
    let failed = |source| SourcesError::Path { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let cwd = std::env::current_dir().map_err(failed)?;
    let base = if config.file.is_some() { config.dir.clone() } else { cwd.clone() };
    let program = TestProgram {
        suite: suite_name_from_path(&base, &absolute),
        path: OsText::from(absolute.as_path()),
        args: Vec::new(),
        tool_env: Vec::new(),
        env: Vec::new(),
        cwd: OsText::from(cwd.as_path()),
        framework,
    };
    Ok(ProgramSource { program, config_suite: None })
}

fn cargo_sources(
    dir: &Path,
    cargo_args: &[String],
    say: &mut dyn FnMut(&str, &str),
) -> Result<Vec<ProgramSource>, SourcesError> {
    say("Building", &format!("the tests of {}", dir.display()));
    let programs = build_cargo_programs(dir, cargo_args)?;
    Ok(programs.into_iter().map(|program| ProgramSource { program, config_suite: None }).collect())
}

fn suite_sources(
    config: &Config,
    suite: &SuiteConfig,
    say: &mut dyn FnMut(&str, &str),
) -> Result<Vec<ProgramSource>, SourcesError> {
    if let Some(build) = &suite.build {
        say("Building", &format!("{}: {}", suite.name, build.join(" ")));
        cargo::run_build_command(build, &config.dir)
            .map_err(|source| SourcesError::Build { suite: suite.name.clone(), source })?;
    }
    let mut programs = match &suite.source {
        SuiteSource::Cargo { dir, args } => {
            say("Building", &format!("the suite {} with cargo", suite.name));
            build_cargo_programs(dir, args)?
        }
        SuiteSource::Programs(patterns) => {
            let found = find_programs(&suite.name, &config.dir, patterns)?;
            let program = |found: heeler_config::FoundProgram| {
                let path = std::path::absolute(&found.path)
                    .map_err(|source| SourcesError::Path { path: found.path.clone(), source })?;
                Ok(TestProgram {
                    suite: found.suite,
                    path: OsText::from(path.as_path()),
                    args: Vec::new(),
                    tool_env: Vec::new(),
                    env: Vec::new(),
                    cwd: OsText::from(config.dir.as_path()),
                    framework: None,
                })
            };
            found.into_iter().map(program).collect::<Result<Vec<_>, SourcesError>>()?
        }
    };
    for program in &mut programs {
        apply_suite_settings(suite, program);
    }
    let config_suite = Some(suite.name.clone());
    Ok(programs
        .into_iter()
        .map(|program| ProgramSource { program, config_suite: config_suite.clone() })
        .collect())
}

/// Applies the suite's own settings to a program.
fn apply_suite_settings(suite: &SuiteConfig, program: &mut TestProgram) {
    if suite.framework.is_some() {
        program.framework.clone_from(&suite.framework);
    }
    program.args.extend(suite.args.iter().map(|word| OsText::from(word.as_str())));
    let env = suite
        .env
        .iter()
        .map(|(name, value)| (OsText::from(name.as_str()), value.as_deref().map(OsText::from)));
    program.env.extend(env);
    if let Some(cwd) = &suite.cwd {
        program.cwd = OsText::from(cwd.as_path());
    }
}

fn build_cargo_programs(dir: &Path, args: &[String]) -> Result<Vec<TestProgram>, SourcesError> {
    let built = CargoBuild::start(dir, args).and_then(CargoBuild::finish).map_err(SourcesError::Cargo)?;
    let program = |built: CargoProgram| TestProgram {
        suite: built.suite,
        path: OsText::from(built.path.as_path()),
        args: Vec::new(),
        tool_env: built
            .env
            .iter()
            .map(|(name, value)| (OsText::from(name.as_os_str()), OsText::from(value.as_os_str())))
            .collect(),
        env: Vec::new(),
        cwd: OsText::from(built.cwd.as_path()),
        framework: None,
    };
    Ok(built.into_iter().map(program).collect())
}
