//! Clients of the scheduler: registration, pauses, and leaving, also when a client's session died.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Poll,
    time::Duration,
};

use heeler_protocol::control::{ClientId, ClientRoute, LogLine, WorkerId};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{ClientEvent, ClientLogLine, client_events::ClientEvents, handle::ClientCommand, runs::Runs};
use crate::pool::{ClientSink, ClientSinks};

/// Maximum wait for all test processes of a client to stop.
const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

pub(super) struct ClientEntry {
    pub(super) route: ClientRoute,
    pub(super) events: ClientEvents,
    /// Index of the catalogue of the client's programs.
    pub(super) catalogue: usize,
    pub(super) commands: mpsc::Receiver<ClientCommand>,
    /// Dropped with the entry, which shows the client's session that all of its work has ended.
    pub(super) _left: oneshot::Sender<()>,
}

struct RegisteredClient {
    entry: ClientEntry,
    /// Number of leases received by runs of this client that are over.
    served_before: u64,
    /// The client's session is gone. The entry stays until its runs are over.
    is_leaving: bool,
    /// The client's test processes are stopped, and no more are started.
    is_paused: bool,
    pausing: Option<PauseRequest>,
}

/// A pause that waits for workers to stop.
struct PauseRequest {
    workers: BTreeSet<WorkerId>,
    done: oneshot::Sender<()>,
    deadline: Instant,
}

impl RegisteredClient {
    fn end_pause(&mut self) {
        if let Some(pause) = self.pausing.take() {
            // The requester may be gone.
            let _gone = pause.done.send(());
        }
    }
}

#[derive(Default)]
pub(super) struct Clients {
    all: BTreeMap<ClientId, RegisteredClient>,
    /// Number of clients registered so far.
    registered: u32,
    /// The client whose command was handled last.
    last_served: ClientId,
    sinks: ClientSinks,
}

impl Clients {
    pub(super) fn add(&mut self, entry: ClientEntry, sink: ClientSink) {
        self.registered += 1;
        let id = ClientId(self.registered);
        self.sinks.insert(id, sink);
        let client =
            RegisteredClient { entry, served_before: 0, is_leaving: false, is_paused: false, pausing: None };
        self.all.insert(id, client);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get(&self, client: ClientId) -> Option<&ClientEntry> {
        self.all.get(&client).map(|client| &client.entry)
    }

    /// Returns the destinations of forwarded frames.
    pub(super) fn sinks(&self) -> ClientSinks {
        self.sinks.clone()
    }

    /// Returns the next command of any client, or `None` if that client's session is gone. Polling starts
    /// after the client served last, so that a client that floods the queue does not starve the others.
    ///
    /// Cancel safe: yes, because a command is taken only when it is returned.
    pub(super) async fn next_command(&mut self) -> (ClientId, Option<ClientCommand>) {
        std::future::poll_fn(|context| {
            let last = self.last_served;
            let later: Vec<_> = self.all.keys().copied().filter(|id| *id > last).collect();
            let earlier: Vec<_> = self.all.keys().copied().filter(|id| *id <= last).collect();
            for id in later.into_iter().chain(earlier) {
                let Some(client) = self.all.get_mut(&id).filter(|client| !client.is_leaving) else {
                    continue;
                };
                if let Poll::Ready(command) = client.entry.commands.poll_recv(context) {
                    self.last_served = id;
                    return Poll::Ready((id, command));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends an event to every client that has not left.
    pub(super) fn send_to_all(&self, event: impl Fn() -> ClientEvent) {
        self.all
            .values()
            .filter(|client| !client.is_leaving)
            .for_each(|client| client.entry.events.send(event()));
    }

    /// Logs lines that are not about a run.
    pub(super) fn log(&self, client: ClientId, lines: &[LogLine]) {
        if let Some(entry) = self.get(client) {
            let line = |one: &LogLine| ClientLogLine::new(one.severity.into(), one.message.clone());
            entry.events.log(None, lines.iter().map(line).collect());
        }
    }

    /// Returns the number of leases that a client has received, including leases of runs that are over.
    pub(super) fn served_leases(&self, client: ClientId, runs: &Runs) -> u64 {
        let before = self.all.get(&client).map_or(0, |client| client.served_before);
        before + runs.leases_granted(client)
    }

    /// Adds the leases of a client's run that is over.
    pub(super) fn count_leases(&mut self, client: ClientId, leases: u64) {
        if let Some(client) = self.all.get_mut(&client) {
            client.served_before += leases;
        }
    }

    /// Raises the lease count of a client that begins its only run to the lowest count of clients with runs.
    /// Otherwise only this client would be served until it caught up with the others.
    pub(super) fn level_new_client(&mut self, client: ClientId, runs: &Runs) {
        let others = runs.clients();
        if others.contains(&client) {
            return;
        }
        let begun = |other: &ClientId| {
            self.served_leases(*other, runs).saturating_sub(runs.open_leases(*other) as u64)
        };
        let level = others.iter().map(begun).min().unwrap_or(0);
        if let Some(client) = self.all.get_mut(&client) {
            client.served_before = client.served_before.max(level);
        }
    }

    pub(super) fn is_paused(&self, client: ClientId) -> bool {
        self.all.get(&client).is_some_and(|client| client.is_paused)
    }

    /// Waits for these workers to stop, and starts no more for the client.
    pub(super) fn begin_pause(
        &mut self,
        client: ClientId,
        workers: BTreeSet<WorkerId>,
        done: oneshot::Sender<()>,
    ) {
        if let Some(client) = self.all.get_mut(&client) {
            client.is_paused = true;
            client.pausing = Some(PauseRequest { workers, done, deadline: Instant::now() + PAUSE_DEADLINE });
        }
        self.check_pauses();
    }

    pub(super) fn resume(&mut self, client: ClientId) {
        if let Some(client) = self.all.get_mut(&client) {
            client.is_paused = false;
        }
    }

    pub(super) fn on_worker_paused(&mut self, worker: WorkerId) {
        for pause in self.all.values_mut().filter_map(|client| client.pausing.as_mut()) {
            pause.workers.remove(&worker);
        }
        self.check_pauses();
    }

    /// Ends pause requests that are complete or have exceeded their deadline.
    pub(super) fn check_pauses(&mut self) {
        let now = Instant::now();
        let is_done = |pause: &PauseRequest| pause.workers.is_empty() || pause.deadline <= now;
        let done = self.all.values_mut().filter(|client| client.pausing.as_ref().is_some_and(is_done));
        done.for_each(RegisteredClient::end_pause);
    }

    /// Ends all pause requests, because all workers are gone.
    pub(super) fn end_pauses(&mut self) {
        self.all.values_mut().for_each(RegisteredClient::end_pause);
    }

    pub(super) fn next_pause_deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(|client| client.pausing.as_ref()).map(|pause| pause.deadline).min()
    }

    /// Returns whether another client stays when this one leaves.
    pub(super) fn has_others(&self, leaving: ClientId) -> bool {
        self.all.iter().any(|(id, client)| *id != leaving && !client.is_leaving)
    }

    /// Marks a client as leaving and stops forwarding to it.
    pub(super) fn begin_leave(&mut self, client: ClientId) {
        if let Some(client) = self.all.get_mut(&client) {
            client.is_leaving = true;
            client.end_pause();
        }
        self.sinks.remove(client);
    }

    /// Stops forwarding to all clients.
    pub(super) fn remove_sinks(&self) {
        self.all.keys().for_each(|id| self.sinks.remove(*id));
    }

    /// Returns the leaving clients whose runs are over.
    pub(super) fn gone(&self, runs: &Runs) -> Vec<ClientId> {
        let running = runs.clients();
        let leaving = self.all.iter().filter(|(_, client)| client.is_leaving).map(|(id, _)| *id);
        leaving.filter(|id| !running.contains(id)).collect()
    }

    /// Removes a client. Its session then sees that all of its work has ended.
    pub(super) fn remove(&mut self, client: ClientId) {
        self.all.remove(&client);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}
