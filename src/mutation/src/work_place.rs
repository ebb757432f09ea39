//! The working directory of a project's mutants, below the state directory: the copy, and files for later
//! runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use heeler_sys::liveness_lock::{self, LivenessLock};

use crate::{error::MutateError, kept_reports::KeptReports};

/// File next to the copy that lists the written reports.
const REPORTS: &str = "reports";

/// The working directory of one project. No other process uses it at the same time.
#[derive(Debug)]
pub(crate) struct WorkPlace {
    dir: PathBuf,
    /// The user's state directory, which is not copied.
    state_dir: PathBuf,
    /// Files not to copy: the reports of this run and of earlier runs.
    reports: Vec<PathBuf>,
    _lock: LivenessLock,
}

impl WorkPlace {
    /// Creates the working directory of a project below the state directory.
    ///
    /// # Errors
    /// The directory can't be created, or another process uses it.
    pub(crate) fn open(state_dir: &Path, root: &Path) -> Result<Self, MutateError> {
        let state_dir = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        // Several projects may share a state directory.
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let id = heeler_run_store::unpredictable_name(&[root.as_os_str().as_encoded_bytes()]);
        let dir = state_dir.join("mutate").join(format!("{name}-{id}"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| MutateError::MakeDirectory { path, source }
        };
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        heeler_run_store::exclude_from_git(&state_dir);
        let lock = dir.join("lock");
        if liveness_lock::is_held(&lock).map_err(failed(&lock))? {
            return Err(MutateError::Busy { path: dir });
        }
        let held = LivenessLock::acquire(&lock).map_err(failed(&lock))?;
        let reports = KeptReports::read(&dir.join(REPORTS)).unchanged();
        Ok(Self { dir, state_dir, reports, _lock: held })
    }

    /// Excludes report files from the copy, because their contents do not affect any test.
    pub(crate) fn leave_out_reports(&mut self, files: Vec<PathBuf>) {
        self.reports.extend(files.into_iter().map(|file| std::path::absolute(&file).unwrap_or(file)));
    }

    /// Returns the file that lists the written reports.
    pub(crate) fn reports(&self) -> PathBuf {
        self.dir.join(REPORTS)
    }

    pub(crate) fn left_out_files(&self) -> &[PathBuf] {
        &self.reports
    }

    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Returns the file of verdicts for later runs.
    pub(crate) fn verdicts(&self) -> PathBuf {
        self.dir.join("verdicts.json")
    }

    /// Returns the file of durations and coverage for later runs.
    pub(crate) fn baseline(&self) -> PathBuf {
        self.dir.join("baseline.json")
    }

    /// Returns the directory for runs in progress.
    pub(crate) fn session(&self) -> PathBuf {
        self.dir.join("session")
    }

    /// Returns the directory of the coverage files.
    pub(crate) fn coverage(&self) -> PathBuf {
        self.dir.join("coverage")
    }
}
