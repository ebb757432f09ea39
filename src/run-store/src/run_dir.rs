//! The directory of a run, with its journals, manifest and evidence, and the removal of old ones.

use std::{
    fs, io,
    num::NonZeroU32,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{RunOwnership, run_mark::read_ownership};
use heeler_protocol::{
    manifest::{COORDINATOR_LOCK, RerunSet, RunOrigin, WATCHDOG_LOCK},
    mtp::RunShard,
};
use heeler_sys::{
    dirs::{DirError, private_dir, temporary_dir, trusted_dir, write_new_file},
    liveness_lock::{LivenessLock, is_held},
};

/// The directory of a run, locked by this process: until the lock is dropped, other processes treat the run
/// as in progress.
#[derive(Debug, Clone)]
pub struct RunDir {
    pub path: PathBuf,
    _lock: Arc<LivenessLock>,
}

/// The origin of a run, and the rerun set that it inherits.
#[derive(Debug, Clone, Default)]
pub struct Provenance {
    /// The command that started the run.
    pub origin: RunOrigin,
    /// The rerun set of the run that this one reruns.
    pub inherited_rerun_set: RerunSet,
    /// The partition of a larger selection that the run is.
    pub shard: Option<RunShard>,
}

/// The name of a run's directory: its start time, followed by the first characters of its id.
const RUN_TIME_FORMAT: &str = "%Y%m%dT%H%M%S%3fZ";
const TIME_CHARS: usize = "20261120T164610302Z".len();
const ID_CHARS: usize = 12;
/// Maximum number of directories with the same time and id.
const MAX_SAME_NAME_DIRS: usize = 100;

/// Creates the directory of a run below `list_runs_in`, locked by this process, and removes old runs, so that
/// including this one at most `keep` remain.
///
/// # Errors
/// The directory can't be created.
pub fn make_run_dir(runs: &Path, run_id: &str, keep: NonZeroU32) -> Result<RunDir, DirError> {
    if let Some(state_dir) = runs.parent() {
        trusted_dir(state_dir)?;
    }
    private_dir(runs)?;
    prune_runs(runs, keep.get() as usize - 1);
    if let Some(state_dir) = runs.parent() {
        exclude_from_git(state_dir);
    }
    let id: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(ID_CHARS).collect();
    let name = format!("{}-{id}", wall_clock().strftime(RUN_TIME_FORMAT));
    // The directory must not be visible before it is locked: it would look like a run that has died.
    let unseen = runs.join(format!(".{name}-{}", std::process::id()));
    let create = |source: io::Error| DirError::Create { path: runs.join(&name), source };
    heeler_sys::fail::at("run.dir").map_err(create)?;
    private_dir(&unseen)?;
    let lock = LivenessLock::acquire(&unseen.join(COORDINATOR_LOCK)).map_err(create)?;
    // A client may start two runs at the same instant with ids that begin alike.
    let names = (1..=MAX_SAME_NAME_DIRS).map(|number| match number {
        1 => runs.join(&name),
        _ => runs.join(format!("{name}-{number}")),
    });
    let mut refusal = io::Error::from(io::ErrorKind::AlreadyExists);
    for path in names {
        match fs::rename(&unseen, &path) {
            Ok(()) => return Ok(RunDir { path, _lock: Arc::new(lock) }),
            Err(error) => refusal = error,
        }
        if !matches!(refusal.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) {
            break;
        }
    }
    Err(create(refusal))
}

/// Returns the wall-clock time. A wrong clock causes odd names and nothing else.
pub fn wall_clock() -> jiff::Timestamp {
    jiff::Timestamp::try_from(heeler_sys::fail::now()).unwrap_or_default()
}

/// Returns the directory that replaces a state directory which can't be written.
#[must_use]
pub fn fallback_state_dir() -> PathBuf {
    temporary_dir().join(format!("heeler-{}", heeler_sys::process::effective_uid()))
}

/// Keeps a state directory out of commits to a repository. One that can't be written is reported by what
/// needs it.
pub fn exclude_from_git(state_dir: &Path) {
    let path = state_dir.join(".gitignore");
    if let Err(error) = write_new_file(&path, b"*\n")
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        tracing::debug!(path = %path.display(), %error, "the state directory could not be excluded from git");
    }
}

/// The process that holds the lock of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockHolder {
    /// Its coordinator: the run is in progress.
    Coordinator,
    /// Its coordinator has died, and its watchdog is finishing the run.
    Watchdog,
    /// No process: the run is over.
    Unlocked,
}

/// Returns the lock holder of a run, by locks that only a living process can hold.
pub(super) fn lock_holder(dir: &Path) -> io::Result<LockHolder> {
    if is_held(&dir.join(COORDINATOR_LOCK))? {
        return Ok(LockHolder::Coordinator);
    }
    Ok(if is_held(&dir.join(WATCHDOG_LOCK))? { LockHolder::Watchdog } else { LockHolder::Unlocked })
}

/// Removes the oldest runs until at most `keep` of this user and `keep` copies are left, but never a run
/// whose lock is held. Returns their names. Directories that can't be removed are left for the next time.
pub fn prune_runs(runs: &Path, keep: usize) -> Vec<String> {
    let names = run_names(runs);
    if names.len() <= keep {
        return Vec::new();
    }
    // The names of copies are not ours: with late dates they would displace the runs of this user.
    let is_own = |name: &String| read_ownership(&runs.join(name)) == RunOwnership::Own;
    let (own, copies): (Vec<_>, Vec<_>) = names.into_iter().partition(is_own);
    let mut removed = remove_surplus(runs, own, keep);
    removed.extend(remove_surplus(runs, copies, keep));
    removed
}

fn remove_surplus(runs: &Path, names: Vec<String>, keep: usize) -> Vec<String> {
    let surplus = names.len().saturating_sub(keep);
    let mut removed = Vec::new();
    for name in names {
        if removed.len() == surplus {
            break;
        }
        let dir = runs.join(&name);
        if !matches!(lock_holder(&dir), Ok(LockHolder::Unlocked)) {
            continue;
        }
        match fs::remove_dir_all(&dir) {
            Ok(()) => removed.push(name),
            Err(error) => tracing::debug!(dir = %dir.display(), %error, "an old run could not be removed"),
        }
    }
    removed
}

/// Returns the names of the directories of runs, oldest first. Directories of another user are ignored: they
/// are not listed, not rerun, and not removed.
pub(super) fn run_names(runs: &Path) -> Vec<String> {
    if !fs::symlink_metadata(runs).is_ok_and(|found| found.uid() == heeler_sys::process::effective_uid()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(runs) else { return Vec::new() };
    let name = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        (entry.file_type().ok()?.is_dir() && is_run_name(&name)).then_some(name)
    };
    let mut names: Vec<_> = entries.filter_map(name).collect();
    names.sort_unstable();
    names
}

fn is_run_name(name: &str) -> bool {
    let is_time = |(place, byte): (usize, u8)| match place {
        8 => byte == b'T',
        18 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    name.is_char_boundary(TIME_CHARS)
        && name[TIME_CHARS..].starts_with('-')
        && name.bytes().take(TIME_CHARS).enumerate().all(is_time)
}
