//! Clients of the scheduler: those that register, and those that leave, by themselves or because their
//! session died. A client that leaves takes its own runs with it; those of other clients go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Poll,
};

use heeler_protocol::control::{ClientId, ClientRoute, ToWatchdog, ToWorker, WorkerId};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    client_events::ClientEvents,
    event_loop::{PAUSE_DEADLINE, Scheduler},
    handle::{BuildRequest, ClientCommand, NewClient},
};

/// One client.
pub(super) struct ClientEntry {
    pub(super) route: ClientRoute,
    pub(super) events: ClientEvents,
    /// Index of the catalogue of its programs.
    pub(super) catalogue: usize,
    /// Number of leases that its runs have received which are over.
    pub(super) served_before: u64,
    commands: mpsc::Receiver<ClientCommand>,
    /// Its session is gone; the entry stays until its runs are over.
    pub(super) is_leaving: bool,
    /// Its test processes are stopped, and no more are started.
    pub(super) is_paused: bool,
    pub(super) pausing: Option<PauseRequest>,
    /// Dropped with the entry, which tells the client's session that nothing is in progress.
    _left: oneshot::Sender<()>,
}

/// Workers that are being stopped.
pub(super) struct PauseRequest {
    workers: BTreeSet<WorkerId>,
    done: oneshot::Sender<()>,
    pub(super) deadline: Instant,
}

impl ClientEntry {
    fn end_pause(&mut self) {
        if let Some(pause) = self.pausing.take() {
            // The requester may be gone.
            let _gone = pause.done.send(());
        }
    }
}

/// Returns the next command of any client, `None` for one whose session is gone. The clients after the one
/// that was served last come first, so that none that floods the others with commands keeps them waiting.
///
/// Cancel safe: yes, because a command is taken only when it is returned.
pub(super) async fn next_command(
    clients: &mut BTreeMap<ClientId, ClientEntry>,
    last: ClientId,
) -> (ClientId, Option<ClientCommand>) {
    std::future::poll_fn(move |context| {
        let later: Vec<_> = clients.keys().copied().filter(|id| *id > last).collect();
        let earlier: Vec<_> = clients.keys().copied().filter(|id| *id <= last).collect();
        for id in later.into_iter().chain(earlier) {
            let Some(entry) = clients.get_mut(&id).filter(|entry| !entry.is_leaving) else { continue };
            if let Poll::Ready(command) = entry.commands.poll_recv(context) {
                return Poll::Ready((id, command));
            }
        }
        Poll::Pending
    })
    .await
}

impl Scheduler {
    pub(super) fn add_client(&mut self, client: NewClient) {
        let NewClient { registration, commands, events, updates, left } = client;
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let catalogue =
            self.catalogues.find_or_add(registration.sources, registration.listing, registration.finder);
        let (route, sink) = registration.delivery.into_route(updates);
        self.sinks.insert(id, sink);
        let entry = ClientEntry {
            route,
            events,
            catalogue,
            served_before: 0,
            commands,
            is_leaving: false,
            is_paused: false,
            pausing: None,
            _left: left,
        };
        self.clients.insert(id, entry);
    }

    pub(super) async fn on_command(&mut self, client: ClientId, command: Option<ClientCommand>) {
        self.last_client = client;
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
            Some(ClientCommand::AddTests { request, tests }) => self.add_tests(client, request, *tests),
            Some(ClientCommand::EndTests { request }) => self.end_tests(client, request),
            Some(ClientCommand::Cancel { request }) => self.cancel_request(client, request).await,
            Some(ClientCommand::Kill { request }) => self.kill_request(client, request).await,
            Some(ClientCommand::DecideDebuggee { lease, decision }) => {
                self.decide_debuggee(client, lease, decision).await
            }
            Some(ClientCommand::Pause(done)) => self.pause(client, done).await,
            Some(ClientCommand::Resume) => self.resume(client).await,
            None => self.begin_leave(client).await,
        }
    }

    /// Ends everything of a client whose session is gone. If no other client stays, all processes end with
    /// it; otherwise its runs are cancelled, and their workers serve the others.
    async fn begin_leave(&mut self, client: ClientId) {
        self.cancel_listings(client).await;
        let has_others = self.clients.iter().any(|(id, entry)| *id != client && !entry.is_leaving);
        if !has_others {
            let has_runs = !self.runs.is_empty();
            self.runs.clear();
            self.clients.keys().for_each(|id| self.sinks.remove(*id));
            match self.pool.take() {
                // Dropping the pool ends all processes at once.
                Some(pool) if has_runs => drop(pool),
                Some(pool) => pool.shut_down().await,
                None => {}
            }
            self.clients.clear();
            return;
        }
        self.resume(client).await;
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.is_leaving = true;
            entry.end_pause();
        }
        // Nothing more is forwarded.
        self.sinks.remove(client);
        self.runs.values_mut().filter(|run| run.client == client).for_each(|run| run.driver.abandon());
    }

    /// Removes the clients that have left and whose runs are over.
    pub(super) async fn remove_left_clients(&mut self) {
        let has_left = |(id, entry): (&ClientId, &ClientEntry)| {
            let is_over = entry.is_leaving && self.runs.values().all(|run| run.client != *id);
            is_over.then_some(*id)
        };
        let left: Vec<_> = self.clients.iter().filter_map(has_left).collect();
        for client in left {
            if let Some(pool) = &mut self.pool {
                pool.end_client(client).await;
            }
            self.clients.remove(&client);
        }
        if self.clients.is_empty()
            && let Some(pool) = self.pool.take()
        {
            pool.shut_down().await;
        }
    }

    async fn pause(&mut self, client: ClientId, done: oneshot::Sender<()>) {
        let mut workers = BTreeSet::new();
        if let Some(pool) = &mut self.pool {
            // Before this process is stopped.
            pool.send_to_watchdog_flushed(&ToWatchdog::Suspend).await;
            for worker in pool.workers().of_client(client) {
                pool.send_to_worker(worker, &ToWorker::Pause).await;
                workers.insert(worker);
            }
        }
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.is_paused = true;
            entry.pausing = Some(PauseRequest { workers, done, deadline: Instant::now() + PAUSE_DEADLINE });
        }
        self.check_pauses();
    }

    async fn resume(&mut self, client: ClientId) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.is_paused = false;
        }
        let Some(pool) = &mut self.pool else { return };
        pool.send_to_watchdog(&ToWatchdog::Resume).await;
        for worker in pool.workers().of_client(client) {
            pool.send_to_worker(worker, &ToWorker::Resume).await;
        }
    }

    pub(super) fn on_worker_paused(&mut self, worker: WorkerId) {
        for pause in self.clients.values_mut().filter_map(|entry| entry.pausing.as_mut()) {
            pause.workers.remove(&worker);
        }
        self.check_pauses();
    }

    /// Ends the pause requests that are complete or too late.
    pub(super) fn check_pauses(&mut self) {
        let now = Instant::now();
        for entry in self.clients.values_mut() {
            let is_done =
                entry.pausing.as_ref().is_some_and(|pause| pause.workers.is_empty() || pause.deadline <= now);
            if is_done {
                entry.end_pause();
            }
        }
    }

    /// Ends all pause requests, because all workers are gone.
    pub(super) fn end_pauses(&mut self) {
        self.clients.values_mut().for_each(ClientEntry::end_pause);
    }
}
