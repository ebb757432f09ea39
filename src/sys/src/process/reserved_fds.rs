//! File descriptors held in reserve for EMFILE/ENFILE: a process that can open no more files still finds and
//! kills its descendants.

use std::{
    fs::File,
    io,
    sync::{Mutex, TryLockError},
};

/// Number of reserved descriptors: a directory, a file in it, and one for a nested lookup.
const RESERVED_COUNT: usize = 3;

static RESERVED_FDS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Fills the reserve; descriptors that cannot be opened are left out. A forked process inherits the reserve
/// of its parent.
pub(super) fn reserve() {
    if let Ok(mut kept) = RESERVED_FDS.try_lock() {
        refill(&mut kept);
    }
}

fn refill(kept: &mut Vec<File>) {
    while kept.len() < RESERVED_COUNT {
        // The root directory is the one most certain to exist.
        let Ok(file) = File::open("/") else { return };
        kept.push(file);
    }
}

/// Runs a function that opens descriptors; if none are free, runs it again with the reserve released.
pub(super) fn with_reserved<T>(look: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match look() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            let mut kept = match RESERVED_FDS.try_lock() {
                Ok(kept) => kept,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // A nested call: the outer one has released the reserve already.
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
