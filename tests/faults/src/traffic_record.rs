//! The messages sent and received on one connection, in order, as seen by a client without callback
//! connections.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use crate::support::recorder::DEADLINE;

/// An event on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Traffic<M> {
    /// A message that the client is about to send.
    Sent(M),
    Received(M),
    /// The program closed the connection.
    Closed,
}

/// The recorded messages of a connection, shared by its reader, its writer and the round's faults.
pub(crate) struct TrafficRecord<M> {
    state: Mutex<RecordState<M>>,
    changed: Condvar,
}

struct RecordState<M> {
    traffic: Vec<Traffic<M>>,
    received: usize,
    is_closed: bool,
    /// The client has paused reading.
    is_paused: bool,
    /// The client has left. Messages may still arrive.
    is_left: bool,
}

impl<M: Send + fmt::Display + 'static> TrafficRecord<M> {
    /// Records all messages of a reader on a separate thread. The client spends `per_message` on each.
    pub(crate) fn of_reader(
        mut next: impl FnMut() -> Option<M> + Send + 'static,
        per_message: Duration,
    ) -> Arc<Self> {
        let traffic = Vec::new();
        let state = RecordState { traffic, received: 0, is_closed: false, is_paused: false, is_left: false };
        let record = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let own = Arc::clone(&record);
        std::thread::spawn(move || {
            while let Some(message) = next() {
                own.receive(message, per_message);
            }
            let mut state = own.state.lock().unwrap();
            state.traffic.push(Traffic::Closed);
            state.is_closed = true;
            own.changed.notify_all();
        });
        record
    }

    fn receive(&self, message: M, per_message: Duration) {
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| state.is_paused).unwrap();
        if !per_message.is_zero() {
            let until = Instant::now() + per_message;
            let is_early = |state: &mut RecordState<M>| !state.is_left && Instant::now() < until;
            state = self.changed.wait_timeout_while(state, per_message, is_early).unwrap().0;
        }
        state.traffic.push(Traffic::Received(message));
        state.received += 1;
        self.changed.notify_all();
    }

    /// Records a message that the client is about to send.
    pub(crate) fn send(&self, message: M) {
        self.state.lock().unwrap().traffic.push(Traffic::Sent(message));
        // Waiting threads may depend on sent messages: for example, a cancelled call is no longer awaited.
        self.changed.notify_all();
    }

    /// Pauses or resumes reading.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.state.lock().unwrap().is_paused = is_paused;
        self.changed.notify_all();
    }

    /// Records that the client has left. The remaining messages are read without delay.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock().unwrap();
        (state.is_left, state.is_paused) = (true, false);
        self.changed.notify_all();
    }

    /// Returns whether the client has left.
    pub(crate) fn is_left(&self) -> bool {
        self.state.lock().unwrap().is_left
    }

    /// Returns the number of received messages.
    pub(crate) fn received(&self) -> usize {
        self.state.lock().unwrap().received
    }

    /// Returns the number of sent messages.
    pub(crate) fn sent(&self) -> usize {
        self.look(|traffic| traffic.iter().filter(|one| matches!(one, Traffic::Sent(_))).count())
    }

    /// Returns whether a received message satisfies the predicate.
    pub(crate) fn has_received(&self, is_meant: impl Fn(&M) -> bool) -> bool {
        let state = self.state.lock().unwrap();
        state.traffic.iter().any(|one| matches!(one, Traffic::Received(message) if is_meant(message)))
    }

    /// Passes everything recorded so far to `look`.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[Traffic<M>]) -> T) -> T {
        look(&self.state.lock().unwrap().traffic)
    }

    /// Returns the last received message that satisfies the predicate.
    pub(crate) fn last_received(&self, is_meant: impl Fn(&M) -> bool) -> Option<M>
    where
        M: Clone,
    {
        let state = self.state.lock().unwrap();
        state.traffic.iter().rev().find_map(|one| match one {
            Traffic::Received(message) if is_meant(message) => Some(message.clone()),
            _ => None,
        })
    }

    /// Waits until `find` returns a value; `None` if the connection closes first.
    ///
    /// # Panics
    ///
    /// If no value is found, the connection stays open and nothing is received before the deadline. Each
    /// received message extends the deadline, because a round with many runs may take long.
    pub(crate) fn wait<T>(&self, what: &str, mut find: impl FnMut(&[Traffic<M>]) -> Option<T>) -> Option<T> {
        let mut until = Instant::now() + DEADLINE;
        let mut state = self.state.lock().unwrap();
        let mut received = state.received;
        loop {
            if let Some(found) = find(&state.traffic) {
                return Some(found);
            }
            if state.is_closed {
                return None;
            }
            if state.received > received {
                (received, until) = (state.received, Instant::now() + DEADLINE);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let from = state.traffic.len().saturating_sub(20);
                let tail = lines(&state.traffic[from..]);
                // Other threads still need the record.
                drop(state);
                panic!("waited in vain for {what}; the last of it:\n{tail}");
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Waits for the end of the connection; returns all traffic.
    pub(crate) fn wait_closed(&self) -> Vec<Traffic<M>>
    where
        M: Clone,
    {
        let never = |_: &[Traffic<M>]| None::<()>;
        let _none = self.wait("the end of the connection", never);
        self.state.lock().unwrap().traffic.clone()
    }

    /// Returns all traffic as text, for the directory of a finding.
    pub(crate) fn text(&self) -> String {
        lines(&self.state.lock().unwrap().traffic)
    }
}

fn lines<M: fmt::Display>(traffic: &[Traffic<M>]) -> String {
    let line = |one: &Traffic<M>| match one {
        Traffic::Sent(message) => format!("sent: {message}\n"),
        Traffic::Received(message) => format!("received: {message}\n"),
        Traffic::Closed => "closed\n".to_owned(),
    };
    traffic.iter().map(line).collect()
}
