//! Destinations of updates that workers and the watchdog send to clients through the coordinator.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use heeler_protocol::control::{ClientId, RunUpdates};
use heeler_transport::{Outbox, TrySendError};
use tokio::sync::mpsc;

use super::main_barriers::MainBarriers;

/// Destination of the updates for one client.
#[derive(Debug, Clone)]
pub(crate) enum ClientSink {
    /// The client's main connection. Has barriers if the client also accepts callback connections.
    Connection(Outbox, Option<MainBarriers>),
    /// The client's session, as typed updates.
    Session(mpsc::Sender<RunUpdates>),
}

/// The client accepts no more updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientSinkClosed;

/// Why a frame could not be sent at once.
#[derive(Debug)]
pub(crate) enum ClientSinkError {
    /// The queue is full.
    Full(Bytes),
    /// The client accepts no more updates.
    Closed,
}

impl ClientSink {
    /// Sends a frame if there is room.
    ///
    /// # Errors
    /// The queue is full, or the client accepts no more updates.
    pub(crate) fn try_send(&self, frame: Bytes) -> Result<(), ClientSinkError> {
        match self {
            Self::Connection(outbox, _) => outbox.try_send(frame).map_err(|error| match error {
                TrySendError::Full(frame) => ClientSinkError::Full(frame),
                TrySendError::Closed(_) => ClientSinkError::Closed,
            }),
            Self::Session(updates) => match updates.try_reserve() {
                Ok(permit) => {
                    pass_on(permit, &frame);
                    Ok(())
                }
                Err(mpsc::error::TrySendError::Full(())) => Err(ClientSinkError::Full(frame)),
                Err(mpsc::error::TrySendError::Closed(())) => Err(ClientSinkError::Closed),
            },
        }
    }

    /// Sends a frame, waiting for room.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The client accepts no more updates.
    pub(crate) async fn send(&self, frame: Bytes) -> Result<(), ClientSinkClosed> {
        match self {
            Self::Connection(outbox, _) => outbox.send(frame).await.map_err(|_| ClientSinkClosed),
            Self::Session(updates) => {
                let permit = updates.reserve().await.map_err(|_| ClientSinkClosed)?;
                pass_on(permit, &frame);
                Ok(())
            }
        }
    }
}

impl ClientSink {
    /// Waits until the client has handled all sent frames, if data on another connection could overtake them.
    ///
    /// Cancel safe: yes, as [`MainBarriers::prove`].
    pub(crate) async fn wait_until_handled(&self) {
        if let Self::Connection(outbox, Some(barriers)) = self {
            let proof = barriers.prove(outbox).await;
            tracing::debug!(?proof, "a barrier on a main connection");
        }
    }
}

fn pass_on(permit: mpsc::Permit<'_, RunUpdates>, frame: &[u8]) {
    match RunUpdates::read(frame) {
        Ok(updates) => permit.send(updates),
        // Both ends are the same program, so this is a bug in Heeler.
        Err(error) => tracing::error!(%error, "internal error: updates for a session could not be decoded"),
    }
}

/// The sinks of all clients. Clones share state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientSinks {
    by_client: Arc<Mutex<HashMap<ClientId, ClientSink>>>,
}

impl ClientSinks {
    pub(crate) fn insert(&self, client: ClientId, sink: ClientSink) {
        self.lock().insert(client, sink);
    }

    /// Removes a client that has left. Frames that wait for room keep waiting until the session closes its
    /// end.
    pub(crate) fn remove(&self, client: ClientId) {
        drop(self.lock().remove(&client));
    }

    /// Shares the client's answers on its main connection with the processes that use this control socket.
    pub(crate) fn share_answers(&self, client: ClientId, control_socket: &Path) {
        if let Some(ClientSink::Connection(_, Some(barriers))) = self.get(client) {
            barriers.share(control_socket, client);
        }
    }

    /// Returns a client's sink; `None` after the client has left.
    #[must_use]
    pub(crate) fn get(&self, client: ClientId) -> Option<ClientSink> {
        self.lock().get(&client).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, ClientSink>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::control::{TestUpdate, UpdateEncoding};

    use super::*;

    #[tokio::test]
    async fn session_that_takes_no_updates_holds_their_sender_back() {
        let (sender, mut updates) = mpsc::channel(1);
        let sink = ClientSink::Session(sender);
        let frame = UpdateEncoding::Typed.completion("r");
        sink.try_send(frame.clone()).unwrap();
        assert!(matches!(sink.try_send(frame.clone()), Err(ClientSinkError::Full(back)) if back == frame));
        let expected = RunUpdates { run: "r".into(), updates: vec![TestUpdate::Completed] };
        assert_eq!(updates.recv().await, Some(expected.clone()));
        sink.send(frame.clone()).await.unwrap();
        assert_eq!(updates.recv().await, Some(expected));
        // A frame that is not an update is dropped and does not close the sink.
        sink.send(Bytes::from_static(b"{}")).await.unwrap();
        drop(updates);
        assert!(matches!(sink.try_send(frame.clone()), Err(ClientSinkError::Closed)));
        assert_eq!(sink.send(frame).await, Err(ClientSinkClosed));
    }
}
