//! The operating system for Heeler: processes and process trees, descriptors, private directories. All unsafe
//! code is in this crate. The crate does not depend on tests, messages or the async runtime.
//!
//! - [`spawn`]: starts processes.
//! - [`process`]: process ids, exits, process trees, and attributes of this process.
//! - [`machine`]: facts about the machine and its processes, for reports.
//! - [`cgroup`]: control groups for process trees, where allowed.
//! - [`trace`]: ptrace: stops, inspects and releases other processes.
//! - [`io`]: pipes, socket pairs, polling.
//! - [`fd_passing`]: file descriptor passing between processes (SCM_RIGHTS).
//! - [`output_socket`]: standard output that identifies the writer of each byte (SCM_CREDENTIALS).
//! - [`peer_credentials`]: the user at the other end of a TCP connection.
//! - [`cpu_pool`]: a thread pool for work with many independent pieces.
//! - [`own_thread`]: blocking work on a separate thread.
//! - [`dirs`]: directories that only one user may write to.
//! - [`memory`]: allocated memory of this process.
//! - [`clock`]: clocks with the same reading in all processes.
//! - [`directory_watch`]: changes of directory entries (inotify).
//! - [`fail`]: fault injection at named points, for tests.
//! - [`liveness_lock`]: file locks that show whether their owner is alive.
//! - [`machine_slots`]: slots that all coordinators of a user share on this machine.
//! - [`workspace`]: the workspace that contains a directory.
#![expect(unsafe_code, reason = "system calls have no other form; each wrapper here is safe to call")]

pub mod cgroup;
pub mod clock;
pub mod cpu_pool;
pub mod directory_watch;
pub mod dirs;
pub mod fail;
pub mod fd_passing;
pub mod io;
pub mod liveness_lock;
pub mod machine;
pub mod machine_slots;
pub mod memory;
pub mod output_socket;
pub mod own_thread;
pub mod peer_credentials;
pub mod process;
pub mod program_search;
pub mod spawn;
pub mod terminal;
pub mod trace;
pub mod workspace;

/// Converts the result of a system call that returns -1 on error into a `Result`.
fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
