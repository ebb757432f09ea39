//! Routes the notifications of all connections into one event stream. One step decides a notification's
//! effect on its run and queues the event, so events are queued in the order of the state changes.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use heeler_protocol::mtp::{AttachmentParams, LogBatchParams, LogMessage, UpdateParams, method, read_log};
use serde_json::value::RawValue;
use tokio::{sync::watch, time::timeout};

use super::events::{ClientEvent, EventRoom, EventSender, EventSource, LateUpdate};

/// Queues events and tracks completed runs. Shared by the readers of all connections.
#[derive(Debug)]
pub(super) struct EventRouter {
    events: EventSender,
    state: Mutex<RouterState>,
    /// Notified at each state change that a task may wait for.
    state_changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct RouterState {
    /// Completed runs of this session. Entries stay, because a completion is final until the id is used
    /// again.
    completed: HashSet<String>,
    /// Number of open callback connections.
    open_callbacks: usize,
    is_main_lost: bool,
}

impl RouterState {
    /// Returns whether all connections are gone, so nothing more can arrive.
    fn has_no_connection(&self) -> bool {
        self.is_main_lost && self.open_callbacks == 0
    }
}

impl EventRouter {
    pub(super) fn new(events: EventSender) -> Self {
        Self { events, state: Mutex::default(), state_changed: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Starts tracking a run, whose id may have been used before.
    pub(super) fn begin_run(&self, run_id: &str) {
        self.lock().completed.remove(run_id);
    }

    pub(super) fn on_callback_opened(&self) {
        self.lock().open_callbacks += 1;
        self.state_changed.send_replace(());
    }

    pub(super) fn on_callback_closed(&self) {
        self.lock().open_callbacks -= 1;
        self.state_changed.send_replace(());
    }

    pub(super) fn on_main_lost(&self) {
        self.lock().is_main_lost = true;
        self.state_changed.send_replace(());
    }

    /// Waits until a run is complete. Returns `false` if the run has not completed within the limit or can
    /// no longer complete.
    pub(super) async fn wait_for_completion(&self, run_id: &str, limit: Duration) -> bool {
        let mut changed = self.state_changed.subscribe();
        let known = async {
            loop {
                {
                    let state = self.lock();
                    let is_complete = state.completed.contains(run_id);
                    if is_complete || state.has_no_connection() {
                        return is_complete;
                    }
                }
                if changed.changed().await.is_err() {
                    return false;
                }
            }
        };
        timeout(limit, known).await.unwrap_or(false)
    }

    /// Queues an event that does not depend on a run's state; waits for capacity.
    pub(super) async fn send_event(&self, event: ClientEvent) {
        self.send_event_in(event, EventRoom::default()).await;
    }

    async fn send_event_in(&self, event: ClientEvent, room: EventRoom) {
        // `None` means that the receiver of the events was dropped.
        if let Some(place) = self.events.reserve_place().await {
            place.send(event, room);
        }
    }

    /// Handles a notification. On return, its event has its place in the queue.
    ///
    /// Cancel safe: no, because a cancelled call loses the notification.
    pub(super) async fn on_notification(&self, source: &EventSource, name: &str, params: Option<&RawValue>) {
        let text = params.map_or("null", RawValue::get);
        let room = self.events.reserve_room(text.len()).await;
        let read = match name {
            method::UPDATES => match serde_json::from_str(text) {
                Ok(params) => return self.on_updates(source, params, room).await,
                Err(error) => Err(error),
            },
            method::ATTACHMENTS => match serde_json::from_str(text) {
                Ok(params) => return self.on_attachments(source, params, room).await,
                Err(error) => Err(error),
            },
            method::LOG => match read_log(text) {
                Ok(batch) => return self.on_log(batch).await,
                Err(error) => Err(error),
            },
            method::TELEMETRY => serde_json::from_str(text).map(|params| ClientEvent::Telemetry { params }),
            _ => {
                tracing::debug!(%source, name, "ignoring an unknown notification");
                return;
            }
        };
        let event = read.unwrap_or_else(|error| ClientEvent::InvalidMessage {
            source: source.clone(),
            reason: format!("invalid parameters of {name}: {error}"),
        });
        self.send_event_in(event, room).await;
    }

    async fn on_log(&self, batch: LogBatchParams) {
        for LogMessage { node_uid, level, message } in batch.messages {
            self.send_event(ClientEvent::Log { run_id: batch.run_id.clone(), node_uid, level, message })
                .await;
        }
    }

    async fn on_updates(&self, source: &EventSource, params: UpdateParams, room: EventRoom) {
        let UpdateParams { run_id, changes } = params;
        let source = source.clone();
        self.send_in_order(room, |state| match changes {
            None if state.completed.insert(run_id.clone()) => Some(ClientEvent::Completed { run_id }),
            // A repeated completion has no new information; the server sends it when it cannot prove the
            // delivery.
            None => None,
            Some(changes) if state.completed.contains(&run_id) => Some(ClientEvent::UpdateAfterCompletion {
                run_id,
                source,
                late: LateUpdate::Changes(changes),
            }),
            Some(changes) => Some(ClientEvent::Changes { run_id, source, changes }),
        })
        .await;
    }

    async fn on_attachments(&self, source: &EventSource, params: AttachmentParams, room: EventRoom) {
        let AttachmentParams { run_id, attachments } = params;
        let source = source.clone();
        self.send_in_order(room, |state| {
            let is_late = state.completed.contains(&run_id);
            Some(match attachments {
                Some(attachments) if is_late => {
                    let late = LateUpdate::Attachments(attachments);
                    ClientEvent::UpdateAfterCompletion { run_id, source, late }
                }
                Some(attachments) => ClientEvent::Attachments { run_id, source, attachments },
                None if is_late => {
                    ClientEvent::UpdateAfterCompletion { run_id, source, late: LateUpdate::AttachmentsEnded }
                }
                None => ClientEvent::AttachmentsEnded { run_id },
            })
        })
        .await;
    }

    /// Waits for capacity in the event queue, then decides and sends in one step.
    async fn send_in_order(
        &self,
        room: EventRoom,
        decide: impl FnOnce(&mut RouterState) -> Option<ClientEvent>,
    ) {
        let place = self.events.reserve_place().await;
        {
            let mut state = self.lock();
            if let (Some(event), Some(place)) = (decide(&mut state), place) {
                place.send(event, room);
            }
        }
        self.state_changed.send_replace(());
    }
}
