//! Running runs: their begin, their end, and the tests of debug runs that wait for a debugger.

use heeler_core::batching::SHARED_BATCH_LIMIT;
use heeler_protocol::{
    control::{ClientId, DebuggerDecision, RunKey, ToWorker},
    mtp::ClientMembers,
};

use super::{ClientEvent, DebuggeeLease, DebuggeeWaiting, RequestNumber, event_loop::Scheduler};
use crate::run::{DebuggeeReports, DriverClient, PlannedTests, RunDriver, RunPlan};

/// Sequence number of a run, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunNumber(u64);

/// A run in progress.
pub(super) struct RunEntry {
    pub(super) client: ClientId,
    request: RequestNumber,
    pub(super) driver: Box<RunDriver>,
    /// Tests that wait for a debugger.
    debuggees: Vec<DebuggeeLease>,
}

impl Scheduler {
    pub(super) fn run_mut(&mut self, key: &RunKey) -> Option<&mut RunDriver> {
        self.runs.values_mut().map(|run| run.driver.as_mut()).find(|driver| driver.key() == key)
    }

    pub(super) fn drivers_mut(&mut self) -> impl Iterator<Item = &mut RunDriver> {
        self.runs.values_mut().map(|run| run.driver.as_mut())
    }

    pub(super) async fn start_run(
        &mut self,
        client: ClientId,
        request: RequestNumber,
        mut plan: RunPlan,
        client_members: ClientMembers,
    ) {
        plan.model.batch_limit = self.options.has_concurrent_runs.then_some(SHARED_BATCH_LIMIT);
        let started = self.start_pool().await;
        let (Some(entry), pool) = (self.clients.get(&client), &mut self.pool) else { return };
        let pool = match (started, pool) {
            (Ok(()), Some(pool)) => pool,
            (Err(error), _) => {
                let plan = Box::new(plan);
                return entry.events.send(ClientEvent::RunRefused { request, plan, error });
            }
            (Ok(()), None) => return,
        };
        pool.share_answers(client);
        let key = RunKey::new(client, plan.run_id.clone());
        let (route, events) = (entry.route.clone(), entry.events.clone());
        let of_client = DriverClient { key, route, events, client_members };
        let driver = Box::new(RunDriver::begin(pool, plan, of_client).await);
        self.level_new_client(client);
        let number = RunNumber(self.next_run);
        self.next_run += 1;
        self.runs.insert(number, RunEntry { client, request, driver, debuggees: Vec::new() });
    }

    /// Returns the run of a client's request.
    fn run_of(&mut self, client: ClientId, request: RequestNumber) -> Option<&mut RunDriver> {
        let is_meant = |run: &&mut RunEntry| run.client == client && run.request == request;
        self.runs.values_mut().find(is_meant).map(|run| run.driver.as_mut())
    }

    /// Adds tests to a client's open run. One that is over was reported with the tests that it had.
    pub(super) fn add_tests(&mut self, client: ClientId, request: RequestNumber, tests: PlannedTests) {
        if let Some(driver) = self.run_of(client, request) {
            driver.add_tests(tests);
        }
    }

    pub(super) fn end_tests(&mut self, client: ClientId, request: RequestNumber) {
        if let Some(driver) = self.run_of(client, request) {
            driver.end_tests();
        }
    }

    pub(super) async fn cancel_request(&mut self, client: ClientId, request: RequestNumber) {
        match self.run_of(client, request) {
            Some(driver) => driver.cancel(),
            None => self.cancel_listing(client, request).await,
        }
    }

    pub(super) async fn kill_request(&mut self, client: ClientId, request: RequestNumber) {
        let is_meant = |run: &&mut RunEntry| run.client == client && run.request == request;
        match (self.runs.values_mut().find(is_meant), &mut self.pool) {
            (Some(run), Some(pool)) => run.driver.kill(pool).await,
            (Some(run), None) => run.driver.abandon(),
            (None, _) => self.cancel_listing(client, request).await,
        }
    }

    /// Reports the runs that are complete to their clients. Returns whether there was one.
    pub(super) fn complete_runs(&mut self) -> bool {
        let over: Vec<_> =
            self.runs.iter().filter(|(_, run)| run.driver.is_complete()).map(|(number, _)| *number).collect();
        for number in &over {
            let Some(RunEntry { client, request, driver, .. }) = self.runs.remove(number) else { continue };
            if let Some(pool) = &mut self.pool {
                pool.end_run(driver.key());
            }
            heeler_sys::fail::pass("run.completed");
            let served = driver.model().leases_granted();
            let (plan, outcome) = driver.into_outcome();
            if let Some(entry) = self.clients.get_mut(&client) {
                entry.served_before += served;
                let (plan, outcome) = (Box::new(plan), Box::new(outcome));
                entry.events.send(ClientEvent::RunEnded { request, plan, outcome });
            }
        }
        !over.is_empty()
    }

    /// Reports tests that wait for a debugger, or do not wait any more, to their clients.
    pub(super) fn report_debuggees(&mut self) {
        for run in self.runs.values_mut() {
            let Some(entry) = self.clients.get(&run.client) else { continue };
            let DebuggeeReports { waiting, launched } = run.driver.take_debuggee_reports();
            for waiting in waiting {
                let lease = DebuggeeLease { worker: waiting.worker, lease: waiting.lease };
                run.debuggees.push(lease);
                entry.events.send(ClientEvent::DebuggeeWaiting(DebuggeeWaiting {
                    lease,
                    run_id: run.driver.key().id.clone(),
                    test_uid: run.driver.test_uid(waiting.test),
                    pid: waiting.pid,
                    command: waiting.debuggee,
                }));
            }
            for (worker, lease) in launched {
                let lease = DebuggeeLease { worker, lease };
                run.debuggees.retain(|one| *one != lease);
                entry.events.send(ClientEvent::DebuggeeLaunched(lease));
            }
            let driver = &run.driver;
            for lease in run.debuggees.extract_if(.., |one| !driver.is_leased(one.worker, one.lease)) {
                entry.events.send(ClientEvent::DebuggeeGone(lease));
            }
        }
    }

    /// Passes a client's decision to the worker, unless the test does not wait any more.
    pub(super) async fn decide_debuggee(
        &mut self,
        client: ClientId,
        debuggee: DebuggeeLease,
        decision: DebuggerDecision,
    ) {
        let is_its = |run: &&mut RunEntry| run.client == client && run.debuggees.contains(&debuggee);
        let Some(run) = self.runs.values_mut().find(is_its) else { return };
        run.debuggees.retain(|one| *one != debuggee);
        if let Some(pool) = &mut self.pool {
            let DebuggeeLease { worker, lease } = debuggee;
            pool.send_to_worker(worker, &ToWorker::Debugger { lease, decision }).await;
        }
    }
}
