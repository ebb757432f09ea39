//! Tests collected by pytest: `--pytest PATH…`, or `pytest = ["PATH", …]`. The tests run like
//! `python -m pytest PATH` in the directory of the command line or of the configuration.

use std::path::{Path, PathBuf};

use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments, PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
};
use heeler_cargo::{find_program, search_path};

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
        let [path, others @ ..] = named.paths.as_slice() else { return None };
        let python = named.python.as_deref().map(OsText::from);
        let python = python.or_else(|| (!others.is_empty()).then(OsText::default));
        let own = [absolute_text(Path::new(".")), OsText::from(path.as_path())];
        let others = others.iter().map(|path| OsText::from(path.as_path()));
        Some(own.into_iter().chain(python).chain(others).collect())
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let [cwd, path, rest @ ..] = arguments else { return Ok(Vec::new()) };
        let python = rest.first().map(OsText::to_text).filter(|python| !python.is_empty());
        let python = find_interpreter(python.as_deref(), cwd.as_path())?;
        let suite = context.suite.map(|suite| suite.name.clone());
        let paths: Vec<&Path> = [path].into_iter().chain(rest.iter().skip(1)).map(OsText::as_path).collect();
        let mut program = pytest_program(&python, cwd.as_path(), &paths, suite)?;
        // `PYTHONPATH` is also set for our plugin, so pass the user's entries on.
        let search_path = std::env::var_os("PYTHONPATH");
        program.tool_env.extend(search_path.map(|path| ("PYTHONPATH".into(), path.as_os_str().into())));
        Ok(vec![program])
    }
}

/// Returns the named interpreter, resolved in `cwd`; otherwise the interpreter of this process's virtual
/// environment, or `python3`.
///
/// # Errors
/// The program does not exist.
pub(in crate::cli) fn find_interpreter(named: Option<&str>, cwd: &Path) -> Result<PathBuf, SourcesError> {
    let virtual_environment = std::env::var_os("VIRTUAL_ENV").filter(|path| !path.is_empty());
    find_python(named, virtual_environment.as_deref().map(Path::new), cwd)
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
/// its path, or after pytest's working directory if there are several paths.
fn pytest_program(
    python: &Path,
    cwd: &Path,
    paths: &[&Path],
    suite: Option<String>,
) -> Result<TestProgram, SourcesError> {
    let canonical = |path: &&Path| {
        cwd.join(path)
            .canonicalize()
            .map_err(|source| SourcesError::Path { path: (*path).to_owned(), source })
    };
    let tests = paths.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
    let directory = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let named_after = if let [one] = tests.as_slice() { one } else { &directory };
    let name =
        || named_after.file_stem().map_or_else(|| FRAMEWORK.to_owned(), |name| name.display().to_string());
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
    fn path_is_named_unless_it_is_the_working_directory() {
        let dir = tempfile::tempdir().unwrap();
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
            ("unit", Some("pytest"))
        );
        let both = ["unit", "."].map(Path::new);
        let both = pytest_program(Path::new("/python"), dir.path(), &both, None).unwrap();
        assert_eq!(args(&both), ["-m", "pytest", "unit", "."]);
        assert_eq!(Some(both.suite.as_str()), dir.path().file_stem().and_then(|name| name.to_str()));
        let error = pytest_program(Path::new("/python"), dir.path(), &[Path::new("none")], None).unwrap_err();
        assert_eq!(error.to_string(), "failed to find none");
    }
}
