//! Compiles the documentation tests of guarded libraries. rustdoc compiles each test once, against the
//! library with all mutants; each becomes a command test. rustdoc reads the user's sources rather than the
//! copy, because test names contain line numbers.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use heeler_mutate::{DoctestDirectory, Fingerprint, KeptDoctest, KeptDoctests, LIMIT_EXIT_CODES};
use heeler_protocol::control::{CommandRules, CommandTest, ListedTest, OsText, TestProgram};

use crate::{error::MutateError, work_place::WorkPlace};
use heeler_cargo::{BuildSupervision, CargoProgram, doctests::run_rustdoc};

/// File next to the kept tests with a hash of what they were compiled from.
const KEY: &str = "key";
/// rustdoc option: the directory to run tests in.
const RUN_DIRECTORY: &str = "--test-run-directory";
/// Maximum number of tests named in a note.
const NAMED_TESTS: usize = 3;

pub(super) struct DoctestCompiler<'a> {
    pub(super) place: &'a WorkPlace,
    /// Root of the user's workspace.
    pub(super) root: &'a Path,
    /// Directory of the guard runtime, which guarded libraries depend on.
    pub(super) runtime: &'a Path,
    /// A hash of everything the tests depend on except the library itself.
    pub(super) fingerprint: Fingerprint,
    pub(super) supervision: BuildSupervision<'a>,
}

pub(super) struct CompiledDoctests {
    /// `None` if the library has no tests.
    pub(super) program: Option<TestProgram>,
    /// Notes about tests that were left out.
    pub(super) notes: Vec<String>,
}

impl DoctestCompiler<'_> {
    /// Compiles the tests of a library, or reuses an earlier build. `library` is the rustdoc command that
    /// Cargo would run.
    ///
    /// # Errors
    /// A file can't be written, or the build is cancelled.
    pub(super) fn compile(&self, library: &CargoProgram) -> Result<CompiledDoctests, MutateError> {
        let suite = &library.suite;
        let dir = self.place.directory().join("doctests").join(suite.replace(['/', ':'], "-"));
        let directory = DoctestDirectory::new(dir.clone());
        let failed = |source| MutateError::Doctests { path: dir.clone(), source };
        let key = self.key(library).to_string();
        let key_file = dir.join(KEY);
        let is_kept = fs::read_to_string(&key_file).is_ok_and(|kept| kept == key);
        let kept = if is_kept { directory.read().map_err(failed)? } else { None };
        let kept = match kept {
            Some(kept) => kept,
            None => match self.run(library, &directory)? {
                Ok(kept) => {
                    fs::write(&key_file, key).map_err(failed)?;
                    kept
                }
                Err(reason) => {
                    let note = format!("{suite}: skipping documentation tests: rustdoc {reason}");
                    return Ok(CompiledDoctests { program: None, notes: vec![note] });
                }
            },
        };
        let program = (!kept.tests.is_empty()).then(|| self.program(library, &kept.tests));
        Ok(CompiledDoctests { program, notes: notes(suite, &kept) })
    }

    /// Runs rustdoc; returns its error message if it keeps no tests.
    fn run(
        &self,
        library: &CargoProgram,
        directory: &DoctestDirectory,
    ) -> Result<Result<KeptDoctests, String>, MutateError> {
        let kept = match self.run_once(library, directory, &[])? {
            Ok(kept) if !kept.unassigned.is_empty() => kept,
            done => return Ok(done),
        };
        let words = kept.words_of_unassigned();
        if self.run_once(library, &directory.in_order(), &words)?.is_err() {
            return Ok(Ok(kept));
        }
        let failed = |source| MutateError::Doctests { path: directory.work(), source };
        Ok(Ok(directory.read().map_err(failed)?.unwrap_or(kept)))
    }

    fn run_once(
        &self,
        library: &CargoProgram,
        directory: &DoctestDirectory,
        words: &[String],
    ) -> Result<Result<KeptDoctests, String>, MutateError> {
        let work = directory.work();
        let failed = |source| MutateError::Doctests { path: work.clone(), source };
        directory.create(&heeler_sys::process::shared_program_path()).map_err(failed)?;
        let recorded: Vec<OsString> = library.args.iter().map(|word| self.in_root_source(word)).collect();
        let rustdoc = CargoProgram {
            args: directory.rustdoc_arguments(&recorded, self.runtime, words),
            cwd: self.in_root(&library.cwd),
            ..library.clone()
        };
        let output = run_rustdoc(&rustdoc, &work, self.supervision).map_err(MutateError::Cargo)?;
        directory.write_output(&output.stdout).map_err(failed)?;
        let kept = directory.read().map_err(failed)?;
        Ok(kept.ok_or_else(|| {
            let said = output.stderr.lines().find(|line| line.starts_with("error"));
            said.map_or_else(|| "compiled none".to_owned(), |line| format!("failed: {line}"))
        }))
    }

    /// Maps a path in the copy to the user's workspace; returns other paths unchanged.
    fn in_root(&self, path: &Path) -> PathBuf {
        self.below_tree(path).map_or_else(|| path.to_owned(), |below| self.root.join(below))
    }

    /// Returns a path relative to the copy; `None` if it is outside.
    fn below_tree(&self, path: &Path) -> Option<PathBuf> {
        let tree = self.place.tree();
        // Processes report their working directory without symbolic links.
        let seen = tree.canonicalize().unwrap_or_else(|_| tree.clone());
        path.strip_prefix(&tree).or_else(|_| path.strip_prefix(&seen)).ok().map(Path::to_owned)
    }

    /// Makes rustdoc read the user's source instead of the copy.
    fn in_root_source(&self, word: &OsString) -> OsString {
        let path = Path::new(word);
        let is_source = path.is_absolute() && path.extension().is_some_and(|extension| extension == "rs");
        if is_source { self.in_root(path).into_os_string() } else { word.clone() }
    }

    /// Returns a hash of what the tests are compiled from. Rebuilding the library changes the hash.
    fn key(&self, library: &CargoProgram) -> Fingerprint {
        let mut hash = self.fingerprint.with(library.path.as_os_str().as_encoded_bytes());
        for word in &library.args {
            hash = hash.with(word.as_encoded_bytes());
            let text = word.to_string_lossy();
            if let Some(built) = text.split_once('=').and_then(|(_, path)| fs::metadata(path).ok()) {
                let version = format!("{} {} {}", built.len(), built.mtime(), built.mtime_nsec());
                hash = hash.with(version.as_bytes());
            }
        }
        library.env.iter().fold(hash, |hash, (name, value)| {
            hash.with(name.as_encoded_bytes()).with(value.as_encoded_bytes())
        })
    }

    /// Returns a program whose entries are the tests, as commands.
    fn program(&self, library: &CargoProgram, tests: &[KeptDoctest]) -> TestProgram {
        let run_directory = run_directory(library);
        let cwd = self.below_tree(&library.cwd).map(|below| self.place.tree().join(below));
        let cwd = cwd.unwrap_or_else(|| library.cwd.clone());
        let entry = |test: &KeptDoctest| {
            let variables = test.variable.iter();
            let command = CommandTest {
                path: OsText::from(test.program.as_path()),
                args: Vec::new(),
                env: variables
                    .map(|(name, value)| (OsText::from(*name), Some(OsText::from(value.as_str()))))
                    .collect(),
                cwd: Some(OsText::from(run_directory.as_path())),
                rules: CommandRules {
                    will_fail: test.should_panic,
                    early_exit_codes: LIMIT_EXIT_CODES.to_vec(),
                    ..CommandRules::default()
                },
            };
            let (file, line) = test.place().unzip();
            ListedTest {
                name: test.name.clone(),
                file: file.map(|file| cwd.join(file).display().to_string()),
                line,
                selector: Some(command.to_selector()),
                ..ListedTest::default()
            }
        };
        TestProgram {
            entries: tests.iter().map(entry).collect(),
            framework: Some(CommandTest::FRAMEWORK.to_owned()),
            args: Vec::new(),
            ..library.clone().into_test_program()
        }
    }
}

/// Returns the directory where Cargo runs the tests of a library.
fn run_directory(library: &CargoProgram) -> PathBuf {
    let mut args = library.args.iter().skip_while(|word| *word != RUN_DIRECTORY);
    args.nth(1).map_or_else(|| library.cwd.clone(), |path| library.cwd.join(path))
}

/// Returns notes about the tests that were left out.
fn notes(suite: &str, kept: &KeptDoctests) -> Vec<String> {
    let named = |names: Vec<String>| {
        let more = names.len().saturating_sub(NAMED_TESTS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", names.into_iter().take(NAMED_TESTS).collect::<Vec<_>>().join(", "))
    };
    let mut notes = Vec::new();
    if !kept.uncompiled.is_empty() {
        let names = kept.uncompiled.iter().map(|test| format!("{} ({})", test.name, test.error)).collect();
        notes.push(format!(
            "{suite}: skipping documentation tests that do not compile against the mutated library: {}",
            named(names)
        ));
    }
    if !kept.unassigned.is_empty() {
        notes.push(format!(
            "{suite}: skipping documentation tests whose programs could not be identified: {}",
            named(kept.unassigned.clone())
        ));
    }
    notes
}
