//! The one way to start a process: own group, dies with its starter, inherits nothing but its three streams.
//!
//! The child is made as `posix_spawn` makes it: it borrows this process's memory on a stack of its own while the
//! calling thread stands still, until it executes the program or gives up. So the cost does not grow with this
//! process's memory, and a failure is told by plain stores.

mod child;
mod error;
mod prepared;
mod twin;

use std::{
    ffi::{OsString, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    check,
    process::{self, Pid, RawExit, Signal},
};

pub use error::SpawnError;
pub use twin::{OneThread, Side, Twin};

pub(crate) use child::{GO_ON, Plan, STAND_FIRST, become_program};
pub(crate) use prepared::Prepared;

/// Enough for the handful of system calls between clone and exec.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// Where one of the three standard streams of a child leads.
#[derive(Debug)]
pub enum Stream {
    /// `/dev/null`.
    Null,
    /// Where this process's own leads.
    Inherit,
    /// A descriptor, which the child gets and this process gives away.
    Fd(OwnedFd),
}

/// A process to be started.
#[derive(Debug)]
pub struct Spawn {
    /// Path of the program; no search in `PATH`. A relative one is taken from the child's working directory.
    pub program: PathBuf,
    /// Arguments without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; `None` hands on this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` is this process's own.
    pub cwd: Option<PathBuf>,
    /// Descriptor 0.
    pub stdin: Stream,
    /// Descriptor 1.
    pub stdout: Stream,
    /// Descriptor 2.
    pub stderr: Stream,
}

impl Spawn {
    /// Returns a start of `program` without arguments and input, in the environment and with the outputs of this process.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: None,
            cwd: None,
            stdin: Stream::Null,
            stdout: Stream::Inherit,
            stderr: Stream::Inherit,
        }
    }
}

/// A process that was started here. Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct Child {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) exit: Option<RawExit>,
}

impl Child {
    /// Returns its id, which is also its process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a descriptor that becomes readable when the process has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a signal to the process alone. It never reaches a later process of the same number.
    ///
    /// # Errors
    /// The process is reaped (`ESRCH`).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        process::pidfd_signal(&self.pidfd, signal)
    }

    /// Reaps the process if it has ended; again and again tells the same.
    ///
    /// # Errors
    /// Someone else has reaped it ([`process::reap_any`]).
    pub fn try_wait(&mut self) -> io::Result<Option<RawExit>> {
        if self.exit.is_none() {
            self.exit = process::wait_for(self.pid, libc::WNOHANG)?;
        }
        Ok(self.exit)
    }

    /// Waits for the end of the process and reaps it.
    ///
    /// # Errors
    /// Someone else has reaped it ([`process::reap_any`]).
    pub fn wait(&mut self) -> io::Result<RawExit> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.exit = process::wait_for(self.pid, 0)?;
        }
    }
}

/// Starts a process: in its own process group, killed when the calling thread ends, with nothing but its three streams
/// open, no signal blocked and none ignored.
///
/// # Errors
/// Says which step failed; the failure of executing the program itself included.
pub fn spawn(spawn: Spawn) -> Result<Child, SpawnError> {
    let prepared = Prepared::new(spawn)?;
    let plan = prepared.plan();
    let (pid, pidfd) = match clone_child(&plan) {
        Ok(born) => born,
        Err(source) => return Err(prepared.not_created(source)),
    };
    let errno = plan.errno.load(Relaxed);
    if errno == 0 {
        return Ok(Child { pid, pidfd, exit: None });
    }
    // It gave up and is a zombie. If a general reaper was faster, that is as good.
    let _exit = process::wait_for(pid, 0);
    Err(prepared.failed(plan.step.load(Relaxed), errno))
}

/// Becomes a program: in this process, with its parent, its group and what it holds open beyond the three streams; no
/// signal blocked and none ignored. Returns only to say why not, and then nothing is as it was: the caller leaves.
#[must_use]
pub fn become_program_of(spawn: Spawn) -> SpawnError {
    let prepared = match Prepared::new(spawn) {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let plan = prepared.plan();
    child::replace_program(&plan);
    let (step, errno) = (plan.step.load(Relaxed), plan.errno.load(Relaxed));
    prepared.failed(step, errno)
}

fn clone_child(plan: &Plan) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); CHILD_STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut pidfd: c_int = -1;
    // The child shares our handlers' memory: none of them may run in it, so all signals wait until it is over.
    let old_mask = swap_mask(&full_mask());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the stack is large enough, aligned and lives until the call returns, which is (CLONE_VFORK) after the
    // child has left our memory; so do the plan and what it points to. `child::child` keeps the rules stated there.
    let pid = unsafe { libc::clone(child::child, top, flags, argument, &raw mut pidfd) };
    let outcome = check(pid);
    swap_mask(&old_mask);
    let pid = outcome?;
    // SAFETY: the kernel has put a new descriptor there, since the clone went well.
    Ok((Pid(pid), unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

pub(crate) fn full_mask() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set that it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    unsafe { set.assume_init() }
}

pub(crate) fn swap_mask(new: &libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both pointers are valid, and SIG_SETMASK is a known way, so the call cannot fail and fills `old`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new, old.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    unsafe { old.assume_init() }
}
