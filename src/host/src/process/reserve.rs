//! Descriptors that are kept for bad times: a process that may open no more files still finds and ends what is below it.

use std::{
    fs::File,
    io,
    sync::{Mutex, TryLockError},
};

/// A directory, a file in it, and one for whoever is asked by the way.
const COUNT: usize = 3;

static KEPT: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Keeps some descriptors open; those that can't be had are left out. A forked process has those of its maker.
pub(super) fn keep() {
    if let Ok(mut kept) = KEPT.try_lock() {
        fill(&mut kept);
    }
}

fn fill(kept: &mut Vec<File>) {
    while kept.len() < COUNT {
        // There is no directory that is surer to be there.
        let Ok(file) = File::open("/") else { return };
        kept.push(file);
    }
}

/// Looks at something that wants descriptors; where there are none, again with those that were kept.
pub(super) fn look<T>(look: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match look() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            let mut kept = match KEPT.try_lock() {
                Ok(kept) => kept,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever looks on behalf of a look has them already.
                Err(TryLockError::WouldBlock) => return Err(error),
            };
            kept.clear();
            let outcome = look();
            fill(&mut kept);
            outcome
        }
        outcome => outcome,
    }
}
