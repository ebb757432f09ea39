//! What is written at the end of a run of mutants: report files, and annotations of GitHub Actions.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_mutant_model::MutantResult;
use heeler_report::{
    ReportError,
    mutation::{
        MutationPhases, MutationReport, ScoreBounds, TestPlace, mutant_annotations, write_elements,
        write_page, write_sarif,
    },
};

use super::error::MutateError;
use crate::cli::arguments::MutateArguments;

/// What the reports of a run are written from.
pub(super) struct ReportedRun<'a> {
    pub(super) results: &'a [MutantResult],
    pub(super) sources: &'a BTreeMap<Arc<str>, Arc<str>>,
    pub(super) root: &'a Path,
    pub(super) tests: &'a BTreeMap<Arc<str>, TestPlace>,
    pub(super) phases: Option<MutationPhases>,
}

type WriteReport = fn(&MutationReport<'_>, &mut dyn std::io::Write) -> Result<(), ReportError>;

impl ReportedRun<'_> {
    /// Writes the files that the arguments name; returns them.
    ///
    /// # Errors
    /// A file can't be written.
    pub(super) fn write_files(&self, arguments: &MutateArguments) -> Result<Vec<String>, MutateError> {
        let report = MutationReport {
            results: self.results,
            sources: self.sources,
            directory: self.root,
            bounds: ScoreBounds::default(),
            tests: self.tests,
            phases: self.phases,
        };
        let wanted: [(&Option<PathBuf>, WriteReport); 3] = [
            (&arguments.json, write_elements),
            (&arguments.html, write_page),
            (&arguments.sarif, write_sarif),
        ];
        let mut files = Vec::new();
        for (path, write) in wanted {
            let Some(path) = path else { continue };
            write_file(path, &mut |file| write(&report, file)).map_err(|error| match error {
                ReportError::Io(source) => MutateError::WriteFile { path: path.clone(), source },
                source @ ReportError::Json(_) => MutateError::WriteReport { path: path.clone(), source },
            })?;
            files.push(path.display().to_string());
        }
        Ok(files)
    }

    /// Returns the annotations of survivors and of code that no test reaches, each a line.
    pub(super) fn annotations(&self) -> Vec<String> {
        let repository = self.root.ancestors().find(|dir| dir.join(".git").exists());
        mutant_annotations(self.results, self.root, repository.unwrap_or(self.root))
    }
}

/// Writes a file as a whole, and makes its directory. What is no regular file, such as a pipe, is written to.
fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir)?;
    }
    let mut write_to = |file: File| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        Ok(file.flush()?)
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => write_to(File::create(path)?),
        Ok(_) | Err(_) => {
            let mut name = std::ffi::OsString::from(".");
            name.push(path.file_name().unwrap_or_default());
            name.push(format!(".{}.partial", std::process::id()));
            let partial = path.with_file_name(name);
            let written = write_to(File::create(&partial)?).and_then(|()| Ok(fs::rename(&partial, path)?));
            written.inspect_err(|_| {
                // The reason for the failure is reported; the partial file is useless.
                let _stays = fs::remove_file(&partial);
            })
        }
    }
}
