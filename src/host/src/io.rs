//! Descriptors: what the standard library does not ask of them.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Returns how many bytes of a socket are sent or waiting to be sent, and not yet acknowledged by the peer's kernel.
///
/// # Errors
/// The descriptor is no socket.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and TIOCOUTQ (SIOCOUTQ) writes one int to a valid place.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}
