//! Who has the terminal: the process group that is in its foreground reads from it, and gets what Ctrl-C sends. And how
//! the terminal treats what is typed.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::{check, process::Pid};

/// How a terminal treats what is typed and printed: whether it shows it, edits lines, makes signals of keys.
#[derive(Clone, Copy)]
pub struct Modes(libc::termios);

/// Returns the modes of a terminal.
///
/// # Errors
/// It is no terminal.
pub fn modes(terminal: BorrowedFd<'_>) -> io::Result<Modes> {
    let mut modes = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the pointer is valid for writing during the call.
    check(unsafe { libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr()) })?;
    // SAFETY: filled by the call above, which went well.
    Ok(Modes(unsafe { modes.assume_init() }))
}

/// Gives a terminal modes that it had, at once. For a process in its foreground; another is stopped for it.
///
/// # Errors
/// It is no terminal.
pub fn set_modes(terminal: BorrowedFd<'_>, modes: &Modes) -> io::Result<()> {
    // SAFETY: the pointer is to a whole `termios` that lives during the call.
    check(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const modes.0) }).map(|_| ())
}

/// Returns the group in the foreground of a terminal.
///
/// # Errors
/// It is no terminal, or not this process's.
pub fn foreground(terminal: BorrowedFd<'_>) -> io::Result<Pid> {
    // SAFETY: tcgetpgrp takes an integer.
    check(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) }).map(Pid)
}

/// Puts a group into the foreground of a terminal, also from behind it.
///
/// # Errors
/// It is no terminal, not this process's, or there is no such group in its session.
pub fn set_foreground(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was initialised by the call above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU) };
    // Whoever does this from behind is stopped for it, unless this signal is blocked.
    // SAFETY: the set is initialised, and `before` may be written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: tcsetpgrp takes two integers.
    let outcome = check(unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group.0) });
    // SAFETY: filled by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    outcome.map(|_| ())
}
