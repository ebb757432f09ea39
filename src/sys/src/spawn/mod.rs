//! Starts processes. A process gets its own process group, is killed with the thread that started it, and
//! inherits only its three streams and its report channel, if it has one.
//!
//! The child is created like in `posix_spawn`: it shares this process's memory, on its own stack, while the
//! calling thread is suspended until the child executes the program or fails. So the cost does not grow with
//! this process's memory, and the child reports a failure by writing to this memory.

mod child;
mod error;
mod fork;
mod prepared;

use std::{
    ffi::{OsString, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::{
    check,
    process::{self, ExitStatus, Pid, Signal},
};

pub use error::SpawnError;
pub use fork::{ForkResult, ForkedChild, SingleThreaded};

pub(crate) use child::{GATE_CONTINUE, GATE_CONTINUE_STOPPED, SpawnPlan, prepare_and_exec};
pub(crate) use prepared::PreparedSpawn;

/// Size of the child's stack, enough for the few system calls between clone and exec.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// Target of one of a child's standard streams.
#[derive(Debug)]
pub enum ChildStdio {
    /// `/dev/null`.
    Null,
    /// This process's own stream.
    Inherit,
    /// A descriptor, which is moved to the child and closed in this process.
    Fd(OwnedFd),
}

/// Parameters of a process start.
#[derive(Debug)]
pub struct SpawnOptions {
    /// Path of the program; `PATH` is not searched. A relative path starts at the child's working directory.
    pub program: PathBuf,
    /// Arguments without the program name.
    pub args: Vec<OsString>,
    /// Complete environment; `None` passes on this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` means this process's own.
    pub cwd: Option<PathBuf>,
    /// Descriptor 0.
    pub stdin: ChildStdio,
    /// Descriptor 1.
    pub stdout: ChildStdio,
    /// Descriptor 2.
    pub stderr: ChildStdio,
    /// Descriptor 3, the report channel; `None` leaves it closed.
    pub channel: Option<OwnedFd>,
}

impl SpawnOptions {
    /// Returns options for `program` without arguments and input, with this process's environment and
    /// outputs.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: None,
            cwd: None,
            stdin: ChildStdio::Null,
            stdout: ChildStdio::Inherit,
            stderr: ChildStdio::Inherit,
            channel: None,
        }
    }

    /// Passes the process its end of a report channel: as descriptor 0 if the channel carries requests to the
    /// process, otherwise as descriptor 3.
    #[must_use]
    pub fn with_channel(self, channel: Option<OwnedFd>, is_standard_input: bool) -> Self {
        match channel {
            Some(requests) if is_standard_input => Self { stdin: ChildStdio::Fd(requests), ..self },
            channel => Self { channel, ..self },
        }
    }
}

/// A started process. Dropping this value neither ends nor reaps the process.
#[derive(Debug)]
pub struct SpawnedChild {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) exit: Option<ExitStatus>,
}

impl SpawnedChild {
    /// Returns the process id, also the process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a descriptor that becomes readable when the process has exited.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a signal to this process only, never to a later process with the same id.
    ///
    /// # Errors
    /// The process has been reaped (`ESRCH`).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        process::pidfd_signal(&self.pidfd, signal)
    }

    /// Reaps the process if it has exited; later calls return the same exit.
    ///
    /// # Errors
    /// Another call has reaped it ([`process::reap_any`]).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.exit.is_none() {
            self.exit = process::wait_for(self.pid, libc::WNOHANG)?;
        }
        Ok(self.exit)
    }

    /// Waits for the exit of the process and reaps it.
    ///
    /// # Errors
    /// Another call has reaped it ([`process::reap_any`]).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.exit = process::wait_for(self.pid, 0)?;
        }
    }
}

/// Starts a process in its own process group. The process is killed when the calling thread exits, has only
/// its three streams and its report channel open, and has no blocked or ignored signals.
///
/// # Errors
/// Names the failed step, including the execution of the program itself.
pub fn spawn(spawn: SpawnOptions) -> Result<SpawnedChild, SpawnError> {
    let prepared = PreparedSpawn::new(spawn)?;
    let plan = prepared.plan();
    let (pid, pidfd) = match clone_child(&plan) {
        Ok(child) => child,
        Err(source) => return Err(prepared.create_error(source)),
    };
    let errno = plan.errno.load(Relaxed);
    if errno == 0 {
        return Ok(SpawnedChild { pid, pidfd, exit: None });
    }
    // The child has failed and is a zombie. A general reaper may have reaped it already.
    let _exit = process::wait_for(pid, 0);
    Err(prepared.step_error(plan.step.load(Relaxed), errno))
}

/// Replaces this process with a program (exec). Parent, process group and other open descriptors stay; no
/// signal is blocked or ignored. Returns only on failure. Streams and signals have then already changed, so
/// the caller must exit.
#[must_use]
pub fn exec(spawn: SpawnOptions) -> SpawnError {
    let prepared = match PreparedSpawn::new(spawn) {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let plan = prepared.plan();
    child::exec_in_place(&plan);
    let (step, errno) = (plan.step.load(Relaxed), plan.errno.load(Relaxed));
    prepared.step_error(step, errno)
}

fn clone_child(plan: &SpawnPlan) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); CHILD_STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut pidfd: c_int = -1;
    // The child shares the memory of our signal handlers, and none may run in it. So all signals are blocked
    // until it has executed its program.
    let old_mask = block_all_signals()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the stack is large enough and aligned. With CLONE_VFORK, the call returns only after the child
    // has left our memory, so the stack, the plan and the plan's pointers live long enough.
    // `child::run_child` obeys its stated rules.
    let pid = unsafe { libc::clone(child::run_child, top, flags, argument, &raw mut pidfd) };
    let outcome = check(pid);
    old_mask.thread_set_mask()?;
    let pid = outcome?;
    // SAFETY: the clone succeeded, so the kernel has stored a new descriptor there.
    Ok((Pid(pid), unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Blocks all signals in this thread; returns the previously blocked ones.
pub(crate) fn block_all_signals() -> io::Result<SigSet> {
    Ok(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?)
}
