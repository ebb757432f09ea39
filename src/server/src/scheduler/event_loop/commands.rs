//! Commands of clients, from registration until they have left. A client that leaves ends only its own runs.

use std::collections::BTreeSet;

use heeler_core::batching::SHARED_BATCH_LIMIT;
use heeler_protocol::{
    control::{ClientId, DebuggerDecision, RunKey, ToWatchdog, ToWorker},
    mtp::ClientMembers,
};
use tokio::sync::oneshot;

use super::Scheduler;
use crate::{
    run::{DriverClient, RunDriver, RunPlan},
    scheduler::{
        ClientEvent, ClientRegistration, DebuggeeLease, RequestNumber,
        builds::BuiltRequest,
        clients::ClientEntry,
        handle::{BuildRequest, ClientCommand, NewClient},
        listing::ListingNeed,
        runs::RunEntry,
    },
};

impl Scheduler {
    pub(super) fn add_client(&mut self, client: NewClient) {
        let NewClient { registration, commands, events, updates, left } = client;
        let ClientRegistration { delivery, sources, finder, listing } = registration;
        let catalogue = self.catalogues.find_or_add(sources, listing, finder);
        let (route, sink) = delivery.into_route(updates);
        self.clients.add(ClientEntry { route, events, catalogue, commands, _left: left }, sink);
    }

    pub(super) async fn on_command(&mut self, client: ClientId, command: Option<ClientCommand>) {
        match command {
            Some(ClientCommand::List { request, build: BuildRequest::None }) => {
                self.list(client, request).await
            }
            Some(ClientCommand::List { request, build: BuildRequest::First }) => {
                self.list_after_build(client, request).await
            }
            Some(ClientCommand::StartRun { request, plan, client_members }) => {
                self.start_run(client, request, *plan, client_members).await
            }
            // A run that is over has already been reported with its tests.
            Some(ClientCommand::AddTests { request, tests }) => {
                if let Some(driver) = self.runs.requested_mut(client, request) {
                    driver.add_tests(*tests);
                }
            }
            Some(ClientCommand::EndTests { request }) => {
                if let Some(driver) = self.runs.requested_mut(client, request) {
                    driver.end_tests();
                }
            }
            Some(ClientCommand::Cancel { request }) => match self.runs.requested_mut(client, request) {
                Some(driver) => driver.cancel(),
                None => self.cancel_listing(client, request).await,
            },
            Some(ClientCommand::Kill { request }) => {
                match (self.runs.requested_mut(client, request), &mut self.pool) {
                    (Some(driver), Some(pool)) => driver.kill(pool).await,
                    (Some(driver), None) => driver.abandon(),
                    (None, _) => self.cancel_listing(client, request).await,
                }
            }
            Some(ClientCommand::DecideDebuggee { lease, decision }) => {
                self.decide_debuggee(client, lease, decision).await
            }
            Some(ClientCommand::Pause(done)) => self.pause(client, done).await,
            Some(ClientCommand::Resume) => self.resume(client).await,
            None => self.begin_leave(client).await,
        }
    }

    async fn list(&mut self, client: ClientId, request: RequestNumber) {
        let Some(entry) = self.clients.get(client) else { return };
        let (place, events) = (entry.catalogue, entry.events.clone());
        match self.catalogues.listing_need(place) {
            ListingNeed::Nothing(catalogue) => {
                return events.send(ClientEvent::Listed { request, catalogue: Ok(catalogue) });
            }
            ListingNeed::Workers(unlisted) => {
                if let Err(error) = self.start_pool().await {
                    return events.send(ClientEvent::Listed { request, catalogue: Err(error) });
                }
                self.catalogues.begin_listing(place, unlisted);
            }
            ListingNeed::InProgress => {}
        }
        self.catalogues.await_listing(place, client, request);
    }

    /// Builds a client's programs, then lists them for the request. Programs that can't be built are listed
    /// right away.
    async fn list_after_build(&mut self, client: ClientId, request: RequestNumber) {
        let Some(entry) = self.clients.get(client) else { return };
        match self.catalogues.build(entry.catalogue, client, request) {
            None => self.list(client, request).await,
            Some(Ok(())) => {}
            Some(Err(error)) => entry.events.send(ClientEvent::Listed { request, catalogue: Err(error) }),
        }
    }

    /// Lists the built programs for the requests that wait for them.
    pub(super) async fn list_built(&mut self) {
        for BuiltRequest { client, request, failed } in self.catalogues.take_built() {
            match (failed, self.clients.get(client)) {
                (Some(error), Some(entry)) => {
                    entry.events.send(ClientEvent::Listed { request, catalogue: Err(error) });
                }
                (None, Some(_)) => self.list(client, request).await,
                (_, None) => {}
            }
        }
    }

    async fn cancel_listing(&mut self, client: ClientId, request: RequestNumber) {
        self.catalogues.cancel(self.pool.as_mut(), |waiting| *waiting == (client, request)).await;
    }

    async fn start_run(
        &mut self,
        client: ClientId,
        request: RequestNumber,
        mut plan: RunPlan,
        client_members: ClientMembers,
    ) {
        plan.model.batch_limit = self.options.has_concurrent_runs.then_some(SHARED_BATCH_LIMIT);
        let started = self.start_pool().await;
        let (Some(entry), pool) = (self.clients.get(client), &mut self.pool) else { return };
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
        let driver = RunDriver::begin(pool, plan, of_client).await;
        self.clients.level_new_client(client, &self.runs);
        self.runs.add(client, request, driver);
    }

    /// Reports complete runs to their clients. Returns whether there were any.
    pub(super) fn complete_runs(&mut self) -> bool {
        let complete = self.runs.take_complete();
        let has_ended = !complete.is_empty();
        for RunEntry { client, request, driver, .. } in complete {
            if let Some(pool) = &mut self.pool {
                pool.end_run(driver.key());
            }
            heeler_sys::fail::pass("run.completed");
            self.clients.count_leases(client, driver.model().leases_granted());
            let (plan, outcome) = driver.into_outcome();
            if let Some(entry) = self.clients.get(client) {
                let (plan, outcome) = (Box::new(plan), Box::new(outcome));
                entry.events.send(ClientEvent::RunEnded { request, plan, outcome });
            }
        }
        has_ended
    }

    /// Passes a client's decision to the worker, unless the test no longer waits.
    async fn decide_debuggee(
        &mut self,
        client: ClientId,
        debuggee: DebuggeeLease,
        decision: DebuggerDecision,
    ) {
        if self.runs.take_debuggee(client, debuggee)
            && let Some(pool) = &mut self.pool
        {
            let DebuggeeLease { worker, lease } = debuggee;
            pool.send_to_worker(worker, &ToWorker::Debugger { lease, decision }).await;
        }
    }

    async fn pause(&mut self, client: ClientId, done: oneshot::Sender<()>) {
        let mut workers = BTreeSet::new();
        if let Some(pool) = &mut self.pool {
            // The watchdog must know before this process itself is stopped.
            pool.send_to_watchdog_flushed(&ToWatchdog::Suspend).await;
            for worker in pool.workers().of_client(client) {
                pool.send_to_worker(worker, &ToWorker::Pause).await;
                workers.insert(worker);
            }
        }
        self.clients.begin_pause(client, workers, done);
    }

    async fn resume(&mut self, client: ClientId) {
        self.clients.resume(client);
        let Some(pool) = &mut self.pool else { return };
        pool.send_to_watchdog(&ToWatchdog::Resume).await;
        for worker in pool.workers().of_client(client) {
            pool.send_to_worker(worker, &ToWorker::Resume).await;
        }
    }

    /// Ends all work of a client whose session is gone. If no other client remains, all processes end.
    /// Otherwise its runs are cancelled, and their workers serve other clients.
    async fn begin_leave(&mut self, client: ClientId) {
        self.catalogues.cancel(self.pool.as_mut(), |(waiting, _)| *waiting == client).await;
        if !self.clients.has_others(client) {
            let has_runs = !self.runs.is_empty();
            self.runs.clear();
            self.clients.remove_sinks();
            match self.pool.take() {
                // Dropping the pool ends all processes at once.
                Some(pool) if has_runs => drop(pool),
                Some(pool) => pool.shut_down().await,
                None => {}
            }
            self.budget.leave();
            self.clients.clear();
            return;
        }
        self.resume(client).await;
        self.clients.begin_leave(client);
        self.runs.abandon(client);
    }

    /// Removes leaving clients whose runs are over.
    pub(super) async fn remove_left_clients(&mut self) {
        for client in self.clients.gone(&self.runs) {
            if let Some(pool) = &mut self.pool {
                pool.end_client(client).await;
            }
            self.clients.remove(client);
        }
        if self.clients.is_empty()
            && let Some(pool) = self.pool.take()
        {
            pool.shut_down().await;
            self.budget.leave();
        }
    }
}
