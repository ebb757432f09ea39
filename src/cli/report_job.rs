//! Writing of a run's report files, on a thread of its own: a report may go to a pipe that nothing reads, and
//! the user must be able to end the command all the same.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use heeler_core::error_chain;
use heeler_report::{
    DetailSource, ReportContent, ReportRequest, ReportRunInfo, RunSummary, UnavailableDetails,
};
use heeler_run_store::{RecordedDetails, RecordedRun, ReportFileError};

/// The reports of one run.
pub(super) struct ReportJob {
    pub(super) requests: Vec<ReportRequest>,
    pub(super) summary: Arc<RunSummary>,
    /// Name of the profile.
    pub(super) name: String,
    pub(super) run_id: String,
    pub(super) start_utc: String,
    pub(super) duration: Duration,
    pub(super) state_dir: PathBuf,
}

/// A report that was requested, and its file.
pub(super) struct RequestedReport {
    pub(super) title: &'static str,
    pub(super) file: Result<PathBuf, ReportFileError>,
}

impl ReportJob {
    /// Starts to write. The receiver gets the reports in their order. Where the system has no thread left
    /// they are written here, and a pipe that nothing reads holds the command up.
    pub(super) fn start(self) -> oneshot::Receiver<Vec<RequestedReport>> {
        let (sender, receiver) = oneshot::channel();
        heeler_sys::own_thread::run("heeler-report", move || drop(sender.send(self.write())));
        receiver
    }

    /// Uses the results of the run as a whole. Of the outputs of failures that were too large to be kept in
    /// memory, and only of those, what the run has recorded is read.
    pub(super) fn with_content<T>(&self, use_content: impl FnOnce(&ReportContent<'_>) -> T) -> T {
        let recorded = self.summary.has_abridged_records().then(|| self.read_recorded());
        let details: Box<dyn DetailSource + '_> = match &recorded {
            Some(Ok(recorded)) => Box::new(RecordedDetails::new([recorded])),
            Some(Err(reason)) => Box::new(UnavailableDetails { reason: reason.clone() }),
            None => Box::new(UnavailableDetails { reason: "it is in the summary".to_owned() }),
        };
        let info = ReportRunInfo {
            name: &self.name,
            run: &self.run_id,
            start_utc: &self.start_utc,
            duration: self.duration,
        };
        use_content(&ReportContent { summary: &self.summary, info, details: details.as_ref() })
    }

    fn write(&self) -> Vec<RequestedReport> {
        self.with_content(|content| {
            let write = |request: &ReportRequest| RequestedReport {
                title: request.format.title,
                file: heeler_run_store::write_report(request, content),
            };
            self.requests.iter().map(write).collect()
        })
    }

    fn read_recorded(&self) -> Result<RecordedRun, String> {
        let dir = heeler_run_store::find_run_dir(&self.state_dir, &self.run_id)
            .ok_or_else(|| "the directory of the run is not found".to_owned())?;
        heeler_run_store::read_run_files(&dir).map_err(|error| error_chain(&error))
    }
}
