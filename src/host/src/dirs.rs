//! Directories that belong to one user alone.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use crate::process::{self, Pid, effective_uid};

/// A socket's path may have 107 bytes; this leaves room for our directory and a name in it.
const BASE_LIMIT_BYTES: usize = 70;
/// Names are by chance, so that nobody can take them all before us; so many are tried.
const ATTEMPTS: u32 = 10;
/// A session's directory is emptied so often: each of its workers may have added something once more.
const REMOVALS: u32 = 10;
/// Whom a file mode lets write besides the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a directory nobody can rename or remove what belongs to others.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

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
    #[error("use the directory {}: it {problem}", path.display())]
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
    match private_builder().create(path) {
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
    if let Some(parent) = path.parent() {
        let create = |source| DirError::Create { path: path.to_owned(), source };
        private_builder().recursive(true).create(parent).map_err(create)?;
    }
    private_dir_inside(path)
}

/// Creates a directory that only this user may enter in one that must be there; one that exists must be of that kind.
/// Where the one above is being removed because its owner leaves, nothing is made anew.
///
/// # Errors
/// The one above is gone, the system refused, or others have a hand in what is there.
pub fn private_dir_inside(path: &Path) -> Result<(), DirError> {
    if new_private_dir(path)? {
        return Ok(());
    }
    let found =
        fs::symlink_metadata(path).map_err(|source| DirError::Create { path: path.to_owned(), source })?;
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

/// Creates a directory of ours in a place of the user's choice, for this user alone; one that exists must be out of
/// the hands of others: its owner, and that of a link to it, is this user, root, or the owner of the place. Where it is
/// this user's and lets others write, it does no longer.
///
/// # Errors
/// The system refused, or others have a hand in what is there.
pub fn own_dir(path: &Path) -> Result<(), DirError> {
    let create = |source| DirError::Create { path: path.to_owned(), source };
    let shared = |problem| Err(DirError::Shared { path: path.to_owned(), problem });
    if let Err(error) = private_builder().recursive(true).create(path) {
        // A file, or a link to nowhere, is in its place.
        return if fs::symlink_metadata(path).is_ok() {
            shared("is no directory")
        } else {
            Err(create(error))
        };
    }
    let place =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let place = place.map(fs::metadata).transpose().map_err(create)?;
    let is_trusted = |uid| is_own_or_roots(uid) || place.as_ref().is_some_and(|place| place.uid() == uid);
    let (name, found) =
        fs::symlink_metadata(path).and_then(|name| Ok((name, fs::metadata(path)?))).map_err(create)?;
    if ![&name, &found].iter().all(|one| is_trusted(one.uid())) {
        return shared("belongs to another user");
    }
    if is_in_order(&found) {
        return Ok(());
    }
    if found.uid() != effective_uid() {
        return shared("lets every user rename and remove what is in it");
    }
    let closed = fs::Permissions::from_mode(found.mode() & 0o7777 & !WRITABLE_BY_OTHERS);
    fs::set_permissions(path, closed).map_err(create)
}

/// Returns a directory for what is temporary: `TMPDIR`, or `/tmp` where that is in the hands of another user.
#[must_use]
pub fn temporary_place() -> PathBuf {
    let wished = std::env::temp_dir();
    if is_safe_place(&wished) { wished } else { PathBuf::from("/tmp") }
}

/// Creates a new private directory that goes with this process, at the latest when another of ours looks for sockets
/// that nobody listens on. Nobody can know its name before.
///
/// # Errors
/// The system refused.
pub fn scratch_dir(place: &Path) -> Result<PathBuf, DirError> {
    make_by_chance(place, &own_name())
}

/// Creates a new private directory whose name begins so, and that nobody can know before.
///
/// # Errors
/// The system refused.
pub fn make_by_chance(place: &Path, name: &str) -> Result<PathBuf, DirError> {
    let mut path = place.to_owned();
    for _ in 0..ATTEMPTS {
        path = place.join(format!("{name}-{:08x}", by_chance()));
        if new_private_dir(&path)? {
            return Ok(path);
        }
    }
    Err(DirError::Create { path, source: io::ErrorKind::AlreadyExists.into() })
}

fn own_name() -> String {
    format!("heeler-{}", Pid::own())
}

/// Writes a new file that nobody else may read. What is there already, a link to elsewhere included, is an error.
///
/// # Errors
/// The system's.
pub fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Writes a file as [`write_new_file`] does, and has it there whole or not at all, whatever becomes of this process or the
/// disk. The directory is this user's alone.
///
/// # Errors
/// The system's.
pub fn write_whole_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    write_new_file(&aside, bytes).and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        // Half of it is of no use; that it can't be removed changes nothing.
        let _stays = fs::remove_file(&aside);
    })
}

fn private_builder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn is_own_or_roots(uid: u32) -> bool {
    uid == effective_uid() || uid == ROOT
}

/// Whether nobody but its owner can rename or remove what others have made in a directory.
fn is_in_order(dir: &fs::Metadata) -> bool {
    dir.mode() & WRITABLE_BY_OTHERS == 0 || dir.mode() & STICKY != 0
}

/// Whether what this user makes in a directory stays what it is.
fn is_safe_place(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|found| found.is_dir() && is_own_or_roots(found.uid()) && is_in_order(&found))
}

/// The keys of the hash tables come from the system's random numbers.
fn by_chance() -> u32 {
    let bytes = RandomState::new().hash_one(Pid::own().0).to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
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
        // A process that is about to end may add something while all is removed; then there is more to remove.
        let is_removed = |_attempt: &u32| match fs::remove_dir_all(&self.0) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // Best effort: what cannot be removed is empty or holds dead sockets.
        let _removed = (0..REMOVALS).find(is_removed);
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
            && u32::from_str_radix(number, 16).is_ok()
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

/// Creates a directory for sockets below `XDG_RUNTIME_DIR`, or below `/tmp` where that is missing, long, not writable or
/// in the hands of another user.
///
/// # Errors
/// Neither place takes a directory, or `/tmp` lets every user rename what is in it.
pub fn socket_dir() -> Result<SocketDir, DirError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.as_os_str().len() <= BASE_LIMIT_BYTES);
    if let Some(runtime) = runtime.filter(|path| is_safe_place(path)) {
        sweep(&runtime);
        if let Ok(path) = make_by_chance(&runtime, &own_name()) {
            return Ok(SocketDir(path));
        }
    }
    let place = PathBuf::from("/tmp");
    if place.is_dir() && !is_safe_place(&place) {
        return Err(DirError::Shared { path: place, problem: "lets other users rename what is in it" });
    }
    sweep(&place);
    make_by_chance(&place, &own_name()).map(SocketDir)
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
    fn nothing_is_made_inside_of_what_is_gone() {
        let temporary = tempfile::tempdir().unwrap();
        let session = temporary.path().join("session");
        private_dir(&session).unwrap();
        private_dir_inside(&session.join("scratch")).unwrap();
        private_dir_inside(&session.join("scratch")).unwrap();
        fs::remove_dir_all(&session).unwrap();
        assert!(matches!(private_dir_inside(&session.join("scratch")), Err(DirError::Create { .. })));
        assert!(!session.exists());
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
    fn a_directory_of_ours_is_closed_to_the_writing_of_others() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/state");
        own_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        own_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        let link = temporary.path().join("link");
        symlink(&path, &link).unwrap();
        own_dir(&link).unwrap();
        let nowhere = temporary.path().join("nowhere");
        symlink(temporary.path().join("missing"), &nowhere).unwrap();
        assert!(matches!(own_dir(&nowhere), Err(DirError::Shared { problem: "is no directory", .. })));
    }

    #[test]
    fn a_place_that_lets_others_rename_is_not_safe_and_a_sticky_one_is() {
        let temporary = tempfile::tempdir().unwrap();
        for (mode, is_safe) in [(0o700, true), (0o755, true), (0o770, false), (0o777, false), (0o1777, true)]
        {
            fs::set_permissions(temporary.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_safe_place(temporary.path()), is_safe, "{mode:o}");
        }
        assert!(!is_safe_place(&temporary.path().join("missing")));
    }

    #[test]
    fn a_new_file_is_private_and_follows_no_link() {
        let temporary = tempfile::tempdir().unwrap();
        let [path, link, target] = ["file", "link", "target"].map(|name| temporary.path().join(name));
        write_new_file(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        symlink(&target, &link).unwrap();
        assert_eq!(write_new_file(&link, b"x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!target.exists());
    }

    #[test]
    fn a_whole_file_is_there_or_nothing_is() {
        let temporary = tempfile::tempdir().unwrap();
        let [path, taken] = ["file", "taken"].map(|name| temporary.path().join(name));
        write_whole_file(&path, b"all of it").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"all of it");
        fs::create_dir(&taken).unwrap();
        write_whole_file(&taken, b"x").unwrap_err();
        let names = fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(
            names.collect::<std::collections::BTreeSet<_>>(),
            ["file", "taken"].map(Into::into).into()
        );
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
