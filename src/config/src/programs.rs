//! Finds the programs matched by a suite's paths and globs, and names programs after their paths. Whether a
//! file is a test program is decided by its framework.

use std::{
    collections::BTreeSet,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A program of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProgram {
    /// First part of the uids of the program's tests: the suite's name, followed by the file name if the
    /// suite has several programs.
    pub suite: String,
    pub path: PathBuf,
}

/// Error of finding the programs of a suite.
#[derive(Debug, thiserror::Error)]
pub enum FindProgramsError {
    /// No file exists at a path.
    #[error("program not found: {} (suite \"{suite}\")", path.display())]
    Missing {
        suite: String,
        /// The path, resolved against the directory of the configuration file.
        path: PathBuf,
    },
    /// No executable file matches a glob.
    #[error("no executable file matches \"{glob}\" in {} (suite \"{suite}\")", dir.display())]
    NoMatch {
        suite: String,
        glob: String,
        /// Directory where the search started.
        dir: PathBuf,
    },
    /// A glob with a syntax error.
    #[error("invalid glob \"{glob}\" in suite \"{suite}\"")]
    Glob { suite: String, glob: String, source: globset::Error },
    /// A directory can't be read.
    #[error("can't read the directory {} (suite \"{suite}\")", path.display())]
    Directory { suite: String, path: PathBuf, source: io::Error },
}

/// Returns the programs matched by paths and globs in `dir`, without duplicates, sorted within each glob.
///
/// A path only has to exist; a glob matches executable files only.
///
/// # Errors
/// A path does not exist, a glob matches nothing, or a directory can't be read.
pub fn find_programs(
    suite: &str,
    dir: &Path,
    patterns: &[String],
) -> Result<Vec<FoundProgram>, FindProgramsError> {
    let paths = find_paths(suite, dir, patterns, is_executable)?;
    let is_only_program = paths.len() == 1;
    let name = |path: &Path| {
        if is_only_program { suite.to_owned() } else { format!("{suite}::{}", stable_name(path)) }
    };
    Ok(paths.into_iter().map(|path| FoundProgram { suite: name(&path), path }).collect())
}

/// Returns the files matched by paths and globs in `dir`, without duplicates, sorted within each glob. Files
/// need not be executable.
///
/// # Errors
/// A path does not exist, a glob matches nothing, or a directory can't be read.
pub fn find_files(suite: &str, dir: &Path, patterns: &[String]) -> Result<Vec<PathBuf>, FindProgramsError> {
    find_paths(suite, dir, patterns, Path::is_file)
}

fn find_paths(
    suite: &str,
    dir: &Path,
    patterns: &[String],
    is_wanted: fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, FindProgramsError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        let found = if is_glob(pattern) {
            find_matching(suite, dir, pattern, is_wanted, &mut |_| {})?.into_iter().collect()
        } else {
            let path = super::profiles::resolve_path(dir, pattern);
            if !path.exists() {
                return Err(FindProgramsError::Missing { suite: suite.to_owned(), path });
            }
            vec![path]
        };
        for path in found {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Returns the suite name for a program without a suite: its path relative to `base`, or its file name, with
/// `::` between the parts and without cargo's hash.
#[must_use]
pub fn suite_name_from_path(base: &Path, program: &Path) -> String {
    let below = program.strip_prefix(base).ok().and_then(Path::parent);
    let mut parts: Vec<String> =
        below.into_iter().flat_map(Path::iter).map(|part| part.to_string_lossy().into_owned()).collect();
    parts.push(stable_name(program));
    parts.join("::")
}

/// Returns suite names for programs without a configuration: their file names without cargo's hash. Programs
/// with the same file name are prefixed with parent directories until their names differ. Names do not
/// depend on the working directory, because uids of tests begin with them.
#[must_use]
pub fn suite_names_without_base(programs: &[PathBuf]) -> Vec<String> {
    let names = |path: &PathBuf| {
        let directories = path.parent().into_iter().flat_map(Path::components).rev();
        let directories = directories.filter(|part| matches!(part, std::path::Component::Normal(_)));
        let directories = directories.map(|part| part.as_os_str().to_string_lossy().into_owned());
        [stable_name(path)].into_iter().chain(directories).collect()
    };
    let all: Vec<Vec<String>> = programs.iter().map(names).collect();
    let name = |own: &Vec<String>| {
        let differs = |count: &usize| {
            let mut alike = all.iter().filter(|other| other.iter().take(*count).eq(own.iter().take(*count)));
            alike.all(|other| other == own)
        };
        let count = (1..own.len()).find(differs).unwrap_or(own.len());
        own[..count].iter().rev().map(String::as_str).collect::<Vec<_>>().join("::")
    };
    all.iter().map(name).collect()
}

/// Returns the file name without the hash appended by cargo, which differs from machine to machine.
fn stable_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => name.into_owned(),
    }
}

/// Files matched by paths and globs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatchingFiles {
    /// All paths, existing or not, and the programs matched by globs.
    pub programs: BTreeSet<PathBuf>,
    /// Directories searched by globs, existing or not. Excludes hidden directories below the start of a
    /// search, such as `.git`.
    pub directories: BTreeSet<PathBuf>,
}

/// Returns the files that paths and globs in `dir` match now. A glob that can't be evaluated matches nothing.
#[must_use]
pub fn matching_files(dir: &Path, patterns: &[String]) -> MatchingFiles {
    let mut files = MatchingFiles::default();
    for pattern in patterns {
        if is_glob(pattern) {
            let start = search_start(dir, pattern);
            let mut visit = |directory: &Path| {
                let below = directory.strip_prefix(&start).unwrap_or(Path::new(""));
                if below.iter().all(|name| !name.as_encoded_bytes().starts_with(b".")) {
                    files.directories.insert(directory.to_owned());
                }
            };
            if let Ok(found) = find_matching("", dir, pattern, is_executable, &mut visit) {
                files.programs.extend(found);
            }
        } else {
            files.programs.insert(super::profiles::resolve_path(dir, pattern));
        }
    }
    files
}

/// Returns whether a pattern is a glob rather than a path.
#[must_use]
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', '{'])
}

/// Returns the directory where the search for a glob starts.
fn search_start(dir: &Path, glob: &str) -> PathBuf {
    super::profiles::resolve_path(dir, literal_prefix(glob))
}

/// Returns how many directory levels below its start a glob may match; `None` for any number.
fn search_depth(glob: &str) -> Option<usize> {
    let rest = glob.trim_start_matches("./");
    let prefix = literal_prefix(glob);
    let rest = rest.strip_prefix(prefix.as_str()).unwrap_or(rest);
    // This counts the separators of all alternatives, so the search may be deeper than needed.
    (!rest.contains("**")).then(|| rest.matches('/').count())
}

/// Returns the files that match a glob and satisfy `is_wanted`. Calls `visit` with each searched directory.
fn find_matching(
    suite: &str,
    dir: &Path,
    glob: &str,
    is_wanted: fn(&Path) -> bool,
    visit: &mut impl FnMut(&Path),
) -> Result<BTreeSet<PathBuf>, FindProgramsError> {
    let matcher = globset::GlobBuilder::new(glob.trim_start_matches("./"))
        .literal_separator(true)
        .build()
        .map_err(|source| FindProgramsError::Glob { suite: suite.to_owned(), glob: glob.to_owned(), source })?
        .compile_matcher();
    let start = search_start(dir, glob);
    let deepest = search_depth(glob).unwrap_or(usize::MAX);
    // Search directories only as deep as the glob can match.
    let mut found = BTreeSet::new();
    let mut waiting = vec![start.clone()];
    while let Some(directory) = waiting.pop() {
        visit(&directory);
        let depth = directory.strip_prefix(&start).map_or(0, |below| below.iter().count());
        let failed = |source| FindProgramsError::Directory {
            suite: suite.to_owned(),
            path: directory.clone(),
            source,
        };
        let entries = match std::fs::read_dir(if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &directory
        }) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory == start => break,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let path = directory.join(entry.file_name());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                if depth < deepest {
                    waiting.push(path);
                }
            } else if matcher.is_match(path.strip_prefix(dir).unwrap_or(&path)) && is_wanted(&path) {
                found.insert(path);
            }
        }
    }
    if found.is_empty() {
        return Err(FindProgramsError::NoMatch {
            suite: suite.to_owned(),
            glob: glob.to_owned(),
            dir: dir.to_owned(),
        });
    }
    Ok(found)
}

/// Returns the directories of a glob before its first wildcard. Only these are searched.
fn literal_prefix(glob: &str) -> String {
    let wildcard = glob.find(['*', '?', '[', '{']).unwrap_or(glob.len());
    let head = glob.trim_start_matches("./");
    let cut = wildcard.saturating_sub(glob.len() - head.len());
    head[..cut].rfind('/').map_or(String::new(), |slash| head[..=slash].to_owned())
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, mode) in
            [("bin/a_test", 0o755), ("bin/b_test", 0o755), ("bin/deep/c_test", 0o755), ("bin/d_test", 0o644)]
        {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        dir
    }

    fn find(dir: &Path, patterns: &[&str]) -> Result<Vec<String>, String> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        find_programs("s", dir, &patterns)
            .map(|found| found.into_iter().map(|one| one.suite).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn glob_matches_executables_of_its_own_depth() {
        let dir = tree();
        assert_eq!(find(dir.path(), &["bin/*_test"]).unwrap(), ["s::a_test", "s::b_test"]);
        assert_eq!(find(dir.path(), &["./bin/{a,b}_test"]).unwrap(), ["s::a_test", "s::b_test"]);
        assert_eq!(find(dir.path(), &["bin/**/*_test"]).unwrap(), ["s::a_test", "s::b_test", "s::c_test"]);
    }

    #[test]
    fn matching_files_name_the_directories_of_globs() {
        let dir = tree();
        std::fs::create_dir_all(dir.path().join("bin/.git/objects")).unwrap();
        let matching = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            let MatchingFiles { programs, directories } = matching_files(dir.path(), &patterns);
            [programs, directories].map(|paths| {
                let below = |path: &PathBuf| path.strip_prefix(dir.path()).unwrap().display().to_string();
                paths.iter().map(below).collect::<Vec<_>>()
            })
        };
        assert_eq!(matching(&["none", "bin/a_test"]), [vec!["bin/a_test", "none"], vec![]]);
        assert_eq!(matching(&["./bin/*_test"]), [vec!["bin/a_test", "bin/b_test"], vec!["bin"]]);
        assert_eq!(matching(&["bin/*/*_test"]), [vec!["bin/deep/c_test"], vec!["bin", "bin/deep"]]);
        assert_eq!(matching(&["bin/**/c_test"]), [vec!["bin/deep/c_test"], vec!["bin", "bin/deep"]]);
        assert_eq!(matching(&["gone/*"]), [vec![], vec!["gone"]]);
        assert_eq!(matching(&["*/[x"]), [Vec::<&str>::new(), vec![]]);
    }

    #[test]
    fn single_program_is_named_like_its_suite() {
        let dir = tree();
        assert_eq!(find(dir.path(), &["bin/a_test", "bin/a*"]).unwrap(), ["s"]);
    }

    #[test]
    fn pattern_without_a_match_is_an_error() {
        let dir = tree();
        assert!(find(dir.path(), &["bin/x_test"]).unwrap_err().starts_with("program not found: "));
        assert!(
            find(dir.path(), &["bin/x*"]).unwrap_err().starts_with("no executable file matches \"bin/x*\"")
        );
        assert!(find(dir.path(), &["none/x*"]).unwrap_err().starts_with("no executable file matches"));
        assert!(find(dir.path(), &["bin/[x"]).unwrap_err().starts_with("invalid glob"));
    }

    #[test]
    fn names_without_base_have_the_directories_that_differ() {
        for (paths, names) in [
            (&["/w/build/unit"][..], &["unit"][..]),
            (&["/w/build/unit", "/w/build/net"], &["unit", "net"]),
            (&["/w/a/unit", "/w/b/unit", "/w/b/net"], &["a::unit", "b::unit", "net"]),
            (&["/w/a/x/unit", "/w/b/x/unit"], &["a::x::unit", "b::x::unit"]),
            (&["/unit", "/w/unit"], &["unit", "w::unit"]),
            // Other code numbers repeated programs.
            (&["/w/unit", "/w/unit"], &["unit", "unit"]),
            (&["/d/herd-0123456789abcdef", "/d/herd-fedcba9876543210"], &["herd", "herd"]),
        ] {
            let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
            assert_eq!(suite_names_without_base(&paths), names, "{paths:?}");
        }
    }

    #[test]
    fn program_name_is_its_path_without_cargo_hash() {
        let base = Path::new("/w");
        for (path, name) in [
            ("/w/build/unit_tests", "build::unit_tests"),
            ("/w/unit_tests", "unit_tests"),
            ("/elsewhere/unit_tests", "unit_tests"),
            ("/w/target/debug/deps/herd-0123456789abcdef", "target::debug::deps::herd"),
            ("/w/a-b", "a-b"),
        ] {
            assert_eq!(suite_name_from_path(base, Path::new(path)), name);
        }
    }
}
