//! Directory of a run, with its journals, manifest and evidence, and the removal of old runs.

use std::{
    fs, io,
    num::NonZeroU32,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
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

/// Directory of a run, locked by this process. Other processes treat the run as in progress until the lock
/// is dropped.
#[derive(Debug, Clone)]
pub struct RunDir {
    pub path: PathBuf,
    _lock: Arc<LivenessLock>,
}

/// Origin of a run, and the rerun set that it inherits.
#[derive(Debug, Clone, Default)]
pub struct Provenance {
    /// Command that started the run.
    pub origin: RunOrigin,
    /// Rerun set of the run that this run reruns.
    pub inherited_rerun_set: RerunSet,
    /// Partition of a larger selection that this run executes.
    pub shard: Option<RunShard>,
    /// Time from the start of the command to the start of the run: builds and listings. Zero if unknown.
    pub preparation: Duration,
}

/// Format of the start time in a run directory's name; the first characters of the run's id follow.
const RUN_TIME_FORMAT: &str = "%Y%m%dT%H%M%S%3fZ";
const TIME_CHARS: usize = "20261120T164610302Z".len();
const ID_CHARS: usize = 12;
/// Maximum number of directories with the same time and id.
const MAX_SAME_NAME_DIRS: usize = 100;

/// Creates the directory of a run in `runs`, locked by this process. Removes old runs, so that at most
/// `keep` remain, including this run.
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
    // Lock the directory before making it visible; without a lock, it would look like a dead run.
    let unseen = runs.join(format!(".{name}-{}", std::process::id()));
    let create = |source: io::Error| DirError::Create { path: runs.join(&name), source };
    heeler_sys::fail::at("run.dir").map_err(create)?;
    private_dir(&unseen)?;
    let lock = LivenessLock::acquire(&unseen.join(COORDINATOR_LOCK)).map_err(create)?;
    // A client may start two runs at the same instant, with ids that begin alike.
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

/// Returns the wall-clock time. A wrong clock only causes odd names.
pub fn wall_clock() -> jiff::Timestamp {
    jiff::Timestamp::try_from(heeler_sys::fail::now()).unwrap_or_default()
}

/// Returns the state directory to use if the configured one is not writable.
#[must_use]
pub fn fallback_state_dir() -> PathBuf {
    temporary_dir().join(format!("heeler-{}", heeler_sys::process::effective_uid()))
}

/// Keeps Git from committing a state directory. An unwritable state directory is reported by the code that
/// needs to write it.
pub fn exclude_from_git(state_dir: &Path) {
    let path = state_dir.join(".gitignore");
    if let Err(error) = write_new_file(&path, b"*\n")
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        tracing::debug!(path = %path.display(), %error, "the state directory can't be excluded from git");
    }
}

/// Process that holds the lock of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockHolder {
    /// The run's coordinator; the run is in progress.
    Coordinator,
    /// The run's watchdog; the coordinator has died, and the watchdog is finishing the run.
    Watchdog,
    /// No process; the run has ended.
    Unlocked,
}

/// Returns the lock holder of a run. Only a living process can hold a lock.
pub(super) fn lock_holder(dir: &Path) -> io::Result<LockHolder> {
    if is_held(&dir.join(COORDINATOR_LOCK))? {
        return Ok(LockHolder::Coordinator);
    }
    Ok(if is_held(&dir.join(WATCHDOG_LOCK))? { LockHolder::Watchdog } else { LockHolder::Unlocked })
}

/// Removes the oldest runs until at most `keep` runs of this user and `keep` copies are left, but never a
/// run whose lock is held. Returns the names of removed runs. A directory that can't be removed is tried
/// again the next time.
pub fn prune_runs(runs: &Path, keep: usize) -> Vec<String> {
    let names = run_names(runs);
    if names.len() <= keep {
        return Vec::new();
    }
    // Other people chose the names of copies, so a copy with a late date could displace this user's runs.
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
            Err(error) => tracing::debug!(dir = %dir.display(), %error, "failed to remove an old run"),
        }
    }
    removed
}

/// Returns the names of run directories, oldest first. A directory that belongs to another user is ignored,
/// so its runs are not listed, rerun or removed.
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
