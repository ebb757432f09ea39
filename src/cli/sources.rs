//! Finds the test programs of the command line and of the suites, and builds them where needed.
//!
//! To add a source, write a file with a [`TestSource`], add a line to [`TEST_SOURCES`], and add its keys of
//! `[[suite]]` and its command line options. Manifests, reruns and the search for programs use only the
//! registry.

mod cargo;
mod command;
mod ctest;
mod detect;
mod finder;
mod go;
mod mcp;
mod mtp;
mod programs;
mod pytest;
mod test_source;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use heeler_core::SourceRequest;
use heeler_protocol::control::{OsText, TestProgram};

use super::arguments::ProgramArguments;
use heeler_cargo::{BuildSupervision, doctests::FRAMEWORK, run_build_command};
use heeler_config::{Config, SuiteConfig, closest_match, is_glob};
use heeler_server::discovery::ProgramSource;

use cargo::CargoSource;
use command::CommandSource;
use ctest::{CtestSource, is_ctest_folder};
pub(super) use detect::{FoundProjects, configuration_text};
pub(super) use finder::SourceFinder;
use go::GoSource;
use mcp::McpSource;
use mtp::MtpSource;
use programs::{ProgramsSource, test_programs_below};
use pytest::PytestSource;
pub(super) use pytest::find_interpreter;
pub(super) use test_source::{DebugData, SourcesError};
use test_source::{PhaseDisplay, SourceContext, TestSource, WordUse, absolute_text};

/// All sources. The programs of a command line run in this order.
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

/// Sources named on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedSources {
    pub(super) requests: Vec<SourceRequest>,
    pub(super) framework: Option<String>,
    /// Arguments of all programs, regardless of their source.
    pub(super) program_args: Vec<String>,
    /// Names of the configured suites that the command line selects; empty selects all.
    pub(super) suites: Vec<String>,
}

impl NamedSources {
    /// Returns the sources named by the arguments.
    pub(super) fn from_arguments(arguments: &ProgramArguments) -> Self {
        Self::of_assigned(&assign_words(arguments))
    }

    /// Returns the sources named by the arguments, checked before any program runs.
    ///
    /// # Errors
    /// See [`check_programs_exist`].
    pub(super) fn of_existing(arguments: &ProgramArguments) -> Result<Self, SourcesError> {
        let assigned = assign_words(arguments);
        check_programs_exist(&assigned.0.programs)?;
        Ok(Self::of_assigned(&assigned))
    }

    fn of_assigned((arguments, further): &(ProgramArguments, Vec<SourceRequest>)) -> Self {
        let request = |source: &&dyn TestSource| {
            Some(SourceRequest::new(source.name(), source.command_line_arguments(arguments)?))
        };
        Self {
            requests: TEST_SOURCES.iter().filter_map(request).chain(further.iter().cloned()).collect(),
            framework: arguments.framework.clone(),
            program_args: arguments.program_args.clone(),
            suites: arguments.suites.names.clone(),
        }
    }

    /// Checks that a framework of the command line has programs.
    ///
    /// # Errors
    /// The framework would have no effect: no program is named.
    pub(super) fn check_framework(&self) -> Result<(), SourcesError> {
        let has_programs = self.requests.iter().any(|request| request.source == ProgramsSource.name());
        match &self.framework {
            Some(name) if !has_programs => Err(SourcesError::FrameworkWithoutPrograms { name: name.clone() }),
            _ => Ok(()),
        }
    }
}

/// Moves each command-line argument that names tests of a source to the arguments of that source: a directory
/// with a project, a file or node id of pytest, a Go package, a .NET assembly. The other words stay programs.
/// Also returns requests for words that no argument of their source can take.
fn assign_words(arguments: &ProgramArguments) -> (ProgramArguments, Vec<SourceRequest>) {
    let mut assigned = ProgramArguments { programs: Vec::new(), ..arguments.clone() };
    let mut requests = Vec::new();
    for word in &arguments.programs {
        // With `--framework`, all arguments are programs.
        if arguments.framework.is_some() || is_ctest_folder(word) {
            assigned.programs.push(word.clone());
            continue;
        }
        let mut takers = Vec::new();
        for source in TEST_SOURCES {
            match source.take_word(word, &mut assigned) {
                WordUse::Other => continue,
                WordUse::Taken => {}
                WordUse::Request(request) => requests.push(request),
            }
            takers.push(source.name());
        }
        // A directory with Python files may contain programs, too.
        let is_only_python = takers == [PytestSource.name()] && word.is_dir();
        let has_programs = || test_programs_below(word).is_some_and(|found| !found.is_empty());
        if takers.is_empty() || is_only_python && has_programs() {
            assigned.programs.push(word.clone());
        }
    }
    (assigned, requests)
}

/// Checks that programs named on the command line exist, before any of them runs. If only some are missing,
/// the others run, and the missing ones are reported with the results.
///
/// # Errors
/// None of the programs exists; or a missing program has no `/` in its name, so it is more likely a test
/// name.
fn check_programs_exist(programs: &[PathBuf]) -> Result<(), SourcesError> {
    let missing = |path: &&PathBuf| !path.exists() && !is_glob(&path.to_string_lossy());
    let all: Vec<&PathBuf> = programs.iter().filter(missing).collect();
    let is_none_left = all.len() == programs.len();
    match all.into_iter().find(|path| is_none_left || !has_slash(path)) {
        Some(path) => Err(SourcesError::NoProgram { path: path.clone(), hint: hint_about_missing(path) }),
        None => Ok(()),
    }
}

fn has_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// Maximum number of directory entries searched for a program with a similar name.
const MAX_CANDIDATES: usize = 2_000;

/// Returns a hint about a path that does not exist: the program with the closest name in its directory, or
/// that the path may be a test name.
fn hint_about_missing(path: &Path) -> String {
    if let Ok(target) = std::fs::read_link(path) {
        return format!("it is a broken symbolic link to {}", target.display());
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
        (None, false) => format!("to select tests by name, use -E '{wanted}'"),
        (None, true) => "is it built?".to_owned(),
    }
}

/// Returns the programs of the sources on the command line; without sources, the programs of the suites.
///
/// # Errors
/// A build fails, or a suite's programs do not exist. A missing program of the command line is not an error
/// here: it is reported with the results, unless [`check_programs_exist`] rejects it.
pub(super) fn find_sources(
    config: &Config,
    named: &NamedSources,
    debug_data: DebugData,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let build = BuildContext { debug_data, supervision: BuildSupervision::default() };
    find_supervised_sources(config, named, build, display)
}

/// Options and supervision of builds.
#[derive(Clone, Copy)]
struct BuildContext<'a> {
    debug_data: DebugData,
    supervision: BuildSupervision<'a>,
}

impl<'a> BuildContext<'a> {
    /// Returns the context of a request from a suite, or from the command line with its framework.
    fn source_context(
        self,
        config: &'a Config,
        suite: Option<&'a SuiteConfig>,
        framework: Option<&'a str>,
    ) -> SourceContext<'a> {
        let Self { debug_data, supervision } = self;
        SourceContext { config, suite, framework, debug_data, supervision }
    }
}

/// Does the work of [`find_sources`] with supervised builds.
fn find_supervised_sources(
    config: &Config,
    named: &NamedSources,
    build: BuildContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let mut sources = find_named_sources(config, named, build, display)?;
    let mut takers = 0;
    for source in sources.iter_mut().filter(|source| takes_arguments(&source.program)) {
        source.program.args.extend(named.program_args.iter().map(|word| OsText::from(word.as_str())));
        takers += 1;
    }
    if takers == 0 && !sources.is_empty() && !named.program_args.is_empty() {
        return Err(SourcesError::ArgumentsWithoutPrograms { words: named.program_args.join(" ") });
    }
    Ok(sources)
}

/// Origin of the tests: the command line, else all suites, else the projects in the working directory.
enum ApplicableSources<'a> {
    Requests(&'a [SourceRequest]),
    Suites(&'a [SuiteConfig]),
    Projects(FoundProjects),
}

impl<'a> ApplicableSources<'a> {
    fn of(config: &'a Config, named: &'a NamedSources) -> Self {
        if !named.requests.is_empty() {
            Self::Requests(&named.requests)
        } else if !config.suites.is_empty() {
            Self::Suites(&config.suites)
        } else {
            Self::Projects(std::env::current_dir().map(|here| find_projects(&here)).unwrap_or_default())
        }
    }
}

/// Returns whether any source is named, without looking for programs.
pub(super) fn has_sources(config: &Config, named: &NamedSources) -> bool {
    match ApplicableSources::of(config, named) {
        ApplicableSources::Requests(requests) => !requests.is_empty(),
        ApplicableSources::Suites(suites) => !suites.is_empty(),
        ApplicableSources::Projects(found) => !found.projects.is_empty(),
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
            for request in requests {
                sources.extend(request_sources(config, named, request, build, display)?);
            }
        }
        ApplicableSources::Projects(found) => {
            let is_obvious = found.unusable.is_empty()
                && matches!(found.projects.as_slice(), [one] if one.request.source == CargoSource.name());
            for project in found.projects.iter().filter(|_| !is_obvious) {
                display("Found", &format!("{} ({})", project.title, project.reason));
            }
            for line in &found.unusable {
                display("Skipping", line);
            }
            for project in &found.projects {
                sources.extend(request_sources(config, named, &project.request, build, display)?);
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

/// Returns the projects in a directory and its first two levels.
pub(super) fn find_projects(top: &Path) -> FoundProjects {
    detect::find_projects(TEST_SOURCES, top)
}

/// Returns the programs of a request that belongs to no suite.
fn request_sources(
    config: &Config,
    named: &NamedSources,
    request: &SourceRequest,
    build: BuildContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let context = build.source_context(config, None, named.framework.as_deref());
    program_sources(request, &context, display)
}

/// Returns the programs of a request, each with the name of the context's suite.
fn program_sources(
    request: &SourceRequest,
    context: &SourceContext<'_>,
    display: PhaseDisplay<'_>,
) -> Result<Vec<ProgramSource>, SourcesError> {
    let config_suite = context.suite.map(|suite| suite.name.clone());
    let programs = resolve_request(TEST_SOURCES, request, context, display)?.into_iter();
    Ok(programs.map(|program| ProgramSource { program, config_suite: config_suite.clone() }).collect())
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
    if let Some(command) = &suite.build {
        display("Building", &format!("{}: {}", suite.name, command.join(" ")));
        run_build_command(command, &config.dir, build.supervision)
            .map_err(|source| SourcesError::Build { suite: suite.name.clone(), source })?;
    }
    let mut sources =
        program_sources(&suite.source, &build.source_context(config, Some(suite), None), display)?;
    for source in &mut sources {
        apply_suite_settings(suite, &mut source.program);
    }
    Ok(sources)
}

fn apply_suite_settings(suite: &SuiteConfig, program: &mut TestProgram) {
    if takes_arguments(program) {
        // CTest's source already knows the framework of each program.
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

/// Returns whether a program accepts the user's arguments. Documentation tests run in rustdoc, which does
/// not.
fn takes_arguments(program: &TestProgram) -> bool {
    program.framework.as_deref() != Some(FRAMEWORK)
}
