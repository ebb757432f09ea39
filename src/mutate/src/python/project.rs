//! Finds the Python sources to mutate, and the directories that their modules are imported from.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use heeler_mutant_model::Language;

use crate::{
    module_tree::{MutatedProject, ReadSourceError},
    selection::SourceSelection,
    source_tree::{find_files, search_sources},
};

/// Files that mark a directory as a Python project.
const PROJECT_FILES: [&str; 4] = ["pyproject.toml", "setup.cfg", "setup.py", "pytest.ini"];
/// Names of directories that contain no product sources, at any depth.
const OTHER_DIRECTORIES: [&str; 15] = [
    "_vendor",
    "bench",
    "benches",
    "benchmark",
    "benchmarks",
    "doc",
    "docs",
    "example",
    "examples",
    "node_modules",
    "site-packages",
    "test",
    "tests",
    "third_party",
    "vendor",
];
/// Names of directories that contain no product sources if they are at the root.
const OTHER_ROOT_DIRECTORIES: [&str; 6] = ["bin", "ci", "build", "dist", "scripts", "tools"];
/// Sources that configure, build or test the project.
const OTHER_FILES: [&str; 4] = ["conftest.py", "noxfile.py", "setup.py", "sitecustomize.py"];
/// Files that mark a directory as tool output.
const MADE: [&str; 2] = ["CACHEDIR.TAG", "pyvenv.cfg"];
const CACHE: &str = "__pycache__";
const SOURCES: &str = "src";
const PACKAGE: &str = "__init__.py";

/// The modules of a project, and where they are imported from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonLayout {
    /// Import roots, relative to the project root.
    pub roots: Vec<PathBuf>,
    /// Full module names, with the paths of their sources.
    pub modules: Vec<(String, String)>,
}

/// Returns whether a directory contains a Python project.
#[must_use]
pub fn is_python_project(directory: &Path) -> bool {
    PROJECT_FILES.iter().any(|name| directory.join(name).is_file())
}

/// Reads the Python sources below a directory and searches the selected ones for mutants. Sources of tests,
/// examples and third-party libraries, and paths in `ignored`, are searched only if the selection names
/// them. If there are sources below `src`, only these are product sources. Blocks, on several cores.
///
/// # Errors
/// A directory or a selected source can't be read.
pub fn find_python_sources(
    root: &Path,
    selection: &SourceSelection,
    ignored: &[PathBuf],
) -> Result<MutatedProject, ReadSourceError> {
    let mut paths = Vec::new();
    let is_passed = |path: &Path| path.file_name().is_some_and(|name| name == CACHE) || is_made(path);
    let is_python = |path: &Path| path.extension().is_some_and(|extension| extension == "py");
    find_files(root, &is_passed, &is_python, &mut paths)?;
    paths.sort();
    let unmatched = selection.unmatched(paths.iter().map(PathBuf::as_path));
    paths.retain(|path| selection.may_select(path));
    if selection.is_everything() {
        let is_ignored = |path: &Path| ignored.iter().any(|one| path.starts_with(one));
        paths.retain(|path| {
            !is_ignored(path) && path.strip_prefix(root).is_ok_and(|below| !is_of_tests(below))
        });
        let sources = root.join(SOURCES);
        if paths.iter().any(|path| path.starts_with(&sources)) {
            paths.retain(|path| path.starts_with(&sources));
        }
    }
    // Sources in other encodings than UTF-8 are skipped: Python reads each in its declared encoding.
    let sources = search_sources(root, selection, paths, |_| Language::Python)?;
    Ok(MutatedProject { root: root.to_owned(), sources, unmatched })
}

impl PythonLayout {
    /// Returns the layout of a project. `search_path` is the interpreter's module search path; its entries
    /// below the root are searched in the copy too.
    #[must_use]
    pub fn read(project: &MutatedProject, search_path: &[PathBuf]) -> Self {
        let root = &project.root;
        let mut roots: Vec<PathBuf> = Vec::new();
        let mut add = |one: PathBuf| {
            if !roots.contains(&one) {
                roots.push(one);
            }
        };
        let below = |path: &PathBuf| path.strip_prefix(root).map(Path::to_owned).ok();
        let mut modules = Vec::new();
        for source in &project.sources {
            let path = Path::new(&*source.source.file().path);
            let directory = path.parent().unwrap_or(Path::new(""));
            let base = package_root(root, directory);
            // A module outside of packages may be a script that nothing imports.
            if base != directory || [Path::new(""), Path::new(SOURCES)].contains(&base) {
                add(base.to_owned());
            }
            let name = path.strip_prefix(base).unwrap_or(path).with_extension("");
            let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
            let name = parts.join(".");
            let name = name.strip_suffix(".__init__").unwrap_or(&name).to_owned();
            modules.push((name, path.to_string_lossy().into_owned()));
        }
        // Last, because an installation directory can contain links to the originals.
        search_path.iter().filter_map(below).for_each(&mut add);
        Self { roots, modules }
    }
}

/// Returns the import root of the package that contains `directory`.
fn package_root<'a>(root: &Path, directory: &'a Path) -> &'a Path {
    let mut base = directory;
    while base != Path::new("") && root.join(base).join(PACKAGE).is_file() {
        base = base.parent().unwrap_or(Path::new(""));
    }
    base
}

/// Returns the directories below a root that are tool output. Other paths that Git ignores may be built
/// parts of the project, such as extension modules.
#[must_use]
pub fn python_left_out(root: &Path, ignored: &[PathBuf]) -> Vec<PathBuf> {
    let is_built = |path: &&PathBuf| {
        path.parent() == Some(root)
            && path.file_name().is_some_and(|name| OTHER_ROOT_DIRECTORIES.iter().any(|other| name == *other))
    };
    let mut found: Vec<PathBuf> = ignored.iter().filter(is_built).cloned().collect();
    add_made(root, &mut found);
    found
}

fn add_made(directory: &Path, found: &mut Vec<PathBuf>) {
    // Copying the tree reports unreadable directories.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || found.contains(&path) {
            continue;
        }
        let is_tool = [".tox", ".nox", ".eggs", CACHE].iter().any(|name| entry.file_name() == *name);
        if is_tool || is_made(&path) {
            found.push(path);
        } else if entry.file_name() != ".git" {
            add_made(&path, found);
        }
    }
}

fn is_made(directory: &Path) -> bool {
    MADE.iter().any(|name| directory.join(name).exists())
}

/// Returns whether a source belongs to tests or tools, judged by its path below the root.
fn is_of_tests(below: &Path) -> bool {
    let name = below.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(".py");
    let is_test = stem.starts_with("test_") || stem.ends_with("_test") || OTHER_FILES.contains(&&*name);
    let directories: BTreeSet<_> = below.parent().into_iter().flat_map(Path::iter).collect();
    let is_other = OTHER_DIRECTORIES.iter().any(|other| directories.contains(std::ffi::OsStr::new(other)));
    let first = below.iter().next().filter(|_| !directories.is_empty());
    let is_beside = first.is_some_and(|first| OTHER_ROOT_DIRECTORIES.iter().any(|other| first == *other));
    is_test || is_other || is_beside
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn project(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "def f(a):\n    return a + 1\n").unwrap();
        }
        dir
    }

    fn paths(project: &MutatedProject) -> Vec<&str> {
        project.sources.iter().map(|source| &*source.source.file().path).collect()
    }

    fn all(dir: &Path) -> MutatedProject {
        find_python_sources(dir, &SourceSelection::default(), &[]).unwrap()
    }

    #[test]
    fn flat_project_has_mutants_but_for_tests_tools_and_what_git_ignores() {
        let dir = project(&[
            "one.py",
            "pkg/__init__.py",
            "pkg/a.py",
            "pkg/tests/test_a.py",
            "pkg/made.py",
            "tests/helper.py",
            "test_one.py",
            "conftest.py",
            "setup.py",
            "docs/conf.py",
            "scripts/run.py",
            "venv/lib/x.py",
            ".tox/y.py",
            "pkg/__pycache__/z.py",
        ]);
        let root = dir.path();
        fs::write(root.join("venv/pyvenv.cfg"), "").unwrap();
        fs::write(root.join("pkg/latin.py"), b"# -*- coding: latin-1 -*-\nx = '\xe9'\n").unwrap();
        let ignored = [root.join("pkg/made.py")];
        let found = find_python_sources(root, &SourceSelection::default(), &ignored).unwrap();
        assert_eq!(paths(&found), ["one.py", "pkg/__init__.py", "pkg/a.py"]);
        let layout = PythonLayout::read(&found, &[root.join("lib"), PathBuf::from("/usr/lib")]);
        assert_eq!(layout.roots, [PathBuf::new(), PathBuf::from("lib")]);
        let names: Vec<&str> = layout.modules.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "pkg", "pkg.a"]);
        let mut left_out = python_left_out(root, &ignored);
        left_out.sort();
        assert_eq!(left_out, [".tox", "pkg/__pycache__", "venv"].map(|name| root.join(name)));

        let select = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            find_python_sources(root, &SourceSelection::read(&words, root).unwrap(), &ignored)
        };
        let named = select(&["tests/helper.py", "x.py"]).unwrap();
        assert_eq!(
            (paths(&named), &named.unmatched[..]),
            (vec!["tests/helper.py"], &["x.py".to_owned()][..])
        );
        let error = select(&["pkg/latin.py"]).unwrap_err();
        assert!(error.to_string().ends_with("pkg/latin.py"), "{error}");
    }

    #[test]
    fn product_of_a_project_with_a_directory_of_sources_is_there() {
        let dir =
            project(&["src/pkg/__init__.py", "src/pkg/sub/a.py", "src/one.py", "tasks.py", "tests/t.py"]);
        let found = all(dir.path());
        assert_eq!(paths(&found), ["src/one.py", "src/pkg/__init__.py", "src/pkg/sub/a.py"]);
        assert_eq!(PythonLayout::read(&found, &[]).roots, [PathBuf::from("src")]);
        assert!(!is_python_project(dir.path()));
        fs::write(dir.path().join("pyproject.toml"), "").unwrap();
        assert!(is_python_project(dir.path()));
    }
}
