//! Process start: own process group, killed with the thread that started it, inherits only its three streams
//! and, if it has one, its report channel.
//!
//! The child is created as `posix_spawn` does it: it shares this process's memory on a stack of its own while
//! the calling thread is suspended, until it executes the program or fails. So the cost does not grow with
//! this process's memory, and a failure is reported by plain stores.

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

/// Size of the child's stack: sufficient for the few system calls between clone and exec.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// Target of one of the three standard streams of a child.
#[derive(Debug)]
pub enum ChildStdio {
    /// `/dev/null`.
    Null,
    /// The stream of this process.
    Inherit,
    /// A descriptor, which moves to the child and is closed in this process.
    Fd(OwnedFd),
}

/// Parameters of a process start.
#[derive(Debug)]
pub struct SpawnOptions {
    /// Path of the program, without search in `PATH`. A relative path starts at the child's working
    /// directory.
    pub program: PathBuf,
    /// Arguments without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; `None` passes on this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` is this process's own.
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
    /// Returns the start of `program` without arguments and input, with the environment and the outputs of
    /// this process.
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

    /// Gives the process its end of a report channel: as descriptor 0 if that carries the requests to it,
    /// otherwise as descriptor 3.
    #[must_use]
    pub fn with_channel(self, channel: Option<OwnedFd>, is_standard_input: bool) -> Self {
        match channel {
            Some(requests) if is_standard_input => Self { stdin: ChildStdio::Fd(requests), ..self },
            channel => Self { channel, ..self },
        }
    }
}

/// A process that was started here. Dropping it neither terminates nor reaps the process.
#[derive(Debug)]
pub struct SpawnedChild {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) exit: Option<ExitStatus>,
}

impl SpawnedChild {
    /// Returns the process id, which is also its process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a descriptor that becomes readable when the process has exited.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a signal to the process only. It never reaches a later process with the same id.
    ///
    /// # Errors
    /// The process is reaped (`ESRCH`).
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

/// Starts a process: in its own process group, killed when the calling thread exits, with only its three
/// streams and its report channel open, no signal blocked and none ignored.
///
/// # Errors
/// Reports which step failed, including the execution of the program itself.
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
    // The child has failed and is a zombie. If a general reaper has reaped it already, that serves as well.
    let _exit = process::wait_for(pid, 0);
    Err(prepared.step_error(plan.step.load(Relaxed), errno))
}

/// Replaces this process by a program (exec): with its parent, its group and its open descriptors beyond the
/// streams; no signal blocked and none ignored. Returns only on failure, and then this process's
/// streams and signals are changed already: the caller must exit.
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
    // The child shares the memory of our signal handlers: none of them may run in it, so all signals are
    // blocked until it has executed.
    let old_mask = block_all_signals()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the stack is large enough, aligned and lives until the call returns, which is (CLONE_VFORK)
    // after the child has left our memory; so do the plan and what it points to. `child::run_child` keeps the
    // rules stated there.
    let pid = unsafe { libc::clone(child::run_child, top, flags, argument, &raw mut pidfd) };
    let outcome = check(pid);
    old_mask.thread_set_mask()?;
    let pid = outcome?;
    // SAFETY: the kernel has put a new descriptor there, since the clone succeeded.
    Ok((Pid(pid), unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Blocks all signals in this thread and returns the signals that were blocked before.
pub(crate) fn block_all_signals() -> io::Result<SigSet> {
    Ok(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?)
}
