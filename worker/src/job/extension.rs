//! Leases whose process runs further tests when its own have ended.

use std::path::{Path, PathBuf};

use heeler_adapters::{Adapter, BatchSelection, CommandLineError, InvocationChannel, SelectionScope};
use heeler_protocol::control::{LeaseId, ListedTest, TestProgram, WorkerLease};
use tokio::sync::mpsc::error::TrySendError;

use super::{lease::listed_tests, test_process::RunningProcess};
use crate::{batch::RawOutputs, results::uplink::SenderMessage};

/// Whether a lease can be extended.
#[derive(Debug)]
pub(super) enum LeaseExtension {
    /// It cannot: when its tests have ended, so does its process.
    Impossible,
    /// It can, when its tests have ended.
    Possible(ExtensionCheck),
    /// Its tests have ended, and the coordinator was told so.
    Awaited(ExtensionCheck),
}

/// What tells whether a test can be run by the process.
#[derive(Clone)]
pub(super) struct ExtensionCheck {
    adapter: &'static dyn Adapter,
    program: TestProgram,
    runs_ignored: bool,
    scratch: PathBuf,
}

impl std::fmt::Debug for ExtensionCheck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ExtensionCheck").field(&self.adapter.traits().name).finish()
    }
}

impl LeaseExtension {
    /// Returns whether a lease can be extended, if its process receives requests on this channel.
    pub(super) fn on(channel: InvocationChannel, check: Option<ExtensionCheck>) -> Self {
        match check {
            Some(check) if channel.has_requests() => Self::Possible(check),
            Some(_) | None => Self::Impossible,
        }
    }
}

impl RunningProcess<'_> {
    /// Returns whether the process may still be given tests: its requests do not end.
    pub(super) fn may_be_extended(&self) -> bool {
        !matches!(self.extension, LeaseExtension::Impossible)
            && self.reader.transcript.takes_more_tests()
            && self.batch.is_settled()
    }

    /// Tells the coordinator that the process waits for tests, when its own are reported.
    pub(super) fn report_idle(&mut self) {
        let LeaseExtension::Possible(check) = &self.extension else { return };
        if !self.may_be_extended() {
            return;
        }
        self.batch.deadlines.set_waiting(true, self.clock.now());
        // What has no room yet is handed over first; the sender tells when there is some.
        self.sink.try_send_batch();
        if self.sink.is_blocked() {
            return;
        }
        match self.sink.result_sender.try_send(SenderMessage::LeaseIdle { lease: self.sink.lease }) {
            Ok(()) => self.extension = LeaseExtension::Awaited(check.clone()),
            // The next event of the process, a look at the clock at the latest, tries again.
            Err(TrySendError::Full(_)) => {}
            // The coordinator has disconnected, and this worker is about to exit.
            Err(TrySendError::Closed(_)) => self.extension = LeaseExtension::Impossible,
        }
    }

    /// Ends the idle process of a lease.
    pub(super) fn end_idle(&mut self, lease: LeaseId) {
        if lease == self.sink.lease {
            self.extension = LeaseExtension::Impossible;
            self.finish_requests();
        }
    }

    /// Ends the requests to the process, which is to exit.
    pub(super) fn finish_requests(&mut self) {
        let request = self.reader.transcript.closing_request();
        self.process.send_request(request);
        self.process.finish_requests();
        if self.reader.transcript.has_forked_copies() {
            // One of them may have taken the last request from the process.
            self.process.shut_down_requests();
        }
        self.batch.deadlines.set_waiting(false, self.clock.now());
        self.batch.deadlines.on_requests_finished(self.clock.now());
    }

    /// Gives the process further tests. One that has ended, or is being ended, gets none: they stay
    /// undecided, and the coordinator leases them again.
    pub(super) fn extend(&mut self, lease: WorkerLease) {
        if lease.lease != self.sink.lease {
            return;
        }
        let LeaseExtension::Awaited(check) = &self.extension else { return };
        let check = check.clone();
        if !self.may_be_extended() {
            return;
        }
        let mut added = self.batch.extend(lease, &mut self.sink.updates);
        while let Some((place, reason)) = check.unselectable_test(&listed_tests(&self.batch)[added.clone()]) {
            self.batch.refuse(added.start + place, &reason, &mut self.sink.updates);
            added.end -= 1;
        }
        self.batch.deadlines.set_waiting(false, self.clock.now());
        let tests = &listed_tests(&self.batch)[added];
        let request = self.reader.transcript.add_tests(tests, &mut self.reader.events);
        self.process.send_request(request);
        self.reader.pass_on(RawOutputs::default(), &self.clock, &mut self.batch, self.sink);
        self.extension = LeaseExtension::Possible(check);
        self.sink.try_send_batch();
    }
}

impl ExtensionCheck {
    /// Returns the check for a lease; `None` if its process is to run its own tests only.
    pub(super) fn of(lease: &WorkerLease, adapter: &'static dyn Adapter, scratch: &Path) -> Option<Self> {
        let is_single = lease.repeat.get() == 1 && lease.repeat_until_ms.is_none();
        let is_shared = !lease.is_isolated && !lease.is_debugged;
        (is_single && is_shared && adapter.traits().process.takes_more_tests).then(|| Self {
            adapter,
            program: lease.program.clone(),
            runs_ignored: lease.runs_ignored,
            scratch: scratch.to_owned(),
        })
    }

    /// Returns the first test that the framework cannot select, and the reason.
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
