//! Converts the events of a lease into the form that each reader gets: the journal, the client's stream, the
//! coordinator and the logs. Nothing is written or sent here.

use heeler_core::{ProcessEnd, RecordSink, RunRecord, TestStart};
use heeler_protocol::{
    control::{LeaseEvent, WorkerId, WorkerLease},
    journal,
};

use super::{node_writer::NodeWriter, update_batch::UpdateBatch};

/// Events of a lease that are not handed over yet, in the form for each reader.
#[derive(Debug)]
pub(crate) struct LeaseUpdates {
    worker: WorkerId,
    nodes: NodeWriter,
    pub(crate) batch: UpdateBatch,
}

impl LeaseUpdates {
    /// Creates the updates of a lease. `position`: number of the run's results in this worker's journal.
    pub(crate) fn new(lease: &WorkerLease, worker: WorkerId, position: u64) -> Self {
        Self { worker, nodes: NodeWriter::new(lease), batch: UpdateBatch::at_position(position) }
    }

    pub(crate) fn extend(&mut self, lease: &WorkerLease) {
        self.nodes.extend(lease);
    }
}

impl RecordSink for LeaseUpdates {
    fn record(&mut self, record: RunRecord) {
        let Self { worker, nodes, batch } = self;
        // The batch writes results to the journal itself, without outputs if the journal is full.
        if !matches!(record, RunRecord::Finished { .. } | RunRecord::Provisional { .. }) {
            journal::write(&mut batch.journal, &record);
        }
        // Pass the record to the client's stream, the coordinator or the log.
        match record {
            RunRecord::Started(start) => {
                let TestStart { test, is_again, .. } = start;
                nodes.set_started(start);
                nodes.add_ancestor_groups(test, batch);
                if is_again {
                    batch.reports.push(LeaseEvent::Started(test));
                } else {
                    batch.add_started(test, |out| nodes.write_in_progress(out, test, *worker));
                }
            }
            RunRecord::Output { test, text } => {
                batch.add_output(test, |out| nodes.write_output(out, test, &text));
            }
            RunRecord::IterationPassed { test, duration_us } => {
                batch.reports.push(LeaseEvent::IterationPassed { test, duration_us });
            }
            RunRecord::Held { test, is_alone } => {
                if !is_alone {
                    batch.reports.push(LeaseEvent::Held(test));
                }
                batch.leave_out_start(test);
            }
            RunRecord::Provisional { test, attempt, next } => batch.add_provisional(test, attempt, next),
            RunRecord::Finished { test, mut result } => {
                result.worker = Some(worker.0);
                nodes.add_ancestor_groups(test, batch);
                batch.add_settled(test, &result, |out| nodes.write_terminal(out, test, &result));
            }
            RunRecord::FilesKept(files) => {
                batch.reports.push(LeaseEvent::FilesAttached { test: None, files });
            }
            RunRecord::ProcessEnded(ProcessEnd { tests, test, usage, .. }) => {
                let report = usage.map(|usage| LeaseEvent::ProcessEnded { test, tests, usage });
                batch.reports.extend(report);
            }
            RunRecord::SetUp { fixture, progress } => {
                batch.reports.push(LeaseEvent::SetUp { fixture, progress });
            }
            RunRecord::FixtureFailed { fixture, message } => {
                batch.reports.push(LeaseEvent::FixtureFailed { fixture, message });
            }
            RunRecord::Leaked { tests, processes } => {
                batch.reports.push(LeaseEvent::ProcessesLeaked { tests, processes });
            }
            RunRecord::Log(line) => batch.logs.push(line),
            // The coordinator granted the lease and detects program failures itself.
            RunRecord::ProcessStarted(_) | RunRecord::ProgramFailed(_) => {}
        }
    }
}
