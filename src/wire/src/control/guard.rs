//! Worker ↔ guard: one test process, from its start to its raw end.
//!
//! The guard inherits the test's stdout and stderr as its own 1 and 2, and this connection as its standard input.

use serde::{Deserialize, Serialize};

/// Worker → guard.
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
    },
    /// The program could not be started; nothing follows.
    Failed {
        /// Such as `exec: No such file or directory`.
        error: String,
    },
    /// Answers [`ToGuard::Pause`].
    Paused,
    /// The process has ended and nothing of its tree is left; nothing follows.
    Ended(RawEnd),
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
}

/// A process that outlived its test process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaked {
    /// Process id.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
}
