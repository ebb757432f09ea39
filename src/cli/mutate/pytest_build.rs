//! The guarded copy of a project in Python, and its tests. Nothing is built, but every guarded source is
//! compiled by the interpreter that runs the tests: what it refuses is left out.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use heeler_config::Config;
use heeler_core::SourceRequest;
use heeler_mutant::RollbackStep;
use heeler_mutant_model::MutantId;
use heeler_mutate::{
    GuardedProject, MutatedProject, PythonCompilation, PythonLayout, PythonRuntime, is_python_project,
    python_left_out,
};
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    build::{GuardedBuild, TestCounting, WorkPlace, write_guarded},
    command_build::copy_kept,
    error::MutateError,
};
use crate::cli::sources::{DebugData, NamedSources, PYTEST_SOURCE, find_interpreter, find_sources};
use heeler_cargo::{BuildSupervision, ignored_files, read_program_output};

const SEARCH_PATH: &str = "PYTHONPATH";
/// With it, the order of sets is the same in all processes, and so are the tests that are made of them.
const HASH_SEED: &str = "PYTHONHASHSEED";
/// Without bytecode, every process would compile all sources of the tests again.
const WITHOUT_BYTECODE: &str = "PYTHONDONTWRITEBYTECODE";
const MANIFEST: &str = "Cargo.toml";

/// How a project in Python is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct PytestProject {
    /// What pytest collects, relative to the directory.
    pub(in crate::cli) path: PathBuf,
    /// The interpreter, if it is named.
    pub(in crate::cli) python: Option<String>,
}

impl PytestProject {
    /// Returns the project of a directory that has one, and is in no cargo package.
    pub(super) fn of_directory(directory: &Path) -> Option<Self> {
        let is_package = directory.ancestors().any(|one| one.join(MANIFEST).is_file());
        (!is_package && is_python_project(directory)).then(|| Self { path: ".".into(), python: None })
    }
}

/// Writes the guarded sources with all mutants that Python compiles, and returns their tests.
///
/// # Errors
/// The directory can't be copied, or there is no interpreter.
pub(super) fn build_with_pytest(
    project: &PytestProject,
    mutated: MutatedProject,
    place: &WorkPlace,
    state_dir: &Path,
    supervision: BuildSupervision<'_>,
    say: &mut dyn FnMut(&str, &str),
) -> Result<GuardedBuild, MutateError> {
    let root = mutated.root.clone();
    let python = find_interpreter(project.python.as_deref(), &root).map_err(MutateError::Sources)?;
    let mut guarded = GuardedProject::new(mutated, &BTreeSet::<MutantId>::new());
    let mut left_out = python_left_out(&root, &ignored_files(&root).map_err(MutateError::Cargo)?);
    left_out.push(state_dir.to_owned());
    let copied = copy_kept(&root, place, &left_out, &guarded)?;
    let failed = |source| MutateError::Runtime { path: place.directory().to_owned(), source };
    // As modules say where they are.
    let own = place.directory().canonicalize().map_err(failed)?;
    let tree = own.join("tree");
    let mut compiler = SourceCompiler { python: &python, root: &root, tree: &tree, own: &own, supervision };
    say("Compiling", "the sources with mutants");
    let compilation = compiler.rounds(&mut guarded)?;
    let fingerprint = guarded
        .rest_fingerprint()
        .with(copied.unchanged.to_string().as_bytes())
        .with(compilation.version.as_bytes())
        .with(project.path.as_os_str().as_encoded_bytes())
        .with(env!("CARGO_PKG_VERSION").as_bytes());
    let layout = PythonLayout::read(guarded.project(), &compilation.search_path);
    let runtime = PythonRuntime::prepare(&own, &root, &tree, &layout).map_err(failed)?;
    let inherited = std::env::var_os(SEARCH_PATH);
    let search_path = runtime.search_path(&tree, &layout.roots, inherited.as_deref());
    let mut programs = programs(&below_root(&root, &project.path)?, &python, &tree)?;
    for program in &mut programs {
        program.suite = suite_name(&root, &project.path);
        program.env.push((OsText::from(SEARCH_PATH), Some(OsText::from(search_path.as_os_str()))));
        program.env.push((OsText::from(WITHOUT_BYTECODE), None));
        if std::env::var_os(HASH_SEED).is_none() {
            program.env.push((OsText::from(HASH_SEED), Some(OsText::from("0"))));
        }
    }
    let counting = TestCounting::Forked;
    let guarded = guarded.into_built();
    Ok(GuardedBuild::new(guarded, programs, fingerprint, counting))
}

/// Returns the name of the tests: that of the directory or file that is named.
fn suite_name(root: &Path, path: &Path) -> String {
    let tests = root.join(path);
    let tests = tests.canonicalize().unwrap_or(tests);
    tests.file_stem().map_or_else(|| PYTEST_SOURCE.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the path of tests relative to the root of the project: only what is below it is in the copy.
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

/// Compiles guarded sources.
struct SourceCompiler<'a> {
    python: &'a Path,
    root: &'a Path,
    tree: &'a Path,
    own: &'a Path,
    supervision: BuildSupervision<'a>,
}

impl SourceCompiler<'_> {
    /// Compiles the sources until Python takes them; returns its last answer.
    fn rounds(&mut self, guarded: &mut GuardedProject) -> Result<PythonCompilation, MutateError> {
        // Sources that it does not compile without a mutant either: those of other versions, or templates.
        let mut broken: BTreeSet<String> = BTreeSet::new();
        loop {
            let compilation = self.compile(guarded, &broken)?;
            for (path, words) in &compilation.broken {
                guarded.withdraw_source(path, &format!("the source does not compile: {words}"));
                broken.insert(path.clone());
            }
            match guarded.next_round(&compilation.errors) {
                RollbackStep::Done if compilation.broken.is_empty() => return Ok(compilation),
                RollbackStep::Done | RollbackStep::Check => write_guarded(guarded, self.tree)?,
                RollbackStep::Broken(errors) => return Err(MutateError::NotCompiled { errors }),
            }
        }
    }

    fn compile(
        &self,
        guarded: &GuardedProject,
        broken: &BTreeSet<String>,
    ) -> Result<PythonCompilation, MutateError> {
        let failed = |source| MutateError::Runtime { path: self.own.to_owned(), source };
        let layout = PythonLayout::read(guarded.project(), &[]);
        let runtime = PythonRuntime::prepare(self.own, self.root, self.tree, &layout).map_err(failed)?;
        let sources = guarded.project().sources.iter().map(|source| &*source.source.file().path);
        let sources = sources.filter(|path| !broken.contains(*path));
        let arguments: Vec<OsString> =
            runtime.compiler_arguments(self.root, self.tree, sources).map_err(failed)?;
        let output = read_program_output(self.python, arguments, self.root, self.supervision);
        let output = String::from_utf8_lossy(&output.map_err(MutateError::Cargo)?).into_owned();
        PythonCompilation::read(&output)
            .ok_or_else(|| MutateError::PythonAnswer { python: self.python.to_owned(), output })
    }
}

/// Returns the program that runs the tests of the copy.
fn programs(path: &Path, python: &Path, tree: &Path) -> Result<Vec<TestProgram>, MutateError> {
    let words = [tree, path, python].map(OsText::from);
    let request = SourceRequest::new(PYTEST_SOURCE, words.to_vec());
    let named = NamedSources { requests: vec![request], ..NamedSources::default() };
    let found = find_sources(&Config::without_file(tree), &named, DebugData::Omitted, &mut |_, _| {})
        .map_err(MutateError::Sources)?;
    Ok(found.into_iter().map(|source| source.program).collect())
}
