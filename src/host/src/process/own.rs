//! What this process is to the system: whose orphans it adopts, with whom it dies, which signals it hears.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::PathBuf,
};

use super::{Pid, Signal, reserve};
use crate::check;

/// Makes this process the parent of all orphans below it. It keeps three descriptors to find them with when it may open no
/// more.
///
/// # Errors
/// The kernel refused.
pub fn become_subreaper() -> io::Result<()> {
    reserve::keep();
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Makes the kernel kill this process when the thread that started it ends.
///
/// [`crate::spawn::spawn`] does this for all that it starts; here for a process that was started otherwise.
///
/// # Errors
/// The kernel refused.
pub fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
}

/// Makes the kernel wake this process when the thread that started it ends, instead of killing it: it sees to its own end,
/// and one that was stopped could not.
///
/// # Errors
/// The kernel refused.
pub fn wake_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT)
}

/// Takes back what [`crate::spawn::spawn`] or [`die_with_parent`] have set: this process sees to its own end.
///
/// # Errors
/// The kernel refused.
pub fn outlive_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, 0)
}

fn prctl(option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let value = libc::c_ulong::from(value.cast_unsigned());
    // SAFETY: the options above take one integer and touch no memory of ours.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(|_| ())
}

/// Names this process for `ps` and `top`; the kernel keeps 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads at most 16 bytes and stops at the zero, which a CStr has.
    let _ = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Ignores what a terminal or a session sends to end or stop programs: the coordinator hears it and tells the others.
pub fn ignore_terminal_signals() {
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ] {
        // SAFETY: to ignore a signal installs no handler, so nothing of ours can run in its context.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Makes a write that the limit on the size of files refuses an error like any other, instead of the end of this process.
pub fn survive_full_files() {
    // SAFETY: to ignore a signal installs no handler, so nothing of ours can run in its context.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process without running anything more of it: nothing is flushed, dropped or unloaded.
pub fn leave_at_once(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Returns the path under which this process's own program can be executed again, even if its file was replaced.
#[must_use]
pub fn own_image() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Returns a path under which others can execute this process's own program: its file's own, if that is still the same
/// file; else one that is good as long as this process lives.
#[must_use]
pub fn named_image() -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let same = |path: &PathBuf| {
        let [named, own] = [path, &own_image()].map(|path| std::fs::metadata(path).ok());
        named.zip(own).is_some_and(|(named, own)| (named.dev(), named.ino()) == (own.dev(), own.ino()))
    };
    let file = std::fs::read_link(own_image()).ok().filter(same);
    file.unwrap_or_else(|| PathBuf::from(format!("/proc/{}/exe", Pid::own())))
}

/// Returns the effective user id of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Ends of children, adopted ones too, as a descriptor to poll. For processes of one thread.
///
/// One readiness may stand for several ends: after [`Self::clear`], reap until nothing comes.
#[derive(Debug)]
pub struct ChildEnds(OwnedFd);

impl ChildEnds {
    /// Blocks the signal of ended children in this thread and opens a descriptor for it.
    ///
    /// # Errors
    /// The kernel gave no descriptor.
    pub fn watch() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set was initialised by the call above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
        // SAFETY: the set is initialised; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
        // SAFETY: the set is initialised, -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let fd = check(fd)?;
        // SAFETY: the descriptor is new and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor unreadable until the next end.
    pub fn clear(&self) {
        let mut buffer = [0_u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            // SAFETY: the buffer is valid for writing of its own length.
            let read = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
            if read <= 0 {
                return;
            }
        }
    }
}

impl AsFd for ChildEnds {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signal {
    /// Sends the signal to this process itself.
    ///
    /// # Errors
    /// There is no such signal.
    pub fn raise(self) -> io::Result<()> {
        // SAFETY: raise takes any number.
        check(unsafe { libc::raise(self.0) }).map(|_| ())
    }
}
