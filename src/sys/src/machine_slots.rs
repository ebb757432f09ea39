//! Slots that all coordinators of a user share on this machine: a lock for each slot, and a registration of
//! each coordinator. No process manages them. The kernel releases the locks of a process that dies.
//!
//! A slot is a byte of one file, locked for an open file description. Every duplicate of the descriptor holds
//! the same locks, so a coordinator gives its watchdog a duplicate: if the coordinator is killed, its slots
//! stay taken until the watchdog has ended all test processes and exits.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};

use crate::{
    dirs::{DirError, open_regular, random_u32, shared_user_dir},
    process::Pid,
};

/// Name of the directory.
const DIRECTORY: &str = "heeler-slots";
/// Start of the names of registrations.
const REGISTRATION: &str = "run-";
/// Start of the names of registrations that are not locked yet.
const NEW_REGISTRATION: &str = "new-";
/// Maximum size of a registration that is read.
const REGISTRATION_BYTES: u64 = 8 << 10;
/// Two changes of a directory that are at least this far apart have different times.
const TIMESTAMP_PRECISION: Duration = Duration::from_millis(100);
/// Attempts to create a registration. Another process may remove the file before it is locked.
const ATTEMPTS: u32 = 10;

/// Returns the directory of this user's slots on this machine, and creates it if it is missing.
///
/// # Errors
/// The directory cannot be created, or other users have access to it.
pub fn directory() -> Result<PathBuf, DirError> {
    shared_user_dir(DIRECTORY)
}

/// The locks of the slots that this process holds.
#[derive(Debug)]
pub struct SlotLocks {
    file: File,
}

impl SlotLocks {
    /// Opens the locks in a directory, and holds none of them.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        Ok(Self { file: options.open(directory.join("slots"))? })
    }

    /// Takes a slot. Returns `false` if another coordinator holds it.
    ///
    /// # Errors
    /// An I/O error of the system, such as a file system without locks.
    pub fn try_take(&self, slot: usize) -> io::Result<bool> {
        match self.lock(slot, libc::F_WRLCK) {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a slot back.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn give_back(&self, slot: usize) -> io::Result<()> {
        Ok(self.lock(slot, libc::F_UNLCK)?)
    }

    /// Returns a duplicate for another process, which then also holds the slots.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    fn lock(&self, slot: usize, kind: i32) -> nix::Result<()> {
        let lock = libc::flock {
            l_type: libc::c_short::try_from(kind).map_err(|_| Errno::EINVAL)?,
            l_whence: libc::c_short::try_from(libc::SEEK_SET).map_err(|_| Errno::EINVAL)?,
            l_start: libc::off_t::try_from(slot).map_err(|_| Errno::EINVAL)?,
            l_len: 1,
            // Required to be 0 by locks of open file descriptions.
            l_pid: 0,
        };
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
    }
}

/// Registration of a coordinator: a text that other coordinators read while this one lives. Dropping the
/// registration removes it.
#[derive(Debug)]
pub struct CoordinatorRegistration {
    file: File,
    path: PathBuf,
    name: String,
}

impl CoordinatorRegistration {
    /// Registers this process in a directory.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn create(directory: &Path, text: &str) -> io::Result<Self> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..ATTEMPTS {
            let number = format!("{}-{:08x}{:08x}", Pid::own(), random_u32(), random_u32());
            let new = directory.join(format!("{NEW_REGISTRATION}{number}"));
            let name = format!("{REGISTRATION}{number}");
            let path = directory.join(&name);
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            // The file gets its final name only with its lock and text, because the registration of a dead
            // process is a file without a lock.
            file.lock()?;
            file.write_all_at(text.as_bytes(), 0)?;
            match fs::rename(&new, &path) {
                Ok(()) => return Ok(Self { file, path, name }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Returns the name, which is unique.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Overwrites the start of the text.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn overwrite_start(&self, text: &str) -> io::Result<()> {
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for CoordinatorRegistration {
    fn drop(&mut self) {
        // A file that cannot be removed loses its lock, and the next reader removes it.
        let _stays = fs::remove_file(&self.path);
    }
}

/// Reads what the coordinators in a directory have registered.
#[derive(Debug, Default)]
pub struct RegistrationReader {
    /// When the directory had last changed, if no other coordinator was registered since.
    empty_since: Option<SystemTime>,
}

impl RegistrationReader {
    /// Returns the names and texts of all living coordinators except `own`, ordered by name. Removes the
    /// registrations of dead ones.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read_others(&mut self, directory: &Path, own: Option<&str>) -> io::Result<Vec<(String, String)>> {
        let changed = fs::metadata(directory)?.modified()?;
        if self.empty_since == Some(changed) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let mut is_empty = true;
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| Some(*name) != own) else { continue };
            if !name.starts_with(REGISTRATION) && !name.starts_with(NEW_REGISTRATION) {
                continue;
            }
            is_empty = false;
            // The coordinator may end at any moment.
            if let Ok(Some(text)) = read_if_alive(&directory.join(name))
                && name.starts_with(REGISTRATION)
            {
                found.push((name.to_owned(), text));
            }
        }
        // A later change may get the same time if it comes soon.
        let is_old = changed.elapsed().is_ok_and(|age| age >= TIMESTAMP_PRECISION);
        self.empty_since = (is_empty && is_old).then_some(changed);
        found.sort();
        Ok(found)
    }
}

/// Returns the text of a registration; `None` if its process is dead.
fn read_if_alive(path: &Path) -> io::Result<Option<String>> {
    let file = open_regular(path)?;
    match file.try_lock_shared() {
        Ok(()) => {
            fs::remove_file(path)?;
            return Ok(None);
        }
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut text = String::new();
    file.take(REGISTRATION_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_held_until_all_duplicates_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (SlotLocks::open(dir.path()).unwrap(), SlotLocks::open(dir.path()).unwrap());
        assert!(first.try_take(0).unwrap() && first.try_take(5).unwrap());
        assert!(!second.try_take(0).unwrap() && !second.try_take(5).unwrap());
        assert!(second.try_take(1).unwrap() && !first.try_take(1).unwrap());
        first.give_back(5).unwrap();
        assert!(second.try_take(5).unwrap());
        let duplicate = first.duplicate().unwrap();
        drop(first);
        assert!(!second.try_take(0).unwrap(), "the duplicate holds it");
        drop(duplicate);
        assert!(second.try_take(0).unwrap());
    }

    #[test]
    fn registration_is_seen_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let first = CoordinatorRegistration::create(dir.path(), "one two").unwrap();
        let second = CoordinatorRegistration::create(dir.path(), "three").unwrap();
        first.overwrite_start("ten").unwrap();
        let read = |own| RegistrationReader::default().read_others(dir.path(), own).unwrap();
        let mut texts: Vec<_> = read(None).into_iter().map(|(_, text)| text).collect();
        texts.sort();
        assert_eq!(texts, ["ten two", "three"]);
        assert_eq!(read(Some(second.name())), [(first.name().to_owned(), "ten two".to_owned())]);
        drop(first);
        let rest = read(None);
        assert_eq!(rest, [(second.name().to_owned(), "three".to_owned())]);
    }

    #[test]
    fn registration_without_a_lock_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["run-1-00", "new-1-00"] {
            fs::write(dir.path().join(name), "dead").unwrap();
        }
        fs::write(dir.path().join("slots"), "").unwrap();
        assert_eq!(RegistrationReader::default().read_others(dir.path(), None).unwrap(), []);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["slots"]);
    }

    #[test]
    fn reader_that_was_alone_sees_the_next_registration() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - TIMESTAMP_PRECISION * 2;
        File::open(dir.path()).unwrap().set_modified(old).unwrap();
        let mut reader = RegistrationReader::default();
        assert_eq!(reader.read_others(dir.path(), None).unwrap(), []);
        assert_eq!(reader.empty_since, Some(old), "it need not read again");
        let other = CoordinatorRegistration::create(dir.path(), "other").unwrap();
        assert_eq!(reader.read_others(dir.path(), None).unwrap().len(), 1);
        drop(other);
        assert_eq!(reader.read_others(dir.path(), None).unwrap(), []);
        assert_eq!(reader.empty_since, None, "the change is too recent");
    }
}
