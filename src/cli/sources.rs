//! Finds the test programs of the command line and of the suites, and builds them where needed.
//!
//! A new source is a file with a [`TestSource`] and a line in [`TEST_SOURCES`], with its keys of `[[suite]]`
//! and its options of the command line; manifests, reruns and the search for programs use only the registry.

mod cargo;
mod command;
mod ctest;
mod finder;
mod go;
mod mcp;
mod mtp;
mod programs;
mod pytest;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use heeler_core::SourceRequest;
use heeler_protocol::{
    control::{OsText, TestProgram},
    ctest::CtestListingError,
    mcp::http::LocalUrlError,
};

use super::{
    arguments::ProgramArguments,
    cargo::{BuildSupervision, CargoError, doctests::FRAMEWORK, run_build_command},
};
use heeler_config::{Config, FindProgramsError, SuiteConfig, closest_match, is_glob};
use heeler_server::discovery::ProgramSource;

use cargo::CargoSource;
pub(super) use cargo::cargo_test_program;
use command::CommandSource;
pub(super) use command::FRAMEWORK as COMMAND_SOURCE;
pub(super) use ctest::NAME as CTEST_SOURCE;
use ctest::{CtestSource, is_ctest_folder};
pub(super) use finder::SourceFinder;
use go::GoSource;
use mcp::McpSource;
use mtp::MtpSource;
use programs::ProgramsSource;
use pytest::PytestSource;
pub(super) use pytest::{FRAMEWORK as PYTEST_SOURCE, find_interpreter};

/// Every source, in the order in which the programs of a command line run.
static TEST_SOURCES: &[&dyn TestSource] = &[
    &ProgramsSource,
    &CargoSource,
    &McpSource,
    &MtpSource,
    &PytestSource,
    &GoSource,
    &CtestSource,
    &CommandSource,
];

/// A source of test programs, such as paths or a build tool.
trait TestSource: Sync {
    /// Returns the name in manifests, which is also the key of `[[suite]]` that selects the source.
    fn name(&self) -> &'static str;

    /// Returns the arguments with which a command line names the source, paths absolute; `None` if it does
    /// not name it.
    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>>;

    /// Returns the test programs, which are built where needed.
    ///
    /// # Errors
    /// The programs can't be found or built.
    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError>;
}

/// Receives a label and a text about the current build, for the display.
type PhaseDisplay<'a> = &'a mut dyn FnMut(&str, &str);

/// The origin of a request for a source.
struct SourceContext<'a> {
    config: &'a Config,
    /// The suite; `None` for a request of the command line.
    suite: Option<&'a SuiteConfig>,
    /// Framework that the command line names.
    framework: Option<&'a str>,
    debug_data: DebugData,
    supervision: BuildSupervision<'a>,
}

/// Whether test programs are linked with the data that a debugger needs, where a source decides that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DebugData {
    Kept,
    Omitted,
}

/// The sources that a command line names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedSources {
    pub(super) requests: Vec<SourceRequest>,
    pub(super) framework: Option<String>,
    /// Arguments of all programs, of whichever source.
    pub(super) program_args: Vec<String>,
}

impl NamedSources {
    /// Returns the sources that the arguments name.
    pub(super) fn from_arguments(arguments: &ProgramArguments) -> Self {
        let request = |source: &&dyn TestSource| {
            Some(SourceRequest::new(source.name(), source.command_line_arguments(arguments)?))
        };
        Self {
            requests: TEST_SOURCES.iter().filter_map(request).collect(),
            framework: arguments.framework.clone(),
            program_args: arguments.program_args.clone(),
        }
    }
}

/// Error while finding the test programs.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourcesError {
    /// The manifest of an earlier run names a source that does not exist here.
    #[error("use the source \"{name}\" of an earlier run, which this heeler does not have")]
    UnknownSource { name: String },
    /// A path can't be made absolute.
    #[error("find {}", path.display())]
    Path {
        /// The path, unchanged.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A directory contains no test program.
    #[error("find test programs below {}: no native executable there contains a test framework", path.display())]
    NoProgramBelow {
        /// The directory.
        path: PathBuf,
    },
    /// No test program matches a glob of the command line.
    #[error(
        "find test programs that match {glob}: no native executable that matches contains a test framework"
    )]
    NoMatch {
        /// The glob, absolute.
        glob: String,
    },
    /// A program of the command line does not exist.
    #[error("find the program {}: there is no such file; {hint}", path.display())]
    NoProgram {
        /// The path, unchanged.
        path: PathBuf,
        /// What may have been meant.
        hint: String,
    },
    /// A directory is too large to be searched.
    #[error("find test programs below {}: it has more than {limit} files; name the programs, or a directory below", path.display())]
    TooManyFiles {
        /// The directory.
        path: PathBuf,
        limit: usize,
    },
    /// The command of a server, an application or a test has no words, or an open quote.
    #[error("start the {what} {command:?}: expected a command, with quotes as in a shell")]
    Command { what: &'static str, command: String },
    /// The address of a server is not one on this machine.
    #[error("reach the MCP server {address}")]
    ServerAddress { address: String, source: LocalUrlError },
    /// The program of such a command does not exist.
    #[error("start the {what} {command:?}: there is no program {program}")]
    NoCommand { what: &'static str, command: String, program: String },
    /// A directory is not the build folder of a project with tests.
    #[error("list the CTest tests of {}: it has no CTestTestfile.cmake; configure the project, and enable testing", path.display())]
    NoCtestFolder { path: PathBuf },
    /// CTest can't be run.
    #[error("list the CTest tests of {}", path.display())]
    Ctest { path: PathBuf, source: CargoError },
    /// What CTest wrote is no list of tests.
    #[error("list the CTest tests of {}", path.display())]
    CtestListing { path: PathBuf, source: CtestListingError },
    /// There is no Python interpreter.
    #[error("run pytest with {python}: there is no such program; name the interpreter with --python")]
    NoPython { python: String },
    /// Go can't list or build packages.
    #[error("build the Go tests of {packages}")]
    Go { packages: String, source: CargoError },
    /// No package has tests.
    #[error("find Go tests in {packages}: no package that matches has tests")]
    NoGoTests { packages: String },
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

/// Checks the programs that a command line names before any of them runs: of several, those that exist run,
/// and the others are reported with the results.
///
/// # Errors
/// None of the programs exists, or one that does not exist has no `/` in its name, which is more likely the
/// name of a test.
pub(super) fn check_programs_exist(arguments: &ProgramArguments) -> Result<(), SourcesError> {
    let missing = |path: &&PathBuf| !path.exists() && !is_glob(&path.to_string_lossy());
    let all: Vec<&PathBuf> = arguments.programs.iter().filter(missing).collect();
    let is_none_left = all.len() == arguments.programs.len();
    match all.into_iter().find(|path| is_none_left || !has_slash(path)) {
        Some(path) => Err(SourcesError::NoProgram { path: path.clone(), hint: hint_about_missing(path) }),
        None => Ok(()),
    }
}

fn has_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// Maximum number of files among which the one that was meant is searched.
const MAX_CANDIDATES: usize = 2_000;

/// Returns what may have been meant by a path that does not exist: the nearest name beside it, or the name of
/// a test.
fn hint_about_missing(path: &Path) -> String {
    if let Ok(target) = std::fs::read_link(path) {
        return format!("it is a symbolic link to {}, which does not exist", target.display());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let is_program = |entry: &std::fs::DirEntry| heeler_worker::is_test_program(&entry.path());
    let names = entries.take(MAX_CANDIDATES).map(|entry| (entry.file_name().into_string(), entry));
    let names: Vec<_> = names.filter_map(|(name, entry)| Some((name.ok()?, entry))).collect();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    let nearest = closest_match(&wanted, names.iter().map(|(name, _)| name.as_str()));
    let nearest = names.iter().find(|(name, entry)| Some(name.as_str()) == nearest && is_program(entry));
    match (nearest, has_slash(path)) {
        (Some((name, _)), _) => format!("did you mean {}?", path.with_file_name(name).display()),
        (None, false) => format!("to select tests by their name, use -E '{wanted}'"),
        (None, true) => "is it built?".to_owned(),
    }
}

/// Returns the programs of the sources that the command line names; without any, those of the suites.
///
/// # Errors
/// A build fails, or a suite's programs do not exist. A program of the command line that does not exist is no
/// error here: it is reported together with the results, unless [`check_programs_exist`] refuses it.
pub(super) fn find_sources(
    config: &Config,
    named: &NamedSources,
    debug_data: DebugData,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let build = BuildContext { debug_data, supervision: BuildSupervision::default() };
    find_supervised_sources(config, named, build, display)
}

/// How programs are built.
#[derive(Clone, Copy)]
struct BuildContext<'a> {
    debug_data: DebugData,
    supervision: BuildSupervision<'a>,
}

/// Finds the programs as [`find_sources`] does.
fn find_supervised_sources(
    config: &Config,
    named: &NamedSources,
    build: BuildContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let mut sources = find_named_sources(config, named, build, display)?;
    for source in sources.iter_mut().filter(|source| takes_arguments(&source.program)) {
        source.program.args.extend(named.program_args.iter().map(|word| OsText::from(word.as_str())));
    }
    Ok(sources)
}

/// Where tests come from: what the command line names, else all suites, else the current directory's project.
enum ApplicableSources<'a> {
    Requests(Cow<'a, [SourceRequest]>),
    Suites(&'a [SuiteConfig]),
}

impl<'a> ApplicableSources<'a> {
    fn of(config: &'a Config, named: &'a NamedSources) -> Self {
        if !named.requests.is_empty() {
            Self::Requests(Cow::Borrowed(&named.requests))
        } else if !config.suites.is_empty() {
            Self::Suites(&config.suites)
        } else {
            Self::Requests(cargo_project_request().into_iter().collect())
        }
    }
}

/// Returns whether anything is named, without looking for programs.
pub(super) fn has_sources(config: &Config, named: &NamedSources) -> bool {
    match ApplicableSources::of(config, named) {
        ApplicableSources::Requests(requests) => !requests.is_empty(),
        ApplicableSources::Suites(suites) => !suites.is_empty(),
    }
}

fn find_named_sources(
    config: &Config,
    named: &NamedSources,
    build: BuildContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let mut sources = Vec::new();
    match ApplicableSources::of(config, named) {
        ApplicableSources::Requests(requests) => {
            let BuildContext { debug_data, supervision } = build;
            let framework = named.framework.as_deref();
            let context = SourceContext { config, suite: None, framework, debug_data, supervision };
            for request in requests.iter() {
                let programs = resolve_request(TEST_SOURCES, request, &context, display)?;
                sources.extend(
                    programs.into_iter().map(|program| ProgramSource { program, config_suite: None }),
                );
            }
        }
        ApplicableSources::Suites(suites) => {
            for suite in suites {
                sources.extend(suite_sources(config, suite, build, display)?);
            }
        }
    }
    Ok(sources)
}

/// Returns the request for the tests of the current directory, if it is in a cargo package or workspace.
fn cargo_project_request() -> Option<SourceRequest> {
    let here = std::env::current_dir().ok()?;
    let is_project = here.ancestors().any(|dir| dir.join("Cargo.toml").is_file());
    is_project.then(|| SourceRequest::new(CargoSource.name(), [OsText::from(here.as_path())]))
}

fn resolve_request(
    registry: &[&dyn TestSource],
    request: &SourceRequest,
    context: &SourceContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<TestProgram>, SourcesError> {
    let source = registry.iter().find(|source| source.name() == request.source);
    let source = source.ok_or_else(|| SourcesError::UnknownSource { name: request.source.clone() })?;
    source.resolve(&request.arguments, context, display)
}

fn suite_sources(
    config: &Config,
    suite: &SuiteConfig,
    build: BuildContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let BuildContext { debug_data, supervision } = build;
    if let Some(build) = &suite.build {
        display("Building", &format!("{}: {}", suite.name, build.join(" ")));
        run_build_command(build, &config.dir, supervision)
            .map_err(|source| SourcesError::Build { suite: suite.name.clone(), source })?;
    }
    let context = SourceContext { config, suite: Some(suite), framework: None, debug_data, supervision };
    let mut programs = resolve_request(TEST_SOURCES, &suite.source, &context, display)?;
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
    if takes_arguments(program) {
        // A source that knows the framework of a program has asked nobody.
        if suite.framework.is_some() && suite.source.source != CtestSource.name() {
            program.framework.clone_from(&suite.framework);
        }
        program.args.extend(suite.args.iter().map(|word| OsText::from(word.as_str())));
    }
    let env = suite
        .env
        .iter()
        .map(|(name, value)| (OsText::from(name.as_str()), value.as_deref().map(OsText::from)));
    program.env.extend(env);
    program.test_arguments.clone_from(&suite.test_arguments);
    if let Some(cwd) = &suite.cwd {
        program.cwd = OsText::from(cwd.as_path());
    }
}

/// Returns whether a program is one of the user's, which takes arguments: rustdoc is none.
fn takes_arguments(program: &TestProgram) -> bool {
    program.framework.as_deref() != Some(FRAMEWORK)
}

/// Returns a program without arguments, variables and framework.
pub(super) fn plain_program(suite: String, path: &Path, cwd: &Path) -> TestProgram {
    TestProgram {
        suite,
        path: OsText::from(path),
        args: Vec::new(),
        tool_env: Vec::new(),
        env: Vec::new(),
        cwd: OsText::from(cwd),
        framework: None,
        test_arguments: BTreeMap::new(),
        entries: Vec::new(),
        unbuilt: None,
    }
}

/// Returns the absolute path, or the path unchanged where there is none.
fn absolute_text(path: &Path) -> OsText {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    OsText::from(absolute.as_path())
}
