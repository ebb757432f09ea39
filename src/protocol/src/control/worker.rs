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
    /// The program of the leases that follow, with its arguments and environment.
    Program(Arc<TestProgram>),
    /// Runs a batch; answered by reports and finally by [`FromWorker::LeaseEnded`].
    Lease(Box<WorkerLease>),
    /// Gives the idle process of a lease further tests: the lease with these tests alone, and their groups.
    /// Ignored after the process has ended: [`FromWorker::LeaseEnded`] is on its way.
    ExtendLease(Box<WorkerLease>),
    /// Has the idle process of a lease end; answered by [`FromWorker::LeaseEnded`].
    EndLease { lease: LeaseId },
    /// Ends the current lease: the running test becomes `cancelled`, the tests not yet started are returned.
    Cancel {
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Ends the current lease: all tests without a result are returned, also the running one.
    ReturnTests {
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Ends the current lease as soon as the tests that run now have ended: all others are returned.
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
    /// Proves the delivery of everything that was sent for a run; answered by [`FromWorker::Drained`]. Sent
    /// while the worker has no lease of the run.
    Drain { run: RunKey },
    /// A client has left, and all its runs are over: its connection is closed.
    EndClient { client: ClientId },
    /// Orders the worker to exit.
    Exit,
}

/// Test program with everything needed to run it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestProgram {
    /// Suite name: the first part of each uid.
    pub suite: String,
    /// Path of the program.
    pub path: OsText,
    /// Arguments that precede all of ours.
    pub args: Vec<OsText>,
    /// Environment that the build tool sets for its tests, on top of the worker's own environment. Command
    /// lines shown to users omit it, because it is long and nearly always right as it is.
    #[serde(default)]
    pub tool_env: Vec<(OsText, OsText)>,
    /// Environment set on top of `tool_env`; `None` unsets a variable.
    pub env: Vec<(OsText, Option<OsText>)>,
    pub cwd: OsText,
    /// Framework name (`gtest`, `libtest`), or `None` to detect it by running the program.
    pub framework: Option<String>,
    /// Arguments of tests by their names, each as a JSON object: for frameworks whose tests take arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub test_arguments: BTreeMap<String, String>,
    /// Tests that the source of the program names, where it does: no others of its listing are tests, and
    /// what the source knows of them is added. Only for listings; leases go without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<ListedTest>,
    /// Why the program could not be built, in the words of the tool: it is not there, and has no tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbuilt: Option<String>,
}

impl TestProgram {
    /// Returns a program without arguments, variables and framework.
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
    /// Crash capture of a listing that is repeated because it has crashed; `None`: its crash leaves nothing.
    #[serde(default)]
    pub capture: Option<ListingCapture>,
    /// The run whose first lease of the program may be given to the process that has listed the tests;
    /// `None`: that process exits. Frameworks whose processes cannot wait for tests ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upcoming_run: Option<UpcomingRun>,
}

/// A run that follows a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpcomingRun {
    /// Its id.
    pub id: String,
    /// As in [`WorkerLease`].
    #[serde(default)]
    pub has_private_tmpdir: bool,
}

/// Crash capture of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingCapture {
    pub plan: CrashCapturePlan,
    /// Directory of the dumps and stacks of listings, in which those of a program replace its earlier ones.
    pub dir: OsText,
}

/// Batch of tests of one program, leased to one worker for one test process, or for one in each iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerLease {
    pub lease: LeaseId,
    pub run: RunKey,
    pub route: ClientRoute,
    /// Directory of the run, which holds the journal.
    pub run_dir: OsText,
    /// Program, with its framework known. [`ToWorker::Program`] carries it, before the first of its leases.
    #[serde(skip)]
    pub program: Arc<TestProgram>,
    /// Tests, in the framework's listing order.
    pub tests: Vec<Arc<LeasedTest>>,
    /// Groups above the tests, each after its own parent group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<TestGroup>,
    /// Members that the client added to these tests and groups.
    #[serde(default, skip_serializing_if = "ClientMembers::is_empty")]
    pub client_members: ClientMembers,
    pub limits: TestLimits,
    /// Whether these are all tests that the program runs, so that it needs no selection.
    #[serde(default)]
    pub is_whole_program: bool,
    /// Maximum size in bytes of all journals of the run, above which results are recorded without outputs.
    pub journal_limit_bytes: u64,
    /// Number of times that each test runs to pass, one process after the other.
    pub repeat: NonZeroU32,
    /// Time since boot, in milliseconds, until which tests that pass run again, each time in another lease;
    /// replaces `repeat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_until_ms: Option<u64>,
    /// Crash and hang capture of the process.
    #[serde(default)]
    pub crash_capture: CrashCapturePlan,
    /// Whether this is an isolated run of one test in a process of its own: no further isolated rerun checks
    /// its failures.
    pub is_isolated: bool,
    /// Whether the process is for a debugger: it is stopped before its first instruction until
    /// [`ToWorker::Debugger`] decides about it, or a debugger has launched another one.
    #[serde(default)]
    pub is_debugged: bool,
    /// How output also goes to the worker's own standard streams while the tests run.
    #[serde(default)]
    pub output_display: OutputDisplay,
    /// Whether the client receives the test's output while the test runs.
    #[serde(default)]
    pub is_output_live: bool,
    /// Whether `TMPDIR` names the process's own temporary directory, as `TEST_TMPDIR` does.
    #[serde(default)]
    pub has_private_tmpdir: bool,
    /// Whether the values of configured variables are in the commands that run a test again.
    #[serde(default)]
    pub is_environment_shown: bool,
    /// Whether tests run that their framework would skip.
    #[serde(default)]
    pub runs_ignored: bool,
}

/// How the output of tests is shown on their worker's own standard streams while they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OutputDisplay {
    #[default]
    Hidden,
    Shown(OutputForm),
}

/// Form of shown output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputForm {
    /// Whether output is shown in whole lines that begin with the name of the test, because other workers
    /// write to the same terminal; otherwise as it is written.
    pub has_prefix: bool,
    /// Whether names include the suite's: the run has tests of several programs.
    pub has_suite: bool,
}

/// Decision about a process that is stopped for a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DebuggerDecision {
    /// The process belongs to its debugger and continues without limits and without crash capture.
    ReleaseToDebugger,
    /// The process continues as any other.
    RunWithoutDebugger,
}

/// Command that becomes a lease's test process, wherever it is started.
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
    /// Set of processes that are traced; `None`: no process is traced, and no diagnostics are kept.
    pub mode: Option<TraceMode>,
    /// Which dumps are written.
    pub dumps: DumpKinds,
    /// Size limit of one dump in bytes; 0: no limit.
    pub limit_bytes: u64,
    /// Whether the process's environment stays in its dumps.
    pub keeps_environment: bool,
}

/// Limits of each test of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestLimits {
    /// Timeout of a test; a test that runs longer is terminated. `None`: no timeout.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// Bytes kept of each of a test's two outputs, half from the head and half from the tail.
    pub output_bytes: u64,
    /// Startup and exit timeout: a process in which no test has run for that long, before its first test,
    /// between two tests or after its last, is terminated.
    pub startup_ms: u64,
    /// Memory limit of the process tree, which is killed above it; `None`: no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// Group of tests in the tree that clients show: a suite, a class, a module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestGroup {
    /// Common prefix of the uids of all tests below it, with the separator: no test has this uid.
    pub uid: String,
    /// Name of the group itself, without its parents.
    pub name: String,
    /// Index of the parent group: an earlier position in the same list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Source file of all its tests, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line of the first of its tests in that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Test of a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedTest {
    pub test: TestId,
    /// Test as the framework lists it.
    pub listed: ListedTest,
    /// Uid of the test for the client.
    pub uid: String,
    /// Group of the test: an index into the lease's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Timeout of this test; `None` applies the lease's limits.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Idle timeout: a test that shows no activity for this long, while it was not paused, is ended.
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    /// Period after which the test is logged as slow, again each time it elapses; `None`: never.
    #[serde(default)]
    pub slow_ms: Option<u64>,
    /// Earlier attempts of the test; retries by the user's settings only.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// Crash that this isolated rerun checks.
    #[serde(default)]
    pub crashed_attempt: Option<Attempt>,
    /// Tests that ran in other processes of its program when one of these attempts ended, by uid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran_beside: Vec<String>,
    /// Whether a failure is provisional, because a retry may still replace it.
    pub is_failure_provisional: bool,
    /// Whether the test fails if it passes only after earlier attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flaky_failure: bool,
    /// Number of iterations that it has passed in earlier leases.
    #[serde(default)]
    pub passed_iterations: u32,
}

/// Messages from worker to coordinator. Messages that belong together travel in one packet, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The tests of a program.
    Discovered {
        /// Job number, as in the job.
        job: u32,
        /// The framework's name.
        framework: String,
        /// Nesting of the test names.
        #[serde(default)]
        nesting: NameNesting,
        /// Limit of the names of one batch; `None` where they don't travel on the command line.
        #[serde(default)]
        selection_limit: Option<SelectionLimit>,
        /// Tests in the framework's order. Names may occur twice.
        tests: Vec<ListedTest>,
        /// Startup cost of a process of this program before its first test, in microseconds, as far as the
        /// listing shows.
        start_us: u64,
        /// Failure of the listing process after it had listed all tests, as one sentence for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        /// What is wrong with the program, and prevents none of its tests from running.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        /// Files and directories beside the program after whose change its tests may be others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<OsText>,
        /// How the framework's processes behave, as far as batches depend on it.
        #[serde(default)]
        process: ProcessTraits,
        /// Whether the process that has listed the tests waits for the first lease of the program.
        #[serde(default)]
        has_waiting_process: bool,
    },
    /// The program could not be listed.
    NotDiscovered {
        /// Job number, as in the job.
        job: u32,
        /// Error as one clear sentence for the user.
        error: String,
    },
    /// Events of the tests of a lease, in order.
    LeaseEvents { lease: LeaseId, events: Vec<LeaseEvent> },
    /// All tests of the lease have ended, everything about them is reported, and its process waits for
    /// others: answered by [`ToWorker::ExtendLease`] or [`ToWorker::EndLease`].
    LeaseIdle { lease: LeaseId },
    /// The lease's process has exited and everything about it is reported.
    LeaseEnded {
        lease: LeaseId,
        /// Reason for the end of the lease.
        end: LeaseEnd,
        /// Startup cost of the process before its first test, in microseconds, if it got that far.
        start_us: Option<u64>,
    },
    /// Answers [`ToWorker::Pause`].
    Paused,
    /// The worker waits for the client of its lease, which takes no results, or does not wait any more.
    Blocked { is_blocked: bool },
    /// Answers [`ToWorker::Drain`].
    Drained {
        run: RunKey,
        /// Proof level of the delivery.
        proof: ProofLevel,
        /// Journal position up to which the proof holds.
        position: u64,
    },
    /// Lines for a client's log.
    Log {
        client: ClientId,
        /// Id of the client's run that the lines are about; `None` for none.
        run: Option<String>,
        lines: Vec<LogLine>,
    },
}

/// Event of one test or of its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LeaseEvent {
    /// The test's process is stopped for a debugger, traced by no process, until [`ToWorker::Debugger`]
    /// arrives.
    StoppedForDebugger {
        test: TestId,
        pid: u32,
        /// Whether it is stopped at the first instruction of its program; otherwise just before `exec`.
        is_program: bool,
        /// Command that a debugger can launch instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        debuggee: Option<DebuggeeCommand>,
    },
    /// A debugger launched the test as [`DebuggeeCommand`] and owns its process: no limits, no crash capture.
    LaunchedByDebugger { test: TestId, pid: u32 },
    /// The test is running.
    Started(TestId),
    /// The test has passed an iteration, and is to run again.
    IterationPassed {
        test: TestId,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// The test has ended, and its result is held until its process has proven it.
    Held(TestId),
    /// The test has its terminal result, which is journalled and queued for the client's stream.
    Settled {
        test: TestId,
        outcome: Outcome,
        /// Duration in microseconds.
        duration_us: u64,
        /// Position of the result in the worker's journal of this run, from 1.
        position: u64,
    },
    /// The lease's process sets a fixture up that it keeps until its end.
    SetUp { fixture: String, progress: SetUpProgress },
    /// Files of a test's result, which may come before or after this event.
    FilesAttached {
        /// Test that the files belong to; `None` for the program itself.
        test: Option<TestId>,
        files: Vec<DiagnosticsFile>,
    },
    /// The lease's process has exited; carries its resource usage.
    ProcessEnded {
        /// Test, if the process ran only one; `None` for several.
        test: Option<TestId>,
        /// Number of tests leased to the process.
        tests: u32,
        usage: ProcessUsage,
    },
    /// The set-up or tear-down of a suite failed, outside its tests.
    FixtureFailed {
        fixture: SuiteFixture,
        /// Description for the user.
        message: String,
    },
    /// Processes outlived their test process and were killed.
    ProcessesLeaked {
        /// Test that started them; if that is unknown, every test that may have; empty if no test can have.
        tests: Vec<TestId>,
        processes: Vec<LeakedProcess>,
    },
    /// The test failed, but a retry may replace the result: journalled, not sent.
    FailedProvisionally {
        test: TestId,
        /// Attempt that is reported with the final result.
        attempt: Box<Attempt>,
    },
    /// The process died during the test, which awaits an isolated rerun: journalled, not sent.
    CrashedProvisionally {
        test: TestId,
        /// Attempt that is reported with the final result.
        attempt: Box<Attempt>,
    },
}

/// Reason why the process of a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// The framework reported its own end, and the exit code fits it. Tests without an event were not run.
    Complete,
    /// All tests have results, but the process then died, or exited with a code that the results don't
    /// explain.
    BadExit {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process died during a test or the set-up or tear-down of a suite (which is reported), or was ended
    /// because of a time limit.
    DiedInTest { end: ProcessExit },
    /// The process died before, between or after tests, with tests still waiting.
    DiedOutsideTest {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process began no test within its startup limit, and was ended.
    StartTimedOut {
        end: ProcessExit,
        /// Description for the user, with the tail of the output.
        message: String,
    },
    /// The process could not be started.
    NotStarted { error: String },
    /// The guard of the process was lost, and the process ended with it: nothing is known about the tests
    /// without a result.
    GuardLost { loss: GuardLoss },
    /// The coordinator cancelled the lease.
    Cancelled,
}

impl LeaseEnd {
    /// Returns the part of the reason that decisions depend on.
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

    /// Returns the message, if the program failed outside its tests.
    #[must_use]
    pub fn program_failure(&self) -> Option<&str> {
        match self {
            Self::BadExit { message, .. } | Self::DiedOutsideTest { message, .. } => Some(message),
            Self::NotStarted { error } => Some(error),
            // It is a failure only if no process of the program starts in time.
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
