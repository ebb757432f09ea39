//! Terminal control: the foreground process group, which reads from the terminal and receives the signal of
//! Ctrl-C, and the terminal modes.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::{check, process::Pid};

/// Terminal modes: echo, line editing, signals from keys.
#[derive(Clone, Copy)]
pub struct TerminalModes(libc::termios);

/// Returns the modes of a terminal.
///
/// # Errors
/// The descriptor is no terminal.
pub fn modes(terminal: BorrowedFd<'_>) -> io::Result<TerminalModes> {
    let mut modes = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the pointer is valid for writing during the call.
    check(unsafe { libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr()) })?;
    // SAFETY: filled by the call above, which succeeded.
    Ok(TerminalModes(unsafe { modes.assume_init() }))
}

/// Restores saved modes of a terminal immediately. For a process in its foreground; a background process is
/// stopped.
///
/// # Errors
/// The descriptor is no terminal.
pub fn set_modes(terminal: BorrowedFd<'_>, modes: &TerminalModes) -> io::Result<()> {
    // SAFETY: the pointer is to a whole `termios` that lives during the call.
    check(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const modes.0) }).map(|_| ())
}

/// Returns the foreground process group of a terminal.
///
/// # Errors
/// The descriptor is no terminal, or not this process's controlling terminal.
pub fn foreground_group(terminal: BorrowedFd<'_>) -> io::Result<Pid> {
    // SAFETY: tcgetpgrp takes an integer.
    check(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) }).map(Pid)
}

/// Makes a process group the foreground group of a terminal; also from the background.
///
/// # Errors
/// The descriptor is no terminal, not this process's controlling terminal, or its session has no such group.
pub fn set_foreground_group(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was initialised by the call above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU) };
    // A background process is stopped when it does this, unless this signal is blocked.
    // SAFETY: the set is initialised, and `before` may be written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: tcsetpgrp takes two integers.
    let outcome = check(unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group.0) });
    // SAFETY: filled by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    outcome.map(|_| ())
}
