//! Records all events on all connections of one client, in the order that the client sees them.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::schema::server_schema_violation;

/// Timeout of every wait: not even a slow machine needs this long, so exceeding it means a hang.
pub(crate) const DEADLINE: Duration = Duration::from_secs(150);

const UPDATES: &str = "testing/testUpdates/tests";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientConnection {
    /// The main connection.
    Main,
    /// A callback connection, numbered in the order of acceptance.
    Callback(usize),
}

#[derive(Debug, Clone)]
pub(crate) enum RecordedEventKind {
    Opened,
    Message(Value),
    /// The message recorded next violates the schema.
    SchemaViolation(String),
    Closed,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordedEvent {
    pub(crate) on: ClientConnection,
    pub(crate) what: RecordedEventKind,
}

impl RecordedEvent {
    /// Returns whether the event is the completion of this run.
    pub(crate) fn is_completion_of(&self, run_id: &str) -> bool {
        let params = self.params("testing/testUpdates/tests");
        params.is_some_and(|params| params["runId"] == run_id && params["changes"].is_null())
    }

    pub(crate) fn message(&self) -> Option<&Value> {
        match &self.what {
            RecordedEventKind::Message(message) => Some(message),
            RecordedEventKind::Opened | RecordedEventKind::Closed | RecordedEventKind::SchemaViolation(_) => {
                None
            }
        }
    }

    /// Returns the parameters if the event is a message with this method. Returns `None` for a barrier, which
    /// is a request with the method of updates.
    pub(crate) fn params(&self, method: &str) -> Option<&Value> {
        let message = self.message()?;
        let is_barrier = method == UPDATES && message.get("id").is_some();
        (message["method"] == method && !is_barrier).then_some(&message["params"])
    }
}

/// The recorded events, shared by all threads that read a connection.
#[derive(Clone, Default)]
pub(crate) struct TrafficRecorder(
    Arc<(Mutex<Vec<RecordedEvent>>, Condvar)>,
    Arc<(Mutex<PausedConnections>, Condvar)>,
    Arc<WireLog>,
);

/// Wire log: what a client with handlers has read, handled and answered, with timestamps.
struct WireLog {
    start: Instant,
    lines: Mutex<Vec<String>>,
}

impl Default for WireLog {
    fn default() -> Self {
        Self { start: Instant::now(), lines: Mutex::default() }
    }
}

/// Connections that the client currently does not read.
#[derive(Default, Clone, Copy)]
struct PausedConnections {
    main: bool,
    callbacks: bool,
}

impl PausedConnections {
    fn holds(self, on: ClientConnection) -> bool {
        match on {
            ClientConnection::Main => self.main,
            ClientConnection::Callback(_) => self.callbacks,
        }
    }
}

impl TrafficRecorder {
    /// Records an event. Blocks while its connection is paused.
    pub(crate) fn record(&self, on: ClientConnection, what: RecordedEventKind) {
        self.wait_readable(on);
        let (events, changed) = &*self.0;
        let wrong = match &what {
            RecordedEventKind::Message(message) => {
                server_schema_violation(message).map(|wrong| format!("{wrong}\n{message}"))
            }
            RecordedEventKind::Opened | RecordedEventKind::Closed | RecordedEventKind::SchemaViolation(_) => {
                None
            }
        };
        if let Some(wrong) = wrong {
            events
                .lock()
                .unwrap()
                .push(RecordedEvent { on, what: RecordedEventKind::SchemaViolation(wrong) });
        }
        events.lock().unwrap().push(RecordedEvent { on, what });
        changed.notify_all();
    }

    /// Waits until a connection is not paused.
    pub(crate) fn wait_readable(&self, on: ClientConnection) {
        let (stopped, changed) = &*self.1;
        drop(changed.wait_while(stopped.lock().unwrap(), |stopped| stopped.holds(on)).unwrap());
    }

    /// Adds a line to the wire log.
    pub(crate) fn note(&self, on: ClientConnection, what: &str) {
        let mut lines = self.2.lines.lock().unwrap();
        lines.push(format!("{:9.3} ms {on:?}: {what}", self.2.start.elapsed().as_secs_f64() * 1000.0));
    }

    pub(crate) fn wire_log(&self) -> String {
        self.2.lines.lock().unwrap().join("\n")
    }

    /// Stops reading the main connection.
    pub(crate) fn stop_main(&self) {
        self.1.0.lock().unwrap().main = true;
    }

    /// Returns whether the main connection is stopped.
    pub(crate) fn is_main_stopped(&self) -> bool {
        self.1.0.lock().unwrap().main
    }

    /// Stops reading the callback connections.
    pub(crate) fn stop_callbacks(&self) {
        self.1.0.lock().unwrap().callbacks = true;
    }

    /// Resumes reading all connections.
    pub(crate) fn resume(&self) {
        *self.1.0.lock().unwrap() = PausedConnections::default();
        self.1.1.notify_all();
    }

    /// Returns all events so far.
    pub(crate) fn events(&self) -> Vec<RecordedEvent> {
        let events = self.0.0.lock().unwrap().clone();
        check(&events);
        events
    }

    /// Waits until `find` returns a value.
    ///
    /// # Panics
    ///
    /// If `find` returns `None` and no event arrives before the deadline. Each event extends the deadline,
    /// because a run may be slow on a busy machine.
    pub(crate) fn wait<T>(&self, what: &str, mut find: impl FnMut(&[RecordedEvent]) -> Option<T>) -> T {
        let (events, changed) = &*self.0;
        let mut until = Instant::now() + DEADLINE;
        let mut events = events.lock().unwrap();
        let mut seen = events.len();
        loop {
            if let Some(found) = find(&events) {
                check(&events);
                return found;
            }
            if events.len() > seen {
                (seen, until) = (events.len(), Instant::now() + DEADLINE);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let last = tail(&events);
                // Release the lock before panicking: other threads still need the record, and the panic would
                // poison it.
                drop(events);
                panic!("waited in vain for {what}; the last of it:\n{last}");
            }
            events = changed.wait_timeout(events, left).unwrap().0;
        }
    }
}

#[track_caller]
fn check(events: &[RecordedEvent]) {
    for event in events {
        if let RecordedEventKind::SchemaViolation(wrong) = &event.what {
            panic!("a message on {:?} is against tests/schema/server.schema.json: {wrong}", event.on);
        }
    }
}

/// Returns the last events, for failure messages.
pub(crate) fn tail(events: &[RecordedEvent]) -> String {
    let from = events.len().saturating_sub(30);
    let line = |event: &RecordedEvent| {
        let text = match &event.what {
            RecordedEventKind::Opened => "opened".to_owned(),
            RecordedEventKind::Closed => "closed".to_owned(),
            RecordedEventKind::SchemaViolation(wrong) => format!("against the schema: {wrong}"),
            RecordedEventKind::Message(message) => message.to_string().chars().take(400).collect(),
        };
        format!("{:?}: {text}\n", event.on)
    };
    events[from..].iter().map(line).collect()
}
