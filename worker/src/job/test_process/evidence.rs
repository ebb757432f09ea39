//! Evidence of a test process: what it leaves about its death, and the files of its tests.

use heeler_adapters::{DeathCulprit, DeathEvidence};
use heeler_protocol::{
    control::{LeaseEnd, ProcessExit, TestDiagnostics, ToGuard},
    mtp::LogLevel,
};
use tokio::{sync::oneshot, time::Instant};

use super::{super::death_files::ReportStep, RunningProcess, TranscriptReader};

impl RunningProcess<'_> {
    /// Asks a process at its limit for its stacks, if its runtime reports them; returns whether its end waits
    /// for them.
    pub(super) async fn is_report_awaited(&mut self) -> bool {
        let step = self.death_files.begin_report(Instant::now());
        if let ReportStep::Ask(signal) = step {
            self.process.send(ToGuard::ReportStacks { signal: signal.0 }).await;
        }
        step != ReportStep::End
    }

    /// Logs which evidence of a crash or hang could not be kept, and why.
    pub(super) fn log_evidence_losses(&mut self, evidence: Option<&TestDiagnostics>, end: &ProcessExit) {
        let test = self.affected_test();
        for note in evidence.iter().flat_map(|evidence| &evidence.notes) {
            let text = format!("not all of its evidence could be kept: {note}");
            self.sink.add_log_line(test, LogLevel::Warning, text);
        }
        if end.code.is_none() && end.signal.is_none() {
            self.diagnostics.remove_partial_files();
        }
    }

    /// Reads what a process that has died or hung has left about that.
    pub(super) fn read_death_files(&mut self) {
        let is_ending = self.process.is_terminating() || self.death_files.is_report_begun();
        let has_died = !is_ending && !self.reader.transcript.is_complete();
        if has_died {
            self.read_death_evidence();
        }
        let affected = self.batch.test_of_death(self.reader.transcript.culprit());
        let test = affected.as_ref().map(|(test, _)| &test.listed);
        if let Some((stacks, report)) = self.death_files.stacks(self.root, test, has_died) {
            self.diagnostics.record_runtime_report(stacks, report);
        }
    }

    fn read_death_evidence(&mut self) {
        let Some(left) = self.death_files.read(self.root) else { return };
        let evidence =
            DeathEvidence { stderr: &left.stderr, crash_report: &left.crash_report, journal: &left.journal };
        let TranscriptReader { transcript, events, .. } = &mut self.reader;
        transcript.on_death(&evidence, events);
        if transcript.culprit() == DeathCulprit::Unknown {
            self.context.unclear_deaths.record(self.death_files.program());
        }
    }

    /// Removes the temporary directory of the tests. What they have left there is kept if any of them, or
    /// their process, has failed.
    pub(super) async fn remove_test_directory(&mut self, end: &LeaseEnd) {
        // An empty one, which most are, is removed at once.
        let Some(directory) = self.test_directory.take().filter(|directory| !directory.is_empty()) else {
            return;
        };
        let has_failed = match end {
            LeaseEnd::BadExit { .. } | LeaseEnd::DiedInTest { .. } | LeaseEnd::DiedOutsideTest { .. } => true,
            LeaseEnd::StartTimedOut { .. }
            | LeaseEnd::Complete
            | LeaseEnd::NotStarted { .. }
            | LeaseEnd::GuardLost { .. }
            | LeaseEnd::Cancelled => self.batch.settlement.has_failures(),
        };
        let target = has_failed.then(|| self.diagnostics.kept_directory());
        let kept_in = target.clone();
        let (report, removed) = oneshot::channel();
        // Beside the runtime's thread, which goes on to serve the worker's messages.
        heeler_sys::own_thread::run("heeler-remove", move || {
            let kept = target.map(|target| directory.keep(&target));
            // Removed before the report: the next process of the lease has a directory of the same path.
            drop(directory);
            drop(report.send(kept));
        });
        let text = match (removed.await, kept_in) {
            (Ok(Some(Ok(true))), Some(target)) => {
                format!("files of the tests' temporary directory are kept in {}", target.display())
            }
            (Ok(Some(Err(error))), _) => {
                format!("files of the tests' temporary directory could not be kept: {error}")
            }
            // There was nothing to keep.
            (Ok(_) | Err(_), _) => return,
        };
        self.sink.add_log_line(self.affected_test(), LogLevel::Information, text);
    }
}
