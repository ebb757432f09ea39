//! Programs named by path: `heeler run PROGRAM…`, or the paths and globs of `programs = […]`.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use heeler_config::{
    FindProgramsError, SuiteConfig, find_programs, is_glob, suite_name_from_path, suite_names_without_base,
};
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments, PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::SKIPPED_DIRECTORIES, is_ctest_folder,
};

/// Arguments: paths or globs. In a directory, or among the matches of a glob on the command line, only files
/// that contain a test framework are programs.
pub(super) struct ProgramsSource;

impl TestSource for ProgramsSource {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let paths: Vec<OsText> = command_line
            .programs
            .iter()
            .filter(|path| !is_ctest_folder(path))
            .map(|path| absolute_text(path))
            .collect();
        (!paths.is_empty()).then_some(paths)
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        match context.suite {
            Some(suite) => suite_programs(arguments, suite, &context.config.dir),
            None => named_programs(arguments, context),
        }
    }
}

/// Returns the programs named on the command line.
fn named_programs(
    arguments: &[OsText],
    context: &SourceContext<'_>,
) -> Result<Vec<TestProgram>, SourcesError> {
    let absolute = |path: &OsText| {
        let path = path.as_path();
        std::path::absolute(path).map_err(|source| SourcesError::Path { path: path.to_owned(), source })
    };
    let mut paths = Vec::new();
    for path in arguments.iter().map(absolute) {
        let path = path?;
        if !path.exists() && is_glob(&path.to_string_lossy()) {
            paths.extend(test_programs_that_match(&path, context)?);
            continue;
        }
        let path = without_parent_steps(&path);
        if !path.is_dir() {
            paths.push(path);
            continue;
        }
        match test_programs_below(&path) {
            None => return Err(SourcesError::TooManyFiles { path, limit: MAX_ENTRIES }),
            Some(found) if found.is_empty() => return Err(SourcesError::NoProgramBelow { path }),
            Some(found) => paths.extend(found),
        }
    }
    remove_repeated(&mut paths);
    let cwd =
        std::env::current_dir().map_err(|source| SourcesError::Path { path: PathBuf::from("."), source })?;
    let names = if context.config.file.is_some() {
        paths.iter().map(|path| suite_name_from_path(&context.config.dir, path)).collect()
    } else {
        suite_names_without_base(&paths)
    };
    let program = |(path, name): (&PathBuf, String)| TestProgram {
        framework: context.framework.map(str::to_owned),
        ..TestProgram::new(name, path, &cwd)
    };
    Ok(paths.iter().zip(names).map(program).collect())
}

/// Returns the programs that match an absolute glob. If the command line names a framework, every matching
/// executable is a program.
fn test_programs_that_match(glob: &Path, context: &SourceContext<'_>) -> Result<Vec<PathBuf>, SourcesError> {
    let here =
        std::env::current_dir().map_err(|source| SourcesError::Path { path: PathBuf::from("."), source })?;
    // Names of directories above the working directory are not patterns.
    let pattern = glob.strip_prefix(&here).unwrap_or(glob).to_string_lossy().into_owned();
    let no_match = || SourcesError::NoMatch { glob: glob.display().to_string() };
    let found = match find_programs("", &here, &[pattern]) {
        Err(FindProgramsError::NoMatch { .. }) => return Err(no_match()),
        found => found?.into_iter().map(|program| program.path),
    };
    let is_named = context.framework.is_some();
    let found: Vec<_> = found.filter(|path| is_named || heeler_worker::is_test_program(path)).collect();
    if found.is_empty() { Err(no_match()) } else { Ok(found) }
}

/// Returns the path without `..` if it leads to the same file, because program names come from their paths.
fn without_parent_steps(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    // After a symbolic link to a directory, `..` leads elsewhere.
    if identity(&plain) == identity(path) { plain } else { path.to_owned() }
}

/// Removes paths of files already named in another way. Links with other names stay, because a program may
/// behave differently by its name.
fn remove_repeated(paths: &mut Vec<PathBuf>) {
    let mut known = HashSet::new();
    paths.retain(|path| {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        known.insert((directory, path.file_name().map(OsStr::to_owned)))
    });
}

/// Maximum number of directory entries searched, so that searching a directory like `/` ends.
const MAX_ENTRIES: usize = 200_000;

/// Returns the native programs below a directory that contain a test framework, sorted; `None` if the
/// directory has more entries than the limit. Starts no program.
pub(super) fn test_programs_below(path: &Path) -> Option<Vec<PathBuf>> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    let mut directories = vec![path.to_owned()];
    let mut entries = 0;
    while let Some(directory) = directories.pop() {
        let Ok(listed) = std::fs::read_dir(&directory) else { continue };
        for entry in listed.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return None;
            }
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Do not follow links: their programs are found elsewhere, or the links form a cycle.
            let Ok(kind) = entry.file_type() else { continue };
            let is_skipped = name.starts_with('.') || SKIPPED_DIRECTORIES.contains(&name.as_ref());
            if kind.is_dir() && !is_skipped {
                directories.push(entry.path());
            }
            let is_library = name.ends_with(".so") || name.contains(".so.");
            let is_executable =
                || entry.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
            if kind.is_file()
                && !is_library
                && is_executable()
                && heeler_worker::is_test_program(&entry.path())
            {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Some(found)
}

/// Returns the programs of a suite, which must exist.
fn suite_programs(
    patterns: &[OsText],
    suite: &SuiteConfig,
    dir: &Path,
) -> Result<Vec<TestProgram>, SourcesError> {
    let patterns: Vec<String> = patterns.iter().map(|pattern| pattern.to_text().into_owned()).collect();
    let mut programs = Vec::new();
    for found in find_programs(&suite.name, dir, &patterns)? {
        let path = std::path::absolute(&found.path)
            .map_err(|source| SourcesError::Path { path: found.path.clone(), source })?;
        programs.push(TestProgram::new(found.suite, &path, dir));
    }
    Ok(programs)
}
