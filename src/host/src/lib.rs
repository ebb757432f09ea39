//! The operating system, as Heeler uses it: processes and their families, descriptors, private directories.
//! The unsafe code lives here and nowhere else; nothing here knows of tests, messages or the runtime that waits.
//!
//! - [`spawn`]: the one way to start a process.
//! - [`process`]: ids, ends, families of processes, and what this process is towards the system.
//! - [`cgroup`]: control groups for families of processes, where they may be made.
//! - [`trace`]: other processes, stopped, looked at and let go (ptrace).
//! - [`io`]: pipes, socket pairs, polling.
//! - [`pass`]: descriptors passed between processes.
//! - [`peer`]: whose the other end of a TCP connection is.
//! - [`dirs`]: directories that belong to one user alone.
//! - [`fail`]: failures at named points, for the tests.
//! - [`lock`]: locks on files that say whether their owner lives.
#![expect(unsafe_code, reason = "system calls have no other form; each wrapper here is safe to call")]

pub mod cgroup;
pub mod dirs;
pub mod fail;
pub mod io;
pub mod lock;
pub mod pass;
pub mod peer;
pub mod process;
pub mod spawn;
pub mod terminal;
pub mod trace;

/// Turns the result of a system call that says -1 on error into a `Result`.
fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
