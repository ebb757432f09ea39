//! Passes the reports of one test process to its batch.

use heeler_adapters::{DeathCulprit, DeathEvidence, TranscriptEvent, TranscriptParser};
use heeler_core::{RecordSink as _, RunRecord};
use heeler_sys::process::Pid;

use super::{death_files::DeathFileReader, kept_files::FileKeeper, result_sink::ResultSink};
use crate::{
    batch::{OutputChunk, RawOutputs, RunningBatch},
    process::{process_clock::ProcessClock, worker_context::WorkerContext},
};

/// Turns the output of a test process into events for its batch.
pub(super) struct TranscriptReader {
    pub(super) transcript: Box<dyn TranscriptParser + Send>,
    /// Events not passed on yet.
    pub(super) events: Vec<TranscriptEvent>,
    /// Keeps the files named by events.
    pub(super) keeper: FileKeeper,
}

impl TranscriptReader {
    /// Passes events and raw outputs to the batch, and hands over the resulting updates.
    pub(super) fn pass_on(
        &mut self,
        outputs: RawOutputs<'_>,
        clock: &ProcessClock,
        batch: &mut RunningBatch,
        sink: &mut ResultSink,
    ) {
        for (fixture, progress) in self.transcript.take_set_ups() {
            sink.record(RunRecord::SetUp { fixture, progress });
        }
        if self.events.is_empty() && outputs.is_empty() {
            batch.deadlines.note_tear_down(self.transcript.may_be_in_tear_down(), clock.now());
            return sink.try_send_batch();
        }
        self.keeper.keep_named(&self.events, batch, sink);
        let chunk = OutputChunk { events: &mut self.events, outputs, now: clock.now() };
        batch.on_output(chunk, sink);
        sink.show(batch.take_shown());
        batch.deadlines.note_tear_down(self.transcript.may_be_in_tear_down(), clock.now());
        sink.try_send_batch();
    }

    /// Reads the files that a dead process wrote about its death.
    pub(super) fn read_death_evidence(
        &mut self,
        files: &DeathFileReader,
        root: Option<Pid>,
        context: &WorkerContext,
    ) {
        let Some(left) = files.read(root) else { return };
        let evidence =
            DeathEvidence { stderr: &left.stderr, crash_report: &left.crash_report, journal: &left.journal };
        self.transcript.on_death(&evidence, &mut self.events);
        if self.transcript.culprit() == DeathCulprit::Unknown {
            context.unclear_deaths.record(files.program());
        }
    }
}
