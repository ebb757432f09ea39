//! The main connections of all clients, by client: where frames of workers and of the watchdog are forwarded to.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use heeler_protocol::control::ClientId;
use heeler_transport::Outbox;

/// The outboxes of all clients. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ClientOutboxes {
    by_client: Arc<Mutex<HashMap<ClientId, Outbox>>>,
}

impl ClientOutboxes {
    /// Adds a client.
    pub fn insert(&self, client: ClientId, outbox: Outbox) {
        self.lock().insert(client, outbox);
    }

    /// Removes a client that has left. Frames that still wait for room in its outbox wait until the session has
    /// closed it.
    pub fn remove(&self, client: ClientId) {
        drop(self.lock().remove(&client));
    }

    /// Returns a client's outbox; `None` after the client has left.
    #[must_use]
    pub fn get(&self, client: ClientId) -> Option<Outbox> {
        self.lock().get(&client).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Outbox>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
