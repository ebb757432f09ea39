//! File descriptors held in reserve for EMFILE and ENFILE: a process that cannot open files can still find
//! and kill its descendants.

use std::{
    fs::File,
    io,
    sync::{Mutex, TryLockError},
};

/// Number of reserved descriptors: a directory, a file in it, and one for a nested lookup.
const RESERVED_COUNT: usize = 3;

static RESERVED_FDS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Fills the reserve. Descriptors that cannot be opened are left out. A forked process inherits its parent's
/// reserve.
pub(super) fn reserve() {
    if let Ok(mut kept) = RESERVED_FDS.try_lock() {
        refill(&mut kept);
    }
}

fn refill(kept: &mut Vec<File>) {
    while kept.len() < RESERVED_COUNT {
        // The root directory is the most certain to exist.
        let Ok(file) = File::open("/") else { return };
        kept.push(file);
    }
}

/// Runs a function that opens descriptors. If none are free, runs it again with the reserve released.
pub(super) fn with_reserved<T>(look: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match look() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            let mut kept = match RESERVED_FDS.try_lock() {
                Ok(kept) => kept,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // This is a nested call, and the outer call has already released the reserve.
                Err(TryLockError::WouldBlock) => return Err(error),
            };
            kept.clear();
            let outcome = look();
            refill(&mut kept);
            outcome
        }
        outcome => outcome,
    }
}
