//! Writes the reports of a mutation run.

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
        MutationPhases, MutationReport, ScoreBounds, TestPlace, write_elements, write_page, write_sarif,
    },
};

use crate::error::MutateError;

/// The report files to write at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportFiles {
    /// Report in the mutation testing report schema.
    pub json: Option<PathBuf>,
    /// HTML page.
    pub html: Option<PathBuf>,
    /// SARIF, for code scanning.
    pub sarif: Option<PathBuf>,
}

impl ReportFiles {
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [&self.json, &self.html, &self.sarif].into_iter().flatten().cloned().collect()
    }
}

/// The input of the reports.
pub(crate) struct ReportedRun<'a> {
    pub(crate) results: &'a [MutantResult],
    pub(crate) sources: &'a BTreeMap<Arc<str>, Arc<str>>,
    pub(crate) root: &'a Path,
    pub(crate) tests: &'a BTreeMap<Arc<str>, TestPlace>,
    pub(crate) phases: Option<MutationPhases>,
}

type WriteReport = fn(&MutationReport<'_>, &mut dyn std::io::Write) -> Result<(), ReportError>;

impl ReportedRun<'_> {
    /// Writes the files; returns their paths.
    ///
    /// # Errors
    /// A file can't be written.
    pub(crate) fn write_files(&self, files: &ReportFiles) -> Result<Vec<String>, MutateError> {
        let report = MutationReport {
            results: self.results,
            sources: self.sources,
            directory: self.root,
            bounds: ScoreBounds::default(),
            tests: self.tests,
            phases: self.phases,
        };
        let wanted: [(&Option<PathBuf>, WriteReport); 3] =
            [(&files.json, write_elements), (&files.html, write_page), (&files.sarif, write_sarif)];
        let mut written = Vec::new();
        for (path, write) in wanted {
            let Some(path) = path else { continue };
            write_file(path, &mut |file| write(&report, file)).map_err(|error| match error {
                ReportError::Io(source) => MutateError::WriteFile { path: path.clone(), source },
                source @ ReportError::Json(_) => MutateError::WriteReport { path: path.clone(), source },
            })?;
            written.push(path.display().to_string());
        }
        Ok(written)
    }
}

/// Writes a file atomically, and creates its directory. Writes directly to anything that is not a regular
/// file, such as a pipe.
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
                // The error is reported, and the partial file is useless.
                let _stays = fs::remove_file(&partial);
            })
        }
    }
}
