//! The runtime that Python interpreters load at startup while guarded sources are tested.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

use super::project::PythonLayout;
use crate::tree_copy::{remove, write_changed};

/// Directory of the runtime, below the working directory of the mutation run.
const DIRECTORY: &str = "heeler-python";
const RUNTIME: &str = "sitecustomize.py";
const RUNTIME_TEXT: &str = include_str!("sitecustomize.py");
const COMPILER: &str = "compile_sources.py";
const COMPILER_TEXT: &str = include_str!("compile_sources.py");
/// File with the project's modules and the paths of their sources.
const SOURCES: &str = "sources";
const COMPILED: &str = "compiled";

/// The directory of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonRuntime {
    dir: PathBuf,
}

impl PythonRuntime {
    /// Writes the runtime for a project in `root` whose copy is in `tree`. Neither path may contain symbolic
    /// links.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn prepare(place: &Path, root: &Path, tree: &Path, layout: &PythonLayout) -> io::Result<Self> {
        let runtime = Self { dir: place.join(DIRECTORY) };
        fs::create_dir_all(&runtime.dir)?;
        let text = RUNTIME_TEXT
            .replace("\"@ROOT@\"", &literal(root))
            .replace("\"@PLACE@\"", &literal(place))
            .replace("\"@TREE@\"", &literal(tree));
        if write_changed(&runtime.dir.join(RUNTIME), text.as_bytes())? {
            // Python checks bytecode only by time and size, so it could miss the change.
            remove(&runtime.dir.join("__pycache__"))?;
        }
        write_changed(&runtime.dir.join(COMPILER), COMPILER_TEXT.as_bytes())?;
        let modules = layout.modules.iter().map(|(name, path)| format!("{name}\t{path}\n"));
        write_changed(&runtime.dir.join(SOURCES), modules.collect::<String>().as_bytes())?;
        Ok(runtime)
    }

    /// Writes the list of sources to compile; returns the interpreter arguments that compile them.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn compiler_arguments<'a>(
        &self,
        root: &Path,
        tree: &Path,
        sources: impl Iterator<Item = &'a str>,
    ) -> io::Result<Vec<OsString>> {
        let line = |source: &str| format!("{source}\t{}\t{}\n", tree.display(), root.display());
        let list = self.dir.join(COMPILED);
        fs::write(&list, sources.map(line).collect::<String>())?;
        Ok(vec![self.dir.join(COMPILER).into_os_string(), list.into_os_string()])
    }

    /// Returns the `PYTHONPATH` that makes interpreters load the runtime and import the project from its
    /// copy.
    #[must_use]
    pub fn search_path(&self, tree: &Path, roots: &[PathBuf], inherited: Option<&OsStr>) -> OsString {
        let mut value = self.dir.clone().into_os_string();
        for root in roots {
            value.push(":");
            value.push(if root == Path::new("") { tree.to_owned() } else { tree.join(root) });
        }
        if let Some(inherited) = inherited.filter(|value| !value.is_empty()) {
            value.push(":");
            value.push(inherited);
        }
        value
    }
}

/// Returns a path as a Python string literal.
fn literal(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_has_the_variables_and_exit_codes_of_that_for_rust() {
        for part in ["", "_HITS", "_STEPS", "_COVERAGE", "_EACH"] {
            assert!(RUNTIME_TEXT.contains(&format!("\"HEELER_MUTANT{part}\"")), "{part}");
        }
        assert!(RUNTIME_TEXT.contains(&format!("\nEXIT_CODE = {}\n", crate::runtime::HIT_LIMIT_EXIT_CODE)));
        assert!(
            RUNTIME_TEXT.contains(&format!("STEPS_EXIT_CODE = {}\n", crate::runtime::STEP_LIMIT_EXIT_CODE))
        );
    }

    #[test]
    fn copy_is_before_what_the_user_has_in_the_search_path() {
        let dir = tempfile::tempdir().unwrap();
        let layout = PythonLayout { roots: Vec::new(), modules: vec![("a".into(), "src/a.py".into())] };
        let root = Path::new("/w/a \"b\"");
        let runtime = PythonRuntime::prepare(dir.path(), root, Path::new("/t"), &layout).unwrap();
        let text = fs::read_to_string(runtime.dir.join(RUNTIME)).unwrap();
        assert!(text.contains("ROOT = \"/w/a \\\"b\\\"\"\n") && !text.contains('@'), "{text}");
        let own = runtime.dir.display().to_string();
        let roots = [PathBuf::from("src"), PathBuf::new()];
        let path = runtime.search_path(Path::new("/t"), &roots, Some(OsStr::new("/x")));
        assert_eq!(path, OsString::from(format!("{own}:/t/src:/t:/x")));
        let arguments = runtime.compiler_arguments(root, Path::new("/t"), ["src/a.py"].into_iter()).unwrap();
        assert_eq!(fs::read_to_string(&arguments[1]).unwrap(), "src/a.py\t/t\t/w/a \"b\"\n");
    }
}
