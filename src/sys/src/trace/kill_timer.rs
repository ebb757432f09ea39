//! Timeout for uninterruptible calls that wait for a process. The timer kills the process, which ends the
//! wait.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{AtomicI32, Ordering::SeqCst},
    time::Duration,
};

use crate::{
    check,
    process::{Pid, pidfd_open},
};

use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};

static TARGET: AtomicI32 = AtomicI32::new(-1);

/// Kills the process when the timer expires; dropping it disarms the timer. Only one timer at a time, and
/// only in processes that use no alarms.
#[derive(Debug)]
pub struct KillTimer {
    _pidfd: OwnedFd,
}

impl KillTimer {
    /// Arms the kill timer for a process.
    ///
    /// # Errors
    /// The process no longer exists, or the system has no free descriptor or timer.
    pub fn arm(process: Pid, burns: Duration) -> io::Result<Self> {
        let pidfd = pidfd_open(process)?;
        let action = SigAction::new(SigHandler::Handler(on_alarm), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler keeps its stated rules.
        unsafe { sigaction(Signal::SIGALRM, &action) }?;
        let fuse = Self { _pidfd: pidfd };
        TARGET.store(fuse._pidfd.as_raw_fd(), SeqCst);
        set_timer(burns)?;
        Ok(fuse)
    }
}

impl Drop for KillTimer {
    fn drop(&mut self) {
        TARGET.store(-1, SeqCst);
        // Disarming should not fail. If it does, the timer has no target to kill.
        drop(set_timer(Duration::ZERO));
    }
}

/// Sets the timer; zero disarms it. The timer fires again every second, because a signal between the check
/// and the wait would be lost.
fn set_timer(after: Duration) -> io::Result<()> {
    let time = |duration: Duration| libc::timeval {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_usec: duration.subsec_micros().into(),
    };
    let interval = if after.is_zero() { Duration::ZERO } else { Duration::from_secs(1) };
    let timer = libc::itimerval { it_interval: time(interval), it_value: time(after) };
    // SAFETY: the kernel reads one itimerval; the old one is not requested.
    check(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }).map(|_| ())
}

/// Kills the target when the timer expires. As a signal handler, it may only use system calls and atomics: no
/// allocation, lock or formatting.
extern "C" fn on_alarm(_signal: libc::c_int) {
    // The interrupted code must find its errno unchanged.
    let before = Errno::last_raw();
    let target = TARGET.load(SeqCst);
    if target != -1 {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: without siginfo, the kernel reads no memory of ours.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, target, libc::SIGKILL, none, 0) };
    }
    Errno::set_raw(before);
}
