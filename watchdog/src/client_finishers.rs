//! One finisher per client, which sends the finishes of the client's runs one after the other. A slow client
//! delays only its own finishes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use heeler_protocol::control::{ClientId, ClientRoute, FinishRequest, FromWatchdog, ProofLevel};
use heeler_transport::{callback::StreamHolders, control::ControlSender};
use tokio::{task::JoinSet, time::timeout};

use crate::{finish_frames::RelayRoute, finisher::RunFinisher};

#[derive(Debug, Default)]
pub(crate) struct ClientFinishers {
    clients: BTreeMap<ClientId, ClientFinish>,
}

#[derive(Debug)]
struct ClientFinish {
    relay: RelayRoute,
    /// `None` while the finisher is in the task that sends a finish.
    finisher: Option<Box<RunFinisher>>,
    /// Finish requests that wait for the current one. Unbounded, because a client has few runs at once.
    queued: VecDeque<Box<FinishRequest>>,
    /// The client has left, so the finisher is no longer needed.
    is_ended: bool,
}

impl ClientFinishers {
    /// Adds a client, unless it is already known.
    pub(crate) fn add(&mut self, holders: StreamHolders, route: &ClientRoute, control: &ControlSender) {
        self.clients.entry(holders.client).or_insert_with(|| {
            let relay = RelayRoute::new(control.clone(), holders.client);
            ClientFinish {
                finisher: Some(Box::new(RunFinisher::new(relay.clone(), holders, route.clone()))),
                relay,
                queued: VecDeque::new(),
                is_ended: false,
            }
        });
    }

    /// Queues a finish for a known client.
    pub(crate) fn queue(&mut self, finish: Box<FinishRequest>) {
        if let Some(entry) = self.clients.get_mut(&finish.run.client) {
            entry.queued.push_back(finish);
        }
    }

    /// Returns the client's next finish and its finisher, if both are available.
    pub(crate) fn take_next(&mut self, client: ClientId) -> Option<(Box<RunFinisher>, Box<FinishRequest>)> {
        let entry = self.clients.get_mut(&client)?;
        if entry.queued.is_empty() {
            return None;
        }
        Some((entry.finisher.take()?, entry.queued.pop_front()?))
    }

    /// Takes a finisher back. Returns the finisher if its client has left.
    pub(crate) fn put_back(&mut self, finisher: Box<RunFinisher>) -> Option<Box<RunFinisher>> {
        match self.clients.get_mut(&finisher.client()) {
            Some(entry) if !entry.is_ended => {
                entry.finisher = Some(finisher);
                None
            }
            Some(_) | None => {
                self.clients.remove(&finisher.client());
                Some(finisher)
            }
        }
    }

    /// Records that a client has left. Returns its finisher, unless a finish is using it: then
    /// [`Self::put_back`] returns the finisher later.
    pub(crate) fn end_client(&mut self, client: ClientId) -> Option<Box<RunFinisher>> {
        let entry = self.clients.get_mut(&client)?;
        let finisher = entry.finisher.take();
        entry.is_ended = true;
        if finisher.is_some() {
            self.clients.remove(&client);
        }
        finisher
    }

    /// Records that the coordinator has handed one more frame to a client.
    pub(crate) fn confirm_frame(&self, client: ClientId) {
        if let Some(entry) = self.clients.get(&client) {
            entry.relay.confirm_frame();
        }
    }

    /// Closes the routes through the coordinator, which is gone.
    pub(crate) fn close_relays(&self) {
        self.clients.values().for_each(|entry| entry.relay.close());
    }

    /// Closes the connections to all clients cleanly, within the limit.
    ///
    /// Cancel safe: yes, because dropping a connection closes it too.
    pub(crate) async fn close_all(self, limit: Duration) {
        let idle = self.clients.into_values().filter_map(|entry| entry.finisher);
        let closing: JoinSet<()> = idle.map(|finisher| finisher.close()).collect();
        // Everything sent has been proven, or reported as unproven, so a clean close is only a courtesy.
        let _late = timeout(limit, closing.join_all()).await;
    }

    /// Sends the due finishes of runs whose coordinator has died, for all clients concurrently. `busy` passes
    /// on the finishers in use, each with the finish that must be repeated, if any.
    ///
    /// Cancel safe: no, because some finishes may not be sent.
    pub(crate) async fn finish_orphaned(
        self,
        mut due: BTreeMap<ClientId, Vec<FinishRequest>>,
        busy: impl AsyncFnOnce(&mut dyn FnMut(Box<RunFinisher>, Option<FinishRequest>)),
        limits: OrphanLimits,
    ) {
        let mut finishing = JoinSet::new();
        for (client, entry) in self.clients {
            let queued = entry.queued.into_iter().map(|finish| *finish);
            let later = due.remove(&client).unwrap_or_default();
            let all: Vec<_> = queued.chain(later).collect();
            match entry.finisher {
                Some(finisher) => drop(finishing.spawn(finish_all(finisher, all, limits))),
                None => drop(due.insert(client, all)),
            }
        }
        busy(&mut |finisher, repeated| {
            let later = due.remove(&finisher.client()).unwrap_or_default();
            let all = repeated.into_iter().chain(later).collect();
            finishing.spawn(finish_all(finisher, all, limits));
        })
        .await;
        finishing.join_all().await;
    }
}

/// Time limits for finishes after the coordinator's death.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrphanLimits {
    /// Limit for each finish.
    pub(crate) finish: Duration,
    /// Limit for closing the connection to the client.
    pub(crate) close: Duration,
}

async fn finish_all(mut finisher: Box<RunFinisher>, due: Vec<FinishRequest>, limits: OrphanLimits) {
    for finish in due {
        if !finisher.has_callback_route() {
            return;
        }
        if timeout(limits.finish, finisher.finish(&finish)).await.is_err() {
            let (run, awaited, limit_s) = (&finish.run.id, finisher.awaited(), limits.finish.as_secs());
            tracing::warn!(run, "the client did not {awaited} within {limit_s} s");
        }
    }
    let _late = timeout(limits.close, finisher.close()).await;
}

/// Sends a finish. Returns it with its finisher and the report for the coordinator.
///
/// Cancel safe: no, because [`RunFinisher::finish`] is not.
pub(crate) async fn send_finish(mut finisher: Box<RunFinisher>, finish: Box<FinishRequest>) -> SentFinish {
    let report = finisher.finish(&finish).await;
    SentFinish { finisher, finish, report }
}

pub(crate) struct SentFinish {
    pub(crate) finisher: Box<RunFinisher>,
    pub(crate) finish: Box<FinishRequest>,
    /// Report for the coordinator.
    pub(crate) report: FromWatchdog,
}

impl SentFinish {
    /// Returns the finish if it may have to be sent again: the coordinator must still write part of it, and
    /// the finish could be sent over another route if the coordinator dies first.
    pub(crate) fn into_unwritten(self) -> (Box<RunFinisher>, Option<Box<FinishRequest>>) {
        let Self { finisher, finish, report } = self;
        let is_relayed = matches!(report, FromWatchdog::Finished { proof: ProofLevel::Ordered, .. });
        let is_kept = is_relayed && finisher.has_callback_route();
        (finisher, is_kept.then_some(finish))
    }
}
