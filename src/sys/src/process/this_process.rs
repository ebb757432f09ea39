//! Attributes of this process: subreaper, parent-death signal, ignored signals, its own program file.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};

use nix::sys::{
    signal::{SigSet, Signal as NamedSignal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::process::{
    Resource, Rlimit, getrlimit, set_child_subreaper, set_parent_process_death_signal, setrlimit,
};

use super::{Pid, Signal, reserved_fds};
use crate::check;

/// Makes this process the subreaper of all orphans below it. Also reserves three descriptors, so that the
/// orphans can be found even when no descriptors are free.
///
/// # Errors
/// The system call failed.
pub fn become_subreaper() -> io::Result<()> {
    reserved_fds::reserve();
    Ok(set_child_subreaper(Some(Pid::own().for_rustix()?))?)
}

/// Makes the kernel kill this process when the thread that started it exits.
///
/// [`crate::spawn::spawn`] does this for every process that it starts. Use this function in a process started
/// in another way.
///
/// # Errors
/// The system call failed.
pub(crate) fn kill_on_parent_exit() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL.for_rustix()?))?)
}

/// Makes the kernel continue this process when the thread that started it exits, instead of killing it. The
/// process handles its own exit, which it could not do while stopped.
///
/// # Errors
/// The system call failed.
pub fn wake_on_parent_exit() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::CONT.for_rustix()?))?)
}

/// Clears the parent-death signal set by [`crate::spawn::spawn`] or `kill_on_parent_exit`, because this
/// process handles its own exit.
///
/// # Errors
/// The system call failed.
pub fn clear_parent_death_signal() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Limits the memory that this process can allocate, and disables its core file.
///
/// # Errors
/// The system call failed.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, limit(0))?;
    let allowed = getrlimit(Resource::Data).maximum.map_or(bytes, |maximum| maximum.min(bytes));
    Ok(setrlimit(Resource::Data, limit(allowed))?)
}

/// Sets the name of this process for `ps` and `top`; the kernel keeps 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    let _result = rustix::thread::set_name(name);
}

/// Ignores the signals that a terminal or session sends to stop or end programs. The coordinator receives
/// them and informs the other processes.
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
        ignore_signal(signal);
    }
}

fn ignore_signal(signal: libc::c_int) {
    // SAFETY: ignoring a signal installs no handler, so no code of ours runs in its context.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Makes a write beyond the file size limit fail with an error instead of ending this process with SIGXFSZ.
pub fn ignore_file_size_signal() {
    ignore_signal(libc::SIGXFSZ);
}

/// Exits this process without cleanup: nothing is flushed, dropped or unloaded. Allowed between clone and
/// exec, and in signal handlers.
pub fn exit_immediately(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Returns a path for executing this process's program again, even if its file was replaced.
#[must_use]
pub fn own_program_path() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Returns a path where other processes can execute this process's program: its file, if unchanged; otherwise
/// a path that is valid while this process lives.
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
    rustix::process::geteuid().as_raw()
}

/// A pollable descriptor for exits of children, including adopted ones. For single-threaded processes.
///
/// One wake-up may report several exits. After [`Self::clear`], reap until no exited child is left.
#[derive(Debug)]
pub struct ChildExits(SignalFd);

impl ChildExits {
    /// Blocks SIGCHLD in this thread and opens a descriptor for it.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn watch() -> io::Result<Self> {
        let child_exits = SigSet::from(NamedSignal::SIGCHLD);
        child_exits.thread_block()?;
        Ok(Self(SignalFd::with_flags(&child_exits, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Makes the descriptor unreadable until the next exit.
    pub fn clear(&self) {
        while let Ok(Some(_exit)) = self.0.read_signal() {}
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
