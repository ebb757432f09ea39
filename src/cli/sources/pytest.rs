//! Tests collected by pytest: `--pytest PATH…`, or `pytest = ["PATH", …]`. The tests run like
//! `python -m pytest PATH` in the directory of the command line or of the configuration.

mod root;

use std::path::{Path, PathBuf};

use heeler_core::SourceRequest;
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments,
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::{FoundProject, Sighting, Site, names_in},
    test_source::WordUse,
};
use heeler_sys::program_search::{find_program, search_path};
use root::{configuration_in, pytest_root};

/// Name of the framework of these programs.
const FRAMEWORK: &str = "pytest";

/// Arguments: pytest's working directory, the path of the tests, the interpreter (empty or missing if not
/// named), and further paths.
pub(super) struct PytestSource;

impl TestSource for PytestSource {
    fn name(&self) -> &'static str {
        FRAMEWORK
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let named = &command_line.pytest;
        let here = [PathBuf::from(".")];
        let paths = if named.paths.is_empty() && named.python.is_some() { &here[..] } else { &named.paths };
        let [path, others @ ..] = paths else { return None };
        let python = named.python.as_deref().map(OsText::from);
        let python = python.or_else(|| (!others.is_empty()).then(OsText::default));
        let own = [absolute_text(Path::new(".")), OsText::from(path.as_path())];
        let others = others.iter().map(|path| OsText::from(path.as_path()));
        Some(own.into_iter().chain(python).chain(others).collect())
    }

    fn take_word(&self, word: &Path, arguments: &mut ProgramArguments) -> WordUse {
        let is_python = file_of_node_id(word).extension().is_some_and(|extension| extension == "py");
        if !is_python && tests_in(word).is_none() {
            return WordUse::Other;
        }
        arguments.pytest.paths.push(word.to_owned());
        WordUse::Taken
    }

    fn project_in(&self, site: Site<'_>) -> Option<Sighting> {
        let (file, path) = match configuration_in(site.dir) {
            Some(file) => (file.to_owned(), "."),
            None if site.dir == site.top || is_python_project(site.dir) => tests_in(site.dir)?,
            None => return None,
        };
        let in_suite =
            if site.dir == site.top { path.to_owned() } else { site.relative(&site.dir.join(path)) };
        let in_suite = in_suite.trim_end_matches("/.").to_owned();
        let mut keys = vec![("pytest", in_suite)];
        if site.dir != site.top {
            keys.push(("cwd", site.name()));
        }
        Some(Sighting::Project(Box::new(FoundProject {
            request: SourceRequest::new(self.name(), [OsText::from(site.dir), OsText::from(path)]),
            title: format!("pytest{}", site.place()),
            reason: site.relative(&site.dir.join(file)),
            suite: "python".to_owned(),
            keys,
        })))
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let [base, path, rest @ ..] = arguments else { return Ok(Vec::new()) };
        // The paths of a suite start at the configuration file, also if pytest runs elsewhere.
        let cwd = context.suite.and_then(|suite| suite.cwd.as_deref());
        let from = if cwd.is_some() { base.as_path() } else { Path::new("") };
        let paths = [path].into_iter().chain(rest.iter().skip(1));
        let paths: Vec<PathBuf> = paths.map(|path| from.join(path.as_path())).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let cwd = cwd.unwrap_or(base.as_path());
        let python = rest.first().map(OsText::to_text).filter(|python| !python.is_empty());
        let python = find_interpreter(python.as_deref(), cwd, &paths)?;
        let suite = context.suite.map(|suite| suite.name.clone());
        let mut program = pytest_program(&python, cwd, &paths, suite)?;
        // `PYTHONPATH` is also set for our plugin, so pass the user's entries on.
        let search_path = std::env::var_os("PYTHONPATH");
        program.tool_env.extend(search_path.map(|path| ("PYTHONPATH".into(), path.as_os_str().into())));
        Ok(vec![program])
    }
}

/// Returns the file or directory of a node id such as `tests/test_io.py::TestRead::test_end`.
fn file_of_node_id(word: &Path) -> PathBuf {
    let text = word.to_string_lossy();
    match text.split_once("::") {
        Some((file, _)) => PathBuf::from(file),
        None => word.to_owned(),
    }
}

fn is_python_project(dir: &Path) -> bool {
    ["pyproject.toml", "setup.py", "setup.cfg", "tox.ini"].iter().any(|name| dir.join(name).is_file())
}

/// Returns a test file of pytest's naming in a directory, or in its `tests` or `test`, and the path for
/// pytest, both relative to the directory.
fn tests_in(dir: &Path) -> Option<(String, &'static str)> {
    let is_test = |name: &String| {
        name.strip_suffix(".py").is_some_and(|stem| stem.starts_with("test_") || stem.ends_with("_test"))
    };
    let direct = |below: &str| {
        let name = names_in(&dir.join(below)).into_iter().find(is_test)?;
        Some(if below == "." { name } else { format!("{below}/{name}") })
    };
    let nested = |below: &str| {
        let names = names_in(&dir.join(below)).into_iter().filter(|name| !name.starts_with('.'));
        names.into_iter().find_map(|name| direct(&format!("{below}/{name}")))
    };
    let in_tests = ["tests", "test"]
        .into_iter()
        .find_map(|below| Some((direct(below).or_else(|| nested(below))?, below)));
    let is_tests = dir.file_name().is_some_and(|name| name == "tests" || name == "test");
    in_tests.or_else(|| Some((direct(".")?, "."))).or_else(|| Some((nested(".").filter(|_| is_tests)?, ".")))
}

/// Returns the named interpreter, resolved in `cwd`; otherwise the interpreter of this process's virtual
/// environment, of a virtual environment beside these tests or the project, or `python3`.
///
/// # Errors
/// The program does not exist.
pub(in crate::cli) fn find_interpreter(
    named: Option<&str>,
    cwd: &Path,
    tests: &[&Path],
) -> Result<PathBuf, SourcesError> {
    let virtual_environment = std::env::var_os("VIRTUAL_ENV").filter(|path| !path.is_empty());
    let beside = || {
        let mut dirs = tests.iter().map(|path| cwd.join(file_of_node_id(path))).chain([cwd.to_owned()]);
        dirs.find_map(|dir| environment_beside(&dir, cwd))
    };
    let virtual_environment = virtual_environment.map(PathBuf::from).or_else(beside);
    find_python(named, virtual_environment.as_deref(), cwd)
}

/// Returns the virtual environment in `.venv` or `venv` of the directory or of a directory above it, up to
/// pytest's working directory or the root of the workspace.
fn environment_beside(dir: &Path, cwd: &Path) -> Option<PathBuf> {
    let root = heeler_sys::workspace::workspace_root(dir, std::env::home_dir().as_deref());
    let root = root.as_deref().unwrap_or(dir);
    let dirs = dir.ancestors().take_while(|dir| dir.starts_with(root) || dir.starts_with(cwd));
    let mut candidates = dirs.flat_map(|dir| [".venv", "venv"].map(|name| dir.join(name)));
    candidates.find(|dir| dir.join("pyvenv.cfg").is_file() && dir.join("bin/python").exists())
}

/// Returns the named interpreter, otherwise the virtual environment's, or `python3`.
fn find_python(
    named: Option<&str>,
    virtual_environment: Option<&Path>,
    cwd: &Path,
) -> Result<PathBuf, SourcesError> {
    let not_found = |python: String| move || SourcesError::NoPython { python };
    if let Some(named) = named {
        return find_program(named, cwd).ok_or_else(not_found(named.to_owned()));
    }
    if let Some(directory) = virtual_environment {
        let python = directory.join("bin/python");
        let text = python.display().to_string();
        return find_program(&text, cwd).ok_or_else(not_found(text));
    }
    search_path("python3".as_ref()).ok_or_else(not_found("python3".to_owned()))
}

/// Returns the program that runs the tests of these paths. Without a suite name, the program is named after
/// pytest's root directory.
fn pytest_program(
    python: &Path,
    cwd: &Path,
    paths: &[&Path],
    suite: Option<String>,
) -> Result<TestProgram, SourcesError> {
    let canonical = |path: &&Path| {
        cwd.join(file_of_node_id(path))
            .canonicalize()
            .map_err(|source| SourcesError::Path { path: (*path).to_owned(), source })
    };
    let tests = paths.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
    let directory = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let root = || pytest_root(&directory, &tests);
    let name = || root().file_name().map_or_else(|| FRAMEWORK.to_owned(), |name| name.display().to_string());
    let mut args = ["-m", "pytest"].map(OsText::from).to_vec();
    // Without a path, pytest reads what to collect from its configuration.
    if tests != [directory.clone()] {
        args.extend(paths.iter().map(|path| OsText::from(*path)));
    }
    Ok(TestProgram {
        args,
        framework: Some(FRAMEWORK.to_owned()),
        ..TestProgram::new(suite.unwrap_or_else(name), python, cwd)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_the_named_one_or_that_of_the_virtual_environment() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", dir.path().join("bin/python")).unwrap();
        let found = |named, environment| find_python(named, environment, dir.path());
        let own = dir.path().join("bin/python");
        assert_eq!(found(Some("bin/python"), None).unwrap(), own);
        assert_eq!(found(None, Some(dir.path())).unwrap(), own);
        assert!(found(Some("sh"), Some(dir.path())).unwrap().ends_with("sh"));
        let error = found(Some("no-such-python"), None).unwrap_err().to_string();
        assert!(error.starts_with("Python interpreter not found: no-such-python"), "{error}");
        let error = found(None, Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.starts_with("Python interpreter not found: /nowhere/bin/python"), "{error}");
    }

    #[test]
    fn virtual_environment_lies_beside_the_tests_or_above_them() {
        let dir = tempfile::tempdir().unwrap();
        let environment = dir.path().join("tools/.venv");
        std::fs::create_dir_all(environment.join("bin")).unwrap();
        std::fs::create_dir_all(dir.path().join("tools/tests/unit")).unwrap();
        std::fs::write(environment.join("pyvenv.cfg"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", environment.join("bin/python")).unwrap();
        let beside = |tests: &str| environment_beside(&dir.path().join(tests), dir.path());
        for tests in ["tools/tests/unit", "tools/tests", "tools"] {
            assert_eq!(beside(tests).as_ref(), Some(&environment), "{tests}");
        }
        assert_eq!(beside("."), None);
    }

    #[test]
    fn path_is_named_unless_it_is_the_working_directory() {
        let dir = tempfile::Builder::new().prefix("v1.2-").tempdir().unwrap();
        let name = dir.path().file_name().and_then(|name| name.to_str()).unwrap();
        let tests = dir.path().join("unit");
        std::fs::create_dir(&tests).unwrap();
        let program =
            |path: &str| pytest_program(Path::new("/python"), dir.path(), &[Path::new(path)], None).unwrap();
        let args = |program: &TestProgram| {
            program.args.iter().map(|word| word.to_text().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(args(&program("unit")), ["-m", "pytest", "unit"]);
        assert_eq!(args(&program("unit/..")), ["-m", "pytest"]);
        assert_eq!(
            (program("unit").suite.as_str(), program("unit").framework.as_deref()),
            (name, Some("pytest"))
        );
        let both = ["unit", "."].map(Path::new);
        let both = pytest_program(Path::new("/python"), dir.path(), &both, None).unwrap();
        assert_eq!(args(&both), ["-m", "pytest", "unit", "."]);
        assert_eq!(both.suite, name);
        let named =
            pytest_program(Path::new("/python"), dir.path(), &[Path::new(".")], Some("io".to_owned()));
        assert_eq!(named.unwrap().suite, "io");
        let error = pytest_program(Path::new("/python"), dir.path(), &[Path::new("none")], None).unwrap_err();
        assert_eq!(error.to_string(), "failed to find none");
    }
}
