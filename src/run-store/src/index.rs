//! Lists earlier runs with their actual states, derived from their files and from whether a process still
//! holds their locks.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::RunRecord;
use heeler_protocol::{
    journal::{JournalRecord, RunEnd, SYNTHESIZED_JOURNAL_NAME},
    manifest::{self, ManifestHead},
};
use heeler_recovery::{JournalFile, journal_paths};

use super::{
    DIR_NAME, RunOwnership,
    run_dir::{LockHolder, fallback_state_dir, lock_holder, run_names},
    run_mark::{ownership_by_head, read_head_line},
};

/// A run on disk.
#[derive(Debug)]
pub struct EarlierRun {
    /// Name of the run's directory; names sort by start time.
    pub name: String,
    pub dir: PathBuf,
    /// Head of the manifest, if readable.
    pub head: Option<ManifestHead>,
    /// Ownership of the run, derived from its head and mark.
    pub ownership: RunOwnership,
    pub state: EarlierRunState,
    /// Descriptions of damage to the run's files.
    pub problems: Vec<String>,
}

/// State of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum EarlierRunState {
    /// The run is in progress, and its coordinator is alive.
    Running {
        /// Number of tests with a result.
        settled: usize,
    },
    /// The coordinator has died, and the watchdog is finishing the run.
    Finishing {
        /// Number of tests with a result.
        settled: usize,
    },
    /// The run finished.
    Ended(Box<RunEnd>),
    /// The run died before it finished.
    Interrupted {
        /// Number of tests with a result.
        settled: usize,
    },
    /// The files can't be read; the reasons are in `problems`.
    Unreadable,
}

/// Returns the runs of a state directory, oldest first, including runs stored elsewhere because the state
/// directory was not writable.
#[must_use]
pub fn list_runs(state_dir: &Path) -> Vec<EarlierRun> {
    let mut all = list_runs_in(&state_dir.join(DIR_NAME));
    let is_ours =
        |run: &EarlierRun| run.head.as_ref().is_some_and(|head| head.state_dir.as_path() == state_dir);
    all.extend(list_runs_in(&fallback_state_dir().join(DIR_NAME)).into_iter().filter(is_ours));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns the ids of the runs in a state directory, newest first, without their states.
#[must_use]
pub fn run_ids(state_dir: &Path) -> Vec<String> {
    let runs = state_dir.join(DIR_NAME);
    let id = |name: String| read_head(&runs.join(&name)).head.map_or(name, |head| head.run);
    run_names(&runs).into_iter().rev().map(id).collect()
}

/// Start and duration of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTimes {
    /// Start, in ISO 8601.
    pub start_utc: String,
    pub duration: Duration,
}

impl RunTimes {
    /// Reads the recorded times of the run in a directory; `None` if the run's end is not recorded.
    #[must_use]
    pub fn read(dir: &Path) -> Option<Self> {
        let end = read_end(dir, &mut Vec::new())?;
        let start_utc = read_head(dir).head?.began_utc;
        Some(Self { start_utc, duration: Duration::from_millis(end.duration_ms) })
    }
}

/// Returns the directory of the latest run with this id, wherever it was stored.
#[must_use]
pub fn find_run_dir(state_dir: &Path, run_id: &str) -> Option<PathBuf> {
    let is_it = |dir: &PathBuf| {
        let found = read_head(dir);
        found.ownership == RunOwnership::Own && found.head.is_some_and(|head| head.run == run_id)
    };
    [state_dir.join(DIR_NAME), fallback_state_dir().join(DIR_NAME)]
        .iter()
        .flat_map(|runs| run_names(runs).into_iter().rev().map(|name| runs.join(name)))
        .find(is_it)
}

/// Returns the run in a directory, wherever the directory is.
pub(super) fn run_at(dir: &Path) -> EarlierRun {
    let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
    inspect_run(dir.to_owned(), name.clone()).unwrap_or_else(|| EarlierRun {
        name,
        dir: dir.to_owned(),
        head: None,
        ownership: RunOwnership::Copied,
        state: EarlierRunState::Unreadable,
        problems: Vec::new(),
    })
}

fn list_runs_in(dir: &Path) -> Vec<EarlierRun> {
    let inspected = heeler_sys::cpu_pool::map(run_names(dir), |name| inspect_run(dir.join(&name), name));
    inspected.into_iter().flatten().collect()
}

/// Reads the state of a run; `None` if the run has been removed meanwhile.
fn inspect_run(dir: PathBuf, name: String) -> Option<EarlierRun> {
    // Read the lock holder first: if no process holds a lock, the files read afterwards are final.
    let minder = match lock_holder(&dir) {
        Ok(minder) => minder,
        Err(error) => {
            let problems = vec![format!("can't tell whether the run is in progress: {error}")];
            let (ownership, state) = (RunOwnership::Copied, EarlierRunState::Unreadable);
            return Some(EarlierRun { name, dir, head: None, ownership, state, problems });
        }
    };
    let mut problems = Vec::new();
    let FoundHead { head, ownership, problem } = read_head(&dir);
    problems.extend(problem);
    let is_readable = problems.is_empty();
    let end = read_end(&dir, &mut problems);
    let state = match (minder, end) {
        _ if !is_readable => EarlierRunState::Unreadable,
        (LockHolder::Coordinator, _) => {
            EarlierRunState::Running { settled: count_settled(&dir, &mut Vec::new()) }
        }
        (LockHolder::Watchdog, _) => {
            EarlierRunState::Finishing { settled: count_settled(&dir, &mut Vec::new()) }
        }
        (LockHolder::Unlocked, Some(end)) => EarlierRunState::Ended(end),
        (LockHolder::Unlocked, None) => {
            EarlierRunState::Interrupted { settled: count_settled(&dir, &mut problems) }
        }
    };
    dir.exists().then_some(EarlierRun { name, dir, head, ownership, state, problems })
}

/// Head of a manifest, and the run's ownership.
struct FoundHead {
    /// `None` if the head can't be read, or if the run died before writing it.
    head: Option<ManifestHead>,
    ownership: RunOwnership,
    /// Reason why the head can't be read.
    problem: Option<String>,
}

fn read_head(dir: &Path) -> FoundHead {
    let path = dir.join(manifest::MANIFEST_FILE_NAME);
    let line = match read_head_line(dir) {
        Ok(line) => line,
        Err(error) => {
            let problem =
                (error.kind() != io::ErrorKind::NotFound).then(|| format!("{}: {error}", path.display()));
            return FoundHead { head: None, ownership: RunOwnership::Copied, problem };
        }
    };
    let ownership = ownership_by_head(dir, &line);
    match ManifestHead::read(&line) {
        Ok(head) => FoundHead { head: Some(head), ownership, problem: None },
        Err(error) => {
            let problem = format!("{}: {}", path.display(), heeler_core::error_chain(&error));
            FoundHead { head: None, ownership, problem: Some(problem) }
        }
    }
}

/// Returns the end record of a run, if written.
fn read_end(dir: &Path, problems: &mut Vec<String>) -> Option<Box<RunEnd>> {
    let mut first_end = None;
    let journal = JournalFile::visit(dir.join(SYNTHESIZED_JOURNAL_NAME), |located| {
        if let (JournalRecord::Ended(end), None) = (located.record, &first_end) {
            first_end = Some(end);
        }
    });
    problems.extend(journal_problems(&journal));
    first_end
}

/// Describes the damage to a journal.
fn journal_problems(journal: &JournalFile) -> Vec<String> {
    let path = journal.path.display();
    let damage = journal.content.damage.as_ref().map(ToString::to_string);
    let torn = journal.content.torn_at;
    let errors = journal.read_error.clone().into_iter().chain(damage);
    let torn = torn.map(|offset| format!("incomplete after byte {offset}, as after a crash"));
    errors.chain(torn).map(|problem| format!("{path}: {problem}")).collect()
}

fn count_settled(dir: &Path, problems: &mut Vec<String>) -> usize {
    let mut settled = BTreeSet::new();
    for path in journal_paths(dir).unwrap_or_default() {
        let journal = JournalFile::visit(path, |located| {
            if let JournalRecord::Event(RunRecord::Finished { test, .. }) = located.record {
                settled.insert(test);
            }
        });
        for problem in journal_problems(&journal) {
            // Damage to the journal of synthesized results has already been recorded.
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    settled.len()
}
