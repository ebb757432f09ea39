//! Finds pytest's root directory, by pytest's own rules. The names of the tests are relative to this
//! directory, so their uids do not depend on how the paths of a command line are written.

use std::path::{Path, PathBuf};

/// Files with pytest's configuration in pytest's order, each with the starts of lines that mark it as such. A
/// file without marks always is one.
const CONFIGURATIONS: [(&str, &[&str]); 7] = [
    ("pytest.toml", &[]),
    (".pytest.toml", &[]),
    ("pytest.ini", &[]),
    (".pytest.ini", &[]),
    (PROJECT_FILE, &["[tool.pytest]", "[tool.pytest."]),
    ("tox.ini", &["[pytest]"]),
    ("setup.cfg", &["[tool:pytest]"]),
];
/// Marks the root even without configuration for pytest, if no other file does.
const PROJECT_FILE: &str = "pyproject.toml";

/// Returns the root directory of the tests in `paths`, as pytest started in `cwd` determines it. All paths
/// are absolute and without links.
pub(super) fn pytest_root(cwd: &Path, paths: &[PathBuf]) -> PathBuf {
    let dirs: Vec<&Path> = paths.iter().map(|path| directory_of(path)).collect();
    let ancestor = common_ancestor(&dirs).unwrap_or_else(|| cwd.to_owned());
    let setup = || ancestor.ancestors().find(|dir| dir.join("setup.py").is_file()).map(Path::to_owned);
    let found = configured_directory(&[&ancestor]).or_else(setup);
    found.or_else(|| configured_directory(&dirs)).unwrap_or_else(|| {
        let root = common_ancestor(&[cwd, &ancestor]).filter(|root| root.parent().is_some());
        root.unwrap_or(ancestor)
    })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|_| !path.is_dir()).unwrap_or(path)
}

/// Returns the deepest directory that contains all of these; `None` without any.
fn common_ancestor(dirs: &[&Path]) -> Option<PathBuf> {
    let (first, others) = dirs.split_first()?;
    first.ancestors().find(|dir| others.iter().all(|other| other.starts_with(dir))).map(Path::to_owned)
}

/// Returns the first of these directories or their ancestors with a configuration of pytest, or else with a
/// project file.
fn configured_directory(dirs: &[&Path]) -> Option<PathBuf> {
    let all = || dirs.iter().flat_map(|dir| dir.ancestors());
    let found = all()
        .find(|dir| configuration_in(dir).is_some())
        .or_else(|| all().find(|dir| dir.join(PROJECT_FILE).is_file()));
    found.map(Path::to_owned)
}

/// Returns the name of the file in a directory that configures pytest.
pub(super) fn configuration_in(dir: &Path) -> Option<&'static str> {
    let found = CONFIGURATIONS.iter().find(|(name, marks)| is_set(&dir.join(name), marks));
    found.map(|(name, _)| *name)
}

fn is_set(file: &Path, marks: &[&str]) -> bool {
    if marks.is_empty() {
        return file.is_file();
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| marks.iter().any(|mark| line.trim_start().starts_with(mark)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the root of `paths` in a directory with these files, relative to the directory.
    fn root(files: &[(&str, &str)], cwd: &str, paths: &[&str]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for path in ["tests/unit/test_a.py", "tests/io/test_b.py"] {
            fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
            fs::write(top.join(path), "").unwrap();
        }
        for (path, text) in files {
            fs::write(top.join(path), text).unwrap();
        }
        let paths: Vec<_> = paths.iter().map(|path| top.join(path).canonicalize().unwrap()).collect();
        let root = pytest_root(&top.join(cwd).canonicalize().unwrap(), &paths);
        root.strip_prefix(&top).unwrap_or(&root).display().to_string()
    }

    #[test]
    fn configured_root_is_the_same_for_every_path_and_directory() {
        for file in [
            ("pytest.ini", ""),
            (".pytest.toml", ""),
            ("pyproject.toml", "[project]\n[tool.pytest.ini_options]\n"),
            ("pyproject.toml", "[project]\n"),
            ("tox.ini", "[tox]\n[pytest]\n"),
            ("setup.cfg", "[tool:pytest]\n"),
            ("setup.py", ""),
        ] {
            for (cwd, path) in [
                (".", "."),
                (".", "tests"),
                (".", "tests/io/test_b.py"),
                ("tests/io", "tests/io"),
                ("tests", "."),
            ] {
                assert_eq!(root(&[file], cwd, &[path]), "", "{file:?} {cwd} {path}");
            }
            assert_eq!(root(&[file], "tests", &["tests/io", "tests/unit/test_a.py"]), "", "{file:?}");
        }
    }

    #[test]
    fn nearest_configuration_or_else_the_common_directory_is_the_root() {
        let ini = |path| (path, "");
        assert_eq!(root(&[ini("pytest.ini"), ini("tests/pytest.ini")], ".", &["tests/io"]), "tests");
        // Files without a section for pytest are not its configuration.
        assert_eq!(root(&[("pytest.ini", ""), ("tests/tox.ini", "[tox]")], ".", &["tests/io"]), "");
        assert_eq!(root(&[("pytest.ini", ""), ("tests/pyproject.toml", "[project]")], ".", &["tests"]), "");
        // A configuration below the common directory counts if there is none above.
        assert_eq!(root(&[ini("tests/io/pytest.ini")], ".", &["tests/io", "tests/unit"]), "tests/io");
        assert_eq!(root(&[], "tests", &["tests/io"]), "tests");
        assert_eq!(root(&[], "tests/unit", &["tests/io/test_b.py"]), "tests");
    }
}
