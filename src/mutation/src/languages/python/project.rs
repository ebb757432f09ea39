//! A Python project, its guarded copy, and its tests. Nothing is built, but the interpreter that runs the
//! tests compiles every guarded source, and mutants that it rejects are left out.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_cargo::{ignored_files, read_program_output};
use heeler_core::SourceRequest;
use heeler_mutate::{
    Fingerprint, GuardedProject, PythonCompilation, PythonLayout, PythonRuntime, SourceSelection,
    find_python_sources, is_python_project, python_left_out,
};
use heeler_protocol::control::{OsText, TestProgram};

use super::options::PytestProject;
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

const SEARCH_PATH: &str = "PYTHONPATH";
/// Fixes the iteration order of sets, so parameterized tests are the same in all processes.
const HASH_SEED: &str = "PYTHONHASHSEED";
/// Variable that disables bytecode. Unset for the tests, or every process would recompile all test sources.
const WITHOUT_BYTECODE: &str = "PYTHONDONTWRITEBYTECODE";
const MANIFEST: &str = "Cargo.toml";

const PYTEST: &str = "pytest";

/// Python: a directory that the user names, or one with Python project files outside of any Cargo package.
pub(in crate::languages) struct Python;

impl GuardedLanguage for Python {
    fn project(&self, options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
        let is_package = || directory.ancestors().any(|one| one.join(MANIFEST).is_file());
        let own = || {
            let is_project = !is_package() && is_python_project(directory);
            is_project.then(|| PytestProject { path: ".".into(), python: None })
        };
        let tests = options.pytest.clone().or_else(own)?;
        Some(Arc::new(PythonDirectory { tests, directory: directory.to_owned() }))
    }
}

#[derive(Debug, Clone)]
struct PythonDirectory {
    tests: PytestProject,
    directory: PathBuf,
}

impl LanguageProject for PythonDirectory {
    fn root(&self) -> Result<PathBuf, MutateError> {
        Ok(self.directory.clone())
    }

    fn find(
        &self,
        selection: &SourceSelection,
        _packages: SearchedPackages,
    ) -> Result<FoundProject, MutateError> {
        let ignored = ignored_files(&self.directory).map_err(MutateError::Cargo)?;
        let mutated = find_python_sources(&self.directory, selection, &ignored);
        let mutated = mutated.map_err(MutateError::Source)?;
        Ok(FoundProject { builder: Box::new(self.clone()), mutated })
    }
}

impl GuardedBuilder for PythonDirectory {
    fn guard(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<(Box<dyn GuardedCopy>, GuardedProject), MutateError> {
        let root = guarded.project().root.clone();
        let python = context.finder.find_python(self.tests.python.as_deref(), &root);
        let python = python.map_err(MutateError::Sources)?;
        let mut left_out = python_left_out(&root, &ignored_files(&root).map_err(MutateError::Cargo)?);
        left_out.push(context.place.state_dir().to_owned());
        let unchanged = copy_kept(&root, context.place, &left_out, &guarded)?.unchanged;
        // Modules report their canonical paths, so the paths given to the runtime must be canonical too.
        let own = context.place.directory().canonicalize();
        let own = own.map_err(|source| {
            let path = context.place.directory().to_owned();
            MutateError::Runtime { path, source }
        })?;
        let tree = own.join("tree");
        (context.show_phase)("Compiling", "the sources with mutants");
        let (broken, compiled) = (BTreeSet::new(), PythonCompilation::default());
        let copy = PythonCopy { tests: self.tests, python, root, own, tree, unchanged, broken, compiled };
        Ok((Box::new(copy), guarded))
    }
}

struct PythonCopy {
    tests: PytestProject,
    python: PathBuf,
    root: PathBuf,
    own: PathBuf,
    tree: PathBuf,
    /// A hash of the files that are copied unchanged.
    unchanged: Fingerprint,
    /// Sources that do not compile even without a mutant, such as templates or code for other Python
    /// versions.
    broken: BTreeSet<String>,
    /// Output of the last compilation.
    compiled: PythonCompilation,
}

impl GuardedCopy for PythonCopy {
    /// Shows nothing: compiling is fast, and was announced before the first round.
    fn show_round(&self, _guarded: &GuardedProject, _context: &mut GuardContext<'_>) {}

    fn compile(
        &mut self,
        guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<CompileRound, MutateError> {
        let mut compilation = self.ask(guarded, context)?;
        for (path, words) in &compilation.broken {
            guarded.withdraw_source(path, &format!("the source does not compile: {words}"));
            self.broken.insert(path.clone());
        }
        let errors = std::mem::take(&mut compilation.errors);
        let is_repeated = !compilation.broken.is_empty();
        self.compiled = compilation;
        Ok(CompileRound { errors, is_repeated })
    }

    fn tests(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<GuardedBuild, MutateError> {
        // Fingerprint everything except mutated functions: earlier verdicts need the same fingerprint.
        let Self { tests, python, root, own, tree, unchanged, compiled: compilation, .. } = *self;
        let fingerprint = guarded
            .rest_fingerprint()
            .with(unchanged.to_string().as_bytes())
            .with(compilation.version.as_bytes())
            .with(tests.path.as_os_str().as_encoded_bytes())
            .with(env!("CARGO_PKG_VERSION").as_bytes());
        // Write the runtime, and point the tests at it and at the copy.
        let layout = PythonLayout::read(guarded.project(), &compilation.search_path);
        let runtime = PythonRuntime::prepare(&own, &root, &tree, &layout);
        let failed = |source| MutateError::Runtime { path: context.place.directory().to_owned(), source };
        let runtime = runtime.map_err(failed)?;
        let inherited = std::env::var_os(SEARCH_PATH);
        let search_path = runtime.search_path(&tree, &layout.roots, inherited.as_deref());
        let mut programs = programs(&below_root(&root, &tests.path)?, &python, &tree, context.finder)?;
        for program in &mut programs {
            program.suite = suite_name(&root, &tests.path);
            program.env.push((OsText::from(SEARCH_PATH), Some(OsText::from(search_path.as_os_str()))));
            program.env.push((OsText::from(WITHOUT_BYTECODE), None));
            if std::env::var_os(HASH_SEED).is_none() {
                program.env.push((OsText::from(HASH_SEED), Some(OsText::from("0"))));
            }
        }
        Ok(GuardedBuild::new(guarded.into_built(), programs, fingerprint, TestCounting::Forked))
    }
}

impl PythonCopy {
    /// Compiles the guarded sources with Python.
    fn ask(
        &self,
        guarded: &GuardedProject,
        context: &GuardContext<'_>,
    ) -> Result<PythonCompilation, MutateError> {
        let failed = |source| MutateError::Runtime { path: self.own.clone(), source };
        let layout = PythonLayout::read(guarded.project(), &[]);
        let runtime = PythonRuntime::prepare(&self.own, &self.root, &self.tree, &layout).map_err(failed)?;
        let sources = guarded.project().sources.iter().map(|source| &*source.source.file().path);
        let sources = sources.filter(|path| !self.broken.contains(*path));
        let arguments: Vec<OsString> =
            runtime.compiler_arguments(&self.root, &self.tree, sources).map_err(failed)?;
        let output = read_program_output(&self.python, arguments, &self.root, context.supervision);
        let output = String::from_utf8_lossy(&output.map_err(MutateError::Cargo)?).into_owned();
        PythonCompilation::read(&output)
            .ok_or_else(|| MutateError::PythonAnswer { python: self.python.clone(), output })
    }
}

/// Returns the suite name: the name of the test directory or file.
fn suite_name(root: &Path, path: &Path) -> String {
    let tests = root.join(path);
    let tests = tests.canonicalize().unwrap_or(tests);
    tests.file_stem().map_or_else(|| PYTEST.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the path of the tests relative to the project root. Tests elsewhere would not be in the copy.
fn below_root(root: &Path, path: &Path) -> Result<PathBuf, MutateError> {
    let tests = root.join(path);
    let found = tests.canonicalize().map_err(|source| MutateError::Tests { path: tests.clone(), source })?;
    let root = root.canonicalize().map_err(MutateError::Directory)?;
    match found.strip_prefix(&root) {
        Ok(below) if below == Path::new("") => Ok(PathBuf::from(".")),
        Ok(below) => Ok(below.to_owned()),
        Err(_) => Err(MutateError::TestsOutside { path: tests, root }),
    }
}

fn programs(
    path: &Path,
    python: &Path,
    tree: &Path,
    finder: &dyn TestFinder,
) -> Result<Vec<TestProgram>, MutateError> {
    let words = [tree, path, python].map(OsText::from);
    finder.find(tree, SourceRequest::new(PYTEST, words)).map_err(MutateError::Sources)
}
