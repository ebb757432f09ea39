//! Worker ↔ guard: one test process, from its start to its raw end.
//!
//! The guard inherits the test's stdout and stderr as its own 1 and 2, and this connection as its standard input.

use serde::{Deserialize, Serialize};

/// Worker → guard.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one command in a guard's life, and few messages beside it"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// First: what to run.
    Exec(Command),
    /// TERM to the process group, and after the grace KILL to the whole tree.
    Terminate {
        /// Milliseconds.
        grace_ms: u64,
    },
    /// KILL to the whole tree, now.
    Kill,
    /// Stops the tree, answered by [`FromGuard::Paused`].
    Pause,
    /// Lets a stopped tree run on.
    Resume,
    /// Asks what the tree is doing, answered by [`FromGuard::Sampled`] about half a second later.
    Sample,
    /// Asks for dumps and stacks of all processes of the tree, which live on; answered by [`FromGuard::Dumped`].
    Dump,
    /// Ends all tracing at once, so that a debugger can have the processes; answered by [`FromGuard::LetGone`].
    LetGo,
    /// A process that stands before its first instruction is a debugger's: it goes on, untraced.
    HandOver,
    /// A process that stands before its first instruction is nobody's: it goes on, watched as its command says.
    TakeBack,
}

/// What to run. Program, arguments and so on are byte strings, because paths and arguments may be any bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Command {
    /// Path of the program; no search in `PATH`.
    pub program: OsBytes,
    /// Arguments without the program's own name.
    pub args: Vec<OsBytes>,
    /// The whole environment.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Working directory.
    pub cwd: OsBytes,
    /// How it is watched; `None`: not at all.
    #[serde(default)]
    pub trace: Option<TracePlan>,
    /// Most bytes of memory of it and all that it starts, where the system can hold that; `None`: no limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// It is to stand before its first instruction, traced by nobody, until [`ToGuard::HandOver`] or
    /// [`ToGuard::TakeBack`].
    #[serde(default)]
    pub is_held: bool,
}

/// How a test process is watched for crashes, and what is written of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TracePlan {
    /// Which processes are traced.
    pub mode: TraceMode,
    /// Which dumps are written.
    pub dumps: DumpKinds,
    /// Directory of dumps and texts, which is there.
    pub dir: OsBytes,
    /// Beginning of the names of all files, without extension.
    pub name: String,
    /// Most bytes of one dump; 0: no limit.
    pub limit_bytes: u64,
    /// Leaves the environment of the process in its dumps.
    pub keeps_environment: bool,
    /// A process that has one of these in its command line dies on purpose, by its framework's doing.
    #[serde(default)]
    pub doomed_words: Vec<String>,
}

/// Which processes are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TraceMode {
    /// None. Samples and dumps on request are possible all the same.
    Off,
    /// The test process; where that is a script or a shell, also the programs that it starts.
    #[default]
    Root,
    /// The test process and all that it starts.
    Tree,
}

/// Which dumps are written. Texts of stacks are always told, and written beside where a directory is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DumpKinds {
    /// Of processes that crash.
    pub crash: bool,
    /// Of processes that hang, on [`ToGuard::Dump`].
    pub hang: bool,
}

/// A string of the operating system: text where it is UTF-8, else its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsBytes {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Default for OsBytes {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl OsBytes {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the text, with replacement characters where it is none.
    #[must_use]
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }
}

impl From<Vec<u8>> for OsBytes {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

impl From<&str> for OsBytes {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for OsBytes {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(unix)]
impl From<&std::ffi::OsStr> for OsBytes {
    fn from(text: &std::ffi::OsStr) -> Self {
        Self::from(std::os::unix::ffi::OsStrExt::as_bytes(text).to_vec())
    }
}

#[cfg(unix)]
impl From<&std::path::Path> for OsBytes {
    fn from(path: &std::path::Path) -> Self {
        Self::from(path.as_os_str())
    }
}

#[cfg(unix)]
impl OsBytes {
    /// Returns the string as the operating system knows it.
    #[must_use]
    pub fn as_os_str(&self) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(self.as_bytes())
    }

    /// Returns the string as a path.
    #[must_use]
    pub fn as_path(&self) -> &std::path::Path {
        std::path::Path::new(self.as_os_str())
    }
}

/// Guard → worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuard {
    /// The program runs.
    Started {
        /// Its process, which is also its process group.
        pid: u32,
        /// The system holds its memory limit: nobody else need look.
        #[serde(default)]
        is_limited: bool,
    },
    /// The program could not be started; nothing follows.
    Failed {
        /// Such as `exec: No such file or directory`.
        error: String,
    },
    /// Answers [`ToGuard::Pause`].
    Paused,
    /// A process that was to be traced is not: its crash will be known by its exit status alone. Told once.
    Untraced {
        /// Such as `it has a leak sanitizer, which fails when traced`.
        reason: String,
    },
    /// A process of the test has crashed. Told when the test has ended, before [`FromGuard::Ended`].
    Crashed(CrashReport),
    /// Answers [`ToGuard::Sample`].
    Sampled(TreeSample),
    /// Answers [`ToGuard::Dump`].
    Dumped(HangReport),
    /// Answers [`ToGuard::LetGo`].
    LetGone,
    /// It stands, as its command wants it.
    Standing {
        /// It stands at the first instruction of its program. Else the system did not let us hold it there, and it
        /// stands just before it becomes its program.
        is_program: bool,
    },
    /// Its debugger is gone and has left it standing; it goes on.
    Deserted,
    /// The process has ended and nothing of its tree is left; nothing follows.
    Ended(RawEnd),
}

/// What is known of a crash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashReport {
    /// The process.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
    /// It is the test process itself, not one that it has started.
    pub is_root: bool,
    /// The number of the signal.
    pub signal: i32,
    /// Above 0: the kernel raised it for what the thread did (`si_code`). Else a program sent it.
    pub code: i32,
    /// The address of the fault, when the kernel raised the signal.
    pub address: Option<u64>,
    /// The thread that got the signal.
    pub thread: CrashedThread,
    /// The fault in whose handler the thread was when this signal came, such as the overflow before an `abort`.
    pub cause: Option<Fault>,
    /// The program's own handler ended the process with an exit code; the signal is the one that it handled.
    pub is_handled: bool,
    /// The worker had told the process to end before, so that this may be its way of ending.
    #[serde(default)]
    pub is_asked: bool,
    /// The stack of the thread, named; empty when nothing could be read.
    pub stack: String,
    /// The minidump.
    pub dump: Option<OsBytes>,
    /// The stacks of all threads as text.
    pub stacks_file: Option<OsBytes>,
    /// What could not be had, and why.
    pub soft_errors: Vec<String>,
}

/// A thread that crashed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashedThread {
    /// Its id; that of the process for its first thread.
    pub id: u32,
    /// Its name as the system knows it.
    pub name: String,
}

/// A signal that the kernel raised for what a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fault {
    /// Its number.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// The address of the fault.
    pub address: Option<u64>,
}

/// What the processes of a test do, by two looks at them about half a second apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TreeSample {
    /// The test process first.
    pub processes: Vec<ProcessSample>,
    /// CPU time of all of them since the start, microseconds; less what processes used that have ended.
    pub cpu_us: u64,
    /// How long their living threads could run and were not let, summed up since the start, microseconds.
    pub waiting_us: u64,
    /// How long the tree has been stopped by [`ToGuard::Pause`] or was seen to be stopped, microseconds.
    pub stopped_us: u64,
}

/// What one process does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
    /// Such as `BLOCKED in futex (97 threads), accept`, `BUSY`, `POLLING`, `STARVED`, `STOPPED`, `BLOCKED IN KERNEL`.
    pub state: String,
    /// CPU time since its start, microseconds.
    pub cpu_us: u64,
    /// How long its living threads could run and were not let, since their start, microseconds.
    pub waiting_us: u64,
}

/// What is known of a tree that was asked for dumps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HangReport {
    /// The test process first.
    pub processes: Vec<HungProcess>,
    /// What could not be had, and why.
    pub soft_errors: Vec<String>,
}

/// One process of such a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HungProcess {
    /// The process.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
    /// As in [`ProcessSample::state`], from one look.
    pub state: String,
    /// The stack of its first living thread, named; empty when nothing could be read.
    pub stack: String,
    /// The minidump.
    pub dump: Option<OsBytes>,
    /// The stacks of all threads as text.
    pub stacks_file: Option<OsBytes>,
}

/// How a process ended, as the operating system tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RawEnd {
    /// Its exit code, when it left by itself.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
    /// The system wrote a core file.
    pub has_core: bool,
    /// Processes of its tree that outlived it, and were killed.
    pub leaked: Vec<Leaked>,
    /// CPU time of the process and its reaped children, microseconds.
    pub cpu_us: u64,
    /// Peak resident memory, KiB.
    pub peak_kib: u64,
    /// From the start to the end, microseconds.
    pub wall_us: u64,
    /// The peak of its memory in bytes, if the system killed it at the limit of [`Command::memory_bytes`].
    #[serde(default)]
    pub limit_peak_bytes: Option<u64>,
    /// The core file, where it can be found.
    #[serde(default)]
    pub core: Option<OsBytes>,
}

impl RawEnd {
    /// Returns what it took; `None` for a process that was lost, of which nothing is known.
    #[must_use]
    pub fn usage(&self) -> Option<super::ProcessUsage> {
        let Self { cpu_us, peak_kib, wall_us, .. } = *self;
        (peak_kib > 0).then_some(super::ProcessUsage { cpu_us, peak_kib, wall_us })
    }
}

/// A process that outlived its test process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaked {
    /// Process id.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
    /// When it was started, or the topmost survivor that it was below: milliseconds since the boot, cut to the clock's
    /// tick. `None` where that is not known.
    #[serde(default)]
    pub started_ms: Option<u64>,
}
