//! The guarded copy of a project in C, which a command of the user builds, and its tests.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use heeler_config::Config;
use heeler_core::SourceRequest;
use heeler_mutant::{MutantId, RollbackStep};
use heeler_mutate::{CompilerShims, CopiedTree, GuardedProject, MutatedProject, TreeCopy, add_built_files};
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    build::{GuardedBuild, TestCounting, WorkPlace, tree_copy, write_guarded},
    error::MutateError,
};
use crate::cli::{
    cargo::{BuildSupervision, ignored_files, run_shell},
    sources::{COMMAND_SOURCE, CTEST_SOURCE, NamedSources, find_sources},
};

/// The list of the paths that were copied, beside the copy.
const COPIED: &str = "copied";

/// How a project in C is built and tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct CommandProject {
    /// For the shell.
    pub(in crate::cli) build: String,
    pub(in crate::cli) tests: BuiltTests,
}

/// The tests that a build makes, with paths relative to the project's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum BuiltTests {
    /// Those that CTest knows in a directory.
    Ctest(PathBuf),
    /// Programs whose exit code decides: paths and globs.
    Programs(Vec<String>),
}

/// Builds the tests with guards for all mutants that compile.
///
/// # Errors
/// The directory can't be copied or built, or the build makes no tests.
pub(super) fn build_with_command(
    project: &CommandProject,
    mutated: MutatedProject,
    place: &WorkPlace,
    state_dir: &Path,
    supervision: BuildSupervision<'_>,
    say: &mut dyn FnMut(&str, &str),
) -> Result<GuardedBuild, MutateError> {
    let root = mutated.root.clone();
    let tree = place.tree();
    let mut guarded = GuardedProject::new(mutated, &BTreeSet::<MutantId>::new());
    let mut left_out = ignored_files(&root).map_err(MutateError::Cargo)?;
    add_built_files(&root, &mut left_out);
    left_out.push(state_dir.to_owned());
    let copied = copy_kept(&root, place, &left_out, &guarded)?;
    let own = place.directory();
    let failed = |source| MutateError::Runtime { path: own.to_owned(), source };
    let shims = CompilerShims::prepare(own, &heeler_sys::process::shared_program_path()).map_err(failed)?;
    let path = std::env::var_os("PATH");
    let variables = [(OsString::from("PATH"), shims.path_variable(path.as_deref()))];
    loop {
        say("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
        shims.clear_errors().map_err(failed)?;
        let ran = run_shell(&project.build, &variables, &tree, supervision).map_err(MutateError::Cargo)?;
        let mut errors = Vec::new();
        if let Err(output) = ran {
            errors = shims.errors(&tree).map_err(failed)?;
            if errors.is_empty() {
                return Err(MutateError::BuildCommand { command: project.build.clone(), output });
            }
        }
        match guarded.next_round(&errors) {
            RollbackStep::Done => break,
            RollbackStep::Broken(errors) => return Err(MutateError::NotCompiled { errors }),
            RollbackStep::Check => write_guarded(&guarded, &tree)?,
        }
    }
    let fingerprint = guarded
        .rest_fingerprint()
        .with(copied.unchanged.to_string().as_bytes())
        .with(project.build.as_bytes())
        .with(env!("CARGO_PKG_VERSION").as_bytes());
    let programs = programs(&project.tests, &tree)?;
    let counting = TestCounting::Alone;
    Ok(GuardedBuild { guarded, programs, has_doctests: false, fingerprint, counting })
}

/// Copies what a build reads, but for what is left out; for a build in C that is all that one has made: a
/// newer object file would be taken for that of a guarded source. What else is in the copy already stays.
pub(super) fn copy_kept(
    root: &Path,
    place: &WorkPlace,
    left_out: &[PathBuf],
    guarded: &GuardedProject,
) -> Result<CopiedTree, MutateError> {
    let list = place.directory().join(COPIED);
    let before: BTreeSet<PathBuf> =
        fs::read_to_string(&list).unwrap_or_default().lines().map(PathBuf::from).collect();
    let (tree, replaced) = (place.tree(), guarded.texts());
    let copy = TreeCopy { left_out, copied_before: Some(&before), ..tree_copy(root, &tree, &replaced) };
    let copied = copy.update().map_err(MutateError::Copy)?;
    let lines: Vec<String> = copied.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    fs::write(&list, lines.join("\n"))
        .map_err(|source| MutateError::WriteFile { path: list.clone(), source })?;
    Ok(copied)
}

/// Returns the programs with the tests, one for each test that is a process of its own: they are run for a
/// mutant one after the other, until one fails.
fn programs(tests: &BuiltTests, tree: &Path) -> Result<Vec<TestProgram>, MutateError> {
    let request = match tests {
        BuiltTests::Ctest(directory) => {
            SourceRequest::new(CTEST_SOURCE, vec![OsText::from(tree.join(directory).as_path())])
        }
        BuiltTests::Programs(patterns) => {
            let patterns = patterns.iter().map(|pattern| OsText::from(pattern.as_str()));
            let words = [OsText::from(tree), OsText::from("")].into_iter().chain(patterns);
            SourceRequest::new(COMMAND_SOURCE, words.collect::<Vec<_>>())
        }
    };
    let named = NamedSources { requests: vec![request], ..NamedSources::default() };
    let found =
        find_sources(&Config::without_file(tree), &named, &mut |_, _| {}).map_err(MutateError::Sources)?;
    let single = |program: TestProgram| {
        let is_command = program.framework.as_deref().is_some_and(|name| name == COMMAND_SOURCE);
        let entries = if is_command { program.entries.clone() } else { Vec::new() };
        if entries.is_empty() {
            return vec![program];
        }
        entries.into_iter().map(|entry| TestProgram { entries: vec![entry], ..program.clone() }).collect()
    };
    Ok(found.into_iter().map(|source| source.program).flat_map(single).collect())
}
