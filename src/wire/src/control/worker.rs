//! Coordinator ↔ worker: discovery jobs, leases, reports, drains.

use serde::{Deserialize, Serialize};

use super::{
    CallbackAddress, DeliveryLimits, DumpKinds, Leaked, LeaseId, OsBytes, Proof, RawEnd, TestIndex,
    TraceMode, WorkerId,
};
use crate::mtp::{ExecutionState, LogLevel, Trait};

/// Coordinator → worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// First.
    Welcome {
        /// Where to report; `None` relays through the coordinator.
        callback: Option<CallbackAddress>,
        /// How long to wait for a client.
        limits: DeliveryLimits,
    },
    /// Lists the tests of one program; answered by [`FromWorker::Discovered`] or [`FromWorker::NotDiscovered`].
    Discover(DiscoverJob),
    /// Runs a batch; answered by reports and at last [`FromWorker::LeaseEnded`].
    Lease(Box<Lease>),
    /// Ends the lease in hand: the test in flight becomes `cancelled`, the rest goes back.
    Cancel {
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// Stops the test process and the clocks; answered by [`FromWorker::Paused`].
    Pause,
    /// Goes on.
    Resume,
    /// Decides about the process of a lease that stands for a debugger; see [`Report::Standing`].
    Debugger {
        /// Which lease.
        lease: LeaseId,
        /// What becomes of the process.
        decision: DebuggerDecision,
    },
    /// Proves what was sent of a run; answered by [`FromWorker::Drained`]. Comes when no lease is in hand.
    Drain {
        /// Which run.
        run: String,
    },
    /// Leaves.
    Leave,
}

/// A program and how to drive it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// The suite's name: the first part of each uid.
    pub suite: String,
    /// Path of the program.
    pub path: OsBytes,
    /// Arguments before all of ours.
    pub args: Vec<OsBytes>,
    /// What the build tool sets for its tests, on top of the worker's own environment. Command lines for people leave it
    /// out, because it is long and nearly always right as it is.
    #[serde(default)]
    pub tool_env: Vec<(OsBytes, OsBytes)>,
    /// Set on top of that; `None` unsets.
    pub env: Vec<(OsBytes, Option<OsBytes>)>,
    /// Working directory.
    pub cwd: OsBytes,
    /// The framework's name (`gtest`, `libtest`), or `None` to ask the program.
    pub framework: Option<String>,
}

/// A job for a worker: list the tests of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverJob {
    /// Echoed in the answer.
    pub job: u32,
    /// Which program.
    pub program: Program,
    /// A listing that takes longer is given up.
    pub timeout_ms: u64,
}

/// A test as its framework lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ListedTest {
    /// As the framework knows it.
    pub name: String,
    /// For people, where it differs from the name (a parameter's value).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display: Option<String>,
    /// Source file, where the framework tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Line in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// Why the framework would not run it (`ignored: needs net`, `disabled`); such a test is skipped without a process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub skip: Option<String>,
    /// Names and values.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub traits: Vec<TraitPair>,
}

/// How a framework's names of tests nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Nesting {
    /// They don't.
    #[default]
    Flat,
    /// One group before the first full stop.
    FullStop,
    /// A group before each pair of colons.
    Colons,
}

/// A trait, in control messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraitPair {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

impl From<&TraitPair> for Trait {
    fn from(pair: &TraitPair) -> Self {
        Self { name: pair.name.clone(), value: pair.value.clone() }
    }
}

/// A batch of tests of one program, lent to one worker for one test process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Its number.
    pub lease: LeaseId,
    /// Which run: the client's run id.
    pub run: String,
    /// The run's directory, where the journal goes.
    pub run_dir: OsBytes,
    /// The program, its framework known.
    pub program: Program,
    /// In the order in which the framework lists them.
    pub tests: Vec<LeasedTest>,
    /// The groups above them, each behind its own group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Time and output limits.
    pub limits: TestLimits,
    /// How the process is watched for crashes and hangs.
    #[serde(default)]
    pub watch: WatchPlan,
    /// Whether this is one test in a process of its own: nothing that happens is to be checked by a lone run again.
    pub is_alone: bool,
    /// Whether the process is for a debugger: it stands before its first instruction until
    /// [`ToWorker::Debugger`] says what becomes of it, or a debugger has launched another.
    #[serde(default)]
    pub is_debugged: bool,
    /// Whether the test's output also goes to the worker's own standard output as it comes.
    pub is_output_shown: bool,
}

/// What becomes of a process that stands for a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DebuggerDecision {
    /// It goes on as its debugger's: no limits, nothing watched.
    HandOver,
    /// It goes on as any other.
    TakeBack,
}

/// A command that becomes a lease's test process, wherever it is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debuggee {
    /// Path of the program.
    pub program: OsBytes,
    /// Its arguments.
    pub args: Vec<OsBytes>,
    /// Where the test process runs.
    pub cwd: OsBytes,
}

/// How a test process is watched, and what is kept of its death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WatchPlan {
    /// Which processes are traced; `None`: none, and nothing is kept.
    pub mode: Option<TraceMode>,
    /// Which dumps are written.
    pub dumps: DumpKinds,
    /// Most bytes of one dump; 0: no limit.
    pub limit_bytes: u64,
    /// Leaves the environment of the process in its dumps.
    pub keeps_environment: bool,
}

/// Limits of each test of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestLimits {
    /// A test that runs longer is terminated; `None` means never.
    pub timeout_ms: Option<u64>,
    /// Between TERM and KILL.
    pub grace_ms: u64,
    /// Of each of a test's two outputs, so many bytes are kept, half from the head and half from the tail.
    pub output_bytes: u64,
    /// A process that has not begun its first test by then, or not left after its last, is killed.
    pub startup_ms: u64,
    /// A process tree that uses more memory is killed; `None` means no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// A group of tests in the tree that clients see: a suite, a class, a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What the uids of all tests below it begin with, the separator included: no test has it.
    pub uid: String,
    /// Its own name.
    pub name: String,
    /// The group that it belongs to: an earlier place in the same list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Members that the client gave it, as JSON: `"name":value,…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

/// One test of a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedTest {
    /// Its number.
    pub test: TestIndex,
    /// As the framework lists it.
    pub listed: ListedTest,
    /// Its name for the client.
    pub uid: String,
    /// Its group: the place in the lease's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Members that the client gave it, as JSON: `"name":value,…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
    /// A test that runs longer is ended; `None` leaves it to the lease's limits.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// A test that gives no sign for so long, while it was let run, is ended.
    #[serde(default)]
    pub silence_ms: Option<u64>,
    /// The log is told that it is slow each time when it has run so long; `None` never.
    #[serde(default)]
    pub slow_ms: Option<u64>,
    /// How many attempts it has had, user's retries only.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// The death that this lone run checks.
    #[serde(default)]
    pub death: Option<Attempt>,
    /// Whether a failure is held back, because a retry may still replace it.
    pub is_failure_held: bool,
}

/// One attempt that did not decide, told with the final result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Attempt {
    /// How it ended.
    pub state: ExecutionState,
    /// In words: the error message, cut.
    pub message: String,
    /// Signal name or `exit code 0`, for deaths.
    #[serde(default)]
    pub death: Option<Death>,
    /// Its output, cut.
    #[serde(default)]
    pub stdout: String,
    /// Its errors, cut.
    #[serde(default)]
    pub stderr: String,
    /// What was seen of its process while it died or hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Box<Evidence>>,
    /// How long it ran.
    pub duration_us: u64,
}

/// What was seen of a process while it died or hung.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// The stack of the thread that is to blame, as text; empty where there is none.
    pub stack: String,
    /// Dumps, stacks, outputs.
    pub files: Vec<EvidenceFile>,
    /// What could not be had, in words.
    pub notes: Vec<String>,
}

/// One file of evidence, in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceFile {
    /// Where it is.
    pub path: OsBytes,
    /// What it is, for people: `minidump`, `stacks of all threads`, `standard output`.
    pub description: String,
}

/// How a test process died under a test, or outside any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Death {
    /// The signal's name, such as `SIGSEGV`.
    pub signal: Option<String>,
    /// The exit code of a process that left by itself.
    pub code: Option<i32>,
    /// The system wrote a core file.
    pub has_core: bool,
    /// Where and by what, such as `address 0x0, thread main`; of an unknown end, why that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What is known of the reason beside that: a limit of memory, the system's lack of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.signal, self.code) {
            (Some(signal), _) => f.write_str(signal),
            (None, Some(code)) => write!(f, "exit code {code}"),
            (None, None) => f.write_str("an unknown end"),
        }
    }
}

/// Worker → coordinator. Messages that belong together travel in one packet, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The tests of a program.
    Discovered {
        /// As in the job.
        job: u32,
        /// The framework's name.
        framework: String,
        /// How the names of its tests nest.
        #[serde(default)]
        nesting: Nesting,
        /// In the framework's order. Names may stand twice.
        tests: Vec<ListedTest>,
        /// What a process of this program costs before its first test, microseconds, as far as the listing tells.
        start_us: u64,
    },
    /// The program could not be listed.
    NotDiscovered {
        /// As in the job.
        job: u32,
        /// One clear sentence for the user.
        error: String,
    },
    /// What happened to tests of a lease, in order.
    Reports {
        /// Which lease.
        lease: LeaseId,
        /// In order.
        reports: Vec<Report>,
    },
    /// The lease's process is gone and everything about it is reported.
    LeaseEnded {
        /// Which lease.
        lease: LeaseId,
        /// How.
        end: LeaseEnd,
        /// What the process cost before its first test, microseconds, where it came so far.
        start_us: Option<u64>,
    },
    /// Answers [`ToWorker::Pause`].
    Paused,
    /// Answers [`ToWorker::Drain`].
    Drained {
        /// Which run.
        run: String,
        /// How sure we are.
        proof: Proof,
        /// The journal's position up to which that holds.
        position: u64,
    },
    /// For the client's log.
    Log {
        /// Which run they are about; `None` for none.
        run: Option<String>,
        /// In order.
        lines: Vec<LogLine>,
    },
}

/// One line for the client's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The test of the run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestIndex>,
    /// How loud.
    pub level: LogLevel,
    /// For people.
    pub message: String,
}

/// One event of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// Its process stands for a debugger, traced by nobody, until [`ToWorker::Debugger`] comes.
    Standing {
        /// Which.
        test: TestIndex,
        /// Its process.
        pid: u32,
        /// It stands at the first instruction of its program; else just before it becomes its program.
        is_program: bool,
        /// What a debugger can launch instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        debuggee: Option<Debuggee>,
    },
    /// It was launched by a debugger, as [`Debuggee`], and is that one's: no limits, nothing watched.
    Launched {
        /// Which.
        test: TestIndex,
        /// Its process.
        pid: u32,
    },
    /// It runs.
    Started(TestIndex),
    /// It has its terminal result: journalled, and handed to the client's stream.
    Settled {
        /// Which.
        test: TestIndex,
        /// How it ended.
        state: ExecutionState,
        /// How long it ran.
        duration_us: u64,
        /// The result's position in the worker's journal of this run, from 1.
        position: u64,
    },
    /// Files that belong to a test's result, which follows or has gone before.
    Attached {
        /// Which; `None` for the program itself.
        test: Option<TestIndex>,
        /// The files.
        files: Vec<EvidenceFile>,
    },
    /// The lease's process has ended, and took so much.
    Ended {
        /// The only test that it ran; `None` for several.
        test: Option<TestIndex>,
        /// How many tests were lent to it.
        tests: u32,
        /// What it took.
        usage: ProcessUsage,
    },
    /// Processes outlived their test process, and were killed.
    Leaked {
        /// The test that started them; where that can't be told, each that may have; none where no test can have.
        tests: Vec<TestIndex>,
        /// The processes.
        processes: Vec<Leaked>,
    },
    /// It failed, but a retry may replace that: journalled, not sent.
    Failed {
        /// Which.
        test: TestIndex,
        /// What is told later.
        attempt: Box<Attempt>,
    },
    /// The process died under it, and it is to be tried alone: journalled, not sent.
    Died {
        /// Which.
        test: TestIndex,
        /// What is told later.
        attempt: Box<Attempt>,
    },
}

/// What a test process took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// CPU time of the process and its reaped children, microseconds.
    pub cpu_us: u64,
    /// Peak resident memory of the largest of them, KiB.
    pub peak_kib: u64,
    /// From the start to the end, microseconds.
    pub wall_us: u64,
}

/// How the process of a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// The framework said its own last word, and the exit fits it. Tests without an event were not run.
    Complete,
    /// All tests have their results, but the process then died, or left with a code that they don't explain.
    BadExit {
        /// The end.
        end: RawEnd,
        /// For people: what happened, with the tail of the output.
        message: String,
    },
    /// The process died under a test (which is reported), or was ended because of its time limit.
    DiedInTest {
        /// The end.
        end: RawEnd,
    },
    /// The process died before, between or after tests, with tests still waiting.
    DiedOutside {
        /// The end.
        end: RawEnd,
        /// For people: what happened, with the tail of the output.
        message: String,
    },
    /// The process could not be started.
    NotStarted {
        /// Why.
        error: String,
    },
    /// The coordinator wished it.
    Cancelled,
}

/// The worker of a lease, as the run directory names its journal.
#[must_use]
pub fn journal_name(worker: WorkerId) -> String {
    format!("worker-{worker}.journal")
}

/// The worker whose journal has this file name.
#[must_use]
pub fn worker_of_journal(name: &str) -> Option<WorkerId> {
    name.strip_prefix("worker-")?.strip_suffix(".journal")?.parse().ok().map(WorkerId)
}
