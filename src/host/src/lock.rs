//! Locks on files that say whether their owner lives: the system lets go of them when the last process that holds them
//! is gone, however it went.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// A lock that this process holds until it is dropped. Programs that are executed don't inherit it.
#[derive(Debug)]
pub struct LifeLock {
    _file: File,
}

impl LifeLock {
    /// Takes the lock, and makes its file where there is none. Waits for another owner to let go, and for readers of
    /// [`is_held`], who take an instant.
    ///
    /// # Errors
    /// The system's.
    pub fn take(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

/// Returns whether some process holds the lock. A file that is missing is held by nobody.
///
/// # Errors
/// The system's: it is not known.
pub fn is_held(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
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
    fn a_lock_is_held_until_its_owner_lets_go_and_asking_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_held(&path).unwrap(), "there is no file");
        let lock = LifeLock::take(&path).unwrap();
        assert!(is_held(&path).unwrap() && is_held(&path).unwrap());
        drop(lock);
        assert!(!is_held(&path).unwrap() && !is_held(&path).unwrap());
        drop(LifeLock::take(&path).unwrap());
    }
}
