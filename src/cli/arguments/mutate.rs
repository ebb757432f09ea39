//! The arguments of `heeler mutate`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use heeler_config::{CommandLineSettings, JobCount, RunLayer, filter::Filter};
use heeler_mutant_model::OperatorLevel;
use heeler_mutate::{FeatureSelection, MutantShard};
use heeler_mutation::{
    BuildOptions, BuiltTests, CargoOptions, CommandProject, DoctestUse, PytestProject, ReportFiles,
};

use super::{GeneralArguments, convert};
use crate::cli::display::mutants::MutantFormat;

const EXAMPLES: &str = "\
Examples:
  heeler mutate                             test the mutants of a cargo package
  heeler mutate src/parse.rs                mutants of one file
  heeler mutate src/net/ '!src/net/tls*.rs'
  heeler mutate src/lib.rs:10:1-80:1
  heeler mutate --in-diff main              mutants in lines that differ from a branch
  heeler mutate --shard 1/4 --json 1.json   a quarter of the mutants
  heeler mutate -E 'not test(slow)'         run only these tests
  heeler mutate --operators all             change literals and arguments as well
  heeler mutate --time-limit 10m            test a random sample for 10 minutes
  heeler mutate --min-score 80 --html mutants.html
  heeler mutate --build 'make tests' --test 'tests/*_test'
  heeler mutate --build 'cmake -B b && cmake --build b' --ctest b src/parse.c
  heeler mutate --pytest                    a Python project
  heeler mutate --list                      list the mutants without testing them
  heeler mutate --list --format json        as a mutation testing report in JSON

Suppression:
  // heeler: no-mutate                      before a statement or item, or after code on its line
  # heeler: no-mutate, # pragma: no mutate  the same in Python
  #[mutants::skip]                          on an item

Exit codes: 0, or 2 if the score is below --min-score or tests fail without a mutant, 3 if cancelled or
stopped by --time-limit, 4 if the build fails, 5 if an argument is invalid, 8 if there are no mutants";

/// Arguments of `heeler mutate`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MutateArguments {
    /// Sources to mutate: files, directories or globs, relative to the current directory, or FILE:LINE,
    /// FILE:LINE-LINE or FILE:LINE:COLUMN-LINE:COLUMN for the mutants in that range; a leading ! excludes.
    /// Default: all sources of the packages that cargo test would test here.
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,
    /// Only mutants in lines that differ from this commit or branch (see git diff), including new files.
    #[arg(long, value_name = "REF", help_heading = "Selection")]
    pub in_diff: Option<String>,
    /// Set of mutation operators: standard (changes that tests should detect), or all, which also changes
    /// literals, arguments and strings (many survivors among these do not matter).
    #[arg(long, value_enum, default_value_t, value_name = "SET", help_heading = "Selection")]
    pub operators: OperatorSet,
    /// Only part K of N of the mutants, split by their ids.
    #[arg(long, value_name = "K/N", help_heading = "Selection")]
    pub shard: Option<MutantShard>,
    /// Run only tests whose name contains this text or matches this glob (*, ?), or that match a filter
    /// expression, such as 'not test(slow)'. May be repeated: a test that matches any filter runs. Does not
    /// apply to tests run by StrykerJS.
    #[arg(short = 'E', long = "filter", value_name = "FILTER", value_parser = convert::filter, help_heading = "Selection")]
    pub filters: Vec<Filter>,
    #[command(flatten)]
    pub build: BuildArguments,
    /// Number of test processes to run in parallel (default: one per CPU).
    #[arg(short, long, value_name = "N", value_parser = convert::jobs, help_heading = "Running")]
    pub jobs: Option<JobCount>,
    /// Stop after this time, such as 90s or 10m, including builds, and report the results so far. The mutants
    /// are then tested in random order, untested mutants are reported as pending, and the exit code is 3.
    #[arg(long, value_name = "DURATION", value_parser = convert::duration, help_heading = "Running")]
    pub time_limit: Option<Duration>,
    /// Exit with 2 if the mutation score is lower: the percentage of detected mutants among all that tests
    /// could detect.
    #[arg(long, value_name = "PERCENT", value_parser = convert::percentage, help_heading = "Running")]
    pub min_score: Option<f64>,
    /// Write a JSON report (mutation testing report schema, version 2).
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "is_list",
        help_heading = "Reporting"
    )]
    pub json: Option<PathBuf>,
    /// Write an HTML report with the sources and their mutants.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "is_list",
        help_heading = "Reporting"
    )]
    pub html: Option<PathBuf>,
    /// Write the survivors as SARIF, for code scanning.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "is_list",
        help_heading = "Reporting"
    )]
    pub sarif: Option<PathBuf>,
    /// Print survivors as GitHub Actions annotations to standard output (the default in GitHub Actions).
    #[arg(long = "github", conflicts_with = "is_list", help_heading = "Reporting")]
    pub is_github: bool,
    /// List the mutants without testing them.
    #[arg(long = "list", help_heading = "Output")]
    pub is_list: bool,
    /// Format of the list: human, or json (mutation testing report schema).
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        requires = "is_list",
        help_heading = "Output"
    )]
    pub format: MutantFormat,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Value of `--operators`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OperatorSet {
    #[default]
    Standard,
    All,
}

impl OperatorSet {
    pub(in crate::cli) fn level(self) -> OperatorLevel {
        match self {
            Self::Standard => OperatorLevel::Standard,
            Self::All => OperatorLevel::All,
        }
    }
}

/// How a project is built that is not Cargo's.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BuildArguments {
    /// Shell command that builds the tests of a C or C++ project. It runs in a copy of this directory with
    /// mutated sources and headers (tests and examples are unchanged), and must find its compiler (cc, gcc,
    /// c++ or g++) in PATH.
    #[arg(long, value_name = "COMMAND", conflicts_with = "pytest", help_heading = "C and C++ projects")]
    pub build: Option<String>,
    /// Run the CTest tests of this directory, which the build creates.
    #[arg(long, value_name = "DIR", requires = "build", help_heading = "C and C++ projects")]
    pub ctest: Option<PathBuf>,
    /// Run the tests of this program, which the build creates: a path or glob; may be repeated. A program
    /// without a known test framework is one test, which passes with exit code 0.
    #[arg(
        long = "test",
        value_name = "PROGRAM",
        requires = "build",
        conflicts_with = "ctest",
        help_heading = "C and C++ projects"
    )]
    pub test_programs: Vec<String>,
    /// Mutate a Python project and run the tests that pytest collects in this directory or file (default: the
    /// whole project). Implied in a directory with pyproject.toml, setup.cfg, setup.py or pytest.ini that is
    /// not in a cargo package.
    #[arg(
        id = "pytest",
        long = "pytest",
        value_name = "PATH",
        num_args = 0..=1,
        default_missing_value = ".",
        value_hint = ValueHint::AnyPath,
        help_heading = "Python projects"
    )]
    pub pytest: Option<PathBuf>,
    /// Python interpreter that runs pytest (default: the one of VIRTUAL_ENV, of .venv beside the
    /// project, or python3).
    #[arg(
        long,
        value_name = "PROGRAM",
        requires = "pytest",
        value_hint = ValueHint::CommandName,
        help_heading = "Python projects"
    )]
    pub python: Option<String>,
    #[command(flatten)]
    pub cargo: CargoBuildArguments,
}

/// How Cargo builds a package; the options are those of Cargo.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Cargo")]
pub(crate) struct CargoBuildArguments {
    /// Mutate and test only this package of the workspace; may be repeated.
    #[arg(short = 'p', long = "package", value_name = "NAME", conflicts_with_all = ["build", "pytest"])]
    pub packages: Vec<String>,
    /// Features to activate; may be repeated.
    #[arg(short = 'F', long, value_name = "FEATURES", conflicts_with_all = ["build", "pytest"])]
    pub features: Vec<String>,
    /// Activate all features.
    #[arg(long = "all-features", conflicts_with_all = ["build", "pytest"])]
    pub has_all_features: bool,
    /// Do not activate the default features.
    #[arg(long = "no-default-features", conflicts_with_all = ["build", "pytest"])]
    pub has_no_default_features: bool,
    /// Do not run documentation tests.
    #[arg(long = "no-doc", conflicts_with_all = ["build", "pytest"])]
    pub has_no_doctests: bool,
}

impl CargoBuildArguments {
    fn options(&self) -> CargoOptions {
        let features = FeatureSelection {
            named: self.features.clone(),
            has_all: self.has_all_features,
            has_no_default: self.has_no_default_features,
        };
        let doctests = if self.has_no_doctests { DoctestUse::LeftOut } else { DoctestUse::Run };
        CargoOptions { packages: self.packages.clone(), features, doctests }
    }
}

impl BuildArguments {
    /// Returns how to build and test the project.
    pub(in crate::cli) fn options(&self) -> BuildOptions {
        let pytest = self.pytest.clone().map(|path| PytestProject { path, python: self.python.clone() });
        let tests = match &self.ctest {
            Some(directory) => BuiltTests::Ctest(directory.clone()),
            None => BuiltTests::Programs(self.test_programs.clone()),
        };
        let command = self.build.clone().map(|build| CommandProject { build, tests });
        BuildOptions { command, pytest, cargo: self.cargo.options() }
    }
}

impl MutateArguments {
    /// Returns the report files to write.
    pub(in crate::cli) fn report_files(&self) -> ReportFiles {
        ReportFiles { json: self.json.clone(), html: self.html.clone(), sarif: self.sarif.clone() }
    }

    /// Returns the settings from the arguments.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let filters = self.filters.clone();
        CommandLineSettings { filters, ..command_line_with(&self.general, self.jobs) }
    }
}

/// Returns the settings from general arguments, with a number of jobs.
fn command_line_with(general: &GeneralArguments, jobs: Option<JobCount>) -> CommandLineSettings {
    let general = general.command_line();
    CommandLineSettings { run: RunLayer { jobs, ..general.run }, ..general }
}

/// Arguments of `heeler serve mutation`, `heeler serve stdio` and `heeler serve socket`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct MutationServerArguments {
    /// Transport: mutation (protocol version 0.0.1-alpha.1 over WebSocket and HTTP, or 0.4, on a loopback
    /// port), stdio (0.4 on standard input and output) or socket (0.4 on a port).
    #[arg(value_enum, value_name = "TRANSPORT")]
    pub transport: MutationServerTransport,
    /// Port on 127.0.0.1 and ::1 (default: a free port). The port is printed.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Listen only on this loopback address.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    #[command(flatten)]
    pub build: BuildArguments,
    /// Form of partial results in protocol version 0.0.1-alpha.1: list, as specified, or object, as one
    /// client expects.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub progress_form: ProgressFormArgument,
    /// Number of test processes to run in parallel (default: one per CPU).
    #[arg(short, long, value_name = "N", value_parser = convert::jobs)]
    pub jobs: Option<JobCount>,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// How clients of the Mutation Server Protocol reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MutationServerTransport {
    Mutation,
    Stdio,
    Socket,
}

/// Value of `--progress-form`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ProgressFormArgument {
    #[default]
    List,
    Object,
}

impl MutationServerArguments {
    /// Returns the settings from the arguments.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        command_line_with(&self.general, self.jobs)
    }
}
