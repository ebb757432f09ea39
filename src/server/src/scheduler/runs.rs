//! Runs in progress, and their tests that wait for a debugger.

use std::collections::{BTreeMap, BTreeSet};

use heeler_protocol::control::{ClientId, RunKey};
use tokio::time::Instant;

use super::{ClientEvent, DebuggeeLease, DebuggeeWaiting, RequestNumber, clients::Clients};
use crate::run::{RunDriver, WaitingDebuggee};

/// Sequence number of a run, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunNumber(u64);

/// A run in progress.
pub(super) struct RunEntry {
    pub(super) client: ClientId,
    pub(super) request: RequestNumber,
    pub(super) driver: Box<RunDriver>,
    /// Tests that wait for a debugger.
    debuggees: Vec<DebuggeeLease>,
}

impl RunEntry {
    fn is_of(&self, client: ClientId, request: RequestNumber) -> bool {
        self.client == client && self.request == request
    }

    /// Reports tests that started or stopped waiting for a debugger.
    fn report_debuggees(&mut self, clients: &Clients) {
        let Some(client) = clients.get(self.client) else { return };
        let reports = self.driver.take_debuggee_reports();
        for WaitingDebuggee { worker, lease, test, pid, debuggee } in reports.waiting {
            let lease = DebuggeeLease { worker, lease };
            self.debuggees.push(lease);
            client.events.send(ClientEvent::DebuggeeWaiting(DebuggeeWaiting {
                lease,
                run_id: self.driver.key().id.clone(),
                test_uid: self.driver.test_uid(test),
                pid,
                command: debuggee,
            }));
        }
        for (worker, lease) in reports.launched {
            let lease = DebuggeeLease { worker, lease };
            self.debuggees.retain(|one| *one != lease);
            client.events.send(ClientEvent::DebuggeeLaunched(lease));
        }
        let driver = &self.driver;
        for lease in self.debuggees.extract_if(.., |one| !driver.is_leased(one.worker, one.lease)) {
            client.events.send(ClientEvent::DebuggeeGone(lease));
        }
    }
}

#[derive(Default)]
pub(super) struct Runs {
    all: BTreeMap<RunNumber, RunEntry>,
    /// Number of runs started so far.
    begun: u64,
}

impl Runs {
    pub(super) fn add(&mut self, client: ClientId, request: RequestNumber, driver: RunDriver) {
        let entry = RunEntry { client, request, driver: Box::new(driver), debuggees: Vec::new() };
        self.all.insert(RunNumber(self.begun), entry);
        self.begun += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RunNumber, &RunEntry)> {
        self.all.iter().map(|(number, run)| (*number, run))
    }

    pub(super) fn drivers_mut(&mut self) -> impl Iterator<Item = &mut RunDriver> {
        self.all.values_mut().map(|run| run.driver.as_mut())
    }

    pub(super) fn numbered_mut(&mut self, number: RunNumber) -> Option<&mut RunDriver> {
        self.all.get_mut(&number).map(|run| run.driver.as_mut())
    }

    pub(super) fn numbered(&self, number: RunNumber) -> Option<&RunDriver> {
        self.all.get(&number).map(|run| run.driver.as_ref())
    }

    pub(super) fn keyed_mut(&mut self, key: &RunKey) -> Option<&mut RunDriver> {
        self.drivers_mut().find(|driver| driver.key() == key)
    }

    /// Returns the run started by a client's request.
    pub(super) fn requested_mut(
        &mut self,
        client: ClientId,
        request: RequestNumber,
    ) -> Option<&mut RunDriver> {
        self.all.values_mut().find(|run| run.is_of(client, request)).map(|run| run.driver.as_mut())
    }

    fn of_client(&self, client: ClientId) -> impl Iterator<Item = &RunDriver> {
        self.all.values().filter(move |run| run.client == client).map(|run| run.driver.as_ref())
    }

    pub(super) fn clients(&self) -> BTreeSet<ClientId> {
        self.all.values().map(|run| run.client).collect()
    }

    /// Returns the number of leases received by a client's current runs.
    pub(super) fn leases_granted(&self, client: ClientId) -> u64 {
        self.of_client(client).map(|driver| driver.model().leases_granted()).sum()
    }

    pub(super) fn open_leases(&self, client: ClientId) -> usize {
        self.of_client(client).map(|driver| driver.model().state().active_leases()).sum()
    }

    /// Cancels the runs of a leaving client.
    pub(super) fn abandon(&mut self, client: ClientId) {
        self.all.values_mut().filter(|run| run.client == client).for_each(|run| run.driver.abandon());
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(|run| run.driver.next_deadline()).min()
    }

    /// Removes and returns complete runs.
    pub(super) fn take_complete(&mut self) -> Vec<RunEntry> {
        self.all.extract_if(.., |_, run| run.driver.is_complete()).map(|(_, run)| run).collect()
    }

    /// Reports tests that started or stopped waiting for a debugger to their clients.
    pub(super) fn report_debuggees(&mut self, clients: &Clients) {
        self.all.values_mut().for_each(|run| run.report_debuggees(clients));
    }

    /// Reports what the tests of each run wait for to its client, after a change.
    pub(super) fn report_waits(&mut self, clients: &Clients) {
        for run in self.all.values_mut() {
            let client = clients.get(run.client).filter(|client| client.events.has_room());
            if let Some(client) = client
                && let Some(waits) = run.driver.take_waits()
            {
                client.events.send(ClientEvent::Waits { request: run.request, waits });
            }
        }
    }

    /// Removes a client's test that waits for a debugger. Returns whether it was waiting.
    pub(super) fn take_debuggee(&mut self, client: ClientId, debuggee: DebuggeeLease) -> bool {
        let mut own = self.all.values_mut().filter(|run| run.client == client);
        let Some(run) = own.find(|run| run.debuggees.contains(&debuggee)) else { return false };
        run.debuggees.retain(|one| *one != debuggee);
        true
    }
}
