//! A batch with a sink, for the tests.

use super::*;

/// A batch and its updates.
pub(super) struct BatchHarness {
    pub(super) batch: RunningBatch,
    pub(super) sink: LeaseUpdates,
}

impl BatchHarness {
    pub(super) fn with_lease(lease: WorkerLease) -> Self {
        let first = Iteration::first_of(lease.repeat);
        Self::with_iteration(lease, first)
    }

    pub(super) fn with_iteration(lease: WorkerLease, iteration: Iteration) -> Self {
        let mut sink = LeaseUpdates::new(&lease, WorkerId(1), 0);
        let batch = RunningBatch::new(lease, iteration, &mut sink, Box::new(FakeFramework));
        Self { batch, sink }
    }

    /// Returns the updates to hand over.
    pub(super) fn updates(&self) -> &UpdateBatch {
        &self.sink.batch
    }

    pub(super) fn with_tests(count: u32) -> Self {
        Self::with_lease(lease(count))
    }

    pub(super) fn chunk(&mut self, milliseconds: u64, events: impl Into<Vec<TranscriptEvent>>, stderr: &str) {
        let events = &mut events.into();
        let chunk = OutputChunk {
            events,
            outputs: RawOutputs { stdout: b"", stderr: stderr.as_bytes() },
            now: at(milliseconds),
        };
        self.batch.on_output(chunk, &mut self.sink);
        assert!(events.is_empty());
    }

    pub(super) fn finish(&mut self, milliseconds: u64, end: ProcessExit, word: TranscriptState) -> LeaseEnd {
        self.finish_as(milliseconds, process_exit(end, word))
    }

    pub(super) fn finish_as(&mut self, milliseconds: u64, gone: ProcessExitSummary) -> LeaseEnd {
        let end = self.batch.begin_end(gone, at(milliseconds), &mut self.sink);
        while self.batch.settle_decided(&mut self.sink) {}
        self.batch.end(end, &mut self.sink)
    }

    /// Returns the nodes sent to the client.
    pub(super) fn nodes(&self) -> Vec<TestNode> {
        let changes = self.updates().chunks().flat_map(|load| load.changes);
        changes.map(|change| serde_json::from_slice::<NodeChange>(change).unwrap().node).collect()
    }

    /// Returns the terminal nodes sent to the client.
    pub(super) fn results(&self) -> Vec<TestNode> {
        self.nodes().into_iter().filter(|node| node.state.unwrap().is_terminal()).collect()
    }

    pub(super) fn states(&self) -> Vec<(String, ExecutionState)> {
        self.results().into_iter().map(|node| (node.display_name, node.state.unwrap())).collect()
    }

    /// Returns the failed set-ups and tear-downs of suites, with their messages.
    pub(super) fn fixture_failures(&self) -> Vec<(String, String)> {
        let failure = |report: &LeaseEvent| match report {
            LeaseEvent::FixtureFailed { fixture, message } => Some((fixture.to_string(), message.clone())),
            _ => None,
        };
        self.updates().reports.iter().filter_map(failure).collect()
    }

    pub(super) fn records(&self) -> Vec<RunRecord> {
        let JournalContent { records, damage, .. } =
            journal::read(&[journal::MAGIC, &self.updates().journal].concat());
        assert_eq!(damage, None);
        let event = |record| if let JournalRecord::Event(event) = record { Some(event) } else { None };
        records.into_iter().filter_map(event).collect()
    }
}
