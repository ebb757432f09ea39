//! Messages between worker and guard about one test process, from its start to its exit.
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
    /// Sends SIGTERM to the process group and SIGKILL to the whole process tree after the grace period.
    Terminate {
        /// Grace period in milliseconds.
        grace_ms: u64,
    },
    /// Immediately sends SIGKILL to the whole process tree.
    Kill,
    /// Stops the process tree; answered by [`FromGuard::Paused`].
    Pause,
    /// Continues a stopped process tree.
    Resume,
    /// Requests a sample of the process tree, answered by [`FromGuard::Sampled`] about half a second later.
    Sample,
    /// Requests dumps and stack traces of all processes of the tree, which keep running; answered by
    /// [`FromGuard::Dumped`].
    Dump,
    /// Sends a signal to the test process itself, whose runtime then prints its stack traces.
    ReportStacks { signal: i32 },
    /// Continues a process that is stopped before its first instruction, without tracing, because it belongs
    /// to a debugger.
    ContinueUntraced,
    /// Continues a process that is stopped before its first instruction and has no debugger. Tracing follows
    /// [`TestCommand::trace`].
    ContinueTraced,
}

/// Command of a test process. Paths and arguments may contain any bytes, so program, arguments, environment
/// and directory are byte strings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestCommand {
    /// Path of the program; `PATH` is not searched.
    pub program: OsText,
    /// Arguments without the program name.
    pub args: Vec<OsText>,
    /// Complete environment.
    pub env: Vec<(OsText, OsText)>,
    pub cwd: OsText,
    /// Crash capture of the process; `None` disables tracing.
    #[serde(default)]
    pub trace: Option<TracePlan>,
    /// Memory limit in bytes for the process and all its descendants, if the system can enforce one; `None`
    /// for no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Whether the process is stopped before its first instruction, not traced, until
    /// [`ToGuard::ContinueUntraced`] or [`ToGuard::ContinueTraced`] arrives.
    #[serde(default)]
    pub is_stopped_at_start: bool,
    /// Whether the process receives its channel, a pipe with requests, as standard input instead of
    /// descriptor 3.
    #[serde(default)]
    pub is_channel_standard_input: bool,
}

/// Crash capture of a test process: the traced processes and the files to write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TracePlan {
    /// Processes that are traced.
    pub mode: TraceMode,
    /// Dumps that are written.
    pub dumps: DumpKinds,
    /// Existing directory for dumps and stack traces.
    pub dir: OsText,
    /// Prefix of all file names, without extension.
    pub name: String,
    /// Maximum size of one dump in bytes; 0 for no limit.
    pub limit_bytes: u64,
    /// Whether dumps include the process's environment.
    pub keeps_environment: bool,
    /// Markers of expected crashes. A process with one of these texts in its command line crashes on purpose,
    /// for its framework's death tests.
    #[serde(default)]
    pub expected_crash_markers: Vec<String>,
    /// Whether the framework checks which process traces the program, without effect on the tests. Other
    /// programs that check are traced only in [`TraceMode::Tree`].
    #[serde(default)]
    pub is_tracer_read_by_framework: bool,
    /// File that exists while the framework runs tests. If set, the guard reports the stack trace of an exit
    /// that happens in the middle of the tests, with [`FromGuard::ExitedInRun`].
    #[serde(default)]
    pub run_mark: Option<OsText>,
}

/// Which processes are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TraceMode {
    /// No process is traced. Samples and dumps on request still work.
    Off,
    /// The test process. If it is a script or a shell, the programs that it starts are also traced. Programs
    /// that may behave differently when traced are not.
    #[default]
    Root,
    /// The test process and all its descendants.
    Tree,
}

/// Kinds of dumps to write. Stack traces are always reported, and written to a file if a directory is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DumpKinds {
    /// Dumps of crashing processes.
    pub crash: bool,
    /// Dumps of hanging processes, requested by [`ToGuard::Dump`].
    pub hang: bool,
}

/// Messages from guard to worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuard {
    /// The program is running.
    Started {
        /// Process id, also the process group id.
        pid: u32,
        /// Whether the system enforces the memory limit. Otherwise the worker must poll memory usage.
        #[serde(default)]
        is_limited: bool,
    },
    /// The program could not be started. Last message.
    StartFailed {
        /// System error, such as `exec: No such file or directory`.
        error: String,
    },
    /// Answer to [`ToGuard::Pause`].
    Paused,
    /// A process that should be traced is not, so a crash shows only in its exit status. Sent at most once.
    Untraced {
        /// Reason, such as `it uses LeakSanitizer, which does not work under ptrace`.
        reason: String,
    },
    /// A process of the test has crashed. Sent after the end of the test, before [`FromGuard::Ended`].
    Crashed(CrashReport),
    /// The test process exited by itself in the middle of the tests, or after it had child processes. Sent
    /// after the end of the test, before [`FromGuard::Ended`].
    ExitedInRun {
        /// Symbolized stack trace of the thread that called `exit`.
        stack: String,
    },
    /// Answer to [`ToGuard::Sample`].
    Sampled(TreeSample),
    /// Answer to [`ToGuard::Dump`].
    Dumped(HangReport),
    /// The process is stopped before its first instruction, as its command requires.
    StoppedAtStart {
        /// Whether the process is stopped at the first instruction of its program. `false` if the system did
        /// not allow that; the process is then stopped just before `exec`.
        is_program: bool,
    },
    /// The debugger has exited and left the process stopped; the guard continues the process.
    DebuggerExited,
    /// The process has ended, and no process of its tree is left. Last message.
    Ended(ProcessExit),
}

/// Crash of one process, with everything that the guard could collect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashReport {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Whether this is the test process itself, not a descendant.
    pub is_root: bool,
    pub signal: i32,
    /// `si_code`. Above 0, the kernel raised the signal because of the thread's own action. Otherwise a
    /// program sent it.
    pub code: i32,
    /// Fault address, if the kernel raised the signal.
    pub address: Option<u64>,
    /// Thread that received the signal.
    pub thread: CrashedThread,
    /// Fault whose handler was running in the thread when this signal arrived, such as the stack overflow
    /// before an `abort`.
    pub cause: Option<SignalFault>,
    /// Whether the program's own handler ended the process with an exit code. `signal` is then the handled
    /// signal.
    pub is_handled: bool,
    /// Whether the worker had already asked the process to end, so the crash may be its way of exiting.
    #[serde(default)]
    pub is_termination_requested: bool,
    /// Symbolized stack trace of the thread; empty if nothing could be read.
    pub stack: String,
    /// Path of the minidump.
    pub dump: Option<OsText>,
    /// Path of the text file with the stack traces of all threads.
    pub stacks_file: Option<OsText>,
    /// Diagnostics that could not be collected, with reasons.
    pub soft_errors: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashedThread {
    /// Thread id; equal to the process id for the main thread.
    pub id: u32,
    /// Thread name in the system.
    pub name: String,
}

/// Signal that the kernel raised because of a thread's own action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalFault {
    pub signal: i32,
    /// `si_code` of the signal.
    pub code: i32,
    /// Fault address.
    pub address: Option<u64>,
}

/// Activity of a test's processes, from two samples about half a second apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TreeSample {
    /// Processes, the test process first.
    pub processes: Vec<ProcessSample>,
    /// CPU time of all living processes since their start, in microseconds.
    pub cpu_us: u64,
    /// Total time that the living threads were runnable but not scheduled, in microseconds.
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
    /// Whether the process ran, waited for a CPU, or waited for a device in the kernel. Otherwise it waited
    /// for other processes or slept.
    pub is_working: bool,
    /// CPU time since the process start, in microseconds.
    pub cpu_us: u64,
    /// Total time that the living threads were runnable but not scheduled, in microseconds.
    pub waiting_us: u64,
}

/// Dumps and stack traces of a process tree, requested for a hanging test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HangReport {
    /// Processes, the test process first.
    pub processes: Vec<HungProcess>,
    /// Load and memory of the machine before the processes were examined, if known. Lack of memory may
    /// explain the hang.
    pub machine: Option<MachineLoad>,
    /// Diagnostics that could not be collected, with reasons.
    pub soft_errors: Vec<String>,
}

/// A process of a hanging tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HungProcess {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Thread states like [`ProcessSample::state`], but from one sample.
    pub state: String,
    /// Name, age and memory; `None` if unreadable.
    pub facts: Option<ProcessFacts>,
    /// Symbolized stack trace of the first living thread; empty if nothing could be read.
    pub stack: String,
    /// Path of the minidump.
    pub dump: Option<OsText>,
    /// Path of the text file with the stack traces of all threads.
    pub stacks_file: Option<OsText>,
}

/// Exit status and resource usage of a process, as reported by the operating system.
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
    /// Path of the core file, if it was found.
    #[serde(default)]
    pub core: Option<OsText>,
}

impl ProcessExit {
    /// Returns the resource usage; `None` for a lost process, whose usage is unknown.
    #[must_use]
    pub fn usage(&self) -> Option<ProcessUsage> {
        let Self { cpu_us, peak_kib, wall_us, .. } = *self;
        (peak_kib > 0).then_some(ProcessUsage { cpu_us, peak_kib, wall_us })
    }
}
