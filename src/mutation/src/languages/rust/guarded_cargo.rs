//! The guarded copy of a Cargo workspace.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use heeler_cargo::{
    BuildSupervision, CargoBuild, CargoBuildResult, CargoError, CargoProgram, DiagnosticsTarget, OutputTail,
    doctests::DoctestRecording, read_rustc_version, run_rustc,
};
use heeler_mutant::{RollbackStep, compiler};
use heeler_mutate::{CargoProject, Fingerprint, GuardRuntime, GuardedProject, TreeCopy};
use heeler_protocol::control::TestProgram;

use super::{
    cargo_options::{CargoOptions, DoctestUse},
    doctest_build::DoctestCompiler,
};
use crate::{
    error::MutateError,
    languages::language::{
        CompileRound, GuardContext, GuardedBuild, GuardedBuilder, GuardedCopy, TestCounting,
    },
    work_place::WorkPlace,
};

/// The lock file, which Cargo may create in the copy.
const LOCK_FILE: &str = "Cargo.lock";
/// Variables that turn off debug information, which takes half the time of small builds. Its line numbers
/// are of no use here.
const WITHOUT_DEBUG_INFORMATION: [&str; 2] = ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_TEST_DEBUG"];

/// Copies a workspace whose mutants were found.
pub(super) struct CargoBuilder {
    pub(super) cargo: CargoProject,
    pub(super) options: CargoOptions,
    /// Working directory of this process.
    pub(super) directory: PathBuf,
    /// Whether the selected sources decide which packages are tested. True if the user named sources, or if
    /// the whole workspace is searched.
    pub(super) has_named_sources: bool,
}

impl GuardedBuilder for CargoBuilder {
    fn guard(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<(Box<dyn GuardedCopy>, GuardedProject), MutateError> {
        // A path dependency outside the workspace would be missing from the copy.
        let Self { cargo, options, directory, has_named_sources } = *self;
        if let Some(outside) = cargo.outside_dependency() {
            return Err(MutateError::OutsideDependency(outside));
        }
        // Test the packages that the user names or that contain the selected sources.
        let packages = match options.packages.is_empty() {
            true if has_named_sources => {
                let sources = &guarded.project().sources;
                let selected = sources.iter().filter(|source| !source.selected.is_empty());
                let packages = cargo.packages_of(selected.map(|source| &*source.source.file().path));
                packages.into_iter().map(str::to_owned).collect()
            }
            true => Vec::new(),
            false => cargo.specifications(&options.packages),
        };
        // Copy the workspace and compile the guard runtime.
        let place = context.place;
        let unchanged = update_tree(&cargo, place, &guarded)?;
        let compiler = read_rustc_version(&directory).map_err(MutateError::Cargo)?;
        let runtime = prepare_runtime(place, &compiler)?;
        let below = directory.strip_prefix(cargo.root()).unwrap_or(Path::new(""));
        let has_doctests = cargo.has_doctests(&packages);
        let copy = GuardedCargo {
            dir: place.tree().join(below),
            args: cargo_arguments(place, &packages, &options),
            variables: cargo_variables(&runtime),
            has_doctests,
            cargo,
            options,
            unchanged,
            compiler,
            runtime,
            result: CargoBuildResult::default(),
            libraries: Vec::new(),
            notes: Vec::new(),
        };
        Ok((Box::new(copy), guarded))
    }
}

fn update_tree(
    cargo: &CargoProject,
    place: &WorkPlace,
    guarded: &GuardedProject,
) -> Result<Fingerprint, MutateError> {
    let (tree, replaced) = (place.tree(), guarded.texts());
    let left_out = [place.state_dir().to_owned(), cargo.target_directory().to_owned()];
    let copy = TreeCopy {
        left_out: &left_out,
        left_out_files: place.left_out_files(),
        kept: &[LOCK_FILE],
        ..TreeCopy::new(cargo.root(), &tree, &replaced)
    };
    Ok(copy.update().map_err(MutateError::Copy)?.unchanged)
}

fn prepare_runtime(place: &WorkPlace, compiler: &str) -> Result<GuardRuntime, MutateError> {
    let runtime = GuardRuntime::below(place.directory(), compiler);
    let prepared = runtime.prepare(&heeler_sys::process::shared_program_path());
    let failed = |source| MutateError::Runtime { path: place.directory().to_owned(), source };
    if let Some(args) = prepared.map_err(failed)? {
        run_rustc(args, &place.tree()).map_err(MutateError::CompileRuntime)?;
    }
    Ok(runtime)
}

fn cargo_arguments(place: &WorkPlace, packages: &[String], options: &CargoOptions) -> Vec<OsString> {
    let mut target = OsString::from("--target-dir=");
    target.push(place.directory().join("target"));
    let packages = packages.iter().map(|package| OsString::from(format!("--package={package}")));
    [target].into_iter().chain(packages).chain(options.feature_arguments()).collect()
}

fn cargo_variables(runtime: &GuardRuntime) -> Vec<(OsString, OsString)> {
    let debug = WITHOUT_DEBUG_INFORMATION.iter().map(|name| (OsString::from(name), OsString::from("0")));
    let wrapper = (OsString::from("RUSTC_WORKSPACE_WRAPPER"), runtime.wrapper().into_os_string());
    debug.chain([wrapper]).collect()
}

struct GuardedCargo {
    cargo: CargoProject,
    options: CargoOptions,
    dir: PathBuf,
    args: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    has_doctests: bool,
    /// A hash of the files that are copied unchanged.
    unchanged: Fingerprint,
    compiler: String,
    runtime: GuardRuntime,
    result: CargoBuildResult,
    /// rustdoc commands for the libraries with documentation tests, as Cargo would run them.
    libraries: Vec<CargoProgram>,
    notes: Vec<String>,
}

impl GuardedCopy for GuardedCargo {
    fn compile(
        &mut self,
        _guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<CompileRound, MutateError> {
        let tail = OutputTail::default();
        let supervision = BuildSupervision { tail: Some(&tail), ..context.supervision };
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
        match built {
            Ok(built) => {
                self.result = built;
                errors.clear();
            }
            Err(CargoError::Failed { .. }) if !errors.is_empty() => {}
            Err(CargoError::Failed { .. }) => return Err(MutateError::Build { output: tail.text() }),
            Err(error) => return Err(MutateError::Cargo(error)),
        }
        Ok(CompileRound { errors, is_repeated: false })
    }

    /// Builds the libraries for their documentation tests with the same options. If that fails, the
    /// documentation tests are left out and the other tests still run.
    fn compile_optional(
        &mut self,
        guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<bool, MutateError> {
        if !self.has_doctests || self.options.doctests == DoctestUse::LeftOut {
            return Ok(true);
        }
        // Build, and record how Cargo would run rustdoc.
        let tail = OutputTail::default();
        let recording = DoctestRecording {
            dir: &self.dir,
            args: &self.args,
            variables: &self.variables,
            left_out: &self.result.without_doctests,
            toolchain_rustdoc: self.result.rustdoc.clone(),
            diagnostics: DiagnosticsTarget::Messages,
            supervision: BuildSupervision { tail: Some(&tail), ..context.supervision },
        };
        let mut errors = Vec::new();
        let recorded = recording.build(|line| {
            errors.extend(compiler::rustc::error_of_line(&String::from_utf8_lossy(line)));
        });
        // Withdraw mutants that broke the build, or give up on documentation tests.
        let reason = match recorded {
            Ok(libraries) => {
                self.libraries = libraries;
                return Ok(true);
            }
            Err(CargoError::Failed { .. }) if !errors.is_empty() => match guarded.next_round(&errors) {
                RollbackStep::Done | RollbackStep::Check => return Ok(false),
                RollbackStep::Broken(errors) => {
                    let error = errors.into_iter().next().unwrap_or_default();
                    format!("the library does not compile: {}", error.lines().next().unwrap_or_default())
                }
            },
            Err(CargoError::Failed { command, .. }) => {
                let text = tail.text();
                let said = text.lines().find(|line| line.starts_with("error"));
                format!(
                    "{command} failed: {}",
                    said.unwrap_or_else(|| text.lines().last().unwrap_or_default())
                )
            }
            Err(error @ CargoError::Cancelled { .. }) => return Err(MutateError::Cargo(error)),
            Err(error) => heeler_core::error_chain(&error),
        };
        self.notes.push(format!("skipping documentation tests: {reason}"));
        Ok(true)
    }

    fn tests(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<GuardedBuild, MutateError> {
        let Self {
            cargo,
            options,
            unchanged,
            compiler,
            runtime,
            result,
            libraries,
            mut notes,
            has_doctests,
            ..
        } = *self;
        // Fingerprint everything except mutated functions: earlier verdicts need the same fingerprint.
        let fingerprint = guarded
            .rest_fingerprint()
            .with(unchanged.to_string().as_bytes())
            .with(compiler.as_bytes())
            .with(runtime.directory().as_os_str().as_encoded_bytes())
            .with(env!("CARGO_PKG_VERSION").as_bytes());
        let words = options.feature_arguments();
        let fingerprint = words.iter().fold(fingerprint, |hash, word| hash.with(word.as_encoded_bytes()));
        // Collect the test programs, with the documentation tests last.
        let mut programs: Vec<TestProgram> =
            result.programs.into_iter().map(CargoProgram::into_test_program).collect();
        let first_doctest = programs.len();
        let GuardContext { place, supervision, .. } = *context;
        let (root, runtime) = (cargo.root(), runtime.directory());
        let compiler = DoctestCompiler { place, root, runtime, fingerprint, supervision };
        for library in &libraries {
            (context.show_phase)("Building", &format!("documentation tests of {}", library.suite));
            let compiled = compiler.compile(library)?;
            programs.extend(compiled.program);
            notes.extend(compiled.notes);
        }
        if options.doctests == DoctestUse::LeftOut && has_doctests {
            notes.push("documentation tests were not run (--no-doc)".to_owned());
        }
        let doctests = first_doctest..programs.len();
        let build = GuardedBuild::new(guarded.into_built(), programs, fingerprint, TestCounting::Alone);
        Ok(GuardedBuild { doctests, notes, ..build })
    }
}
