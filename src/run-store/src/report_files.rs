//! Writes report files of runs, from a summary or from a run's files.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use heeler_core::error_chain;
use heeler_report::{PassedOutputs, ReportContent, ReportError, ReportRequest, ReportRunInfo, RunSummary};

use super::{RecordedDetails, RecordedRun, RecordedRunError, read_run_files};

/// Error of writing a report file.
#[derive(Debug, thiserror::Error)]
pub enum ReportFileError {
    /// The run's record can't be read.
    #[error("read the run for its reports")]
    Run(#[source] RecordedRunError),
    /// The file can't be created or moved into place.
    #[error("write {path}")]
    File { path: String, source: io::Error },
    /// The report can't be written to the file.
    #[error("write the {format} report {path}")]
    Report { format: &'static str, path: String, source: ReportError },
}

/// Writes a report, and returns its file. Creates missing parent directories.
///
/// A regular file is replaced atomically, so that a reader never sees part of a report. Anything else at the
/// path, such as a pipe, is written directly.
///
/// # Errors
/// The file can't be written.
pub fn write_report(
    request: &ReportRequest,
    content: &ReportContent<'_>,
) -> Result<PathBuf, ReportFileError> {
    let path = request.file_for_run(content.info.run);
    let failed = |source| ReportFileError::File { path: path.display().to_string(), source };
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let summary = content.summary.without_passed_outputs();
    let root = report_root(content.info.root, |name| std::env::var_os(name));
    let info = ReportRunInfo { root: &root, ..content.info };
    let content = &ReportContent { summary: &summary, info, ..*content };
    let partial = partial_file(&path);
    let mut file = BufWriter::new(File::create(partial.as_deref().unwrap_or(&path)).map_err(failed)?);
    let written = (request.format.write)(content, &mut file).and_then(|()| Ok(file.flush()?));
    // Some file systems report a full disk or quota only when data leaves the cache, so sync the file. A
    // pipe can't be synced.
    let written = written.and_then(|()| match partial.is_some() {
        true => Ok(file.get_ref().sync_data()?),
        false => Ok(()),
    });
    drop(file);
    let written = written.map_err(|source| ReportFileError::Report {
        format: request.format.title,
        path: path.display().to_string(),
        source,
    });
    if let Some(partial) = &partial {
        let placed = written.and_then(|()| fs::rename(partial, &path).map_err(failed));
        return placed.map(|()| path.clone()).inspect_err(|_| {
            // The caller reports the error; the partial file is useless.
            let _stays = fs::remove_file(partial);
        });
    }
    written.map(|()| path)
}

/// Variables in which CI services name the checkout, where they look for sources and attached files.
const CHECKOUT_VARIABLES: [&str; 2] = ["CI_PROJECT_DIR", "GITHUB_WORKSPACE"];

/// Returns the directory that paths in a report are relative to: the checkout of a CI service, otherwise the
/// root of the workspace around the run's working directory, otherwise that directory.
fn report_root(working_dir: &Path, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    // A client that starts the server itself has no working directory.
    let current_dir = || std::env::current_dir().unwrap_or_default();
    let mut checkouts = CHECKOUT_VARIABLES.iter().filter_map(|name| variable(name).map(PathBuf::from));
    if let Some(checkout) = checkouts.find(|dir| dir.is_absolute()) {
        return checkout;
    }
    let dir = if working_dir.as_os_str().is_empty() { current_dir() } else { working_dir.to_owned() };
    heeler_sys::workspace::workspace_root(&dir, std::env::home_dir().as_deref()).unwrap_or(dir)
}

/// Returns the file to write first and then rename; `None` if the path exists and is not a regular file.
fn partial_file(path: &Path) -> Option<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return None,
        Ok(_) | Err(_) => {}
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name()?.to_string_lossy();
    // A file name may have at most 255 bytes.
    let name = &name[..name.floor_char_boundary(200)];
    Some(path.with_file_name(format!(".{name}.{}-{number}.partial", std::process::id())))
}

/// Writes the reports of a run that has just ended, from the files in its directory. The run's lock may still
/// be held. Returns the error of each report that could not be written.
pub fn write_run_reports(dir: &Path, requests: &[ReportRequest]) -> Vec<ReportFileError> {
    let run = match read_run_files(dir) {
        Ok(run) => run,
        Err(error) => return vec![ReportFileError::Run(error)],
    };
    for loss in &run.losses {
        tracing::warn!(dir = %dir.display(), loss, "results are missing from the reports of this run");
    }
    let summary = run.summarise();
    let details = RecordedDetails::new([&run]);
    let content = ReportContent { summary: &summary, info: run.report_info(), details: &details };
    let written = requests.iter().map(|request| write_report(request, &content));
    let written = written.inspect(|written| match written {
        Ok(path) => tracing::debug!(path = %path.display(), "wrote a report"),
        Err(error) => tracing::warn!(error = error_chain(error), "failed to write a report"),
    });
    written.filter_map(Result::err).collect()
}

impl RecordedRun {
    /// Returns the run's summary, equal to the summary of the command that ran it.
    #[must_use]
    pub fn summarise(&self) -> RunSummary {
        self.summarise_with(PassedOutputs::Dropped)
    }

    /// Returns the summary with or without the outputs of passed tests.
    #[must_use]
    pub fn summarise_with(&self, outputs: PassedOutputs) -> RunSummary {
        let mut summary = RunSummary::new(Some(self.selected_count())).with_passed_outputs(outputs);
        self.add_to(&mut summary);
        summary
    }

    /// Returns the number of selected tests. Programs that can't be listed do not count as tests.
    pub(super) fn selected_count(&self) -> usize {
        let plan = &self.manifest.plan;
        plan.selected_tests().filter(|(_, test)| test.uid != plan.suite(test)).count()
    }

    /// Adds the run's results to a summary.
    pub(super) fn add_to(&self, summary: &mut RunSummary) {
        summary.add_reports(self.reports());
        if let Some(end) = &self.end {
            summary.add_leaks(&end.result.leaks);
            summary.add_shared_processes(&end.result.largest);
        }
    }

    /// Returns the run's attributes for its reports.
    #[must_use]
    pub fn report_info(&self) -> ReportRunInfo<'_> {
        let head = &self.manifest.head;
        ReportRunInfo {
            name: &head.profile,
            run: &head.run,
            start_utc: &head.began_utc,
            duration: self.duration(),
            root: head.origin.cwd.as_path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heeler_report::{UnavailableDetails, find_report_format};

    use super::*;

    fn write(file: &Path) -> Result<PathBuf, ReportFileError> {
        let format = find_report_format("junit").unwrap();
        let info = ReportRunInfo {
            name: "n",
            run: "r",
            start_utc: "",
            duration: Duration::ZERO,
            root: Path::new(""),
        };
        let details = UnavailableDetails { reason: "none are needed".to_owned() };
        let content = ReportContent { summary: &RunSummary::new(None), info, details: &details };
        write_report(&ReportRequest { format, file: file.to_owned() }, &content)
    }

    #[test]
    fn paths_are_relative_to_the_checkout_or_else_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("project/below");
        fs::create_dir_all(&below).unwrap();
        let root = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            report_root(&below, value)
        };
        let (gitlab, github) = (("CI_PROJECT_DIR", "/c"), ("GITHUB_WORKSPACE", "/g"));
        assert_eq!(root(&[github, gitlab]), Path::new("/c"));
        assert_eq!(root(&[github]), Path::new("/g"));
        assert_eq!(root(&[("CI_PROJECT_DIR", "")]), below);
        fs::create_dir(dir.path().join("project/.git")).unwrap();
        assert_eq!(root(&[("CI_PROJECT_DIR", "relative")]), dir.path().join("project"));
        assert_eq!(
            report_root(Path::new(""), |_| None),
            report_root(&std::env::current_dir().unwrap(), |_| None)
        );
    }

    #[test]
    fn report_replaces_a_file_and_leaves_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new").join("{run}.xml");
        for _ in 0..2 {
            let written = write(&file).unwrap();
            assert_eq!(written, dir.path().join("new/r.xml"));
            assert!(fs::read_to_string(&written).unwrap().contains("<testsuites"));
        }
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn report_to_a_directory_fails_and_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path()).unwrap_err();
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }

    #[test]
    fn report_to_a_link_goes_to_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&target).unwrap().contains("<testsuites"));
    }
}
