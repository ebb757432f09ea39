//! Directories that only one user may write to.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::process::{self, Pid, effective_uid};

/// Longest base directory for sockets. A socket path may have 107 bytes; this leaves room for our directory
/// and a name in it.
const BASE_LIMIT_BYTES: usize = 70;
/// Number of random names to try. The names are random so that no other user can occupy all of them in
/// advance.
const ATTEMPTS: u32 = 10;
/// Attempts to remove a session's directory: each of its workers may add another entry meanwhile.
const REMOVAL_ATTEMPTS: u32 = 10;
/// Mode bits for write access by group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bit of a directory where users cannot rename or remove each other's files.
const STICKY_BIT: u32 = 0o1000;
const ROOT_UID: u32 = 0;
/// Default user id that the kernel shows for users who are not mapped in this namespace.
const OVERFLOW_UID: u32 = 65_534;

/// Why a private directory could not be created.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The system call failed.
    #[error("create the private directory {}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// The directory exists but is not owned by this user alone.
    #[error("use the directory {}: it {problem}", path.display())]
    Untrusted {
        path: PathBuf,
        /// The problem, such as `is accessible to other users`.
        problem: &'static str,
    },
}

/// Creates a directory that only this user may enter. Returns `false` if the entry exists.
///
/// # Errors
/// The system call failed.
pub(crate) fn new_private_dir(path: &Path) -> Result<bool, DirError> {
    match private_builder().create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(DirError::Create { path: path.to_owned(), source }),
    }
}

/// Creates a directory and its parents, which only this user may enter. If the directory exists, it must be
/// private too.
///
/// # Errors
/// The system call failed, or other users have access to the existing directory.
pub fn private_dir(path: &Path) -> Result<(), DirError> {
    if let Some(parent) = path.parent() {
        let create = |source| DirError::Create { path: path.to_owned(), source };
        private_builder().recursive(true).create(parent).map_err(create)?;
    }
    private_dir_in_existing(path)
}

/// Creates a directory that only this user may enter, inside an existing one. If the directory exists, it
/// must be private too. The parent is not created: its owner may be exiting and removing it.
///
/// # Errors
/// The parent no longer exists, the system call failed, or other users have access to the existing directory.
pub fn private_dir_in_existing(path: &Path) -> Result<(), DirError> {
    if new_private_dir(path)? {
        return Ok(());
    }
    let found =
        fs::symlink_metadata(path).map_err(|source| DirError::Create { path: path.to_owned(), source })?;
    let problem = if !found.is_dir() {
        "is not a directory"
    } else if found.uid() != effective_uid() {
        "belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "is accessible to other users"
    } else {
        return Ok(());
    };
    Err(DirError::Untrusted { path: path.to_owned(), problem })
}

/// Creates a directory for this user only, at a path chosen by the user. An existing directory must not be
/// controlled by other users: its owner, and the owner of a link to it, must be this user, root, or the owner
/// of its parent directory. If this user owns it and others may write to it, their write permission is
/// removed.
///
/// # Errors
/// The system call failed, or other users control the existing directory.
pub fn trusted_dir(path: &Path) -> Result<(), DirError> {
    let create = |source| DirError::Create { path: path.to_owned(), source };
    let shared = |problem| Err(DirError::Untrusted { path: path.to_owned(), problem });
    if let Err(error) = private_builder().recursive(true).create(path) {
        // The path is a file or a dangling link.
        return if fs::symlink_metadata(path).is_ok() {
            shared("is not a directory")
        } else {
            Err(create(error))
        };
    }
    let place =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let place = place.map(fs::metadata).transpose().map_err(create)?;
    let is_trusted = |uid| is_own_or_root(uid) || place.as_ref().is_some_and(|place| place.uid() == uid);
    let (name, found) =
        fs::symlink_metadata(path).and_then(|name| Ok((name, fs::metadata(path)?))).map_err(create)?;
    if ![&name, &found].iter().all(|one| is_trusted(one.uid())) {
        return shared("belongs to another user");
    }
    if is_protected_from_others(&found) {
        return Ok(());
    }
    if found.uid() != effective_uid() {
        return shared("is writable by other users");
    }
    let closed = fs::Permissions::from_mode(found.mode() & 0o7777 & !WRITABLE_BY_OTHERS);
    fs::set_permissions(path, closed).map_err(create)
}

/// Returns the directory for temporary files: `TMPDIR`, or `/tmp` if another user controls `TMPDIR`.
#[must_use]
pub fn temporary_dir() -> PathBuf {
    let wished = std::env::temp_dir();
    if is_safe_dir(&wished) { wished } else { PathBuf::from("/tmp") }
}

/// Creates a new private directory for this process, with an unpredictable name. If this process does not
/// remove it, the next Heeler process that cleans up stale socket directories does.
///
/// # Errors
/// The system call failed.
pub fn scratch_dir(place: &Path) -> Result<PathBuf, DirError> {
    unique_dir(place, &process_dir_name())
}

/// Creates a new private directory with an unpredictable name that starts with `name`.
///
/// # Errors
/// The system call failed.
pub fn unique_dir(place: &Path, name: &str) -> Result<PathBuf, DirError> {
    let mut path = place.to_owned();
    for _ in 0..ATTEMPTS {
        path = place.join(format!("{name}-{:08x}", random_u32()));
        if new_private_dir(&path)? {
            return Ok(path);
        }
    }
    Err(DirError::Create { path, source: io::ErrorKind::AlreadyExists.into() })
}

fn process_dir_name() -> String {
    format!("heeler-{}", Pid::own())
}

/// Writes a new file that no other user may read. Fails if the entry exists, even as a link.
///
/// # Errors
/// An I/O error of the system.
pub fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    new_file(path)?.write_all(bytes)
}

/// Writes a new file like [`write_new_file`], completely or not at all. An existing entry stays unchanged.
///
/// # Errors
/// An I/O error of the system, or `AlreadyExists`.
pub fn write_new_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{:08x}.part", random_u32()));
    let aside = PathBuf::from(aside);
    let written = write_new_file(&aside, bytes).and_then(|()| fs::hard_link(&aside, path));
    // The temporary name is no longer needed. If it cannot be removed, it does no harm.
    let _stays = fs::remove_file(&aside);
    written
}

/// Opens a file that someone else may have created. Only regular files are accepted: a pipe would block its
/// reader, and a link could lead to any file.
///
/// # Errors
/// An I/O error of the system, or the entry is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            io::Error::other("it is a symbolic link, which Heeler does not follow")
        }
        Ok(_) | Err(_) => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

fn new_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes a file like [`write_new_file`], completely or not at all, even if this process is killed or the
/// disk is full. The directory must belong to this user alone.
///
/// # Errors
/// An I/O error of the system.
pub fn write_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    stream_file_atomically(path, |file| file.write_all(bytes))
}

/// Like [`write_file_atomically`], with contents that `write` produces piece by piece.
///
/// # Errors
/// An I/O error of the system, or an error of `write`.
pub fn stream_file_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    let written = new_file(&aside).and_then(|file| {
        let mut file = io::BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    });
    written.and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        // A partial file is useless. If it cannot be removed, it does no harm.
        let _stays = fs::remove_file(&aside);
    })
}

fn private_builder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn is_own_or_root(uid: u32) -> bool {
    uid == effective_uid() || uid == ROOT_UID
}

/// Returns whether only a file's owner can rename or remove it in this directory.
fn is_protected_from_others(dir: &fs::Metadata) -> bool {
    dir.mode() & WRITABLE_BY_OTHERS == 0 || dir.mode() & STICKY_BIT != 0
}

/// Returns whether files that this user creates in a directory are safe from replacement by other users.
fn is_safe_dir(dir: &Path) -> bool {
    fs::metadata(dir)
        .is_ok_and(|found| found.is_dir() && is_own_or_root(found.uid()) && is_protected_from_others(&found))
}

/// Returns a random number, derived from the keys of a [`RandomState`], which are random.
pub(crate) fn random_u32() -> u32 {
    let bytes = RandomState::new().hash_one(Pid::own().0).to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A new private directory whose path is short enough for sockets. Dropping it removes it with all contents.
#[derive(Debug)]
pub struct SocketDir(PathBuf);

impl SocketDir {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // An exiting process may add an entry during the removal, so try again.
        let is_removed = |_attempt: &u32| match fs::remove_dir_all(&self.0) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // Best effort: a directory that cannot be removed contains at most dead sockets.
        let _removed = (0..REMOVAL_ATTEMPTS).find(is_removed);
    }
}

/// Returns whether this path is a socket without a listener.
#[must_use]
pub fn is_stale_socket(socket: &Path) -> bool {
    let connected = UnixStream::connect(socket);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes socket directories left by processes that were killed.
fn remove_stale_socket_dirs(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix("heeler-")?.split_once('-'));
        let Some((pid, number)) = numbers else { continue };
        let is_ours = pid.parse::<u32>().is_ok()
            && u32::from_str_radix(number, 16).is_ok()
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == effective_uid());
        // An unknown process id may belong to another namespace, so also check the sockets.
        let is_alive = |pid| process::stat(Pid(pid)).is_some_and(|stat| stat.state != 'Z');
        if is_ours && !pid.parse().is_ok_and(is_alive) && !has_listening_socket(&entry.path()) {
            // Another starting process may have removed it already.
            let _removed = fs::remove_dir_all(entry.path());
        }
    }
}

fn has_listening_socket(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return true };
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    entries.flatten().filter(is_socket).any(|socket| !is_stale_socket(&socket.path()))
}

/// Name of the link in a session's directory that points to its directory of temporary files, if that is
/// elsewhere.
const TEMPORARY_LINK: &str = "temporary";

/// Directory for a session's temporary files. The directory is in the system's temporary directory, because
/// the socket directory is often on a small file system in memory. Dropping it removes it with all contents.
#[derive(Debug)]
pub struct SessionTemporaryDir {
    _directory: SocketDir,
    /// Shows other processes of this user that the session is alive.
    _listener: UnixListener,
}

impl SessionTemporaryDir {
    /// Creates the directory, which [`session_temporary_dir`] can find; `None` if the session's own directory
    /// is already in the system's temporary directory.
    ///
    /// # Errors
    /// The directory or the link cannot be created.
    pub fn create(session: &SocketDir) -> Result<Option<Self>, DirError> {
        let place = temporary_dir();
        if session.path().parent() == Some(&place) {
            return Ok(None);
        }
        remove_stale_socket_dirs(&place);
        let directory = SocketDir(unique_dir(&place, &process_dir_name())?);
        let path = directory.path().to_owned();
        let failed = |source| DirError::Create { path: path.clone(), source };
        let listener = UnixListener::bind(path.join("session")).map_err(failed)?;
        std::os::unix::fs::symlink(&path, session.path().join(TEMPORARY_LINK)).map_err(failed)?;
        Ok(Some(Self { _directory: directory, _listener: listener }))
    }
}

/// Returns the temporary directory of a session, given the session's directory.
#[must_use]
pub fn session_temporary_dir(session: &Path) -> PathBuf {
    fs::read_link(session.join(TEMPORARY_LINK)).unwrap_or_else(|_| session.to_owned())
}

/// Creates a directory for sockets below `XDG_RUNTIME_DIR`, or below `/tmp` if that is missing, too long, not
/// writable, or controlled by another user.
///
/// # Errors
/// No directory can be created in either place, or `/tmp` lets every user rename its entries.
pub fn socket_dir() -> Result<SocketDir, DirError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.as_os_str().len() <= BASE_LIMIT_BYTES);
    if let Some(runtime) = runtime.filter(|path| is_safe_dir(path)) {
        remove_stale_socket_dirs(&runtime);
        if let Ok(path) = unique_dir(&runtime, &process_dir_name()) {
            return Ok(SocketDir(path));
        }
    }
    let place = PathBuf::from("/tmp");
    if place.is_dir() && !is_safe_dir(&place) {
        let problem = match has_unmapped_owner(&place) {
            true => UNMAPPED_OWNER,
            false => "lets other users rename its entries; set XDG_RUNTIME_DIR to a directory of your own",
        };
        return Err(DirError::Untrusted { path: place, problem });
    }
    remove_stale_socket_dirs(&place);
    unique_dir(&place, &process_dir_name()).map(SocketDir)
}

/// Returns a directory of this user that all of the user's processes find: below `XDG_RUNTIME_DIR`, or below
/// `/tmp` if that is missing or controlled by another user. `TMPDIR` is not used, because it may be different
/// for each process.
///
/// # Errors
/// The directory cannot be created, or other users have access to it.
pub fn shared_user_dir(name: &str) -> Result<PathBuf, DirError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = match runtime.filter(|path| path.is_absolute() && is_safe_dir(path)) {
        Some(runtime) => runtime.join(name),
        None => Path::new("/tmp").join(format!("{name}-{}", effective_uid())),
    };
    private_dir_in_existing(&path)?;
    Ok(path)
}

/// Problem of a directory whose owner is outside this user namespace, and may be anyone.
const UNMAPPED_OWNER: &str = "belongs to a user without an ID in this user namespace, as in a rootless container; set \
    XDG_RUNTIME_DIR to a directory of your own";

/// Returns whether a directory's owner has no id in this user namespace.
fn has_unmapped_owner(dir: &Path) -> bool {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let unmapped = number("/proc/sys/kernel/overflowuid").unwrap_or(OVERFLOW_UID);
    // The initial namespace maps every id.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_mapped_completely = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !is_mapped_completely && fs::metadata(dir).is_ok_and(|found| found.uid() == unmapped)
}

/// Returns how many bytes an ordinary user may still write to the file system of `path`.
///
/// # Errors
/// An I/O error of the system.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn private_directory_is_closed_to_others_and_reusable() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        private_dir(&path).unwrap();
    }

    #[test]
    fn missing_parent_is_not_created() {
        let temporary = tempfile::tempdir().unwrap();
        let session = temporary.path().join("session");
        private_dir(&session).unwrap();
        private_dir_in_existing(&session.join("scratch")).unwrap();
        private_dir_in_existing(&session.join("scratch")).unwrap();
        fs::remove_dir_all(&session).unwrap();
        assert!(matches!(private_dir_in_existing(&session.join("scratch")), Err(DirError::Create { .. })));
        assert!(!session.exists());
    }

    #[test]
    fn directory_accessible_to_others_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let problem = |path: &Path| match private_dir(path).unwrap_err() {
            DirError::Untrusted { problem, .. } => problem,
            other @ DirError::Create { .. } => panic!("{other:?}"),
        };
        let open = temporary.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(problem(&open), "is accessible to other users");
        let link = temporary.path().join("link");
        symlink("/tmp", &link).unwrap();
        assert_eq!(problem(&link), "is not a directory");
        let below_a_file = temporary.path().join("file");
        fs::write(&below_a_file, "").unwrap();
        assert_eq!(problem(&below_a_file), "is not a directory");
        assert!(matches!(private_dir(&below_a_file.join("x")), Err(DirError::Create { .. })));
    }

    #[test]
    fn socket_directory_of_killed_process_is_removed() {
        use std::os::unix::net::UnixListener;
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = base.path().join(name);
            fs::create_dir(&dir).unwrap();
            (UnixListener::bind(dir.join("control")).unwrap(), dir)
        };
        // Larger than any process id.
        let (dead, of_dead) = make("heeler-4194304-0");
        drop(dead);
        let (_listens, of_another_namespace) = make("heeler-4194304-1");
        let (own, of_own) = make(&format!("heeler-{}-7", Pid::own()));
        drop(own);
        let (other, of_others) = make("heeler-notes-0");
        drop(other);
        remove_stale_socket_dirs(base.path());
        let left = [of_dead, of_another_namespace, of_own, of_others].map(|dir| dir.exists());
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn own_directory_loses_write_access_of_others() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/state");
        trusted_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        trusted_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        let link = temporary.path().join("link");
        symlink(&path, &link).unwrap();
        trusted_dir(&link).unwrap();
        let nowhere = temporary.path().join("nowhere");
        symlink(temporary.path().join("missing"), &nowhere).unwrap();
        assert!(matches!(
            trusted_dir(&nowhere),
            Err(DirError::Untrusted { problem: "is not a directory", .. })
        ));
    }

    #[test]
    fn only_sticky_shared_directory_is_safe() {
        let temporary = tempfile::tempdir().unwrap();
        for (mode, is_safe) in [(0o700, true), (0o755, true), (0o770, false), (0o777, false), (0o1777, true)]
        {
            fs::set_permissions(temporary.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_safe_dir(temporary.path()), is_safe, "{mode:o}");
        }
        assert!(!is_safe_dir(&temporary.path().join("missing")));
    }

    #[test]
    fn new_file_is_private_and_follows_no_link() {
        let temporary = tempfile::tempdir().unwrap();
        let [path, link, target] = ["file", "link", "target"].map(|name| temporary.path().join(name));
        write_new_file(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        symlink(&target, &link).unwrap();
        assert_eq!(write_new_file(&link, b"x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!target.exists());
    }

    #[test]
    fn file_is_written_completely_or_not_at_all() {
        let temporary = tempfile::tempdir().unwrap();
        let [path, taken] = ["file", "taken"].map(|name| temporary.path().join(name));
        write_file_atomically(&path, b"all of it").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"all of it");
        fs::create_dir(&taken).unwrap();
        write_file_atomically(&taken, b"x").unwrap_err();
        let names = fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(
            names.collect::<std::collections::BTreeSet<_>>(),
            ["file", "taken"].map(Into::into).into()
        );
    }

    #[test]
    fn temporary_files_of_a_session_are_in_the_temporary_directory() {
        let runtime = tempfile::tempdir().unwrap();
        let session = SocketDir(unique_dir(runtime.path(), "heeler-1").unwrap());
        assert_eq!(session_temporary_dir(session.path()), session.path());
        let temporary = SessionTemporaryDir::create(&session).unwrap().unwrap();
        let path = session_temporary_dir(session.path());
        assert_eq!(path.parent(), Some(temporary_dir().as_path()));
        assert!(has_listening_socket(&path), "it is not removed as stale");
        fs::write(path.join("file"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());
        let session = SocketDir(scratch_dir(&temporary_dir()).unwrap());
        assert!(SessionTemporaryDir::create(&session).unwrap().is_none());
        assert_eq!(session_temporary_dir(session.path()), session.path());
    }

    #[test]
    fn socket_directory_is_private_and_removed_on_drop() {
        let directory = socket_dir().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_ne!(socket_dir().unwrap().path(), path);
        std::os::unix::net::UnixListener::bind(path.join("control.sock")).unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
