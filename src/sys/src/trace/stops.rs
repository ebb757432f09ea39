//! Results of a wait: exits of children and stops of traced threads. Only this module decodes stops.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::thread::nanosleep;

use crate::{
    io::timespec,
    process::{ExitStatus, Pid, Signal, WaitResult, wait_for_any, wait4},
};

/// `__WALL`: exits of cloned threads do not signal their parents. `__WNOTHREAD`: each thread of this process
/// only receives events of threads that it has seized.
const WAIT_OPTIONS: libc::c_int = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;

/// Number of polls with `yield` before the first sleep. Most stops happen as soon as the traced thread gets
/// the CPU.
const YIELDS_BEFORE_SLEEP: u32 = 50;
const POLL_SLEEP: Duration = Duration::from_micros(100);

/// State change of a child or traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEvent {
    /// The thread has exited and is reaped.
    Exited(ExitStatus),
    /// The thread is traced and stopped.
    Stopped(TraceStop),
}

/// Why a traced thread is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStop {
    /// A signal is about to be delivered.
    Signal(Signal),
    /// A stop signal has stopped the process.
    Group(Signal),
    /// The thread was interrupted, was just created, or continues after a stop signal.
    Interrupt,
    /// The thread has created a thread or process.
    Clone,
    /// The thread has executed another program.
    Exec,
    /// The thread is about to exit; its memory still exists.
    Exit,
    /// An event that was not requested.
    Other(i32),
}

impl TraceStop {
    fn new(status: libc::c_int) -> Self {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => Self::Signal(Signal(signal)),
            libc::PTRACE_EVENT_STOP => match signal {
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Self::Group(Signal(signal)),
                _ => Self::Interrupt,
            },
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Self::Clone,
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_EXIT => Self::Exit,
            event => Self::Other(event),
        }
    }
}

/// Returns the next state change of any child or traced thread. Returns `None` without a change or without
/// children.
///
/// This also collects exits of every [`crate::spawn::SpawnedChild`] of this process, so callers must not wait
/// for those elsewhere.
///
/// # Errors
/// The system call failed with an error other than `ECHILD`.
pub fn next_event() -> io::Result<Option<(Pid, WaitEvent)>> {
    Ok(wait_for_any(WAIT_OPTIONS)?.map(|waited| (waited.pid, event(&waited))))
}

/// Waits until a thread stops or exits; `None` if it does neither before the deadline.
///
/// # Errors
/// The thread is not traced by this thread, or another wait has collected its exit.
pub fn wait_for(tid: Pid, deadline: Instant) -> io::Result<Option<WaitEvent>> {
    let mut looks = 0;
    loop {
        if let Some(waited) = wait4(tid.0, WAIT_OPTIONS)? {
            return Ok(Some(event(&waited)));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        looks += 1;
        if looks < YIELDS_BEFORE_SLEEP {
            std::thread::yield_now();
        } else {
            // A signal may shorten the sleep, which does no harm.
            let _result = nanosleep(&timespec(POLL_SLEEP));
        }
    }
}

fn event(waited: &WaitResult) -> WaitEvent {
    if libc::WIFSTOPPED(waited.status) {
        WaitEvent::Stopped(TraceStop::new(waited.status))
    } else {
        WaitEvent::Exited(waited.exit())
    }
}
