//! The user's selection of sources and lines: paths, directories, globs, ranges and exclusions.

use std::path::{Component, Path, PathBuf};

use globset::{Glob, GlobBuilder, GlobMatcher};
use heeler_mutant_model::{Mutant, OperatorLevel, Position};

/// Error in a selection that the user wrote.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("invalid glob \"{word}\"")]
    Glob { word: String, source: globset::Error },
    #[error("invalid range \"{word}\": expected FILE:LINE, FILE:LINE-LINE or FILE:LINE:COLUMN-LINE:COLUMN")]
    Range { word: String },
}

/// The sources and ranges that the user selected. An empty selection selects all sources.
#[derive(Clone, Debug, Default)]
pub struct SourceSelection {
    included: Vec<SelectedPlace>,
    excluded: Vec<SelectedPlace>,
    operators: OperatorLevel,
}

#[derive(Clone, Debug)]
struct SelectedPlace {
    /// The selection as the user wrote it.
    word: String,
    path: PathPattern,
    /// Both ends inclusive, like a cursor selection.
    range: Option<(Position, Position)>,
}

#[derive(Clone, Debug)]
enum PathPattern {
    /// A file, or everything below a directory.
    Path(PathBuf),
    Glob(GlobMatcher),
}

impl SourceSelection {
    /// Parses paths and globs, absolute or relative to `directory`, each with an optional range. A leading
    /// `!` excludes the sources that match.
    ///
    /// # Errors
    /// A glob or range is invalid.
    pub fn read(words: &[String], directory: &Path) -> Result<Self, SelectionError> {
        let mut selection = Self::default();
        for word in words {
            match word.strip_prefix('!') {
                Some(rest) => selection.excluded.push(SelectedPlace::read(rest, directory)?),
                None => selection.included.push(SelectedPlace::read(word, directory)?),
            }
        }
        Ok(selection)
    }

    /// Returns the selection with another operator level.
    #[must_use]
    pub fn with_operators(self, operators: OperatorLevel) -> Self {
        Self { operators, ..self }
    }

    /// Returns the level of mutation operators in use.
    pub fn operators(&self) -> OperatorLevel {
        self.operators
    }

    /// Returns the absolute paths that contain everything selected; `None` if globs are used or everything
    /// is selected.
    pub fn named_paths(&self) -> Option<Vec<PathBuf>> {
        let path = |place: &SelectedPlace| match &place.path {
            PathPattern::Path(path) => Some(path.clone()),
            PathPattern::Glob(_) => None,
        };
        if self.included.is_empty() { None } else { self.included.iter().map(path).collect() }
    }

    /// Returns whether all sources are selected.
    pub fn is_everything(&self) -> bool {
        self.included.is_empty() && self.excluded.is_empty()
    }

    /// Returns the selections that match none of these sources.
    pub fn unmatched<'a>(&self, sources: impl Iterator<Item = &'a Path> + Clone) -> Vec<String> {
        let is_unmatched = |place: &&SelectedPlace| !sources.clone().any(|path| place.path.is_match(path));
        self.included.iter().filter(is_unmatched).map(|place| place.word.clone()).collect()
    }

    /// Returns whether any mutant of a source may be selected. The path is absolute.
    pub(crate) fn may_select(&self, path: &Path) -> bool {
        let is_named = |place: &SelectedPlace| place.path.is_match(path);
        (self.included.is_empty() || self.included.iter().any(is_named))
            && !self.excluded.iter().any(|place| place.range.is_none() && is_named(place))
    }

    /// Returns whether a mutant of the source with this absolute path is selected.
    pub fn selects(&self, path: &Path, mutant: &Mutant) -> bool {
        let is_named = |place: &SelectedPlace| place.path.is_match(path) && place.contains(mutant);
        (self.included.is_empty() || self.included.iter().any(is_named))
            && !self.excluded.iter().any(is_named)
    }
}

impl SelectedPlace {
    fn read(word: &str, directory: &Path) -> Result<Self, SelectionError> {
        let (path, range) =
            split_range(word).ok_or_else(|| SelectionError::Range { word: word.to_owned() })?;
        let absolute = normalized(&directory.join(path));
        let path = if path.contains(['*', '?', '[', '{']) {
            let glob: Result<Glob, _> =
                GlobBuilder::new(&absolute.to_string_lossy()).literal_separator(true).build();
            let glob = glob.map_err(|source| SelectionError::Glob { word: word.to_owned(), source })?;
            PathPattern::Glob(glob.compile_matcher())
        } else {
            PathPattern::Path(absolute)
        };
        Ok(Self { word: word.to_owned(), path, range })
    }

    fn contains(&self, mutant: &Mutant) -> bool {
        let inside = |(start, end): (Position, Position)| {
            start <= mutant.start()
                && mutant.end() <= Position { column: end.column.saturating_add(1), ..end }
        };
        self.range.is_none_or(inside)
    }
}

impl PathPattern {
    fn is_match(&self, path: &Path) -> bool {
        match self {
            Self::Path(named) => path.starts_with(named),
            Self::Glob(glob) => path.ancestors().any(|one| glob.is_match(one)),
        }
    }
}

/// Splits `FILE:10:1-80:1` into path and range; `None` if the range is malformed.
fn split_range(word: &str) -> Option<(&str, Option<(Position, Position)>)> {
    let is_range = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let Some((at, _)) = word.match_indices(':').find(|(at, _)| is_range(&word[at + 1..])) else {
        return Some((word, None));
    };
    let (path, range) = (&word[..at], &word[at + 1..]);
    let (start, end) = range.split_once('-').unwrap_or((range, range));
    let first = position(start, 1)?;
    let last = position(end, u32::MAX)?;
    (first <= last).then_some((path, Some((first, last))))
}

fn position(text: &str, column: u32) -> Option<Position> {
    let (line, column) = match text.split_once(':') {
        Some((line, column)) => (line, column.parse().ok()?),
        None => (text, column),
    };
    Some(Position { line: line.parse().ok()?, column })
}

/// Resolves `.` and `..` without accessing the file system.
pub(crate) fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => parts.push(part),
        }
    }
    parts
}
