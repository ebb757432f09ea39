//! The trait that each framework implements, and the values passed between it and the runner. Names no
//! framework.

use std::path::{Path, PathBuf};

use heeler_core::{batching::ProcessTraits, test_path::NameNesting};
use heeler_protocol::control::{ListedTest, OsText, ReportName, SelectionLimit, TestProgram};

use crate::{
    AdapterListing, FrameworkVerdict, ListingDialogue, ListingError, ListingOutput, RunReport,
    RunReportFiles, RuntimeStack, TranscriptParser, WarmStart,
};

/// One test framework: the commands of its programs and the parsers of their output.
pub trait Adapter: Sync {
    /// Returns the constants of the framework.
    fn traits(&self) -> &'static AdapterTraits;

    /// Returns whether the target looks like a program of this framework. Claims decide the order of the
    /// adapters to try. A program that an adapter does not claim is not started with its arguments, because
    /// it may ignore them and run its tests. The listing makes the final decision.
    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence;

    /// Returns the next listing command, given the outputs of the previous ones; `None` when they suffice.
    fn next_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
        scratch: &Path,
    ) -> Option<AdapterInvocation>;

    /// Returns the dialogue of the listing command, for a framework whose listing requests depend on earlier
    /// replies. Such a framework has one listing command, on [`InvocationChannel::StandardStreams`].
    fn listing_dialogue(&self, program: &TestProgram) -> Option<Box<dyn ListingDialogue>> {
        let _ = program;
        None
    }

    /// Parses the outputs of the listing commands. Not called if there is a [`Self::listing_dialogue`].
    ///
    /// # Errors
    /// The program is not of this framework or died while listing, or its listing is damaged.
    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError>;

    /// Returns the class and name of a test in the framework's own JUnit reports; `None` if the framework
    /// writes none or the listing has set them.
    fn report_name(&self, program: &TestProgram, test: &ListedTest) -> Option<ReportName> {
        let _ = (program, test);
        None
    }

    /// Returns the process behaviour that batching depends on, for these tests of the program.
    fn process_traits(&self, program: &TestProgram, tests: &[ListedTest]) -> ProcessTraits {
        let _ = (program, tests);
        self.traits().process
    }

    /// Returns how many tests, from the front, one command can select. The first test is always tried, so
    /// [`Self::run_command`] reports a test that no command can select.
    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        self.traits().selection_limit.map_or(tests.len(), |limit| fitting_names(tests, limit))
    }

    /// Returns the command that runs these tests in one process. The tests are in listing order.
    ///
    /// # Errors
    /// One of the tests cannot be selected; the others still can.
    fn run_command(
        &self,
        program: &TestProgram,
        selection: &BatchSelection<'_>,
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError>;

    /// Returns how to start a process that loads the program once and is then forked for its tests. Each fork
    /// behaves like a process started by [`Self::run_command`]. `None` if the framework does not support
    /// this.
    fn warm_start(&self, program: &TestProgram, scratch: &Path) -> Option<WarmStart> {
        let _ = (program, scratch);
        None
    }

    /// Returns the parser for the reports of a process that runs these tests.
    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send>;

    /// Parses the report file written at the end of the run; `None` if it is damaged or the framework writes
    /// none.
    fn read_run_report(&self, tests: &[&ListedTest], report: &[u8]) -> Option<RunReport> {
        let _ = (tests, report);
        None
    }

    /// Returns where in the run a stack trace was taken. `test` is the test that seemed to be running.
    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        let _ = (stack, test);
        StackPosition::Unknown
    }

    /// Returns the readable stack traces of a crash report that the process's runtime wrote. The stack of
    /// `test`, which seemed to be running, comes first.
    fn read_crash_report(&self, report: &[u8], test: Option<&ListedTest>) -> Option<String> {
        let _ = (report, test);
        None
    }

    /// Divides standard error of a test whose process died or was ended into the stacks that the language's
    /// runtime wrote, and the rest. `captured` is the stack captured by Heeler, or empty. `None` if there is
    /// no such report.
    fn divide_stderr(&self, stderr: &str, captured: &str, test: &ListedTest) -> Option<RuntimeStack> {
        let _ = (stderr, captured, test);
        None
    }

    /// Returns a quoted shell command line that runs only this test.
    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String;
}

/// Constants of a framework.
#[derive(Debug, Clone, Copy)]
pub struct AdapterTraits {
    /// Name in configuration and control messages.
    pub name: &'static str,
    /// Name in messages to users, as in `a GoogleTest program`.
    pub label: &'static str,
    /// Programs are recognized by their contents, without being started.
    pub is_recognized: bool,
    /// How test names nest.
    pub nesting: NameNesting,
    /// Limit of the names on one command line; `None` if names are not passed on the command line.
    pub selection_limit: Option<SelectionLimit>,
    /// Command-line arguments that mark processes that crash on purpose, such as death tests.
    pub expected_crash_markers: &'static [&'static str],
    /// The framework checks whether its process is traced. With Heeler's options, tracing does not change the
    /// run.
    pub reads_tracer: bool,
    /// The framework keeps no file that exists while tests run. Only the stack of an exit in the middle of a
    /// run shows where the process exited.
    pub is_exit_placed_by_stack: bool,
    /// Adds the failure details that the framework writes to standard error or to the combined output; `None`
    /// if it writes none there.
    pub details_from_stderr: Option<AddDetails>,
    /// Each result answers one request that names its test, and requests are sent one at a time. A result
    /// that has been read is therefore proven, however the process ends. The test that is running when the
    /// process dies is known for certain, so it is not retried in isolation.
    pub has_proven_answers: bool,
    /// A test begins when its request is sent. In other frameworks, the program reports the start.
    pub begins_with_request: bool,
    /// Tests may have parts that no listing names (sections, subcases, subtests, points).
    pub has_parts: bool,
    /// The program reports from one process, on its standard output. Anything that other processes write
    /// there is output of tests, even if it looks like a marker.
    pub reports_from_one_process: bool,
    /// The framework captures the output of tests that share a process, or alters it. The output of a test
    /// that runs alone is exact.
    pub captures_output: bool,
    /// Returns whether the framework itself wrote a line of standard output outside any test. Such lines are
    /// not shown to the user. The line has no line ending.
    pub is_own_line: fn(&[u8]) -> bool,
    /// Process behaviour that batching depends on.
    pub process: ProcessTraits,
    /// The process is a server, which need not exit by itself. After the last request its standard input is
    /// closed, and the process is killed some time later.
    pub is_server: bool,
    /// The processes write crash reports themselves, which a tracer would prevent.
    pub reports_own_crashes: bool,
    /// A test may end several times before [`crate::TranscriptEvent::Confirmed`] follows.
    pub has_several_ends: bool,
}

/// Adds failure details from standard error to the verdict of the failed test called `name`.
pub type AddDetails = fn(verdict: &mut FrameworkVerdict, name: &str, stderr: &str);

impl AdapterTraits {
    /// Returns the default traits.
    #[must_use]
    pub const fn new(name: &'static str, label: &'static str) -> Self {
        Self {
            name,
            label,
            is_recognized: false,
            nesting: NameNesting::Flat,
            selection_limit: None,
            expected_crash_markers: &[],
            reads_tracer: false,
            is_exit_placed_by_stack: false,
            details_from_stderr: None,
            has_proven_answers: false,
            begins_with_request: false,
            has_parts: false,
            reports_from_one_process: false,
            captures_output: false,
            is_own_line: |_| false,
            process: ProcessTraits::NONE,
            is_server: false,
            reports_own_crashes: false,
            has_several_ends: false,
        }
    }
}

fn fitting_names(tests: &[&ListedTest], limit: SelectionLimit) -> usize {
    let mut budget = limit.budget_bytes;
    let is_fitting = |test: &&&ListedTest| {
        let cost = limit.cost(&test.name);
        let is_fitting = cost <= budget;
        budget = budget.saturating_sub(cost);
        is_fitting
    };
    tests.iter().take_while(is_fitting).count()
}

/// The tests of one process.
#[derive(Debug, Clone, Copy)]
pub struct BatchSelection<'a> {
    /// In listing order.
    pub tests: &'a [&'a ListedTest],
    /// Part of the program that the batch covers.
    pub scope: SelectionScope,
    /// Also runs tests that the framework would skip.
    pub runs_ignored: bool,
    /// An earlier process of the program died in an unknown test.
    pub follows_unclear_death: bool,
}

/// The part of a program that a batch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectionScope {
    /// Some of the tests.
    SomeTests,
    /// Some of the tests, and only their results and messages are wanted: the framework may capture their
    /// output.
    TestsOfVariant,
    /// All tests of a default run, so a framework that runs everything by default needs no selection.
    WholeProgram,
}

/// A program whose framework is unknown.
#[derive(Debug, Clone, Copy)]
pub enum DiscoveryTarget<'a> {
    /// A regular file, judged by its path and the files next to it. The next target describes its contents.
    File {
        /// Path of the file.
        path: &'a Path,
    },
    /// A native executable. Adapters are asked about each piece of its image until one claims it.
    Executable {
        /// Bytes of the file.
        image: &'a [u8],
    },
    /// A directory, such as a pytest project.
    Directory {
        /// Path of the directory to examine.
        path: &'a Path,
    },
    /// A command that is not a native executable: a script and its arguments, which precede the framework's
    /// arguments.
    Command {
        /// Bytes of the script.
        script: &'a [u8],
        /// The program's own arguments.
        args: &'a [OsText],
    },
}

impl DiscoveryTarget<'_> {
    /// Returns whether the bytes of the file contain this text.
    #[must_use]
    pub fn contains(&self, text: &[u8]) -> bool {
        match self {
            Self::Executable { image: bytes } | Self::Command { script: bytes, .. } => {
                memchr::memmem::find(bytes, text).is_some()
            }
            Self::File { .. } | Self::Directory { .. } => false,
        }
    }
}

/// How sure an adapter is that a target belongs to its framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimConfidence {
    /// The target is not of this framework, or only the user can know. The listing is not tried.
    Unclaimed,
    /// The listing is tried after the likely ones, if the target is known to be a test program.
    Possible,
    /// The target looks like a program of this framework.
    Likely,
}

/// A command built by an adapter, without the program's path, arguments and environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterInvocation {
    /// Arguments that follow the program's own.
    pub args: Vec<OsText>,
    /// Environment variables set in addition to the program's own; `None` unsets the variable.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Files to write in the scratch directory before the start.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// File that a listing writes; must not exist before.
    pub listing_file: Option<PathBuf>,
    /// Report files that the framework writes in addition to its output; must not exist before.
    pub run_report: Option<RunReportFiles>,
    /// Where the process reports its tests.
    pub channel: InvocationChannel,
    /// Directories to create in the scratch directory before the start, parents first.
    pub directories: Vec<PathBuf>,
    /// Directories where the process leaves files about its own death or hang.
    pub death_files: Option<DeathFiles>,
    /// Request sent to a listing command on its report channel or standard input.
    pub listing_request: Vec<u8>,
    /// Command that replaces the program's own, for tests that are commands.
    pub own_command: Option<OwnCommand>,
}

/// The command of a test that has its own command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCommand {
    /// Path of the executable.
    pub path: OsText,
    /// Arguments that precede the invocation's.
    pub args: Vec<OsText>,
    /// Working directory.
    pub cwd: OsText,
    /// Files that must exist for the command to run. Relative paths are below its working directory.
    pub required_files: Vec<OsText>,
    /// Files attached to the result when the command has ended, if they exist.
    pub attached_files: Vec<OsText>,
    /// Files attached to the result of a failed command.
    pub attached_files_on_failure: Vec<OsText>,
}

/// Where a process reports its tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InvocationChannel {
    /// Standard output, mixed with the output of the tests.
    #[default]
    StandardOutput,
    /// Standard output as a socket, mixed with the output of the tests. The kernel identifies the writer of
    /// each byte, because a forked copy that returns from a test, or a program that a test starts, may write
    /// the same markers.
    OutputSocket,
    /// Standard output and standard error as one combined output.
    CombinedOutput,
    /// Like [`Self::CombinedOutput`], but on a socket, so that the kernel identifies the writers.
    CombinedSocket,
    /// Descriptor 3, a stream socket that also carries requests.
    Descriptor,
    /// Standard output, mixed with the output of the tests. Requests come through a pipe on standard input.
    StandardStreams,
    /// Like [`Self::StandardStreams`], but standard output is a socket, so that the kernel identifies its
    /// writers.
    SocketStreams,
    /// Connections that the process or its descendants make to the worker's loopback port. An argument equal
    /// to [`PORT_ARGUMENT`] is replaced by the port number.
    Connections,
}

impl InvocationChannel {
    /// Returns whether the process receives requests.
    #[must_use]
    pub fn has_requests(self) -> bool {
        match self {
            Self::Descriptor | Self::StandardStreams | Self::SocketStreams | Self::Connections => true,
            Self::StandardOutput | Self::OutputSocket | Self::CombinedOutput | Self::CombinedSocket => false,
        }
    }

    /// Returns whether requests come on standard input, and reports go to standard output.
    #[must_use]
    pub fn is_on_standard_streams(self) -> bool {
        matches!(self, Self::StandardStreams | Self::SocketStreams)
    }

    /// Returns whether the kernel identifies the writers of standard output.
    #[must_use]
    pub fn names_writers(self) -> bool {
        matches!(self, Self::OutputSocket | Self::CombinedSocket | Self::SocketStreams)
    }

    /// Returns whether standard error is the same as standard output.
    #[must_use]
    pub fn is_combined(self) -> bool {
        matches!(self, Self::CombinedOutput | Self::CombinedSocket)
    }

    /// Returns the same channel with a standard output whose writers the kernel identifies. A separate report
    /// channel has no other writers and stays the same.
    #[must_use]
    pub fn with_named_writers(self) -> Self {
        match self {
            Self::StandardOutput | Self::OutputSocket => Self::OutputSocket,
            Self::CombinedOutput | Self::CombinedSocket => Self::CombinedSocket,
            Self::StandardStreams | Self::SocketStreams => Self::SocketStreams,
            Self::Descriptor | Self::Connections => self,
        }
    }
}

/// Argument that is replaced by the port number of the worker's listener.
pub const PORT_ARGUMENT: &str = "{port}";

/// Files that a process leaves about its own death or hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeathFiles {
    /// Where the runtime reports its stack traces.
    pub reports: StackReports,
    /// Directory of the test journal, if the process writes one.
    pub journal: Option<PathBuf>,
}

/// Where the runtime reports its stack traces when it crashes, and which signal requests them once from a
/// hung process before it is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackReports {
    /// In a file in this directory, on SIGABRT.
    Directory(PathBuf),
    /// On standard error, on SIGQUIT. The process then exits.
    StandardError,
}

/// Where in a run a process was, according to its stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StackPosition {
    /// The stack does not show it: it belongs to another thread, or has no symbol names.
    #[default]
    Unknown,
    /// In the test that seemed to be running.
    RunningTest,
    /// In another test.
    OtherTest,
    /// In the set-up or tear-down of a suite.
    SuiteFixture,
}

/// Why the command of a batch could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// A test cannot be selected.
    #[error("select test {place} of the batch: {reason}")]
    Unselectable {
        /// Index in the given tests.
        place: usize,
        /// Reason, for the message.
        reason: String,
    },
}
