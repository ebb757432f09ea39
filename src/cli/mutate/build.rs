//! The guarded copy of a workspace, and its test programs. The workspace itself is only read.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use heeler_mutant::{RollbackStep, compiler};
use heeler_mutant_model::MutantId;
use heeler_mutate::{
    BuiltProject, CargoProject, CopiedTree, Fingerprint, GuardRuntime, GuardedProject, TreeCopy,
    TreeCopyError,
};
use heeler_protocol::control::TestProgram;
use heeler_sys::liveness_lock::{self, LivenessLock};

use super::{
    cargo_options::{CargoOptions, DoctestUse},
    command_build::build_with_command,
    doctest_build::DoctestCompiler,
    error::MutateError,
    find::{BuildTool, FoundProject},
    kept_reports::KeptReports,
    own_harness::has_own_harness,
    pytest_build::build_with_pytest,
};
use heeler_cargo::{
    BuildSupervision, CargoBuild, CargoBuildResult, CargoError, CargoProgram, DiagnosticsTarget, OutputTail,
    doctests::DoctestRecording, read_rustc_version, run_rustc,
};

/// The file that Cargo makes where a workspace has none.
const LOCK_FILE: &str = "Cargo.lock";
/// The list of reports that were written, beside the copy.
const REPORTS: &str = "reports";
/// Debug information of the original's lines is of no use, and takes half of the time of small builds.
const WITHOUT_DEBUG_INFORMATION: [&str; 2] = ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_TEST_DEBUG"];

/// The directory of the mutants of one workspace, which no other process uses at the same time.
#[derive(Debug)]
pub(super) struct WorkPlace {
    dir: PathBuf,
    /// Files that are not copied: the reports of this run and of earlier ones.
    reports: Vec<PathBuf>,
    _lock: LivenessLock,
}

/// The test programs of a guarded workspace.
#[derive(Debug)]
pub(super) struct GuardedBuild {
    pub(super) guarded: BuiltProject,
    pub(super) programs: Vec<TestProgram>,
    /// The places of programs with a `main` of their own.
    pub(super) own_harness: Vec<usize>,
    /// The places of programs with documentation tests, which are left out where they fail.
    pub(super) doctests: Range<usize>,
    /// What the user should know of the tests.
    pub(super) notes: Vec<String>,
    /// A hash of everything but the code of functions with mutants.
    pub(super) fingerprint: Fingerprint,
    pub(super) counting: TestCounting,
}

impl GuardedBuild {
    /// Returns a build without what only Cargo has.
    pub(super) fn new(
        guarded: BuiltProject,
        programs: Vec<TestProgram>,
        fingerprint: Fingerprint,
        counting: TestCounting,
    ) -> Self {
        Self {
            guarded,
            programs,
            own_harness: Vec::new(),
            doctests: 0..0,
            notes: Vec::new(),
            fingerprint,
            counting,
        }
    }
}

/// How it is counted what each test reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestCounting {
    /// Each test in a process of its own.
    Alone,
    /// Each in a child that is forked by a process of several tests, which has loaded all they need.
    Forked,
}

impl WorkPlace {
    /// Makes the directory of a workspace below the state directory.
    ///
    /// # Errors
    /// It can't be made, or another process uses it.
    pub(super) fn open(state_dir: &Path, root: &Path) -> Result<Self, MutateError> {
        // Several workspaces may share a state directory.
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let id = heeler_run_store::unpredictable_name(&[root.as_os_str().as_encoded_bytes()]);
        let dir = state_dir.join("mutate").join(format!("{name}-{id}"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| MutateError::MakeDirectory { path, source }
        };
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        heeler_run_store::exclude_from_git(state_dir);
        let lock = dir.join("lock");
        if liveness_lock::is_held(&lock).map_err(failed(&lock))? {
            return Err(MutateError::Busy { path: dir });
        }
        let held = LivenessLock::acquire(&lock).map_err(failed(&lock))?;
        let reports = KeptReports::read(&dir.join(REPORTS)).unchanged();
        Ok(Self { dir, reports, _lock: held })
    }

    /// Leaves files out of the copy that are written at the end: what they say changes no test.
    pub(super) fn leave_out_reports(&mut self, files: Vec<PathBuf>) {
        self.reports.extend(files.into_iter().map(|file| std::path::absolute(&file).unwrap_or(file)));
    }

    /// Returns the list of reports that were written.
    pub(super) fn reports(&self) -> PathBuf {
        self.dir.join(REPORTS)
    }

    /// Returns the files that are not copied.
    pub(super) fn left_out_files(&self) -> &[PathBuf] {
        &self.reports
    }

    pub(super) fn directory(&self) -> &Path {
        &self.dir
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Returns the file of verdicts for later runs.
    pub(super) fn verdicts(&self) -> PathBuf {
        self.dir.join("verdicts.json")
    }

    /// Returns the file of what the tests reach, for later runs.
    pub(super) fn baseline(&self) -> PathBuf {
        self.dir.join("baseline.json")
    }

    /// Returns the directory of runs in progress.
    pub(super) fn session(&self) -> PathBuf {
        self.dir.join("session")
    }

    /// Returns the directory in which tests note what they reach.
    pub(super) fn coverage(&self) -> PathBuf {
        self.dir.join("coverage")
    }
}

/// Builds the tests with guards for all mutants that compile.
///
/// # Errors
/// The workspace can't be copied or built.
pub(super) fn build_guarded(
    found: FoundProject,
    place: &WorkPlace,
    state_dir: &Path,
    supervision: BuildSupervision<'_>,
    say: &mut dyn FnMut(&str, &str),
) -> Result<GuardedBuild, MutateError> {
    let FoundProject { tool, mutated, directory, has_named_sources } = found;
    let (cargo, options) = match tool {
        BuildTool::Cargo(cargo, options) => (cargo, options),
        BuildTool::Command(project) => {
            return build_with_command(&project, mutated, place, state_dir, supervision, say);
        }
        BuildTool::Python(project) => {
            return build_with_pytest(&project, mutated, place, state_dir, supervision, say);
        }
    };
    if let Some(outside) = cargo.outside_dependency() {
        return Err(MutateError::OutsideDependency(outside));
    }
    let packages = match options.packages.is_empty() {
        true if has_named_sources => {
            let selected = mutated.sources.iter().filter(|source| !source.selected.is_empty());
            let packages = cargo.packages_of(selected.map(|source| &*source.source.file().path));
            packages.into_iter().map(str::to_owned).collect()
        }
        true => Vec::new(),
        false => cargo.specifications(&options.packages),
    };
    let mut guarded = GuardedProject::new(mutated, &BTreeSet::<MutantId>::new());
    let copied = update_tree(&cargo, place, state_dir, &guarded)?;
    let compiler = read_rustc_version(&directory).map_err(MutateError::Cargo)?;
    let runtime = prepare_runtime(place, &compiler)?;
    let tree = place.tree();
    let below = directory.strip_prefix(cargo.root()).unwrap_or(Path::new(""));
    let build = GuardedCargo {
        dir: tree.join(below),
        args: cargo_arguments(place, &packages, &options),
        variables: cargo_variables(&runtime),
        has_doctests: options.doctests == DoctestUse::Run && cargo.has_doctests(&packages),
        supervision,
    };
    let built = loop {
        say("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
        match build.round(&mut guarded)? {
            Some(built) => break built,
            None => write_guarded(&guarded, &tree)?,
        }
    };
    let fingerprint = guarded
        .rest_fingerprint()
        .with(copied.unchanged.to_string().as_bytes())
        .with(compiler.as_bytes())
        .with(runtime.directory().as_os_str().as_encoded_bytes())
        .with(env!("CARGO_PKG_VERSION").as_bytes());
    let fingerprint =
        options.feature_arguments().iter().fold(fingerprint, |hash, word| hash.with(word.as_encoded_bytes()));
    let BuiltTests { tests, libraries, mut notes } = built;
    let own_harness = (0..tests.len()).filter(|place| has_own_harness(&tests[*place])).collect();
    let mut programs: Vec<TestProgram> = tests.into_iter().map(CargoProgram::into_test_program).collect();
    let first_doctest = programs.len();
    let compiler =
        DoctestCompiler { place, root: cargo.root(), runtime: runtime.directory(), fingerprint, supervision };
    for library in &libraries {
        say("Building", &format!("documentation tests of {}", library.suite));
        let compiled = compiler.compile(library)?;
        programs.extend(compiled.program);
        notes.extend(compiled.notes);
    }
    if options.doctests == DoctestUse::LeftOut && cargo.has_doctests(&packages) {
        notes.push("documentation tests were not run (--no-doc)".to_owned());
    }
    let doctests = first_doctest..programs.len();
    let build = GuardedBuild::new(guarded.into_built(), programs, fingerprint, TestCounting::Alone);
    Ok(GuardedBuild { own_harness, doctests, notes, ..build })
}

/// What Cargo has built.
struct BuiltTests {
    tests: Vec<CargoProgram>,
    /// The libraries with documentation tests: rustdoc as Cargo starts it for them.
    libraries: Vec<CargoProgram>,
    notes: Vec<String>,
}

/// Writes the guarded sources of a project to its copy.
pub(super) fn write_guarded(guarded: &GuardedProject, tree: &Path) -> Result<(), MutateError> {
    let replaced = guarded.texts();
    let copy = tree_copy(&guarded.project().root, tree, &replaced);
    copy.update_replaced().map(|_written| ()).map_err(MutateError::Copy)
}

/// Returns the copy of a tree, of which nothing is left out and nothing else is kept.
pub(super) fn tree_copy<'a>(
    original: &'a Path,
    copy: &'a Path,
    replaced: &'a std::collections::BTreeMap<PathBuf, &'a str>,
) -> TreeCopy<'a> {
    TreeCopy { original, copy, left_out: &[], left_out_files: &[], kept: &[], copied_before: None, replaced }
}

fn update_tree(
    cargo: &CargoProject,
    place: &WorkPlace,
    state_dir: &Path,
    guarded: &GuardedProject,
) -> Result<CopiedTree, MutateError> {
    let (tree, replaced) = (place.tree(), guarded.texts());
    let left_out = [state_dir.to_owned(), cargo.target_directory().to_owned()];
    let copy = TreeCopy {
        left_out: &left_out,
        left_out_files: place.left_out_files(),
        kept: &[LOCK_FILE],
        ..tree_copy(cargo.root(), &tree, &replaced)
    };
    copy.update().map_err(|error: TreeCopyError| MutateError::Copy(error))
}

fn prepare_runtime(place: &WorkPlace, compiler: &str) -> Result<GuardRuntime, MutateError> {
    let runtime = GuardRuntime::below(&place.dir, compiler);
    let prepared = runtime.prepare(&heeler_sys::process::shared_program_path());
    let failed = |source| MutateError::Runtime { path: place.dir.clone(), source };
    if let Some(args) = prepared.map_err(failed)? {
        run_rustc(args, &place.tree()).map_err(MutateError::CompileRuntime)?;
    }
    Ok(runtime)
}

/// Returns the arguments for Cargo.
fn cargo_arguments(place: &WorkPlace, packages: &[String], options: &CargoOptions) -> Vec<OsString> {
    let mut target = OsString::from("--target-dir=");
    target.push(place.dir.join("target"));
    let packages = packages.iter().map(|package| OsString::from(format!("--package={package}")));
    [target].into_iter().chain(packages).chain(options.feature_arguments()).collect()
}

fn cargo_variables(runtime: &GuardRuntime) -> Vec<(OsString, OsString)> {
    let debug = WITHOUT_DEBUG_INFORMATION.iter().map(|name| (OsString::from(name), OsString::from("0")));
    let wrapper = (OsString::from("RUSTC_WORKSPACE_WRAPPER"), runtime.wrapper().into_os_string());
    debug.chain([wrapper]).collect()
}

/// How Cargo is started in the copy.
struct GuardedCargo<'a> {
    dir: PathBuf,
    args: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    /// Whether libraries are built for documentation tests.
    has_doctests: bool,
    supervision: BuildSupervision<'a>,
}

impl GuardedCargo<'_> {
    /// Builds once. Returns the programs; `None` if some mutants do not compile, or others are to be tried.
    fn round(&self, guarded: &mut GuardedProject) -> Result<Option<BuiltTests>, MutateError> {
        let Some(tests) = self.tests_round(guarded)? else { return Ok(None) };
        if self.has_doctests {
            self.libraries_round(guarded, tests)
        } else {
            Ok(Some(BuiltTests { tests: tests.programs, libraries: Vec::new(), notes: Vec::new() }))
        }
    }

    /// Builds the libraries with documentation tests as these see them, in the same way. Without them, the
    /// other tests still run.
    fn libraries_round(
        &self,
        guarded: &mut GuardedProject,
        tests: CargoBuildResult,
    ) -> Result<Option<BuiltTests>, MutateError> {
        let CargoBuildResult { programs: tests, without_doctests, rustdoc: toolchain_rustdoc, .. } = tests;
        let mut built = BuiltTests { tests, libraries: Vec::new(), notes: Vec::new() };
        let tail = OutputTail::default();
        let recording = DoctestRecording {
            dir: &self.dir,
            args: &self.args,
            variables: &self.variables,
            left_out: &without_doctests,
            toolchain_rustdoc,
            diagnostics: DiagnosticsTarget::Messages,
            supervision: BuildSupervision { tail: Some(&tail), ..self.supervision },
        };
        let mut errors = Vec::new();
        let recorded = recording.build(|line| {
            errors.extend(compiler::rustc::error_of_line(&String::from_utf8_lossy(line)));
        });
        let reason = match recorded {
            Ok(libraries) => return Ok(Some(BuiltTests { libraries, ..built })),
            Err(CargoError::Failed { .. }) if !errors.is_empty() => match guarded.next_round(&errors) {
                RollbackStep::Done | RollbackStep::Check => return Ok(None),
                RollbackStep::Broken(errors) => {
                    let error = errors.into_iter().next().unwrap_or_default();
                    format!("the library does not compile: {}", error.lines().next().unwrap_or_default())
                }
            },
            Err(CargoError::Failed { command, .. }) => {
                let text = tail.text();
                let said = text.lines().find(|line| line.starts_with("error"));
                format!(
                    "{command} fails: {}",
                    said.unwrap_or_else(|| text.lines().last().unwrap_or_default())
                )
            }
            Err(error @ CargoError::Cancelled { .. }) => return Err(MutateError::Cargo(error)),
            Err(error) => format!("failed to {}", heeler_core::error_chain(&error)),
        };
        built.notes.push(format!("documentation tests are left out: {reason}"));
        Ok(Some(built))
    }

    fn tests_round(&self, guarded: &mut GuardedProject) -> Result<Option<CargoBuildResult>, MutateError> {
        let tail = OutputTail::default();
        let supervision = BuildSupervision { tail: Some(&tail), ..self.supervision };
        let args: Vec<OsString> = [OsString::from("--tests")].into_iter().chain(self.args.clone()).collect();
        let build = CargoBuild::start_with(
            &self.dir,
            &args,
            &self.variables,
            DiagnosticsTarget::Messages,
            supervision,
        );
        let mut errors = Vec::new();
        let take = |line: &[u8]| {
            errors.extend(compiler::rustc::error_of_line(&String::from_utf8_lossy(line)));
        };
        let built = build.map_err(MutateError::Cargo)?.finish_with(take);
        let built = match built {
            Ok(built) => Some(built),
            Err(CargoError::Failed { .. }) if !errors.is_empty() => None,
            Err(CargoError::Failed { .. }) => return Err(MutateError::Build { output: tail.text() }),
            Err(error) => return Err(MutateError::Cargo(error)),
        };
        if built.is_some() {
            errors.clear();
        }
        match guarded.next_round(&errors) {
            RollbackStep::Done => Ok(built),
            RollbackStep::Check => Ok(None),
            RollbackStep::Broken(errors) => Err(MutateError::NotCompiled { errors }),
        }
    }
}
