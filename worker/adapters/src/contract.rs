//! The trait that a framework implements, and the values passed between it and the runner. No framework is
//! named here.

use std::path::{Path, PathBuf};

use heeler_core::{batching::ProcessTraits, test_path::NameNesting};
use heeler_protocol::control::{ListedTest, OsText, ReportName, SelectionLimit, TestProgram};

use crate::{
    AdapterListing, FrameworkVerdict, ListingDialogue, ListingError, ListingOutput, RunReport,
    RunReportFiles, TranscriptParser, WarmStart,
};

/// One test framework: the commands of its programs, and the parsers of their output.
pub trait Adapter: Sync {
    /// Returns the constants of the framework.
    fn traits(&self) -> &'static AdapterTraits;

    /// Returns whether the target looks like a program of this framework. Claims order the adapters to try,
    /// and keep a program from being started with arguments that it would ignore; the listing itself decides.
    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence;

    /// Returns the next listing command after those with these outputs; `None` when they suffice.
    fn next_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
        scratch: &Path,
    ) -> Option<AdapterInvocation>;

    /// Returns the dialogue of the listing command, if what it is asked next depends on its replies; its
    /// command has [`InvocationChannel::StandardStreams`], and is the only one.
    fn listing_dialogue(&self, program: &TestProgram) -> Option<Box<dyn ListingDialogue>> {
        let _ = program;
        None
    }

    /// Parses the outputs of the listing commands, except after a [`Self::listing_dialogue`].
    ///
    /// # Errors
    /// The program is not of this framework, died while listing, or its listing is damaged.
    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError>;

    /// Returns the class and the name of a test in the JUnit reports of its framework; `None` where the
    /// framework writes none, or where the listing has named them.
    fn report_name(&self, program: &TestProgram, test: &ListedTest) -> Option<ReportName> {
        let _ = (program, test);
        None
    }

    /// Returns how the processes of a program with these tests behave, as far as batches depend on it.
    fn process_traits(&self, program: &TestProgram, tests: &[ListedTest]) -> ProcessTraits {
        let _ = (program, tests);
        self.traits().process
    }

    /// Returns the number of tests, from the front, that one command can select. At least the first one is
    /// tried, so that [`Self::run_command`] reports a test that no command can select.
    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        self.traits().selection_limit.map_or(tests.len(), |limit| fitting_names(tests, limit))
    }

    /// Returns the command that runs these tests, given in listing order, in one process.
    ///
    /// # Errors
    /// One of the tests cannot be selected; the others still can.
    fn run_command(
        &self,
        program: &TestProgram,
        selection: &BatchSelection<'_>,
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError>;

    /// Returns how a process of this program is started that loads it once and is then forked for its tests,
    /// each time as if [`Self::run_command`] had started a process; `None` if its framework can't do that.
    fn warm_start(&self, program: &TestProgram, scratch: &Path) -> Option<WarmStart> {
        let _ = (program, scratch);
        None
    }

    /// Returns the parser of that process's reports.
    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send>;

    /// Parses the report that the framework wrote at the end of its run; `None` if it is damaged, or if the
    /// framework writes none.
    fn read_run_report(&self, tests: &[&ListedTest], report: &[u8]) -> Option<RunReport> {
        let _ = (tests, report);
        None
    }

    /// Returns where in a run the stack of a process belongs. `test` is the test that seemed to be running.
    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        let _ = (stack, test);
        StackPosition::Unknown
    }

    /// Returns the stacks of a report that a process's runtime has written, as people read them; those of
    /// `test`, in which it seems to have been, first.
    fn read_crash_report(&self, report: &[u8], test: Option<&ListedTest>) -> Option<String> {
        let _ = (report, test);
        None
    }

    /// Returns a quoted shell command line that runs only this test.
    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String;
}

/// The constants of a framework.
#[derive(Debug, Clone, Copy)]
pub struct AdapterTraits {
    /// Name in configuration and control messages.
    pub name: &'static str,
    /// Name of the framework in messages to users: `a GoogleTest program`.
    pub label: &'static str,
    /// Whether its programs are recognized by what they contain, without being started.
    pub is_recognized: bool,
    /// How names of tests nest.
    pub nesting: NameNesting,
    /// Limit of the names on one command line; `None` where names travel in another way.
    pub selection_limit: Option<SelectionLimit>,
    /// Command-line markers of processes that crash on purpose, as death tests do.
    pub expected_crash_markers: &'static [&'static str],
    /// Whether the framework reads which process traces a test program, without consequences as it is run
    /// here.
    pub reads_tracer: bool,
    /// Whether the stack of an exit in the middle of a run shows where it belongs, and nothing else does: the
    /// framework keeps no file that exists while tests run.
    pub is_exit_placed_by_stack: bool,
    /// Adds the details of a failed test that the framework writes to standard error, or to the common output
    /// of a process, where it writes them there.
    pub details_from_stderr: Option<AddDetails>,
    /// Whether each result is the answer to a request that names its test, one at a time: it is proven when
    /// it is read, whatever the process does later, and the test that runs when the process dies is known
    /// beyond doubt, so that it is not tried again in isolation.
    pub has_proven_answers: bool,
    /// Whether a test begins when its request is sent; in other frameworks, a program reports that it begins.
    pub begins_with_request: bool,
    /// Whether its tests may have parts (sections, subcases, subtests, points), which no listing names.
    pub has_parts: bool,
    /// Whether a program of the framework reports from one process, on its standard output: what other
    /// processes write there is output of tests, whatever it looks like.
    pub reports_from_one_process: bool,
    /// Whether the framework captures the output of tests unless one runs alone, or the outputs of tests that
    /// run together are not as they were written.
    pub captures_output: bool,
    /// Returns whether a line of standard output outside any test, without its end, is the framework's own:
    /// it is not shown as output.
    pub is_own_line: fn(&[u8]) -> bool,
    /// How its processes behave, as far as batches depend on it.
    pub process: ProcessTraits,
    /// Whether the process is a server, which does not have to exit by itself: after its last request its
    /// standard input ends, and some time later it is ended.
    pub is_server: bool,
    /// Whether its processes report their own crashes, which a tracer would prevent.
    pub reports_own_crashes: bool,
    /// Whether a test may end several times until [`crate::TranscriptEvent::Confirmed`] follows.
    pub has_several_ends: bool,
}

/// Adds the details of the failed test of this name from its standard error.
pub type AddDetails = fn(verdict: &mut FrameworkVerdict, name: &str, stderr: &str);

impl AdapterTraits {
    /// Returns the traits of a framework that has no special ones.
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
    /// Which part of the program they are.
    pub scope: SelectionScope,
    /// Whether those run, too, that the framework would skip.
    pub runs_ignored: bool,
    /// Whether a process of the program has died before in a way that did not show in which test.
    pub follows_unclear_death: bool,
}

/// Which part of a program a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectionScope {
    /// Some of its tests.
    SomeTests,
    /// Some of its tests, of which only results and messages are asked for: the framework may keep what they
    /// write to itself.
    TestsOfVariant,
    /// All tests that it runs: a framework that runs all of its tests by default needs no selection.
    WholeProgram,
}

/// A program whose framework is to be found.
#[derive(Debug, Clone, Copy)]
pub enum DiscoveryTarget<'a> {
    /// A regular file, of which the next target says what it is: for what is beside it.
    File {
        /// Its path.
        path: &'a Path,
    },
    /// A native executable; adapters are asked about each piece of its image until one claims it.
    Executable {
        /// Bytes of the file.
        image: &'a [u8],
    },
    /// A directory.
    Directory {
        /// Its path.
        path: &'a Path,
    },
    /// A command that is no native executable: a script, with the arguments that precede all of the
    /// framework's.
    Command {
        /// Bytes of the script.
        script: &'a [u8],
        /// The program's own arguments.
        args: &'a [OsText],
    },
}

impl DiscoveryTarget<'_> {
    /// Returns whether a file's bytes contain this text.
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

/// How sure an adapter is that a target is a program of its framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimConfidence {
    /// It is not, or only the user can know: its listing is not tried.
    Unclaimed,
    /// It may be: its listing is tried after the likely ones, if it is known that it is a test program.
    Possible,
    /// It looks like one.
    Likely,
}

/// A command of an adapter, without the program's own path, arguments and environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterInvocation {
    /// Arguments that follow the program's own, which are not repeated here.
    pub args: Vec<OsText>,
    /// Environment variables set in addition to the program's own; `None` unsets one.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Files to write before the start, all of them in the scratch directory.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The file that a listing writes; must not exist before.
    pub listing_file: Option<PathBuf>,
    /// The files in which the framework reports its run beside its output; must not exist before.
    pub run_report: Option<RunReportFiles>,
    /// Where the process reports.
    pub channel: InvocationChannel,
    /// Directories to create before the start, all of them in the scratch directory, outer ones first.
    pub directories: Vec<PathBuf>,
    /// The directories in which the process leaves files about its own death or hang, if it does.
    pub death_files: Option<DeathFiles>,
    /// Request that a listing command gets on its report channel or its standard input.
    pub listing_request: Vec<u8>,
    /// The command in place of the program's own, for tests that are commands.
    pub own_command: Option<OwnCommand>,
}

/// A command that is not the program's: the test is one of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCommand {
    /// Path of its program.
    pub path: OsText,
    /// All of its arguments before those of the invocation.
    pub args: Vec<OsText>,
    /// Its working directory.
    pub cwd: OsText,
    /// Files without which it is not run; relative ones are below its working directory.
    pub required_files: Vec<OsText>,
    /// Files that are attached to its result after it has ended, where they exist.
    pub attached_files: Vec<OsText>,
    /// Files that are attached to its result if it has failed.
    pub attached_files_on_failure: Vec<OsText>,
}

/// Where a process reports its tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InvocationChannel {
    /// On its standard output, between what the tests write.
    #[default]
    StandardOutput,
    /// On its standard output, between what the tests write. Standard output is a socket, so that the kernel
    /// names the writer of each byte: a forked copy that returns from a test, and a program that a test
    /// starts, write the same markers.
    OutputSocket,
    /// On its standard output, which is its standard error as well: what it writes to either is one output.
    CombinedOutput,
    /// The same, with a socket that names its writers.
    CombinedSocket,
    /// On descriptor 3, a stream socket on which it also receives requests.
    Descriptor,
    /// On its standard output, between what the tests write. Its standard input is a pipe on which it
    /// receives requests.
    StandardStreams,
    /// The same, with standard output a socket that names its writers.
    SocketStreams,
    /// On connections that it, or processes below it, make to a port of the loopback interface on which the
    /// worker listens: an argument that is [`PORT_ARGUMENT`] is replaced by its number.
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

    /// Returns whether the kernel names who writes to standard output.
    #[must_use]
    pub fn names_writers(self) -> bool {
        matches!(self, Self::OutputSocket | Self::CombinedSocket | Self::SocketStreams)
    }

    /// Returns whether standard error is standard output.
    #[must_use]
    pub fn is_combined(self) -> bool {
        matches!(self, Self::CombinedOutput | Self::CombinedSocket)
    }

    /// Returns the same channel, for which the kernel names who writes to standard output. A channel of its
    /// own has no other writers.
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

/// The argument that stands for the port on which the worker listens.
pub const PORT_ARGUMENT: &str = "{port}";

/// What a process leaves about its own death or hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeathFiles {
    /// Where its runtime reports its stacks.
    pub reports: StackReports,
    /// The directory of the journal of its tests, if it writes one.
    pub journal: Option<PathBuf>,
}

/// Where the runtime of a process reports its stacks when it crashes, and by which signal a process that
/// hangs is asked for them, once before it is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackReports {
    /// In a file in this directory, on SIGABRT.
    Directory(PathBuf),
    /// On its standard error, on SIGQUIT, after which it exits.
    StandardError,
}

/// Where in a run a process was, by its stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StackPosition {
    /// The stack does not show it: it is that of another thread, or has no names.
    #[default]
    Unknown,
    /// In the test that seemed to be running.
    RunningTest,
    /// In another test.
    OtherTest,
    /// In the set-up or tear-down of a suite.
    SuiteFixture,
}

/// The error of building the command of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// One test cannot be selected.
    #[error("select test {place} of the batch: {reason}")]
    Unselectable {
        /// Index in the tests given.
        place: usize,
        /// Reason why it cannot be selected.
        reason: String,
    },
}
