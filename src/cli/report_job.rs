//! Writes a run's report files on a separate thread. A report may go to a pipe that nothing reads, and the
//! user must still be able to end the command.

use std::{
    cell::OnceCell,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use heeler_config::ResolvedSettings;
use heeler_core::error_chain;
use heeler_protocol::mtp::LogLevel;
use heeler_report::{
    DetailSource, PassedOutputs, ReportContent, ReportRequest, ReportRunInfo, RunExplanation, RunSummary,
    UnavailableDetails, explain_run,
};
use heeler_run_store::{RecordedDetails, RecordedRun, ReportFileError, RunTimes, measured_run};

use super::{display::RunDisplay, signals::SignalListener};

/// Reports of one run.
///
/// Reports are generated from the run's record, as by `heeler report`, so both write the same bytes. The
/// results seen by this process are used if the record is incomplete (full disk, or journals at their limit).
pub(super) struct ReportJob {
    requests: Vec<ReportRequest>,
    /// Results received during the run.
    seen: Arc<RunSummary>,
    outputs: PassedOutputs,
    /// Name of the profile.
    name: String,
    run_id: String,
    times: RunTimes,
    /// Working directory of the run.
    working_dir: PathBuf,
    /// The run's directory, if its end is recorded there.
    recorded_dir: Option<PathBuf>,
    /// Record of the run; read once for outputs and reports.
    recorded: OnceCell<Result<RecordedRun, String>>,
}

struct RequestedReport {
    title: &'static str,
    file: Result<PathBuf, ReportFileError>,
}

/// Result of writing the reports.
#[derive(Default)]
pub(super) struct WrittenReports {
    /// Title and path of each file.
    pub(super) files: Vec<(String, String)>,
    /// First error; ends the command.
    pub(super) failed: Option<ReportFileError>,
    /// Whether the user did not wait for all reports.
    pub(super) is_left: bool,
}

impl ReportJob {
    /// Creates the reports of a run. `seen` and `seen_times` are used if the run's end is not recorded.
    pub(super) fn new(
        settings: &ResolvedSettings,
        requests: Vec<ReportRequest>,
        run_id: &str,
        seen: Arc<RunSummary>,
        seen_times: RunTimes,
    ) -> Self {
        let dir = heeler_run_store::find_run_dir(&settings.state_dir, run_id);
        let recorded = dir.and_then(|dir| Some((RunTimes::read(&dir)?, dir)));
        let (times, recorded_dir) = recorded.map_or((seen_times, None), |(times, dir)| (times, Some(dir)));
        Self {
            requests,
            seen,
            outputs: passed_outputs(settings),
            name: settings.profile.clone(),
            run_id: run_id.to_owned(),
            times,
            // The path stays empty if the directory no longer exists, as in the run's record.
            working_dir: std::env::current_dir().unwrap_or_default(),
            recorded_dir,
            recorded: OnceCell::new(),
        }
    }

    /// Returns the duration of the run.
    pub(super) fn duration(&self) -> Duration {
        self.times.duration
    }

    /// Explains the duration of the run from its record. Returns the reason if that can't be read.
    pub(super) fn explain(&self) -> Result<RunExplanation, String> {
        let recorded = self.recorded.get_or_init(|| self.read_recorded());
        recorded.as_ref().map(|run| explain_run(&measured_run(run))).map_err(Clone::clone)
    }

    /// Prints the final outputs, and writes the reports. The user may interrupt the writing.
    ///
    /// Cancel safe: no, because the written reports would be unknown.
    pub(super) async fn finish(
        self,
        display: &mut RunDisplay,
        signals: &mut SignalListener,
    ) -> WrittenReports {
        if display.has_final_outputs() {
            self.with_content(|content| display.print_final_outputs(content, Instant::now()));
        }
        if self.requests.is_empty() {
            return WrittenReports::default();
        }
        let Some(reports) = await_reports(self.start(), signals).await else {
            display.log(LogLevel::Error, "interrupted before all reports were written");
            return WrittenReports { is_left: true, ..WrittenReports::default() };
        };
        let mut written = WrittenReports::default();
        for RequestedReport { title, file } in reports {
            match file {
                Ok(path) => written.files.push((format!("{title} report"), path.display().to_string())),
                // The first error ends the command after all reports were tried.
                Err(error) if written.failed.is_some() => {
                    display.log(LogLevel::Error, &format!("failed to {}", error_chain(&error)));
                }
                Err(error) => written.failed = Some(error),
            }
        }
        written
    }

    /// Starts writing; the receiver gets the reports in order. If the system has no thread left, the reports
    /// are written on this thread, where a pipe that nothing reads blocks the command.
    fn start(self) -> oneshot::Receiver<Vec<RequestedReport>> {
        let (sender, receiver) = oneshot::channel();
        heeler_sys::own_thread::run("heeler-report", move || drop(sender.send(self.write())));
        receiver
    }

    /// Calls `use_content` with the complete results of the run.
    fn with_content<T>(&self, use_content: impl FnOnce(&ReportContent<'_>) -> T) -> T {
        let recorded = self.recorded.get_or_init(|| self.read_recorded());
        if let Ok(run) = recorded
            && run.losses.is_empty()
            && !run.lacks_outputs
        {
            let summary = run.summarise_with(self.outputs);
            let details = RecordedDetails::new([run]);
            return use_content(&ReportContent {
                summary: &summary,
                info: run.report_info(),
                details: &details,
            });
        }
        let details: Box<dyn DetailSource + '_> = match recorded {
            Ok(run) => Box::new(RecordedDetails::new([run])),
            Err(reason) => Box::new(UnavailableDetails { reason: reason.clone() }),
        };
        let info = ReportRunInfo {
            name: &self.name,
            run: &self.run_id,
            start_utc: &self.times.start_utc,
            duration: self.times.duration,
            root: &self.working_dir,
        };
        use_content(&ReportContent { summary: &self.seen, info, details: details.as_ref() })
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
        let dir =
            self.recorded_dir.as_ref().ok_or_else(|| "the end of the run is not recorded".to_owned())?;
        heeler_run_store::read_run_files(dir).map_err(|error| error_chain(&error))
    }
}

/// Returns whether reports need the outputs of passed tests.
pub(super) fn passed_outputs(settings: &ResolvedSettings) -> PassedOutputs {
    if settings.run.success_output.is_final() { PassedOutputs::Kept } else { PassedOutputs::Dropped }
}

/// Waits for the reports; `None` when the user ends the command first, or when the writing thread has
/// failed.
async fn await_reports(
    reports: oneshot::Receiver<Vec<RequestedReport>>,
    signals: &mut SignalListener,
) -> Option<Vec<RequestedReport>> {
    tokio::select! {
        written = reports => written.ok(),
        () = signals.end_requested() => None,
    }
}
