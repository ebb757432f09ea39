//! Attributes of this process: subreaper, parent-death signal, ignored signals, its own program file.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::PathBuf,
};

use super::{Pid, Signal, reserved_fds};
use crate::check;

/// Makes this process the subreaper of all orphans below it. It reserves three descriptors, with which it
/// still finds the orphans when no descriptors are free.
///
/// # Errors
/// The system call failed.
pub fn become_subreaper() -> io::Result<()> {
    reserved_fds::reserve();
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Makes the kernel kill this process when the thread that started it exits.
///
/// [`crate::spawn::spawn`] does this for every process that it starts; this function is for a process that
/// was started otherwise.
///
/// # Errors
/// The system call failed.
pub fn kill_on_parent_exit() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
}

/// Makes the kernel wake this process when the thread that started it exits, instead of killing it: the
/// process handles its own exit, and could not do so while stopped.
///
/// # Errors
/// The system call failed.
pub fn wake_on_parent_exit() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT)
}

/// Clears the parent-death signal that [`crate::spawn::spawn`] or [`kill_on_parent_exit`] has set: this process
/// handles its own exit.
///
/// # Errors
/// The system call failed.
pub fn clear_parent_death_signal() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, 0)
}

fn prctl(option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let value = libc::c_ulong::from(value.cast_unsigned());
    // SAFETY: the options above take one integer and touch no memory of ours.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(|_| ())
}

/// Sets the name of this process for `ps` and `top`; the kernel keeps 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads at most 16 bytes and stops at the zero, which a CStr has.
    let _ = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Ignores the signals that a terminal or a session sends to terminate or stop programs: the coordinator
/// receives them and notifies the other processes.
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

/// Makes a write that exceeds the file size limit fail with an error, instead of a SIGXFSZ that terminates
/// this process.
pub fn ignore_file_size_signal() {
    // SAFETY: to ignore a signal installs no handler, so nothing of ours can run in its context.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Exits this process without any cleanup: nothing is flushed, dropped or unloaded.
pub fn exit_immediately(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Returns the path under which this process's own program can be executed again, even if its file was
/// replaced.
#[must_use]
pub fn own_program_path() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Returns a path under which other processes can execute this process's own program: the path of its file,
/// if that is still the same file; otherwise one that is valid while this process lives.
#[must_use]
pub fn shared_program_path() -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let same = |path: &PathBuf| {
        let [named, own] = [path, &own_program_path()].map(|path| std::fs::metadata(path).ok());
        named.zip(own).is_some_and(|(named, own)| (named.dev(), named.ino()) == (own.dev(), own.ino()))
    };
    let file = std::fs::read_link(own_program_path()).ok().filter(same);
    file.unwrap_or_else(|| PathBuf::from(format!("/proc/{}/exe", Pid::own())))
}

/// Returns the effective user id of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Exits of children, adopted ones too, as a descriptor to poll. For processes with one thread.
///
/// One readiness may stand for several exits: after [`Self::clear`], reap until no child has an unreaped
/// exit.
#[derive(Debug)]
pub struct ChildExits(OwnedFd);

impl ChildExits {
    /// Blocks SIGCHLD in this thread and opens a descriptor for it.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn watch() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set was initialised by the call above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
        // SAFETY: the set is initialised; the old mask is not requested.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
        // SAFETY: the set is initialised, -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let fd = check(fd)?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor unreadable until the next exit.
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

impl AsFd for ChildExits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signal {
    /// Sends the signal to this process itself.
    ///
    /// # Errors
    /// The signal number is invalid.
    pub fn raise(self) -> io::Result<()> {
        // SAFETY: raise takes any number.
        check(unsafe { libc::raise(self.0) }).map(|_| ())
    }
}
