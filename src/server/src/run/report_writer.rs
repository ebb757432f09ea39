//! Writes the report files of completed runs from each run's files. Writing happens outside the scheduler, so
//! the completion and other runs do not wait for it.

use std::{sync::Arc, time::Duration};

use heeler_core::error_chain;
use heeler_report::ReportRequest;
use heeler_run_store::{RunDir, write_run_reports};
use tokio::sync::Semaphore;

/// Maximum number of runs whose reports are being written at the same time.
const MAX_RUNS: u32 = 16;
/// Time limit for unfinished reports at the end of the session.
const DEADLINE: Duration = Duration::from_secs(10);

/// Writes the report files of the runs of one session.
#[derive(Debug, Clone)]
pub(crate) struct ReportFileWriter {
    requests: Arc<[ReportRequest]>,
    /// One permit for each run whose reports are being written.
    runs: Arc<Semaphore>,
}

impl ReportFileWriter {
    pub(crate) fn new(requests: &[ReportRequest]) -> Self {
        Self { requests: requests.into(), runs: Arc::new(Semaphore::new(MAX_RUNS as usize)) }
    }

    /// Starts writing the reports of a completed run. The run's directory stays locked until they are
    /// written; otherwise another run could remove it. `warn` passes a warning to the client.
    pub(crate) fn start(&self, run_dir: &RunDir, warn: impl Fn(String) + Send + 'static) {
        if self.requests.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.runs).try_acquire_owned() else {
            let problem = format!(
                "skipping the reports of the run in {}: the reports of {MAX_RUNS} other runs are still being written",
                run_dir.path.display()
            );
            tracing::warn!(problem);
            return warn(problem);
        };
        let (requests, run_dir) = (Arc::clone(&self.requests), run_dir.clone());
        drop(tokio::task::spawn_blocking(move || {
            for error in write_run_reports(&run_dir.path, &requests) {
                let problem = format!("failed to {}", error_chain(&error));
                tracing::warn!(problem);
                warn(problem);
            }
            drop(permit);
        }));
    }

    /// Waits for the reports that are being written.
    ///
    /// Cancel safe: yes.
    pub(crate) async fn finish(&self) {
        if tokio::time::timeout(DEADLINE, self.runs.acquire_many(MAX_RUNS)).await.is_err() {
            tracing::warn!("some reports were not written within {} s", DEADLINE.as_secs());
        }
    }
}
