//! Terminal control: the terminal modes, and the foreground process group, which reads from the terminal and
//! receives Ctrl-C.

use std::{io, os::fd::BorrowedFd, time::Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::{io::wait_readable, process::Pid};

/// Maximum number of lines, or parts of longer lines, that are read at once.
const MAX_TYPED_LINES: usize = 100;

/// Terminal modes: echo, line editing, signals from keys.
#[derive(Clone)]
pub struct TerminalModes(Termios);

/// Returns the modes of a terminal.
///
/// # Errors
/// The descriptor is not a terminal.
pub fn modes(terminal: BorrowedFd<'_>) -> io::Result<TerminalModes> {
    Ok(TerminalModes(tcgetattr(terminal)?))
}

/// Restores saved modes of a terminal immediately. Only for a foreground process: a background process would
/// be stopped.
///
/// # Errors
/// The descriptor is not a terminal.
pub fn set_modes(terminal: BorrowedFd<'_>, modes: &TerminalModes) -> io::Result<()> {
    Ok(tcsetattr(terminal, OptionalActions::Now, &modes.0)?)
}

/// Returns the foreground process group of a terminal.
///
/// # Errors
/// The descriptor is not a terminal, or not this process's controlling terminal.
pub fn foreground_group(terminal: BorrowedFd<'_>) -> io::Result<Pid> {
    Ok(Pid(tcgetpgrp(terminal)?.as_raw_pid()))
}

/// Reads typed input from a terminal, and returns the number of line ends. Returns 0 without waiting if no
/// line was typed, or this process is in the background. The terminal stays in line mode.
///
/// # Errors
/// The descriptor is not a terminal, or cannot be read.
pub fn take_typed_lines(terminal: BorrowedFd<'_>) -> io::Result<usize> {
    let mut lines = 0;
    // Each read returns one line of the terminal. The limit protects the caller from endless input.
    for _ in 0..MAX_TYPED_LINES {
        let [is_readable] = wait_readable([Some(terminal)], Some(Instant::now()))?;
        // A background process would be stopped if it read.
        if !is_readable || tcgetpgrp(terminal)? != rustix::process::getpgrp() {
            break;
        }
        let mut bytes = [0; 1024];
        let count = rustix::io::read(terminal, &mut bytes)?;
        lines += bytes[..count].iter().filter(|byte| **byte == b'\n').count();
        if count == 0 {
            break;
        }
    }
    Ok(lines)
}

/// Makes a process group the foreground group of a terminal, even if this process is in the background.
///
/// # Errors
/// The descriptor is not a terminal, not this process's controlling terminal, or its session has no such
/// group.
pub fn set_foreground_group(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    // A background process is stopped by this call unless it blocks this signal.
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let outcome = group.for_rustix().and_then(|group| Ok(tcsetpgrp(terminal, group)?));
    before.thread_set_mask()?;
    outcome
}
