//! Messages between coordinator and worker: discovery jobs, leases, test events, drains.

use std::{collections::BTreeMap, num::NonZeroU32, path::Path, sync::Arc};

use heeler_core::{
    Attempt, DiagnosticsFile, GuardLoss, LeakedProcess, LeaseId, LeaseOutcome, LogLine, NameNesting, OsText,
    Outcome, ProcessUsage, SetUpProgress, SuiteFixture, TestId, WorkerId, batching::ProcessTraits,
};
use serde::{Deserialize, Serialize};

use super::{
    ClientId, ClientRoute, DumpKinds, ListedTest, ProcessExit, ProofLevel, RunKey, SelectionLimit, TraceMode,
};
use crate::mtp::ClientMembers;

/// Messages from coordinator to worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// First message: the coordinator has accepted the worker.
    Accepted,
    /// Lists the tests of one program; answered by [`FromWorker::Discovered`] or
    /// [`FromWorker::NotDiscovered`].
    Discover(Box<DiscoveryJob>),
    /// Program of the following leases, with arguments and environment.
    Program(Arc<TestProgram>),
    /// Runs a batch; answered by reports and finally by [`FromWorker::LeaseEnded`].
    Lease(Box<WorkerLease>),
    /// Gives more tests to the idle process of a lease. The message contains a lease with only these tests
    /// and their groups. Ignored after the process has ended, when [`FromWorker::LeaseEnded`] is on its way.
    ExtendLease(Box<WorkerLease>),
    /// Ends the idle process of a lease; answered by [`FromWorker::LeaseEnded`].
    EndLease { lease: LeaseId },
    /// Ends the current lease. The running test becomes `cancelled`, and tests that have not started are
    /// returned.
    Cancel {
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Ends the current lease, and returns all tests without a result, including the running one.
    ReturnTests {
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Ends the current lease when the running tests have ended, and returns all others.
    CancelAfterRunningTests {
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Stops the test process and the timers; answered by [`FromWorker::Paused`].
    Pause,
    /// Continues the test process and the timers.
    Resume,
    /// Decides about the process of a lease that is stopped for a debugger; see
    /// [`LeaseEvent::StoppedForDebugger`].
    Debugger {
        lease: LeaseId,
        /// Decision about the stopped process.
        decision: DebuggerDecision,
    },
    /// Proves the delivery of everything sent for a run; answered by [`FromWorker::Drained`]. Sent while the
    /// worker has no lease of the run.
    Drain { run: RunKey },
    /// A client has left, and all its runs are over: close its connection.
    EndClient { client: ClientId },
    /// Ends the worker.
    Exit,
}

/// Test program with everything needed to run it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestProgram {
    /// Suite name: the first part of each uid.
    pub suite: String,
    /// Path of the program.
    pub path: OsText,
    /// Arguments that precede everything Heeler adds.
    pub args: Vec<OsText>,
    /// Environment that the build tool sets for its tests, on top of the worker's environment. Commands shown
    /// to users omit it, because it is long and rarely matters.
    #[serde(default)]
    pub tool_env: Vec<(OsText, OsText)>,
    /// Environment set on top of `tool_env`; `None` unsets a variable.
    pub env: Vec<(OsText, Option<OsText>)>,
    pub cwd: OsText,
    /// Framework name (`gtest`, `libtest`); `None` detects the framework by running the program.
    pub framework: Option<String>,
    /// Arguments of tests by test name, each a JSON object, for frameworks whose tests take arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub test_arguments: BTreeMap<String, String>,
    /// Tests named by the program's source, if it names any. Other listed tests are ignored, and the source's
    /// information is added. Used for listings only; leases omit it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<ListedTest>,
    /// Build tool's message if the program could not be built. Such a program does not exist and has no
    /// tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbuilt: Option<String>,
    /// Parts of reproduce commands that only the program's source knows.
    #[serde(default, skip_serializing_if = "ReproductionHints::is_empty")]
    pub reproduction: ReproductionHints,
    /// Units of each resource that the program's source declares. Traits of tests say what they take of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Vec<ResourceUnit>>,
}

/// A unit of a resource that a program's source declares, such as one device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceUnit {
    /// Id of the unit, for the tests that get it.
    pub id: String,
    /// Amount that tests can take of the unit at the same time.
    pub amount: u32,
}

/// Parts of a program's reproduce commands that only its source knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReproductionHints {
    /// Names of the variables of `tool_env` without which the program does not start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OsText>,
    /// Options with which `heeler run` builds the same program again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OsText>,
}

impl ReproductionHints {
    fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.options.is_empty()
    }
}

impl TestProgram {
    /// Returns a program without arguments, variables or framework.
    #[must_use]
    pub fn new(suite: String, path: &Path, cwd: &Path) -> Self {
        Self { suite, path: OsText::from(path), cwd: OsText::from(cwd), ..Self::default() }
    }
}

/// Discovery job for a worker: list the tests of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryJob {
    /// Job number, echoed in the answer.
    pub job: u32,
    pub program: TestProgram,
    /// Timeout of the listing in milliseconds.
    pub timeout_ms: u64,
    /// Crash capture for repeating a listing that has crashed; `None` keeps no diagnostics.
    #[serde(default)]
    pub capture: Option<ListingCapture>,
    /// Run whose first lease of the program may use the process that listed the tests. With `None`, that
    /// process exits. Ignored by frameworks whose processes cannot wait for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upcoming_run: Option<UpcomingRun>,
}

/// A run that follows a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpcomingRun {
    /// Id of the run.
    pub id: String,
    /// See [`WorkerLease::has_private_tmpdir`].
    #[serde(default)]
    pub has_private_tmpdir: bool,
}

/// Crash capture of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingCapture {
    pub plan: CrashCapturePlan,
    /// Directory for the dumps and stack traces of listings. New files of a program replace its earlier ones.
    pub dir: OsText,
}

/// A batch of tests of one program, leased to a worker for one test process (or one per iteration).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerLease {
    pub lease: LeaseId,
    pub run: RunKey,
    pub route: ClientRoute,
    /// Run directory with the journal.
    pub run_dir: OsText,
    /// Program with a known framework. Sent once in [`ToWorker::Program`], before its first lease.
    #[serde(skip)]
    pub program: Arc<TestProgram>,
    /// Tests in the framework's order.
    pub tests: Vec<Arc<LeasedTest>>,
    /// Groups above the tests, each after its parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<TestGroup>,
    /// Members that the client added to these tests and groups.
    #[serde(default, skip_serializing_if = "ClientMembers::is_empty")]
    pub client_members: ClientMembers,
    pub limits: TestLimits,
    /// Number from 1 that no other process of the run has at the same time.
    #[serde(default)]
    pub slot: u32,
    /// Environment variables about the units of resources that the process has. They must be set when the
    /// process starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit_variables: Vec<(OsText, OsText)>,
    /// Whether these are all tests that the program runs, so no selection is needed.
    #[serde(default)]
    pub is_whole_program: bool,
    /// Maximum total size of the run's journals in bytes. Beyond it, results are recorded without output.
    pub journal_limit_bytes: u64,
    /// Number of times that each test must pass, one process after the other.
    pub repeat: NonZeroU32,
    /// Run passing tests again, each time in a new lease, until this time (milliseconds since boot). Replaces
    /// `repeat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_until_ms: Option<u64>,
    /// Crash and hang capture of the process.
    #[serde(default)]
    pub crash_capture: CrashCapturePlan,
    /// Whether this is an isolated run of one test in its own process. Its failures are not checked by
    /// another isolated rerun.
    pub is_isolated: bool,
    /// Whether the process is for a debugger. The process is stopped before its first instruction until
    /// [`ToWorker::Debugger`] decides about it, or a debugger has launched another one.
    #[serde(default)]
    pub is_debugged: bool,
    /// Whether and how the worker shows test output on its own standard streams while tests run.
    #[serde(default)]
    pub output_display: OutputDisplay,
    /// Whether the client receives the test's output while the test runs.
    #[serde(default)]
    pub is_output_live: bool,
    /// Whether `TMPDIR`, like `TEST_TMPDIR`, names the process's own temporary directory.
    #[serde(default)]
    pub has_private_tmpdir: bool,
    /// Whether reproduce commands include the values of configured variables.
    #[serde(default)]
    pub is_environment_shown: bool,
    /// Whether tests that the framework would skip are run.
    #[serde(default)]
    pub runs_ignored: bool,
}

/// Whether and how a worker shows test output on its own standard streams while tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OutputDisplay {
    #[default]
    Hidden,
    Shown(OutputForm),
}

/// Format of shown output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputForm {
    /// Whether output is shown in whole lines prefixed with the test's name, because other workers write to
    /// the same terminal. Otherwise output is passed on as written.
    pub has_prefix: bool,
    /// Whether names include the suite, because the run has tests of several programs.
    pub has_suite: bool,
}

/// Decision about a process that is stopped for a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DebuggerDecision {
    /// The process belongs to its debugger, and continues without limits and crash capture.
    ReleaseToDebugger,
    /// The process continues like any other.
    RunWithoutDebugger,
}

/// Command that becomes a lease's test process, wherever it is launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebuggeeCommand {
    /// Path of the program.
    pub program: OsText,
    pub args: Vec<OsText>,
    /// Working directory of the test process.
    pub cwd: OsText,
}

/// Crash capture of a test process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashCapturePlan {
    /// Which processes are traced; `None` disables tracing and keeps no diagnostics.
    pub mode: Option<TraceMode>,
    /// Dumps that are written.
    pub dumps: DumpKinds,
    /// Maximum size of one dump in bytes; 0 for no limit.
    pub limit_bytes: u64,
    /// Whether dumps include the process's environment.
    pub keeps_environment: bool,
}

/// Limits of each test of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestLimits {
    /// A test is terminated after this time; `None` for no timeout.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// Bytes kept of each of a test's two outputs, half from the head and half from the tail.
    pub output_bytes: u64,
    /// Startup and exit timeout. A process is terminated if no test runs for this long before its first test,
    /// between two tests, or after its last.
    pub startup_ms: u64,
    /// Memory limit of the process tree, which is killed above it; `None` for no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// Group of tests in the tree that clients show: a suite, a class, a module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestGroup {
    /// Common prefix of the uids of all tests in the group, with the separator. No test has this uid.
    pub uid: String,
    /// Name of the group without its parents.
    pub name: String,
    /// Index of the parent group: an earlier position in the same list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Source file shared by all tests of the group, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// First line of the group's tests in that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedTest {
    pub test: TestId,
    /// Test as listed by the framework.
    pub listed: ListedTest,
    /// Uid of the test for clients.
    pub uid: String,
    /// Group of the test: index in the lease's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Timeout of this test; `None` uses the lease's.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Idle timeout: a test without activity for this long, not counting pauses, is ended.
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    /// The test is logged as slow each time this period elapses; `None` for never.
    #[serde(default)]
    pub slow_ms: Option<u64>,
    /// Earlier attempts of the test; configured retries only.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// Crash that this isolated rerun checks.
    #[serde(default)]
    pub crashed_attempt: Option<Attempt>,
    /// Uids of tests that ran in other processes of the program when one of these attempts ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran_beside: Vec<String>,
    /// Whether a failure is provisional, because a retry may replace it.
    pub is_failure_provisional: bool,
    /// Whether the test fails if it passes only after earlier attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flaky_failure: bool,
    /// Iterations that the test has passed in earlier leases.
    #[serde(default)]
    pub passed_iterations: u32,
}

/// Messages from worker to coordinator. Related messages are sent in one packet, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The tests of a program.
    Discovered {
        job: u32,
        /// The framework's name.
        framework: String,
        /// Nesting of the test names.
        #[serde(default)]
        nesting: NameNesting,
        /// Maximum size of the names of one batch on a command line; `None` if names are not passed on the
        /// command line.
        #[serde(default)]
        selection_limit: Option<SelectionLimit>,
        /// Tests in the framework's order. Names may repeat.
        tests: Vec<ListedTest>,
        /// Time from the start of a process to its first test, in microseconds, as far as the listing shows.
        start_us: u64,
        /// Failure of the listing process after it had listed all tests, as one sentence for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        /// Problems of the program that do not prevent its tests from running.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        /// Files and directories whose change may change the program's tests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<OsText>,
        /// Process behaviour of the framework that affects batching.
        #[serde(default)]
        process: ProcessTraits,
        /// Whether the process that listed the tests waits for the program's first lease.
        #[serde(default)]
        has_waiting_process: bool,
    },
    /// The program could not be listed.
    NotDiscovered {
        job: u32,
        /// Error as one sentence for the user.
        error: String,
    },
    /// Events of the tests of a lease, in order.
    LeaseEvents { lease: LeaseId, events: Vec<LeaseEvent> },
    /// All tests of the lease have ended and are fully reported, and its process waits for more; answered by
    /// [`ToWorker::ExtendLease`] or [`ToWorker::EndLease`].
    LeaseIdle { lease: LeaseId },
    /// The process of the lease has exited, and everything about it has been reported.
    LeaseEnded {
        lease: LeaseId,
        /// Why the lease ended.
        end: LeaseEnd,
        /// Time from the start of the process to its first test, in microseconds, if a test started.
        start_us: Option<u64>,
    },
    /// Answer to [`ToWorker::Pause`].
    Paused,
    /// The worker is blocked because its client stopped reading, or is no longer blocked.
    Blocked { is_blocked: bool },
    /// Answer to [`ToWorker::Drain`].
    Drained {
        run: RunKey,
        /// Proof level of the delivery.
        proof: ProofLevel,
        /// Results up to this journal position are proven.
        position: u64,
    },
    /// Lines for a client's log.
    Log {
        client: ClientId,
        /// Id of the client's run that the lines belong to; `None` if they belong to no run.
        run: Option<String>,
        lines: Vec<LogLine>,
    },
}

/// Event of a test or its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LeaseEvent {
    /// The test's process is stopped for a debugger, not traced, until [`ToWorker::Debugger`] arrives.
    StoppedForDebugger {
        test: TestId,
        pid: u32,
        /// Whether the process is stopped at the first instruction of its program; otherwise just before
        /// `exec`.
        is_program: bool,
        /// Command that a debugger can launch instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        debuggee: Option<DebuggeeCommand>,
    },
    /// A debugger launched the test as [`DebuggeeCommand`] and owns the process, which has no limits and no
    /// crash capture.
    LaunchedByDebugger { test: TestId, pid: u32 },
    /// The test has started.
    Started(TestId),
    /// The test has passed an iteration, and will run again.
    IterationPassed {
        test: TestId,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// The test has ended. The result is held until the test's process has proven it.
    Held(TestId),
    /// The test has its terminal result: journalled, and queued for the client's stream.
    Settled {
        test: TestId,
        outcome: Outcome,
        /// Duration in microseconds.
        duration_us: u64,
        /// Position of the result in the worker's journal of this run, from 1.
        position: u64,
    },
    /// The process of the lease sets up a fixture that it keeps until the process ends.
    SetUp { fixture: String, progress: SetUpProgress },
    /// Files of a test's result, which may come before or after this event.
    FilesAttached {
        /// Test that owns the files; `None` for the program itself.
        test: Option<TestId>,
        files: Vec<DiagnosticsFile>,
    },
    /// The process of the lease has exited, with this resource usage.
    ProcessEnded {
        /// The only test of the process; `None` for several.
        test: Option<TestId>,
        /// Number of tests leased to the process.
        tests: u32,
        usage: ProcessUsage,
    },
    /// The set-up or tear-down of a suite failed outside its tests.
    FixtureFailed {
        fixture: SuiteFixture,
        /// Description for the user.
        message: String,
    },
    /// Processes outlived their test process and were killed.
    ProcessesLeaked {
        /// Test that started the processes. If unknown, every test that may have started them; empty if there
        /// is none.
        tests: Vec<TestId>,
        processes: Vec<LeakedProcess>,
    },
    /// The test failed, but a retry may replace the result. Journalled, not sent.
    FailedProvisionally {
        test: TestId,
        /// Attempt to be reported with the final result.
        attempt: Box<Attempt>,
    },
    /// The process died during the test, and an isolated rerun follows. Journalled, not sent.
    CrashedProvisionally {
        test: TestId,
        /// Attempt to be reported with the final result.
        attempt: Box<Attempt>,
    },
}

/// Why the process of a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// The framework reported its end, and the exit code is consistent. Tests without an event were not run.
    Complete,
    /// All tests have results, but the process then died, or exited with a code that the results do not
    /// explain.
    BadExit {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process died during a test or was ended by a timeout, or died in the set-up or tear-down of a
    /// suite, which is reported separately.
    DiedInTest { end: ProcessExit },
    /// The process died before, between or after tests, with tests still waiting.
    DiedOutsideTest {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process started no test within its startup limit, and was ended.
    StartTimedOut {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process could not be started.
    NotStarted { error: String },
    /// The guard of the process was lost, and the process ended with it. The state of tests without a result
    /// is unknown.
    GuardLost { loss: GuardLoss },
    /// The coordinator cancelled the lease.
    Cancelled,
}

impl LeaseEnd {
    /// Returns the part of the reason that affects decisions.
    #[must_use]
    pub fn outcome(&self) -> LeaseOutcome {
        match self {
            Self::Complete => LeaseOutcome::Complete,
            Self::BadExit { .. } => LeaseOutcome::BadExit,
            Self::DiedInTest { .. } => LeaseOutcome::DiedInTest,
            Self::DiedOutsideTest { .. } => LeaseOutcome::DiedOutside,
            Self::StartTimedOut { .. } => LeaseOutcome::StartTimedOut,
            Self::NotStarted { .. } => LeaseOutcome::NotStarted,
            Self::GuardLost { loss } => LeaseOutcome::GuardLost(*loss),
            Self::Cancelled => LeaseOutcome::Cancelled,
        }
    }

    /// Returns the message if the program failed outside its tests.
    #[must_use]
    pub fn program_failure(&self) -> Option<&str> {
        match self {
            Self::BadExit { message, .. } | Self::DiedOutsideTest { message, .. } => Some(message),
            Self::NotStarted { error } => Some(error),
            // Only a failure if no process of the program starts in time.
            Self::StartTimedOut { .. } => None,
            Self::Complete | Self::DiedInTest { .. } | Self::GuardLost { .. } | Self::Cancelled => None,
        }
    }
}

/// Returns the file name of a worker's journal in the run's directory.
#[must_use]
pub fn journal_name(worker: WorkerId) -> String {
    format!("worker-{worker}.journal")
}

/// Returns the worker whose journal has this file name.
#[must_use]
pub fn worker_of_journal(name: &str) -> Option<WorkerId> {
    name.strip_prefix("worker-")?.strip_suffix(".journal")?.parse().ok().map(WorkerId)
}
