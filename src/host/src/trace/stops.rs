//! What a wait tells: ends of children, and stops of those that are traced. The one place that decodes stops.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    check,
    process::{Pid, RawExit, Signal},
};

/// A stop mostly comes while the processor is merely given to the other.
const YIELDS: u32 = 50;
/// And else a little later.
const NAP: Duration = Duration::from_micros(100);

/// What happened to a child or to a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It has ended and is reaped.
    Ended(RawExit),
    /// It is traced and stands still.
    Stopped(Stop),
}

/// Why a traced thread stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A signal is about to be delivered.
    Signal(Signal),
    /// A stop signal has stopped its process.
    Group(Signal),
    /// It was asked to, has just been born, or goes on after a stop signal.
    Trap,
    /// It has started a thread or process.
    Birth,
    /// It has become another program.
    Exec,
    /// It is about to end; its memory is still there.
    Exit,
    /// An event that nobody asked for.
    Other(i32),
}

impl Stop {
    fn new(status: libc::c_int) -> Self {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => Self::Signal(Signal(signal)),
            libc::PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Self::Group(Signal(signal)),
                _ => Self::Trap,
            },
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Self::Birth,
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_EXIT => Self::Exit,
            event => Self::Other(event),
        }
    }
}

/// Returns the next thing that has happened to any child or traced thread; `None`: nothing has, or there is none.
///
/// It takes the ends of every [`crate::spawn::Child`] of this process too: who uses it keeps no waits elsewhere.
///
/// # Errors
/// The system call failed in a way that is not "there are no children".
pub fn next() -> io::Result<Option<(Pid, Waited)>> {
    match wait(-1) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        outcome => outcome,
    }
}

/// Waits for one thread to stop or end; `None` when it does not in time.
///
/// # Errors
/// It is not traced by this thread, or another wait has told its end.
pub fn wait_for(tid: Pid, deadline: Instant) -> io::Result<Option<Waited>> {
    let mut looks = 0;
    loop {
        if let Some((_, waited)) = wait(tid.0)? {
            return Ok(Some(waited));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        looks += 1;
        if looks < YIELDS { std::thread::yield_now() } else { nap() }
    }
}

fn nap() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: NAP.subsec_nanos().into() };
    // A signal makes it shorter, which does no harm.
    // SAFETY: the kernel reads one timespec; the rest is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

fn wait(tid: libc::pid_t) -> io::Result<Option<(Pid, Waited)>> {
    // Threads tell their parents nothing, and each thread of ours hears only of what it has seized itself.
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    loop {
        let mut status = 0;
        // SAFETY: rusage is a plain C struct that may be all zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the right types.
        let result = unsafe { libc::wait4(tid, &raw mut status, options, &raw mut usage) };
        let pid = match check(result) {
            Ok(0) => return Ok(None),
            Ok(pid) => Pid(pid),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let waited = if libc::WIFSTOPPED(status) {
            Waited::Stopped(Stop::new(status))
        } else {
            Waited::Ended(RawExit::new(status, &usage))
        };
        return Ok(Some((pid, waited)));
    }
}
