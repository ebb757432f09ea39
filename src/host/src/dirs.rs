//! Directories that belong to one user alone.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileTypeExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::process::{self, Pid, effective_uid};

/// A socket's path may have 107 bytes; this leaves room for our directory and a name in it.
const BASE_LIMIT_BYTES: usize = 70;
/// Names in use are left behind by processes of our number that were killed; so many are skipped.
const ATTEMPTS: u32 = 100;

/// Why there is no private directory.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The system refused.
    #[error("create the private directory {}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Something of that name exists and is not ours alone.
    #[error("use {} as a private directory: it {problem}", path.display())]
    Shared {
        /// Which.
        path: PathBuf,
        /// Such as `is open to others`.
        problem: &'static str,
    },
}

/// Creates a directory that only this user may enter; returns false where something of that name exists.
///
/// # Errors
/// The system refused.
pub fn new_private_dir(path: &Path) -> Result<bool, DirError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(DirError::Create { path: path.to_owned(), source }),
    }
}

/// Creates a directory, and those above it, that only this user may enter; one that exists must be of that kind.
///
/// # Errors
/// The system refused, or others have a hand in what is there.
pub fn private_dir(path: &Path) -> Result<(), DirError> {
    let create = |source| DirError::Create { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(create)?;
    }
    if new_private_dir(path)? {
        return Ok(());
    }
    let found = fs::symlink_metadata(path).map_err(create)?;
    let problem = if !found.is_dir() {
        "is no directory"
    } else if found.uid() != effective_uid() {
        "belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "is open to others"
    } else {
        return Ok(());
    };
    Err(DirError::Shared { path: path.to_owned(), problem })
}

/// A new private directory with a path short enough for sockets; removed with all in it when dropped.
#[derive(Debug)]
pub struct SocketDir(PathBuf);

impl SocketDir {
    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // Best effort: what cannot be removed is empty or holds dead sockets.
        let _unremoved = fs::remove_dir_all(&self.0);
    }
}

/// Returns whether there is a socket at this path that nobody listens on.
#[must_use]
pub fn is_deserted(socket: &Path) -> bool {
    let connected = UnixStream::connect(socket);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the directories for sockets of processes that were killed before anybody could do it for them.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix("heeler-")?.split_once('-'));
        let Some((pid, number)) = numbers else { continue };
        let is_ours = pid.parse::<u32>().is_ok()
            && number.parse::<u32>().is_ok()
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == effective_uid());
        // A number without a process here may be one of another namespace, so the sockets are asked as well.
        let is_alive = |pid| process::stat(Pid(pid)).is_some_and(|stat| stat.state != 'Z');
        if is_ours && !pid.parse().is_ok_and(is_alive) && !is_listened_in(&entry.path()) {
            // Whoever else starts now may have removed it.
            let _removed = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_listened_in(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return true };
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    entries.flatten().filter(is_socket).any(|socket| !is_deserted(&socket.path()))
}

/// Creates a directory for sockets below `XDG_RUNTIME_DIR`, or below `/tmp` where that is missing, long or not writable.
///
/// # Errors
/// Neither place takes a directory.
pub fn socket_dir() -> Result<SocketDir, DirError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.as_os_str().len() <= BASE_LIMIT_BYTES);
    let mut last = None;
    for base in runtime.into_iter().chain([PathBuf::from("/tmp")]) {
        sweep(&base);
        for _ in 0..ATTEMPTS {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("heeler-{}-{number}", Pid::own()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(SocketDir(path)),
                Err(source) => {
                    let is_taken = source.kind() == io::ErrorKind::AlreadyExists;
                    last = Some(DirError::Create { path, source });
                    if !is_taken {
                        break;
                    }
                }
            }
        }
    }
    Err(last.expect("at least one place was tried"))
}

/// Returns how many bytes an ordinary user may still write to the file system that holds `path`.
///
/// # Errors
/// The system's.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statvfs is a plain C struct that may be all zero.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero and `found` is valid for writing during the call.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_private_directory_is_closed_to_others_and_found_again() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        private_dir(&path).unwrap();
    }

    #[test]
    fn what_others_have_a_hand_in_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let problem = |path: &Path| match private_dir(path).unwrap_err() {
            DirError::Shared { problem, .. } => problem,
            other @ DirError::Create { .. } => panic!("{other:?}"),
        };
        let open = temporary.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(problem(&open), "is open to others");
        let link = temporary.path().join("link");
        symlink("/tmp", &link).unwrap();
        assert_eq!(problem(&link), "is no directory");
        let below_a_file = temporary.path().join("file");
        fs::write(&below_a_file, "").unwrap();
        assert_eq!(problem(&below_a_file), "is no directory");
        assert!(matches!(private_dir(&below_a_file.join("x")), Err(DirError::Create { .. })));
    }

    #[test]
    fn what_processes_that_were_killed_left_goes_with_the_next_start() {
        use std::os::unix::net::UnixListener;
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = base.path().join(name);
            fs::create_dir(&dir).unwrap();
            (UnixListener::bind(dir.join("control")).unwrap(), dir)
        };
        // No process has a number that large.
        let (dead, of_dead) = make("heeler-4194304-0");
        drop(dead);
        let (_listens, of_another_namespace) = make("heeler-4194304-1");
        let (own, of_own) = make(&format!("heeler-{}-7", Pid::own()));
        drop(own);
        let (other, of_others) = make("heeler-notes-0");
        drop(other);
        sweep(base.path());
        let left = [of_dead, of_another_namespace, of_own, of_others].map(|dir| dir.exists());
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn a_socket_directory_is_private_and_goes_with_its_owner() {
        let directory = socket_dir().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_ne!(socket_dir().unwrap().path(), path);
        std::os::unix::net::UnixListener::bind(path.join("control.sock")).unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
