//! A run's own directory: journals, manifest, evidence. Those of long ago go.

use std::path::{Path, PathBuf};

/// So many runs are kept in the state directory; older ones go when a new one begins.
const RUNS_KEPT: usize = 20;

/// Makes a directory for a run's journals, and clears away those of long ago.
pub(super) fn make_run_dir(runs: &Path, run_id: &str) -> Result<PathBuf, host::dirs::DirError> {
    host::dirs::private_dir(runs)?;
    prune(runs);
    hide_from_git(runs);
    let id: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    // A clock that can't be right leads to a strange name and to nothing else.
    let now = jiff::Timestamp::try_from(host::fail::now()).unwrap_or_default();
    let now = now.strftime("%Y%m%dT%H%M%S%3fZ");
    // Ids that are made one behind the other may begin alike (those of version 7 do): two runs never share a directory.
    let mut dir = runs.join(format!("{now}-{id}"));
    for number in 2.. {
        host::fail::at("run.dir")
            .map_err(|source| host::dirs::DirError::Create { path: dir.clone(), source })?;
        if host::dirs::new_private_dir(&dir)? {
            break;
        }
        dir = runs.join(format!("{now}-{id}-{number}"));
    }
    Ok(dir)
}

/// What is kept of runs belongs in nobody's repository. A state directory that can't be written was told already.
fn hide_from_git(runs: &Path) {
    let Some(state_dir) = runs.parent() else { return };
    let path = state_dir.join(".gitignore");
    if !path.exists()
        && let Err(error) = std::fs::write(&path, "*\n")
    {
        tracing::debug!(path = %path.display(), %error, "git is not told to ignore the state directory");
    }
}

/// Names begin with the time, so the oldest come first. What can't be removed stays for the next time.
fn prune(runs: &Path) {
    let Ok(entries) = std::fs::read_dir(runs) else { return };
    let mut dirs: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    dirs.sort_unstable();
    let surplus = (dirs.len() + 1).saturating_sub(RUNS_KEPT).min(dirs.len());
    for dir in &dirs[..surplus] {
        if let Err(error) = std::fs::remove_dir_all(dir) {
            tracing::debug!(dir = %dir.display(), %error, "an old run could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_begin_at_once_under_ids_that_begin_alike_have_directories_of_their_own() {
        let runs = tempfile::tempdir().unwrap();
        let mut made: Vec<_> = (0..10)
            .map(|number| {
                let run_id = format!("019a2b3c-4d5e-7000-8000-{number:012x}");
                make_run_dir(&runs.path().join("runs"), &run_id).unwrap()
            })
            .collect();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 10);
    }
}
