//! File locks that show whether their owner is alive. The kernel releases a lock when the last process that
//! holds it exits for any reason.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::dirs::open_regular;

/// A lock held until it is dropped. Executed programs do not inherit it.
#[derive(Debug)]
pub struct LivenessLock {
    _file: File,
}

impl LivenessLock {
    /// Acquires the lock, creating its file if needed. Waits for other owners, and for callers of
    /// [`is_held`], which hold the lock for an instant.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

/// Returns whether any process holds the lock; `false` if the file is missing.
///
/// # Errors
/// An I/O error of the system: the state of the lock is unknown.
pub fn is_held(path: &Path) -> io::Result<bool> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_held_until_dropped_despite_queries() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_held(&path).unwrap(), "there is no file");
        let lock = LivenessLock::acquire(&path).unwrap();
        assert!(is_held(&path).unwrap() && is_held(&path).unwrap());
        drop(lock);
        assert!(!is_held(&path).unwrap() && !is_held(&path).unwrap());
        drop(LivenessLock::acquire(&path).unwrap());
    }
}
