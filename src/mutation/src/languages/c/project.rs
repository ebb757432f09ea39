//! A C or C++ project, its guarded copy, which a command of the user builds, and its tests.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_cargo::{ignored_files, run_shell};
use heeler_core::SourceRequest;
use heeler_mutate::{
    CompilerShims, Fingerprint, GuardedProject, SourceSelection, add_built_files, find_c_sources,
};
use heeler_protocol::control::{CommandTest, ListedTest, OsText, TestProgram};

use super::{
    kept_build::KeptBuild,
    options::{BuiltTests, CommandProject},
};
use crate::{
    error::MutateError,
    languages::{
        build_options::BuildOptions,
        kept_copy::copy_kept,
        language::{
            CompileRound, FoundProject, GuardContext, GuardedBuild, GuardedBuilder, GuardedCopy,
            GuardedLanguage, LanguageProject, SearchedPackages, TestCounting,
        },
    },
    test_finder::TestFinder,
};

const MAKE_FLAGS: &str = "MAKEFLAGS";

/// C and C++. A directory is a project only if the user names a build command.
pub(in crate::languages) struct CommandLanguage;

impl GuardedLanguage for CommandLanguage {
    fn project(&self, options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
        let command = options.command.clone()?;
        Some(Arc::new(CommandDirectory { command, directory: directory.to_owned() }))
    }

    fn explain_absence(&self, directory: &Path) -> Result<(), MutateError> {
        let Some((file, example)) = example_of_build(directory) else { return Ok(()) };
        Err(MutateError::NoBuild { file, example })
    }
}

/// Returns the directory's build file, if any, and example options for testing its mutants.
fn example_of_build(directory: &Path) -> Option<(&'static str, &'static str)> {
    const CMAKE: &str = "--build 'cmake -B build && cmake --build build' --ctest build";
    const MESON: &str = "--build 'test -d build || meson setup build; ninja -C build' --test 'build/*_test'";
    const MAKE: &str = "--build 'make TESTS' --test 'PATH/OF/*_test'";
    const CONFIGURE: &str = "--build './configure && make TESTS' --test 'PATH/OF/*_test'";
    let files = [
        ("CMakeLists.txt", CMAKE),
        ("meson.build", MESON),
        ("GNUmakefile", MAKE),
        ("Makefile", MAKE),
        ("makefile", MAKE),
        ("configure", CONFIGURE),
    ];
    files.into_iter().find(|(file, _)| directory.join(file).is_file())
}

#[derive(Debug, Clone)]
struct CommandDirectory {
    command: CommandProject,
    directory: PathBuf,
}

impl LanguageProject for CommandDirectory {
    fn root(&self) -> Result<PathBuf, MutateError> {
        Ok(self.directory.clone())
    }

    fn find(
        &self,
        selection: &SourceSelection,
        _packages: SearchedPackages,
    ) -> Result<FoundProject, MutateError> {
        let mutated = find_c_sources(&self.directory, selection).map_err(MutateError::Source)?;
        Ok(FoundProject { builder: Box::new(self.clone()), mutated })
    }
}

impl GuardedBuilder for CommandDirectory {
    fn guard(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<(Box<dyn GuardedCopy>, GuardedProject), MutateError> {
        let root = guarded.project().root.clone();
        // Leave out the mutants that did not compile in the last build.
        let own = context.place.directory();
        let kept = KeptBuild::read(own, guarded.project(), &self.command.build);
        let guarded = match &kept.uncompiled {
            Some(uncompiled) => guarded.without(uncompiled),
            None => guarded,
        };
        // Copy the project without build output.
        let mut left_out = ignored_files(&root).map_err(MutateError::Cargo)?;
        add_built_files(&root, &mut left_out);
        left_out.push(context.place.state_dir().to_owned());
        let unchanged = copy_kept(&root, context.place, &left_out, &guarded)?.unchanged;
        // Put the compiler shims first in `PATH`.
        let failed = |source| MutateError::Runtime { path: own.to_owned(), source };
        let shims =
            CompilerShims::prepare(own, &heeler_sys::process::shared_program_path()).map_err(failed)?;
        let path = std::env::var_os("PATH");
        let variables = [
            (OsString::from("PATH"), shims.path_variable(path.as_deref())),
            (OsString::from(MAKE_FLAGS), make_flags(std::env::var_os(MAKE_FLAGS))),
        ];
        // The sources have changed, so the build must recompile everything.
        if kept.uncompiled.is_none() {
            shims.remove_outputs(&context.place.tree()).map_err(failed)?;
        }
        kept.forget().map_err(failed)?;
        let copy = CommandCopy { command: self.command, kept, unchanged, shims, variables };
        Ok((Box::new(copy), guarded))
    }
}

struct CommandCopy {
    command: CommandProject,
    kept: KeptBuild,
    /// A hash of the files that are copied unchanged.
    unchanged: Fingerprint,
    shims: CompilerShims,
    variables: [(OsString, OsString); 2],
}

impl GuardedCopy for CommandCopy {
    fn compile(
        &mut self,
        _guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<CompileRound, MutateError> {
        let tree = context.place.tree();
        let path = context.place.directory().to_owned();
        let failed = |source| MutateError::Runtime { path: path.clone(), source };
        self.shims.clear_errors().map_err(failed)?;
        let ran = run_shell(&self.command.build, &self.variables, &tree, context.supervision);
        let mut errors = Vec::new();
        if let Err(output) = ran.map_err(MutateError::Cargo)? {
            errors = self.shims.errors(&tree).map_err(failed)?;
            if errors.is_empty() {
                let command = self.command.build.clone();
                // The compiler shims include the runtime, so its function names are undefined only for
                // another compiler.
                let is_without_runtime = output.contains("__hg");
                return Err(match is_without_runtime {
                    true => MutateError::OtherCompiler { command, output },
                    false => MutateError::BuildCommand { command, output },
                });
            }
        }
        Ok(CompileRound { errors, is_repeated: false })
    }

    fn tests(
        self: Box<Self>,
        mut guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<GuardedBuild, MutateError> {
        let tree = context.place.tree();
        let own = context.place.directory();
        let failed = |source| MutateError::Runtime { path: own.to_owned(), source };
        self.kept.write(&guarded.uncompiled()).map_err(failed)?;
        if guarded.has_conditional() {
            (context.show_phase)("Reading", "which mutants the preprocessor removes");
            let compiled = self.shims.compiled_guards(&tree).map_err(failed)?;
            guarded.note_compiled(&compiled);
        }
        let fingerprint = guarded
            .rest_fingerprint()
            .with(self.unchanged.to_string().as_bytes())
            .with(self.command.build.as_bytes())
            .with(env!("CARGO_PKG_VERSION").as_bytes());
        let programs = programs(&self.command.tests, &tree, context.finder)?;
        Ok(GuardedBuild::new(guarded.into_built(), programs, fingerprint, TestCounting::Alone))
    }
}

/// Makes `make` continue after errors: one round then reports the errors of all sources.
fn make_flags(inherited: Option<OsString>) -> OsString {
    let mut flags = inherited.unwrap_or_default();
    flags.push(if flags.is_empty() { "-k" } else { " -k" });
    flags
}

/// Returns the test programs, with one entry for each test that has its own process. For a mutant, these
/// processes run one after the other, until one fails. A program with a test framework has the tests that it
/// lists.
fn programs(
    tests: &BuiltTests,
    tree: &Path,
    finder: &dyn TestFinder,
) -> Result<Vec<TestProgram>, MutateError> {
    let request = match tests {
        BuiltTests::Ctest(directory) => {
            SourceRequest::new("ctest", vec![OsText::from(tree.join(directory).as_path())])
        }
        BuiltTests::Programs(patterns) => {
            let patterns = patterns.iter().map(|pattern| OsText::from(pattern.as_str()));
            let words = [OsText::from(tree), OsText::from("")].into_iter().chain(patterns);
            SourceRequest::new(CommandTest::FRAMEWORK, words.collect::<Vec<_>>())
        }
    };
    let found = finder.find(tree, request).map_err(MutateError::Sources)?;
    let single = |program: TestProgram| {
        let is_command = program.framework.as_deref().is_some_and(|name| name == CommandTest::FRAMEWORK);
        let entries = if is_command { program.entries.clone() } else { Vec::new() };
        if entries.is_empty() {
            return vec![program];
        }
        let is_named = matches!(tests, BuiltTests::Programs(_));
        let of_entry = |entry: ListedTest| {
            let framework = if is_named { framework_program(&entry, tree, finder) } else { None };
            framework.unwrap_or_else(|| TestProgram { entries: vec![entry], ..program.clone() })
        };
        entries.into_iter().map(of_entry).collect()
    };
    Ok(found.into_iter().flat_map(single).collect())
}

/// Returns the program of a single-process test, if it contains a test framework.
fn framework_program(entry: &ListedTest, tree: &Path, finder: &dyn TestFinder) -> Option<TestProgram> {
    let path = Path::new(entry.file.as_deref()?);
    finder.has_framework(path).then(|| TestProgram::new(entry.name.clone(), path, tree))
}
