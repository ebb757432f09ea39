//! Messages between worker and guard: one test process, from its start to its exit status.
//!
//! The guard inherits the test's stdout and stderr as its own descriptors 1 and 2, and this connection as its
//! standard input.

use heeler_core::{LeakedProcess, MachineLoad, OsText, ProcessFacts, ProcessUsage};
use serde::{Deserialize, Serialize};

/// Messages from worker to guard.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one command in a guard's life, and few messages beside it"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// First message: the command to run.
    Exec(TestCommand),
    /// Sends SIGTERM to the process group and, after the grace period, SIGKILL to the whole process tree.
    Terminate {
        /// Grace period in milliseconds.
        grace_ms: u64,
    },
    /// Sends SIGKILL to the whole process tree at once.
    Kill,
    /// Stops the process tree; answered by [`FromGuard::Paused`].
    Pause,
    /// Continues a stopped process tree.
    Resume,
    /// Requests a sample of the process tree, answered by [`FromGuard::Sampled`] about half a second later.
    Sample,
    /// Requests dumps and stacks of all processes of the tree, which keep running; answered by
    /// [`FromGuard::Dumped`].
    Dump,
    /// Sends a signal to the test process itself, whose runtime then reports its stacks.
    ReportStacks {
        /// Number of the signal.
        signal: i32,
    },
    /// Continues a process that is stopped before its first instruction, untraced, because it belongs to a
    /// debugger.
    ContinueUntraced,
    /// Continues a process that is stopped before its first instruction and has no debugger, traced as its
    /// command says.
    ContinueTraced,
}

/// Command of a test process. Program, arguments, environment and directory are byte strings, because paths
/// and arguments may be any bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestCommand {
    /// Path of the program; no search in `PATH`.
    pub program: OsText,
    /// Arguments without the program's own name.
    pub args: Vec<OsText>,
    /// The whole environment.
    pub env: Vec<(OsText, OsText)>,
    pub cwd: OsText,
    /// Crash capture of the process; `None`: the process is not traced.
    #[serde(default)]
    pub trace: Option<TracePlan>,
    /// Memory limit in bytes of the process and all its descendants, where the system can enforce one;
    /// `None`: no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Whether the process is stopped before its first instruction, traced by no process, until
    /// [`ToGuard::ContinueUntraced`] or [`ToGuard::ContinueTraced`].
    #[serde(default)]
    pub is_stopped_at_start: bool,
    /// Whether the process receives its channel as its standard input instead of descriptor 3: a pipe from
    /// which it reads requests.
    #[serde(default)]
    pub is_channel_standard_input: bool,
}

/// Crash capture of a test process: which processes are traced, and which files are written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TracePlan {
    /// Which processes are traced.
    pub mode: TraceMode,
    /// Which dumps are written.
    pub dumps: DumpKinds,
    /// Existing directory for dumps and stack texts.
    pub dir: OsText,
    /// Prefix of the names of all files, without extension.
    pub name: String,
    /// Size limit of one dump in bytes; 0: no limit.
    pub limit_bytes: u64,
    /// Whether the process's environment stays in its dumps.
    pub keeps_environment: bool,
    /// Expected crash markers: a process with one of these words in its command line dies on purpose, because
    /// its framework wants it to (death tests).
    #[serde(default)]
    pub expected_crash_markers: Vec<String>,
    /// Whether the framework reads which process traces the program, without consequences for the tests.
    /// Another program that does so is traced in [`TraceMode::Tree`] only.
    #[serde(default)]
    pub is_tracer_read_by_framework: bool,
    /// File that exists while the framework runs tests. With it, the stack of an exit in the middle of the
    /// tests is reported, by [`FromGuard::ExitedInRun`].
    #[serde(default)]
    pub run_mark: Option<OsText>,
}

/// Set of processes that are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TraceMode {
    /// No process is traced. Samples and dumps on request still work.
    Off,
    /// The test process; if that is a script or a shell, also the programs that it starts. Programs that may
    /// behave differently when traced run untraced.
    #[default]
    Root,
    /// The test process and all its descendants.
    Tree,
}

/// Kinds of dumps that are written. Stack texts are always reported, and also written to a file if a
/// directory is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DumpKinds {
    /// Dumps of processes that crash.
    pub crash: bool,
    /// Dumps of processes that hang, on [`ToGuard::Dump`].
    pub hang: bool,
}

/// Messages from guard to worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuard {
    /// The program is running.
    Started {
        /// Process id, which is also the process group id.
        pid: u32,
        /// Whether the system enforces the memory limit, so that the worker does not need to poll memory
        /// usage.
        #[serde(default)]
        is_limited: bool,
    },
    /// The program could not be started. Last message.
    StartFailed {
        /// System error, such as `exec: No such file or directory`.
        error: String,
    },
    /// Answers [`ToGuard::Pause`].
    Paused,
    /// A process that was to be traced is not traced, so its crash is visible in its exit status only. Sent
    /// at most once.
    Untraced {
        /// Reason, such as `it has a leak sanitizer, which fails when traced`.
        reason: String,
    },
    /// A process of the test has crashed. Sent after the test has ended, before [`FromGuard::Ended`].
    Crashed(CrashReport),
    /// The test process has exited by itself in the middle of the tests, or after it had child processes.
    /// Sent after the test has ended, before [`FromGuard::Ended`].
    ExitedInRun {
        /// Symbolized stack of the thread that has called the exit.
        stack: String,
    },
    /// Answers [`ToGuard::Sample`].
    Sampled(TreeSample),
    /// Answers [`ToGuard::Dump`].
    Dumped(HangReport),
    /// The process is stopped before its first instruction, as its command requires.
    StoppedAtStart {
        /// Whether it is stopped at the first instruction of its program. `false` if the system did not let
        /// the guard stop it there; it is then stopped just before `exec`.
        is_program: bool,
    },
    /// The debugger has exited and left the process stopped; the guard continues the process.
    DebuggerExited,
    /// The process has ended and no process of its tree is left. Last message.
    Ended(ProcessExit),
}

/// Crash of one process, with everything that the guard could collect about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashReport {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Whether it is the test process itself, not a descendant.
    pub is_root: bool,
    /// Signal number.
    pub signal: i32,
    /// `si_code`. Above 0: the kernel raised the signal because of what the thread did. Otherwise a program
    /// sent it.
    pub code: i32,
    /// Fault address, if the kernel raised the signal.
    pub address: Option<u64>,
    /// Thread that received the signal.
    pub thread: CrashedThread,
    /// Fault whose handler the thread was running when this signal arrived, such as the stack overflow before
    /// an `abort`.
    pub cause: Option<SignalFault>,
    /// Whether the program's own handler ended the process with an exit code; `signal` is the one that it
    /// handled.
    pub is_handled: bool,
    /// Whether the worker had ordered the process to end before, so that the crash may be its way of exiting.
    #[serde(default)]
    pub is_termination_requested: bool,
    /// Symbolized stack of the thread; empty if nothing could be read.
    pub stack: String,
    /// Path of the minidump.
    pub dump: Option<OsText>,
    /// Path of the file with the stacks of all threads as text.
    pub stacks_file: Option<OsText>,
    /// Diagnostics that could not be collected, each with its reason.
    pub soft_errors: Vec<String>,
}

/// Thread that crashed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashedThread {
    /// Thread id; equal to the process id for the main thread.
    pub id: u32,
    /// Thread name, as the system knows it.
    pub name: String,
}

/// Signal that the kernel raised because of what a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalFault {
    /// Signal number.
    pub signal: i32,
    /// `si_code` of the signal.
    pub code: i32,
    /// Fault address.
    pub address: Option<u64>,
}

/// Activity of the processes of a test, from two samples about half a second apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TreeSample {
    /// Processes, the test process first.
    pub processes: Vec<ProcessSample>,
    /// CPU time of all processes since the start in microseconds, without processes that have ended.
    pub cpu_us: u64,
    /// Time that the living threads were runnable but not scheduled, summed up since the start, in
    /// microseconds.
    pub waiting_us: u64,
}

/// Activity of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessSample {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Thread states, such as `BLOCKED in futex (97 threads), accept`, `BUSY`, `POLLING`, `STARVED`,
    /// `STOPPED`, `BLOCKED IN KERNEL`.
    pub state: String,
    /// Whether it ran, waited for a processor, or waited in the kernel for a device; otherwise it waited for
    /// something that other processes do, or for a time.
    pub is_working: bool,
    /// CPU time since the process start, in microseconds.
    pub cpu_us: u64,
    /// Time that the living threads were runnable but not scheduled, since they started, in microseconds.
    pub waiting_us: u64,
}

/// Dumps and stacks of a process tree on request, for a test that hangs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HangReport {
    /// Processes, the test process first.
    pub processes: Vec<HungProcess>,
    /// Load and memory of the machine before the processes were examined, if they are known: a hang on a
    /// machine without memory is another finding.
    pub machine: Option<MachineLoad>,
    /// Diagnostics that could not be collected, each with its reason.
    pub soft_errors: Vec<String>,
}

/// Process of a tree that hangs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HungProcess {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Thread states as in [`ProcessSample::state`], but from one sample.
    pub state: String,
    /// Name, age and memory; `None` if they could not be read.
    pub facts: Option<ProcessFacts>,
    /// Symbolized stack of the first living thread; empty if nothing could be read.
    pub stack: String,
    /// Path of the minidump.
    pub dump: Option<OsText>,
    /// Path of the file with the stacks of all threads as text.
    pub stacks_file: Option<OsText>,
}

/// Exit status and resource usage of a process, as the operating system reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProcessExit {
    /// Exit code, if the process exited by itself.
    pub code: Option<i32>,
    /// Number of the signal that killed the process.
    pub signal: Option<i32>,
    /// Whether the system wrote a core file.
    pub has_core: bool,
    /// Processes of the tree that outlived the process and were killed.
    pub leaked: Vec<LeakedProcess>,
    /// CPU time of the process and its reaped children, in microseconds.
    pub cpu_us: u64,
    /// Peak resident memory in KiB.
    pub peak_kib: u64,
    /// Wall-clock time from start to end, in microseconds.
    pub wall_us: u64,
    /// Peak memory in bytes, if the system killed the process at the limit of [`TestCommand::memory_bytes`].
    #[serde(default)]
    pub limit_peak_bytes: Option<u64>,
    /// Path of the core file, if it can be found.
    #[serde(default)]
    pub core: Option<OsText>,
}

impl ProcessExit {
    /// Returns the resource usage; `None` for a process that was lost, about which nothing is known.
    #[must_use]
    pub fn usage(&self) -> Option<ProcessUsage> {
        let Self { cpu_us, peak_kib, wall_us, .. } = *self;
        (peak_kib > 0).then_some(ProcessUsage { cpu_us, peak_kib, wall_us })
    }
}
