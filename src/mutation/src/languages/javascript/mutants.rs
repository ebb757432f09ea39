//! Converts StrykerJS's mutants and results to Heeler's, with paths relative to the project, byte positions,
//! and ids that stay the same between runs.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Component, Path},
    sync::Arc,
    time::Duration,
};

use heeler_mutant_model::{
    ForeignMutant, ForeignSource, Language, Mutant, MutantResult, MutantStatus, Position, UnknownPlaceError,
};
use heeler_protocol::mutation::{
    SourceLocation, SourcePosition, StatusName, TestedMutant,
    v0_4::{DiscoverResult, DiscoveredMutant, FileRange, MutationTestResult},
};

use super::error::StrykerError;

/// Glob characters that can't be escaped for StrykerJS. If a path contains one, all mutants are tested.
const UNSELECTABLE: [char; 6] = ['{', '}', '(', ')', '!', '\\'];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SearchedPaths {
    All,
    /// Files and directories (with a trailing `/`), as globs. If empty, StrykerJS need not start.
    Only(Vec<String>),
}

impl SearchedPaths {
    /// Filters the named paths, which are relative to the project, for those that can contain mutants of a
    /// package.
    pub(super) fn new(named: Option<&[String]>, package: &Path, project: &Path) -> Self {
        let Some(named) = named.filter(|paths| !paths.iter().any(|path| path.contains(UNSELECTABLE))) else {
            return Self::All;
        };
        let prefix = prefix(package, project);
        let mut paths = Vec::new();
        for path in named {
            match path.strip_prefix(prefix.as_str()) {
                // The package itself, or a directory around it.
                Some("" | "/") => return Self::All,
                None if path.ends_with('/') && prefix.starts_with(path.trim_start_matches('/')) => {
                    return Self::All;
                }
                Some(own) if !is_built_here(own) => paths.push(escaped(own)),
                Some(_) | None => {}
            }
        }
        Self::Only(paths)
    }

    pub(super) fn files(&self) -> Option<Vec<FileRange>> {
        match self {
            Self::All => None,
            Self::Only(paths) => {
                let file = |path: &String| FileRange { path: path.clone(), range: None };
                Some(paths.iter().map(file).collect())
            }
        }
    }
}

/// Returns whether a source is in a language that StrykerJS does not mutate.
fn is_built_here(path: &str) -> bool {
    !matches!(Language::of_path(path), None | Some(Language::JavaScript | Language::TypeScript))
}

/// Returns the package's directory relative to the project, with a trailing `/`; empty if they are the same.
fn prefix(package: &Path, project: &Path) -> String {
    let below = package.strip_prefix(project).unwrap_or(Path::new("")).to_string_lossy();
    if below.is_empty() { String::new() } else { format!("{below}/") }
}

/// The mutants that StrykerJS found in a package.
#[derive(Debug)]
pub(super) struct StrykerMutants {
    /// The package's directory relative to the project, with a trailing `/`; empty if they are the same.
    prefix: String,
    /// Sources by mutant path.
    sources: BTreeMap<Arc<str>, StrykerSource>,
    /// Mutants sorted by position within each source.
    mutants: Vec<SelectableMutant>,
    /// Whether only part of the package was searched, so other sources may have mutants.
    is_part: bool,
}

#[derive(Debug)]
struct StrykerSource {
    text: Arc<str>,
    mutants: Range<usize>,
}

#[derive(Debug)]
struct SelectableMutant {
    mutant: Arc<Mutant>,
    is_selected: bool,
}

impl StrykerMutants {
    /// Converts the mutants found in a package inside the project's directory. All are selected.
    ///
    /// # Errors
    /// A source can't be read, is outside the package, or lacks a mutant's position.
    pub(super) fn read(
        found: DiscoverResult,
        searched: &SearchedPaths,
        package: &Path,
        project: &Path,
    ) -> Result<Self, StrykerError> {
        let mut read = Self {
            prefix: prefix(package, project),
            sources: BTreeMap::new(),
            mutants: Vec::new(),
            is_part: matches!(searched, SearchedPaths::Only(_)),
        };
        for (path, file) in found.files {
            read.add_file(&path, file.mutants, package)?;
        }
        Ok(read)
    }

    fn add_file(
        &mut self,
        path: &str,
        found: Vec<DiscoveredMutant>,
        package: &Path,
    ) -> Result<(), StrykerError> {
        let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || path.is_empty() {
            return Err(StrykerError::Outside { path: path.to_owned() });
        }
        let file = package.join(path);
        let text = fs::read_to_string(&file).map_err(|source| StrykerError::Source { path: file, source })?;
        let source = ForeignSource {
            path: format!("{}{path}", self.prefix).into(),
            // Other files, such as components of a framework, contain JavaScript.
            language: Language::of_path(path).unwrap_or(Language::JavaScript),
            // StrykerJS does not count the byte order mark.
            text: text.strip_prefix('\u{feff}').unwrap_or(&text).into(),
        };
        let mutants = foreign_mutants(found, &source).map_err(StrykerError::Place)?;
        let first = self.mutants.len();
        let selected = |mutant| SelectableMutant { mutant: Arc::new(mutant), is_selected: true };
        self.mutants.extend(mutants.into_iter().map(selected));
        let mutants = first..self.mutants.len();
        self.sources.insert(source.path, StrykerSource { text: source.text, mutants });
        Ok(())
    }

    /// Removes mutants from the selection.
    pub(super) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        for one in &mut self.mutants {
            one.is_selected &= is_selected(&one.mutant);
        }
    }

    pub(super) fn selected(&self) -> impl Iterator<Item = &Arc<Mutant>> {
        self.mutants.iter().filter(|one| one.is_selected).map(|one| &one.mutant)
    }

    /// Returns the source texts, by mutant path.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.sources.iter().map(|(path, source)| (path, &source.text))
    }

    /// Returns files and ranges that cover the selected mutants; `None` covers the whole package. A range
    /// also covers other mutants inside it, because StrykerJS can't select single mutants.
    pub(super) fn selected_places(&self) -> Option<Vec<FileRange>> {
        let is_plain = self.sources.keys().all(|path| !path.contains(UNSELECTABLE));
        if !is_plain || (!self.is_part && self.mutants.iter().all(|one| one.is_selected)) {
            return None;
        }
        let mut places = Vec::new();
        for (path, source) in &self.sources {
            let of_file = || self.mutants[source.mutants.clone()].iter();
            let own = path.strip_prefix(self.prefix.as_str()).unwrap_or(path);
            let own = escaped(own);
            if of_file().all(|one| one.is_selected) {
                places.push(FileRange { path: own, range: None });
                continue;
            }
            let mut ranges: Vec<_> =
                of_file().filter(|one| one.is_selected).map(|one| location(&one.mutant)).collect();
            ranges.dedup();
            let range = |range| FileRange { path: own.clone(), range: Some(range) };
            places.extend(ranges.into_iter().map(range));
        }
        Some(places)
    }

    /// Returns the results of selected mutants, with each mutant's index.
    pub(super) fn results(&self, tested: MutationTestResult) -> Vec<(usize, MutantResult)> {
        let mut results = Vec::new();
        for (path, file) in tested.files {
            for tested in file.mutants {
                let Some(number) = self.number_of(&path, &tested) else { continue };
                let one = &self.mutants[number];
                if one.is_selected {
                    results.push((number, result(Arc::clone(&one.mutant), tested)));
                }
            }
        }
        results
    }

    /// Returns the index of the mutant with this file, range and replacement. StrykerJS's ids can't be used,
    /// because they differ in each answer.
    fn number_of(&self, path: &str, tested: &TestedMutant) -> Option<usize> {
        let source = self.sources.get(format!("{}{path}", self.prefix).as_str())?;
        let mutants = &self.mutants[source.mutants.clone()];
        let order = |one: &SelectableMutant| {
            let mutant = &one.mutant;
            position(mutant.start())
                .cmp(&tested.location.start)
                .then_with(|| position(mutant.end()).cmp(&tested.location.end))
                .then_with(|| mutant.mutator.name().cmp(&tested.mutator_name))
                .then_with(|| (*mutant.replacement()).cmp(&tested.replacement))
        };
        // The last of equal mutants.
        let place = mutants.partition_point(|one| order(one).is_le()).checked_sub(1)?;
        order(&mutants[place]).is_eq().then(|| source.mutants.start + place)
    }

    /// Returns the results of all selected mutants. Mutants without a known result are pending, for this
    /// reason.
    pub(super) fn all_results(
        &self,
        known: &mut BTreeMap<usize, MutantResult>,
        reason: Option<&str>,
    ) -> Vec<MutantResult> {
        let selected = self.mutants.iter().enumerate().filter(|(_, one)| one.is_selected);
        let result = |(number, one): (usize, &SelectableMutant)| {
            let pending = || {
                let reason = reason.map(Arc::from);
                MutantResult::new(Arc::clone(&one.mutant), MutantStatus::Pending, reason)
            };
            known.remove(&number).unwrap_or_else(pending)
        };
        selected.map(result).collect()
    }
}

/// Returns a glob that matches only this path, because StrykerJS treats paths as globs.
fn escaped(path: &str) -> String {
    let mut glob = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter {
            '[' | '*' | '?' => glob.extend(['[', letter, ']']),
            _ => glob.push(letter),
        }
    }
    glob
}

fn foreign_mutants(
    found: Vec<DiscoveredMutant>,
    source: &ForeignSource,
) -> Result<Vec<Mutant>, UnknownPlaceError> {
    let position = |position: SourcePosition| Position { line: position.line, column: position.column };
    let foreign = |one: DiscoveredMutant| ForeignMutant {
        start: position(one.location.start),
        end: position(one.location.end),
        mutator: one.mutator_name,
        replacement: one.replacement.unwrap_or_default(),
        description: one.description,
    };
    source.mutants(found.into_iter().map(foreign).collect())
}

fn location(mutant: &Mutant) -> SourceLocation {
    SourceLocation { start: position(mutant.start()), end: position(mutant.end()) }
}

fn position(position: Position) -> SourcePosition {
    SourcePosition { line: position.line, column: position.column }
}

fn result(mutant: Arc<Mutant>, tested: TestedMutant) -> MutantResult {
    let uids = |uids: Vec<String>| uids.into_iter().map(Arc::from);
    let duration = tested.duration.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    MutantResult {
        covered_by: uids(tested.covered_by).collect(),
        killed_by: uids(tested.killed_by).collect(),
        tests_completed: tested.tests_completed,
        is_static: tested.r#static,
        duration,
        ..MutantResult::new(mutant, status(tested.status), tested.status_reason.map(Arc::from))
    }
}

fn status(name: StatusName) -> MutantStatus {
    match name {
        StatusName::Pending => MutantStatus::Pending,
        StatusName::Ignored => MutantStatus::Ignored,
        StatusName::CompileError => MutantStatus::CompileError,
        StatusName::NoCoverage => MutantStatus::NoCoverage,
        StatusName::Survived => MutantStatus::Survived,
        StatusName::Killed => MutantStatus::Killed,
        StatusName::Timeout => MutantStatus::Timeout,
        StatusName::RuntimeError => MutantStatus::RuntimeError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_package_are_searched_and_others_are_not() {
        let only =
            |paths: &[&str]| SearchedPaths::Only(paths.iter().map(|path| (*path).to_owned()).collect());
        let all = SearchedPaths::All;
        for (named, package, expected) in [
            (&["src/a.js", "src/lib.rs", "src/[b]?.ts"][..], "/p", only(&["src/a.js", "src/[[]b][?].ts"])),
            (&["src/", "app.vue"], "/p", only(&["src/", "app.vue"])),
            (&["src/lib.rs"], "/p", only(&[])),
            (&["/"], "/p", all.clone()),
            (&["src/a.js", "src/{b}.js"], "/p", all.clone()),
            (&["web/src/a.js", "src/a.js", "web2/b.js"], "/p/web", only(&["src/a.js"])),
            (&["web/"], "/p/web", all.clone()),
            (&["/"], "/p/web", all.clone()),
            (&["a/"], "/p/a/web", all.clone()),
            (&["src/"], "/p/web", only(&[])),
        ] {
            let named: Vec<String> = named.iter().map(|path| (*path).to_owned()).collect();
            let searched = SearchedPaths::new(Some(&named), Path::new(package), Path::new("/p"));
            assert_eq!(searched, expected, "{named:?} of {package}");
        }
        assert_eq!(SearchedPaths::new(None, Path::new("/p"), Path::new("/p")), all);
    }
}
