//! From what a user names to one run.

use super::EarlierRun;

/// The word for the newest run.
pub(super) const LATEST: &str = "latest";
/// So many names are offered.
const OFFERED: usize = 5;

/// Why no run can be chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChooseError {
    /// There is none.
    #[error("there is no earlier run here; runs are kept in {dir}")]
    None {
        /// Where they would be.
        dir: String,
    },
    /// None has this id.
    #[error("no run has an id that begins with \"{word}\"; heeler runs lists them")]
    Unknown {
        /// As written.
        word: String,
    },
    /// Several have.
    #[error(
        "the ids of {count} runs begin with \"{word}\": {names}; their directories' names tell them apart"
    )]
    Ambiguous {
        /// As written.
        word: String,
        /// How many there are.
        count: usize,
        /// Some of them.
        names: String,
    },
}

/// Returns the run that a word means: `latest`, the beginning of an id, or a directory's name. Of runs that died before
/// they had written down what they were to run, the newest is none.
///
/// # Errors
/// None, or more than one.
pub fn choose<'r>(runs: &'r [EarlierRun], word: &str, dir: &str) -> Result<&'r EarlierRun, ChooseError> {
    if word == LATEST {
        let is_known = |run: &&EarlierRun| run.head.is_some() || !run.troubles.is_empty();
        return runs.iter().rfind(is_known).ok_or_else(|| ChooseError::None { dir: dir.to_owned() });
    }
    if runs.is_empty() {
        return Err(ChooseError::None { dir: dir.to_owned() });
    }
    let found: Vec<_> = runs.iter().filter(|run| is_meant(run, word)).collect();
    match found.as_slice() {
        [run] => Ok(run),
        [] => Err(ChooseError::Unknown { word: word.to_owned() }),
        several => {
            let names: Vec<_> = several.iter().take(OFFERED).map(|run| run.name.as_str()).collect();
            let more = if several.len() > OFFERED { ", …" } else { "" };
            Err(ChooseError::Ambiguous {
                word: word.to_owned(),
                count: several.len(),
                names: format!("{}{more}", names.join(", ")),
            })
        }
    }
}

fn is_meant(run: &EarlierRun, word: &str) -> bool {
    if run.name == word {
        return true;
    }
    let word = plain(word);
    let id = run.head.as_ref().map(|head| plain(&head.run));
    let of_name = run.name.split_once('-').map(|(_, id)| plain(id));
    !word.is_empty() && [id, of_name].into_iter().flatten().any(|id| id.starts_with(&word))
}

/// Clients write ids in several forms.
fn plain(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}
