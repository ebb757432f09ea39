//! What each reader gets of the events of a lease: the journal, the client's stream, the coordinator and the
//! logs. Nothing is written or sent here.

use heeler_core::{ProcessEnd, RecordSink, RunRecord, TestStart};
use heeler_protocol::{
    control::{LeaseEvent, WorkerId, WorkerLease},
    journal,
};

use super::{node_writer::NodeWriter, update_batch::UpdateBatch};

/// The events of a lease that are not handed over yet, as their readers get them.
#[derive(Debug)]
pub(crate) struct LeaseUpdates {
    worker: WorkerId,
    nodes: NodeWriter,
    pub(crate) batch: UpdateBatch,
}

impl LeaseUpdates {
    /// Returns the updates of a lease for a run with `position` results in this worker's journal.
    pub(crate) fn new(lease: &WorkerLease, worker: WorkerId, position: u64) -> Self {
        Self { worker, nodes: NodeWriter::new(lease), batch: UpdateBatch::at_position(position) }
    }

    /// Adds the tests and groups of an extended lease.
    pub(crate) fn extend(&mut self, lease: &WorkerLease) {
        self.nodes.extend(lease);
    }
}

impl RecordSink for LeaseUpdates {
    fn record(&mut self, record: RunRecord) {
        let Self { worker, nodes, batch } = self;
        match record {
            RunRecord::Started(start) => {
                let TestStart { test, is_again, .. } = start;
                nodes.set_started(start);
                nodes.add_ancestor_groups(test, batch);
                journal::write(&mut batch.journal, &record);
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
            RunRecord::FilesKept(_)
            | RunRecord::ProcessStarted(_)
            | RunRecord::ProcessEnded(_)
            | RunRecord::SetUp { .. }
            | RunRecord::FixtureFailed { .. }
            | RunRecord::ProgramFailed(_)
            | RunRecord::Leaked { .. }
            | RunRecord::Log(_) => {
                journal::write(&mut batch.journal, &record);
                match record {
                    RunRecord::Log(line) => batch.logs.push(line),
                    record => batch.reports.extend(report_of(record)),
                }
            }
        }
    }
}

/// Returns what the coordinator learns of an event that is about no single test.
fn report_of(record: RunRecord) -> Option<LeaseEvent> {
    match record {
        RunRecord::FilesKept(files) => Some(LeaseEvent::FilesAttached { test: None, files }),
        RunRecord::SetUp { fixture, progress } => Some(LeaseEvent::SetUp { fixture, progress }),
        RunRecord::FixtureFailed { fixture, message } => Some(LeaseEvent::FixtureFailed { fixture, message }),
        RunRecord::Leaked { tests, processes } => Some(LeaseEvent::ProcessesLeaked { tests, processes }),
        RunRecord::ProcessEnded(ProcessEnd { tests, test, usage, .. }) => {
            usage.map(|usage| LeaseEvent::ProcessEnded { test, tests, usage })
        }
        _ => None,
    }
}
