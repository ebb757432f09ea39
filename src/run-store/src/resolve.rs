//! Resolves the run that a user names.

use super::{EarlierRun, RunOwnership};

/// Name of the newest run.
pub(super) const LATEST: &str = "latest";
/// Maximum number of candidates shown for an ambiguous id.
const MAX_SHOWN_CANDIDATES: usize = 5;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ResolveRunError {
    /// There are no runs.
    #[error("no recorded runs in {dir}")]
    None {
        /// Directory that was searched.
        dir: String,
    },
    /// All runs are copies.
    #[error(
        "no run in {dir} was recorded by this user on this machine; to use one of the {copies} that were copied, \
         moved or changed, or recorded by an earlier version of Heeler, pass its name, such as {name}"
    )]
    OnlyCopies {
        /// Directory that was searched.
        dir: String,
        copies: usize,
        /// Name of the newest run.
        name: String,
    },
    /// No run has this id.
    #[error("no run ID starts with \"{word}\"; to list the runs, use heeler runs")]
    Unknown { word: String },
    /// Several runs match.
    #[error("{count} run IDs start with \"{word}\"; use a directory name: {names}")]
    Ambiguous {
        word: String,
        /// Number of matching runs.
        count: usize,
        /// Names of some of the runs.
        names: String,
    },
}

/// Returns the run with this name: `latest`, the beginning of an id, or a directory's name. `latest` ignores
/// copies, and runs that died before writing their manifest.
///
/// # Errors
/// No run matches, or several runs match.
pub fn resolve_run<'r>(
    runs: &'r [EarlierRun],
    word: &str,
    dir: &str,
) -> Result<&'r EarlierRun, ResolveRunError> {
    if word == LATEST {
        return latest_run(runs, dir);
    }
    if runs.is_empty() {
        return Err(ResolveRunError::None { dir: dir.to_owned() });
    }
    let found: Vec<_> = runs.iter().filter(|run| matches_word(run, word)).collect();
    match found.as_slice() {
        [run] => Ok(run),
        [] => Err(ResolveRunError::Unknown { word: word.to_owned() }),
        several => {
            let names: Vec<_> =
                several.iter().take(MAX_SHOWN_CANDIDATES).map(|run| run.name.as_str()).collect();
            let more = if several.len() > MAX_SHOWN_CANDIDATES { ", …" } else { "" };
            Err(ResolveRunError::Ambiguous {
                word: word.to_owned(),
                count: several.len(),
                names: format!("{}{more}", names.join(", ")),
            })
        }
    }
}

fn latest_run<'r>(runs: &'r [EarlierRun], dir: &str) -> Result<&'r EarlierRun, ResolveRunError> {
    let own = |run: &&EarlierRun| run.ownership == RunOwnership::Own;
    if let Some(run) = runs.iter().rfind(own) {
        return Ok(run);
    }
    let dir = dir.to_owned();
    let copies = || runs.iter().filter(|run| run.head.is_some() || !run.problems.is_empty());
    Err(match copies().next_back() {
        None => ResolveRunError::None { dir },
        Some(newest) => {
            ResolveRunError::OnlyCopies { dir, copies: copies().count(), name: newest.name.clone() }
        }
    })
}

fn matches_word(run: &EarlierRun, word: &str) -> bool {
    if run.name == word {
        return true;
    }
    let word = normalise_id(word);
    let id = run.head.as_ref().map(|head| normalise_id(&head.run));
    let of_name = run.name.split_once('-').map(|(_, id)| normalise_id(id));
    !word.is_empty() && [id, of_name].into_iter().flatten().any(|id| id.starts_with(&word))
}

/// Returns an id in lower case without separators, because clients write ids in several forms.
fn normalise_id(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}
