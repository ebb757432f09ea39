//! Routes the notifications of all connections into one event stream. The effect of a notification on its run
//! is decided in the same step that queues the event. Events are therefore queued in the order in which the
//! state changed.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use wire::mtp::{AttachmentParams, LogBatchParams, LogMessage, UpdateParams, method, read_log};

use super::events::{Event, Late, Source};

/// Queues events and tracks completed runs; shared by the readers of all connections.
#[derive(Debug)]
pub(super) struct Intake {
    events: mpsc::Sender<Event>,
    state: Mutex<State>,
    /// Notified at each change of the state that a task may wait for.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Completed runs of this session. Entries are kept, because completion is final until the id is used
    /// again.
    completed: HashSet<String>,
    /// The number of open callback connections.
    callbacks: usize,
    is_main_lost: bool,
}

impl State {
    /// Returns whether no connection is left on which anything could arrive.
    fn is_deaf(&self) -> bool {
        self.is_main_lost && self.callbacks == 0
    }
}

impl Intake {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Starts tracking a run; its id may have been used before.
    pub(super) fn begin(&self, run_id: &str) {
        self.lock().completed.remove(run_id);
    }

    pub(super) fn callback_opened(&self) {
        self.lock().callbacks += 1;
        self.changed.send_replace(());
    }

    pub(super) fn callback_closed(&self) {
        self.lock().callbacks -= 1;
        self.changed.send_replace(());
    }

    pub(super) fn main_lost(&self) {
        self.lock().is_main_lost = true;
        self.changed.send_replace(());
    }

    /// Waits until a run is complete; returns `false` if that has not happened within the limit or can no
    /// longer happen.
    pub(super) async fn completion(&self, run_id: &str, limit: Duration) -> bool {
        let mut changed = self.changed.subscribe();
        let known = async {
            loop {
                {
                    let state = self.lock();
                    let is_complete = state.completed.contains(run_id);
                    if is_complete || state.is_deaf() {
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

    /// Queues an event that does not depend on the state of a run, waiting for capacity.
    pub(super) async fn tell(&self, event: Event) {
        // A failure means that the user of the library has dropped the receiver and wants no events.
        drop(self.events.send(event).await);
    }

    /// Handles one notification. On return its event has its place in the queue.
    ///
    /// Cancel safe: no, because a cancelled call loses the notification that was read.
    pub(super) async fn notification(&self, source: &Source, name: &str, params: Option<&RawValue>) {
        let text = params.map_or("null", RawValue::get);
        let read = match name {
            method::UPDATES => match serde_json::from_str(text) {
                Ok(params) => return self.updates(source, params).await,
                Err(error) => Err(error),
            },
            method::ATTACHMENTS => match serde_json::from_str(text) {
                Ok(params) => return self.attachments(source, params).await,
                Err(error) => Err(error),
            },
            method::LOG => match read_log(text) {
                Ok(batch) => return self.log(batch).await,
                Err(error) => Err(error),
            },
            method::TELEMETRY => serde_json::from_str(text).map(|params| Event::Telemetry { params }),
            _ => {
                tracing::debug!(%source, name, "a notification that is not known here");
                return;
            }
        };
        let event = read.unwrap_or_else(|error| Event::Unreadable {
            source: source.clone(),
            reason: format!("parameters of {name}: {error}"),
        });
        self.tell(event).await;
    }

    async fn log(&self, batch: LogBatchParams) {
        for LogMessage { node_uid, level, message } in batch.messages {
            self.tell(Event::Log { run_id: batch.run_id.clone(), node_uid, level, message }).await;
        }
    }

    async fn updates(&self, source: &Source, params: UpdateParams) {
        let UpdateParams { run_id, changes } = params;
        let source = source.clone();
        self.in_order(|state| match changes {
            None if state.completed.insert(run_id.clone()) => Some(Event::Completed { run_id }),
            // A repeated completion, sent because its delivery could not be proven: no new information.
            None => None,
            Some(changes) if state.completed.contains(&run_id) => {
                Some(Event::UpdateAfterCompletion { run_id, source, late: Late::Changes(changes) })
            }
            Some(changes) => Some(Event::Changes { run_id, source, changes }),
        })
        .await;
    }

    async fn attachments(&self, source: &Source, params: AttachmentParams) {
        let AttachmentParams { run_id, attachments } = params;
        let source = source.clone();
        self.in_order(|state| {
            let is_late = state.completed.contains(&run_id);
            Some(match attachments {
                Some(attachments) if is_late => {
                    let late = Late::Attachments(attachments);
                    Event::UpdateAfterCompletion { run_id, source, late }
                }
                Some(attachments) => Event::Attachments { run_id, source, attachments },
                None if is_late => {
                    Event::UpdateAfterCompletion { run_id, source, late: Late::AttachmentsEnded }
                }
                None => Event::AttachmentsEnded { run_id },
            })
        })
        .await;
    }

    /// Waits for capacity in the event queue, then decides and sends in one step.
    async fn in_order(&self, decide: impl FnOnce(&mut State) -> Option<Event>) {
        let room = self.events.reserve().await.ok();
        {
            let mut state = self.lock();
            if let (Some(event), Some(room)) = (decide(&mut state), room) {
                room.send(event);
            }
        }
        self.changed.send_replace(());
    }
}
