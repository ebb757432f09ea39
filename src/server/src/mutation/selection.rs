//! The mutants that a request selects: by globs, by files and source ranges, or by id.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use globset::{GlobBuilder, GlobMatcher};
use heeler_mutant_model::{Mutant, Position};
use heeler_protocol::mutation::{
    SourceLocation, SourcePosition,
    v0_4::{DiscoveredFiles, FileRange},
};

/// A glob that can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid glob {glob:?}: {reason}")]
pub struct InvalidGlob {
    pub glob: String,
    pub reason: String,
}

/// A selection of mutants. Paths are relative to the project's directory, like the paths of mutants.
#[derive(Debug, Clone)]
pub struct MutantSelection(Selected);

#[derive(Debug, Clone)]
enum Selected {
    All,
    Globs(Vec<GlobRule>),
    Files(Vec<SelectedFile>),
    /// Mutant ids by path.
    Mutants(BTreeMap<String, BTreeSet<String>>),
}

/// A glob. The last glob that matches decides.
#[derive(Debug, Clone)]
struct GlobRule {
    is_negated: bool,
    matcher: GlobMatcher,
    /// Matches everything below a directory that matches the glob.
    below: GlobMatcher,
    range: Option<SourceLocation>,
}

#[derive(Debug, Clone)]
struct SelectedFile {
    /// `None` for a path outside the project.
    path: Option<String>,
    is_directory: bool,
    range: Option<SourceLocation>,
}

impl MutantSelection {
    #[must_use]
    pub fn all() -> Self {
        Self(Selected::All)
    }

    /// Selects by globs, absolute or relative to the project's directory. `!` negates. A directory includes
    /// everything below it. A suffix `:line:column-line:column` limits the glob to mutants in that range. An
    /// empty list selects everything.
    ///
    /// # Errors
    /// A glob can't be parsed.
    pub(crate) fn from_globs(globs: &[String], directory: &Path) -> Result<Self, InvalidGlob> {
        if globs.is_empty() {
            return Ok(Self::all());
        }
        let rules = globs.iter().map(|glob| GlobRule::read(glob, directory)).collect::<Result<_, _>>()?;
        Ok(Self(Selected::Globs(rules)))
    }

    /// Selects files, directories (with a trailing `/`), and source ranges. Missing files select nothing.
    #[must_use]
    pub(crate) fn from_files(files: &[FileRange], directory: &Path) -> Self {
        let file = |file: &FileRange| SelectedFile {
            path: relative_path(&file.path, directory),
            is_directory: file.path.ends_with('/'),
            range: file.range,
        };
        Self(Selected::Files(files.iter().map(file).collect()))
    }

    /// Selects previously discovered mutants by id.
    #[must_use]
    pub(crate) fn from_mutants(files: &DiscoveredFiles, directory: &Path) -> Self {
        let mut selected: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (path, file) in files {
            if let Some(path) = relative_path(path, directory) {
                selected.entry(path).or_default().extend(file.mutants.iter().map(|mutant| mutant.id.clone()));
            }
        }
        Self(Selected::Mutants(selected))
    }

    /// Returns the files and directories (with a trailing `/`) that the selection is limited to. Returns
    /// `None` if the selection contains everything or consists of globs.
    #[must_use]
    pub fn named_paths(&self) -> Option<Vec<String>> {
        match &self.0 {
            Selected::All | Selected::Globs(_) => None,
            Selected::Files(files) => {
                let known = files.iter().filter_map(|file| Some((file.path.as_ref()?, file.is_directory)));
                let path = |(path, is_directory): (&String, bool)| match is_directory {
                    true => format!("{path}/"),
                    false => path.clone(),
                };
                Some(known.map(path).collect())
            }
            Selected::Mutants(mutants) => Some(mutants.keys().cloned().collect()),
        }
    }

    /// Returns whether a source file may contain selected mutants.
    #[must_use]
    pub fn may_include(&self, path: &str) -> bool {
        match &self.0 {
            Selected::All => true,
            Selected::Globs(rules) => {
                decide(rules, |rule| rule.matches(path) && (rule.range.is_none() || !rule.is_negated))
            }
            Selected::Files(files) => files.iter().any(|file| file.matches(path)),
            Selected::Mutants(mutants) => mutants.contains_key(path),
        }
    }

    /// Returns whether a mutant is selected.
    #[must_use]
    pub fn includes(&self, mutant: &Mutant) -> bool {
        let path = &**mutant.path();
        let is_inside = |range: Option<SourceLocation>| range.is_none_or(|range| contains(range, mutant));
        match &self.0 {
            Selected::All => true,
            Selected::Globs(rules) => decide(rules, |rule| rule.matches(path) && is_inside(rule.range)),
            Selected::Files(files) => files.iter().any(|file| file.matches(path) && is_inside(file.range)),
            Selected::Mutants(mutants) => {
                mutants.get(path).is_some_and(|ids| ids.contains(&mutant.id.to_string()))
            }
        }
    }
}

/// Applies the last matching rule. If all rules are negated, everything that no rule matches is selected.
fn decide(rules: &[GlobRule], matches: impl Fn(&GlobRule) -> bool) -> bool {
    let otherwise = rules.iter().all(|rule| rule.is_negated);
    rules.iter().rev().find(|rule| matches(rule)).map_or(otherwise, |rule| !rule.is_negated)
}

fn contains(range: SourceLocation, mutant: &Mutant) -> bool {
    let position = |position: Position| SourcePosition { line: position.line, column: position.column };
    range.start <= position(mutant.start()) && position(mutant.end()) <= range.end
}

impl GlobRule {
    fn read(text: &str, directory: &Path) -> Result<Self, InvalidGlob> {
        let (is_negated, glob) = text.strip_prefix('!').map_or((false, text), |glob| (true, glob));
        let (glob, range) = split_range(glob).map_or((glob, None), |(glob, range)| (glob, Some(range)));
        let invalid = |reason: String| InvalidGlob { glob: text.to_owned(), reason };
        if glob.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        // A glob outside the project matches no mutant.
        let glob = relative_path(glob, directory).unwrap_or_else(|| glob.to_owned());
        let matcher = |glob: &str| {
            let built = GlobBuilder::new(glob).literal_separator(true).build();
            built.map(|glob| glob.compile_matcher()).map_err(|error| invalid(error.kind().to_string()))
        };
        let below = if glob.is_empty() { "**".to_owned() } else { format!("{glob}/**") };
        Ok(Self { is_negated, matcher: matcher(&glob)?, below: matcher(&below)?, range })
    }

    fn matches(&self, path: &str) -> bool {
        self.matcher.is_match(path) || self.below.is_match(path)
    }
}

impl SelectedFile {
    fn matches(&self, path: &str) -> bool {
        let Some(own) = &self.path else { return false };
        match self.is_directory {
            false => path == own,
            true if own.is_empty() => true,
            true => path.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('/')),
        }
    }
}

/// Normalizes a path or glob: relative to a directory, without `.` and without a trailing `/`. Returns `None`
/// if it leads outside the directory.
pub(super) fn relative_path(path: &str, directory: &Path) -> Option<String> {
    let relative = if path.starts_with('/') {
        let directory = directory.to_str()?.trim_end_matches('/');
        match path.trim_end_matches('/').strip_prefix(directory) {
            Some("") => "",
            Some(rest) => rest.strip_prefix('/')?,
            // A directory above the project contains the whole project.
            None if path.ends_with('/') && format!("{directory}/").starts_with(path) => "",
            None => return None,
        }
    } else {
        path
    };
    let parts: Vec<_> = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") { None } else { Some(parts.join("/")) }
}

/// Splits the suffix `:line:column-line:column` off a glob.
fn split_range(text: &str) -> Option<(&str, SourceLocation)> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse::<u32>().ok() } else { None }
    };
    let (rest, end) = text.rsplit_once('-')?;
    let (end_line, end_column) = end.split_once(':')?;
    let (rest, start_column) = rest.rsplit_once(':')?;
    let (glob, start_line) = rest.rsplit_once(':')?;
    let position = |line, column| Some(SourcePosition { line: number(line)?, column: number(column)? });
    let range =
        SourceLocation { start: position(start_line, start_column)?, end: position(end_line, end_column)? };
    Some((glob, range))
}

#[cfg(test)]
mod tests {
    use heeler_mutant_model::{ForeignMutant, ForeignSource, Language, MutantId};
    use heeler_protocol::mutation::v0_4::{DiscoveredFile, DiscoveredMutant};

    use super::*;

    fn mutant(path: &str, start: (u32, u32), end: (u32, u32)) -> Mutant {
        let position = |(line, column)| Position { line, column };
        let text = "\n\n    true\n";
        let source = ForeignSource { path: path.into(), language: Language::Rust, text: text.into() };
        let found = ForeignMutant {
            start: position(start),
            end: position(end),
            mutator: "BooleanLiteral".to_owned(),
            replacement: "false".to_owned(),
            description: None,
        };
        let mut mutant = source.mutants(vec![found]).unwrap().remove(0);
        mutant.id = MutantId(7);
        mutant
    }

    fn globs(globs: &[&str], path: &str) -> bool {
        let globs: Vec<_> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let selection = MutantSelection::from_globs(&globs, Path::new("/pro[j]ect")).unwrap();
        let is_included = selection.includes(&mutant(path, (3, 5), (3, 9)));
        assert!(!is_included || selection.may_include(path), "{globs:?} {path}");
        is_included
    }

    #[test]
    fn globs_select_files_and_all_below_directories() {
        for selecting in [
            &["src/**/*.rs"][..],
            &["src"],
            &["src/"],
            &["./src"],
            &["/pro[j]ect/src"],
            &["/pro[j]ect"],
            &["**"],
            &["."],
            &["/"],
            &[],
            &["!tests"],
            &["tests", "src/a/*.rs"],
            &["!src", "src/a"],
            &["src/{a,b}/lib.rs"],
        ] {
            assert!(globs(selecting, "src/a/lib.rs"), "{selecting:?}");
        }
        for others in [
            &["src/*.rs"][..],
            &["sr"],
            &["src", "!src/a"],
            &["!src"],
            &["/other/src"],
            &["/project2/src"],
            &["../src"],
            &["lib.rs"],
            &["*.rs"],
        ] {
            assert!(!globs(others, "src/a/lib.rs"), "{others:?}");
        }
        let invalid = MutantSelection::from_globs(&["src/[".to_owned()], Path::new("/p")).unwrap_err();
        assert!(invalid.to_string().starts_with("invalid glob \"src/[\": "), "{invalid}");
        assert!(MutantSelection::from_globs(&["!".to_owned()], Path::new("/p")).is_err());
    }

    #[test]
    fn part_of_a_file_selects_the_mutants_inside() {
        let path = "src/lib.rs";
        for part in [
            "src/lib.rs:3:4-3:9",
            "src/lib.rs:3:5-3:9",
            "src/lib.rs:1:1-9:1",
            "/pro[j]ect/src/lib.rs:3:5-4:1",
        ] {
            assert!(globs(&[part], path), "{part}");
        }
        for part in [
            "src/lib.rs:3:6-3:9",
            "src/lib.rs:3:5-3:8",
            "src/lib.rs:4:1-9:1",
            "src/lib.rs:3:5",
            "src/lib.rs:a:1-9:1",
        ] {
            assert!(!globs(&[part], path), "{part}");
        }
        assert!(!globs(&["src", "!src/lib.rs:1:1-9:1"], path));
        assert!(globs(&["src", "!src/lib.rs:4:1-9:1"], path));
    }

    #[test]
    fn files_and_directories_are_told_apart_by_the_slash() {
        let directory = Path::new("/project");
        let selects = |path: &str, range| {
            let file = FileRange { path: path.to_owned(), range };
            let selection = MutantSelection::from_files(&[file], directory);
            selection.includes(&mutant("src/[a].rs", (3, 5), (3, 9)))
        };
        for path in ["src/[a].rs", "./src/[a].rs", "/project/src/[a].rs", "src/", "./", "/project/", "/"] {
            assert!(selects(path, None), "{path}");
        }
        for path in ["src", "src/a.rs", "src/[a].rs/", "sr/", "/projec/", "/other/", "../src/", "missing"] {
            assert!(!selects(path, None), "{path}");
        }
        let range = |start, end| {
            let position = |(line, column)| SourcePosition { line, column };
            Some(SourceLocation { start: position(start), end: position(end) })
        };
        assert!(selects("src/[a].rs", range((3, 5), (3, 9))));
        assert!(!selects("src/[a].rs", range((3, 6), (3, 9))));
        assert!(!MutantSelection::from_files(&[], directory).may_include("src/lib.rs"));
    }

    #[test]
    fn paths_are_named_where_they_are_known() {
        let directory = Path::new("/project");
        let file = |path: &str| FileRange { path: path.to_owned(), range: None };
        let files = [file("src/[a].rs"), file("/project/tests/"), file("./"), file("/elsewhere")];
        let named = MutantSelection::from_files(&files, directory).named_paths();
        assert_eq!(named.unwrap(), ["src/[a].rs", "tests/", "/"]);
        assert_eq!(MutantSelection::all().named_paths(), None);
    }

    #[test]
    fn discovered_mutants_are_selected_by_id() {
        let named = |id: &str| DiscoveredMutant {
            id: id.to_owned(),
            location: SourceLocation {
                start: SourcePosition { line: 1, column: 1 },
                end: SourcePosition { line: 1, column: 2 },
            },
            mutator_name: String::new(),
            replacement: None,
            description: None,
        };
        let files = |path: &str, id| {
            DiscoveredFiles::from([(path.to_owned(), DiscoveredFile { mutants: vec![named(id)] })])
        };
        let selects = |path: &str, id| {
            MutantSelection::from_mutants(&files(path, id), Path::new("/p")).includes(&mutant(
                "a.rs",
                (3, 5),
                (3, 9),
            ))
        };
        assert!(selects("a.rs", "0000000000000007") && selects("/p/a.rs", "0000000000000007"));
        assert!(!selects("a.rs", "7") && !selects("b.rs", "0000000000000007"));
    }
}
