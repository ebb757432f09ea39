//! Extends a lease with further tests for the same process when its own tests have ended.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_adapters::{
    Adapter, BatchSelection, CommandLineError, InvocationChannel, SelectionScope, TranscriptParser,
};
use heeler_protocol::control::{ListedTest, TestProgram, WorkerLease};
use tokio::sync::mpsc::error::TrySendError;

use super::{prepared_lease::listed_tests, result_sink::ResultSink};
use crate::{batch::RunningBatch, process::process_clock::ClockReading};

/// Whether and when a lease can be extended.
#[derive(Debug)]
pub(super) enum LeaseExtension {
    /// The process ends with the lease's tests.
    Impossible,
    /// The lease can be extended once its tests have ended.
    Possible(ExtensionCheck),
    /// The tests have ended, and the coordinator has been notified.
    Awaited(ExtensionCheck),
}

/// Checks whether the process can run a given test.
#[derive(Clone)]
pub(super) struct ExtensionCheck {
    adapter: &'static dyn Adapter,
    program: Arc<TestProgram>,
    runs_ignored: bool,
    scratch: PathBuf,
}

impl std::fmt::Debug for ExtensionCheck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ExtensionCheck").field(&self.adapter.traits().name).finish()
    }
}

impl LeaseExtension {
    /// Returns whether a lease can be extended if its process receives requests on this channel.
    pub(super) fn on(channel: InvocationChannel, check: Option<ExtensionCheck>) -> Self {
        match check {
            Some(check) if channel.has_requests() => Self::Possible(check),
            Some(_) | None => Self::Impossible,
        }
    }

    /// Returns whether the process can run more tests: its own tests are settled, it still accepts requests,
    /// and it is not being ended.
    pub(super) fn may_follow(&self, transcript: &dyn TranscriptParser, batch: &RunningBatch) -> bool {
        !matches!(self, Self::Impossible) && transcript.takes_more_tests() && batch.is_settled()
    }

    /// Tells the coordinator that the process waits for tests, once its own tests are reported.
    pub(super) fn report_idle(
        &mut self,
        transcript: &dyn TranscriptParser,
        batch: &mut RunningBatch,
        sink: &mut ResultSink,
        now: ClockReading,
    ) {
        if !matches!(self, Self::Possible(_)) || !self.may_follow(transcript, batch) {
            return;
        }
        batch.deadlines.set_waiting(true, now);
        // Hand over blocked updates first. The sender notifies us when it has room again.
        sink.try_send_batch();
        if sink.is_blocked() {
            return;
        }
        match sink.try_send_idle() {
            Ok(()) => self.turn(Self::Awaited),
            // Retried at the next event of the process, or at the next clock check.
            Err(TrySendError::Full(_)) => {}
            // The coordinator has disconnected, so this worker is about to exit.
            Err(TrySendError::Closed(_)) => *self = Self::Impossible,
        }
    }

    /// Adds the tests of an extended lease to the batch and returns their indexes. A process that has ended,
    /// or is being ended, gets none: the coordinator leases these tests again.
    pub(super) fn extend(
        &mut self,
        lease: WorkerLease,
        transcript: &dyn TranscriptParser,
        batch: &mut RunningBatch,
        sink: &mut ResultSink,
    ) -> Option<Range<usize>> {
        let Self::Awaited(check) = &*self else { return None };
        if lease.lease != sink.lease || !self.may_follow(transcript, batch) {
            return None;
        }
        sink.extend(&lease);
        let mut added = batch.extend(lease, sink);
        while let Some((place, reason)) = check.unselectable_test(&listed_tests(batch)[added.clone()]) {
            batch.refuse(added.start + place, &reason, sink);
            added.end -= 1;
        }
        self.turn(Self::Possible);
        Some(added)
    }

    fn turn(&mut self, into: fn(ExtensionCheck) -> Self) {
        if let Self::Possible(check) | Self::Awaited(check) = std::mem::replace(self, Self::Impossible) {
            *self = into(check);
        }
    }
}

impl ExtensionCheck {
    /// Returns the check for a lease, or `None` if its process must run only its own tests.
    pub(super) fn of(lease: &WorkerLease, adapter: &'static dyn Adapter, scratch: &Path) -> Option<Self> {
        let is_single = lease.repeat.get() == 1 && lease.repeat_until_ms.is_none();
        let is_shared = !lease.is_isolated && !lease.is_debugged;
        (is_single && is_shared && adapter.traits().process.takes_more_tests).then(|| Self {
            adapter,
            program: Arc::clone(&lease.program),
            runs_ignored: lease.runs_ignored,
            scratch: scratch.to_owned(),
        })
    }

    /// Returns the first test that the framework cannot select, with the reason.
    fn unselectable_test(&self, tests: &[&ListedTest]) -> Option<(usize, String)> {
        let scope = SelectionScope::SomeTests;
        let (runs_ignored, follows_unclear_death) = (self.runs_ignored, false);
        let selection = BatchSelection { tests, scope, runs_ignored, follows_unclear_death };
        match self.adapter.run_command(&self.program, &selection, &self.scratch) {
            Ok(_) => None,
            Err(CommandLineError::Unselectable { place, reason }) => Some((place, reason)),
        }
    }
}
