//! The guarded copy of a project in C or C++, which a command of the user builds, and its tests.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use heeler_config::Config;
use heeler_core::SourceRequest;
use heeler_mutant::RollbackStep;
use heeler_mutant_model::MutantId;
use heeler_mutate::{CompilerShims, CopiedTree, GuardedProject, MutatedProject, TreeCopy, add_built_files};
use heeler_protocol::control::{ListedTest, OsText, TestProgram};

use super::{
    build::{GuardedBuild, TestCounting, WorkPlace, tree_copy, write_guarded},
    error::MutateError,
    kept_build::KeptBuild,
};
use crate::cli::sources::{COMMAND_SOURCE, CTEST_SOURCE, DebugData, NamedSources, find_sources};
use heeler_cargo::{BuildSupervision, ignored_files, run_shell};

/// The list of the paths that were copied, beside the copy.
const COPIED: &str = "copied";

/// The variable with options of make.
const MAKE_FLAGS: &str = "MAKEFLAGS";

/// How a project in C or C++ is built and tested.
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
    /// Programs: paths and globs. Those without a test framework are tests, whose exit code decides.
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
    let own = place.directory();
    let kept = KeptBuild::read(own, &mutated, &project.build);
    let mut guarded = GuardedProject::new(mutated, &BTreeSet::<MutantId>::new());
    if let Some(uncompiled) = &kept.uncompiled {
        guarded = guarded.without(uncompiled);
    }
    let mut left_out = ignored_files(&root).map_err(MutateError::Cargo)?;
    add_built_files(&root, &mut left_out);
    left_out.push(state_dir.to_owned());
    let copied = copy_kept(&root, place, &left_out, &guarded)?;
    let failed = |source| MutateError::Runtime { path: own.to_owned(), source };
    let shims = CompilerShims::prepare(own, &heeler_sys::process::shared_program_path()).map_err(failed)?;
    let path = std::env::var_os("PATH");
    let variables = [
        (OsString::from("PATH"), shims.path_variable(path.as_deref())),
        (OsString::from(MAKE_FLAGS), make_flags(std::env::var_os(MAKE_FLAGS))),
    ];
    if kept.uncompiled.is_none() {
        shims.remove_outputs(&tree).map_err(failed)?;
    }
    kept.forget().map_err(failed)?;
    loop {
        say("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
        shims.clear_errors().map_err(failed)?;
        let ran = run_shell(&project.build, &variables, &tree, supervision).map_err(MutateError::Cargo)?;
        let mut errors = Vec::new();
        if let Err(output) = ran {
            errors = shims.errors(&tree).map_err(failed)?;
            if errors.is_empty() {
                let command = project.build.clone();
                // The name of the runtime's functions, which the stand-ins have the compiler include.
                let is_without_runtime = output.contains("__hg");
                return Err(match is_without_runtime {
                    true => MutateError::OtherCompiler { command, output },
                    false => MutateError::BuildCommand { command, output },
                });
            }
        }
        match guarded.next_round(&errors) {
            RollbackStep::Done => break,
            RollbackStep::Broken(errors) => return Err(MutateError::NotCompiled { errors }),
            RollbackStep::Check => write_guarded(&guarded, &tree)?,
        }
    }
    kept.write(&guarded.uncompiled()).map_err(failed)?;
    if guarded.has_conditional() {
        say("Reading", "what the preprocessor takes out");
        let compiled = shims.compiled_guards(&tree).map_err(failed)?;
        guarded.note_compiled(&compiled);
    }
    let fingerprint = guarded
        .rest_fingerprint()
        .with(copied.unchanged.to_string().as_bytes())
        .with(project.build.as_bytes())
        .with(env!("CARGO_PKG_VERSION").as_bytes());
    let programs = programs(&project.tests, &tree)?;
    let counting = TestCounting::Alone;
    let guarded = guarded.into_built();
    Ok(GuardedBuild::new(guarded, programs, fingerprint, counting))
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
    let copy = TreeCopy {
        left_out,
        left_out_files: place.left_out_files(),
        copied_before: Some(&before),
        ..tree_copy(root, &tree, &replaced)
    };
    let copied = copy.update().map_err(MutateError::Copy)?;
    let lines: Vec<String> = copied.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    fs::write(&list, lines.join("\n"))
        .map_err(|source| MutateError::WriteFile { path: list.clone(), source })?;
    Ok(copied)
}

/// Has make go on after an error, to report those of all sources in one round.
fn make_flags(inherited: Option<OsString>) -> OsString {
    let mut flags = inherited.unwrap_or_default();
    flags.push(if flags.is_empty() { "-k" } else { " -k" });
    flags
}

/// Returns the programs with the tests, one for each test that is a process of its own: they are run for a
/// mutant one after the other, until one fails. A program in which a test framework is found has the tests
/// that it lists.
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
    let found = find_sources(&Config::without_file(tree), &named, DebugData::Omitted, &mut |_, _| {})
        .map_err(MutateError::Sources)?;
    let single = |program: TestProgram| {
        let is_command = program.framework.as_deref().is_some_and(|name| name == COMMAND_SOURCE);
        let entries = if is_command { program.entries.clone() } else { Vec::new() };
        if entries.is_empty() {
            return vec![program];
        }
        let is_named = matches!(tests, BuiltTests::Programs(_));
        let of_entry = |entry: ListedTest| {
            let framework = if is_named { framework_program(&entry, tree) } else { None };
            framework.unwrap_or_else(|| TestProgram { entries: vec![entry], ..program.clone() })
        };
        entries.into_iter().map(of_entry).collect()
    };
    Ok(found.into_iter().map(|source| source.program).flat_map(single).collect())
}

/// Returns the program of a test of its own, if a test framework is found in it.
fn framework_program(entry: &ListedTest, tree: &Path) -> Option<TestProgram> {
    let path = Path::new(entry.file.as_deref()?);
    heeler_worker::likely_framework(path)?;
    Some(TestProgram::new(entry.name.clone(), path, tree))
}
