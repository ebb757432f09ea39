//! The message handlers of a client. Each message that was read waits in a queue until its handler has run.
//! The recorder then contains the handling order over all connections, and the wire log has one line per
//! step.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    framing::{self, MessageReader},
    recorder::{ClientConnection, RecordedEventKind, TrafficRecorder},
};

const UPDATES: &str = "testing/testUpdates/tests";
/// Methods that the client handles as notifications. StreamJsonRpc also passes requests with these methods to
/// the handlers.
const HANDLED: [&str; 4] = [UPDATES, "testing/testUpdates/attachments", "client/log", "telemetry/update"];

/// How a client handles messages after reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHandling {
    pub(crate) queues: HandlerQueues,
    pub(crate) duration: HandlerDuration,
    pub(crate) responses: ResponseRule,
    /// Block the handlers once for this long, at the message with this number (counted over all connections).
    pub(crate) busy_once: Option<(usize, Duration)>,
}

pub(crate) type ResponseWriter = Arc<Mutex<Box<dyn Write + Send>>>;

/// Queues between the read loops and the handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerQueues {
    /// One queue and one thread for each connection, the default of StreamJsonRpc.
    PerConnection,
    /// One queue for each connection, served round-robin by one thread, as in vscode-jsonrpc.
    InTurn,
    /// One queue and one thread for all connections.
    Shared,
}

/// How long a handler takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerDuration {
    PerNotification(Duration),
    PerChange(Duration),
}

/// How a client responds to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseRule {
    /// StreamJsonRpc: the read loop rejects an unknown method at once. A request with a known method waits
    /// for its handler, whose result is null.
    UnknownAtOnce,
    /// vscode-jsonrpc: every request waits in the queue and is then rejected.
    InOrder,
    /// lsp4j: a request whose method has a notification handler is handled but never answered. A request with
    /// an unknown method waits in the queue and gets the result null.
    UnknownInOrder,
    /// Like `InOrder`, but a log message counts as a notification even if it has an id.
    NoneForLog,
    /// Never responds.
    Never,
}

/// The handlers of a client.
#[derive(Clone)]
pub(crate) struct MessageHandlers {
    handling: MessageHandling,
    recorder: TrafficRecorder,
    /// Number of handled messages over all connections.
    handled: Arc<AtomicUsize>,
    /// The queue shared by all connections; `None` if each connection has a queue.
    shared: Option<Sender<ReadMessage>>,
}

/// A message in a queue.
struct ReadMessage {
    on: ClientConnection,
    what: RecordedEventKind,
    response: Option<(Value, ResponseWriter)>,
}

/// The read loop's end of a connection's queue.
pub(crate) struct ReadQueue {
    on: ClientConnection,
    handling: MessageHandling,
    recorder: TrafficRecorder,
    queue: Sender<ReadMessage>,
    responses: Option<ResponseWriter>,
}

impl MessageHandlers {
    pub(crate) fn new(handling: MessageHandling, recorder: TrafficRecorder) -> Self {
        let is_shared = handling.queues != HandlerQueues::PerConnection;
        let handled = Arc::new(AtomicUsize::new(0));
        let shared = is_shared.then(|| start_handlers(handling, recorder.clone(), Arc::clone(&handled)));
        Self { handling, recorder, handled, shared }
    }

    /// Reads a main connection on a separate thread.
    pub(crate) fn read_main(&self, from: Box<dyn Read + Send>, to: ResponseWriter) {
        self.recorder.record(ClientConnection::Main, RecordedEventKind::Opened);
        let queue = self.connect(ClientConnection::Main, Some(to));
        std::thread::spawn(move || {
            let mut frames = MessageReader::new(from);
            while let Some(message) = frames.next() {
                queue.push(message);
            }
            queue.close();
        });
    }

    /// Opens the queue of a connection.
    pub(crate) fn connect(&self, on: ClientConnection, responses: Option<ResponseWriter>) -> ReadQueue {
        let own = || start_handlers(self.handling, self.recorder.clone(), Arc::clone(&self.handled));
        ReadQueue {
            on,
            handling: self.handling,
            recorder: self.recorder.clone(),
            queue: self.shared.clone().unwrap_or_else(own),
            responses,
        }
    }
}

impl ReadQueue {
    /// Queues a message from the read loop. Blocks while the recorder has paused this connection.
    pub(crate) fn push(&self, message: Value) {
        self.recorder.wait_readable(self.on);
        self.recorder.note(self.on, &format!("read {}", summary(&message)));
        let response = self.response_to(&message).zip(self.responses.clone());
        let is_unknown = !HANDLED.iter().any(|method| message["method"] == *method);
        let what = RecordedEventKind::Message(message);
        match response {
            Some((response, stream))
                if is_unknown && self.handling.responses == ResponseRule::UnknownAtOnce =>
            {
                respond(&self.recorder, self.on, &response, &stream);
                self.send(what, None);
            }
            response => self.send(what, response),
        }
    }

    /// Closes the connection once everything read from it has been handled.
    pub(crate) fn close(self) {
        self.recorder.note(self.on, "read the end of the stream");
        self.send(RecordedEventKind::Closed, None);
        let Self { on, recorder, queue, .. } = self;
        drop(queue);
        recorder.wait("the handlers of a closed connection", |events| {
            let is_closed = |what: &RecordedEventKind| matches!(what, RecordedEventKind::Closed);
            events.iter().rev().any(|event| event.on == on && is_closed(&event.what)).then_some(())
        });
    }

    fn response_to(&self, message: &Value) -> Option<Value> {
        if !framing::is_request(message) || self.handling.responses == ResponseRule::Never {
            return None;
        }
        let id = &message["id"];
        let is_known = HANDLED.iter().any(|method| message["method"] == *method);
        Some(match self.handling.responses {
            _ if message["method"] == "initialize" => framing::empty_result(id),
            ResponseRule::UnknownInOrder if is_known => return None,
            ResponseRule::NoneForLog if message["method"] == "client/log" => return None,
            ResponseRule::UnknownInOrder => json!({"jsonrpc": "2.0", "id": id, "result": null}),
            ResponseRule::UnknownAtOnce if is_known => json!({"jsonrpc": "2.0", "id": id, "result": null}),
            _ => framing::method_not_found(id),
        })
    }

    fn send(&self, what: RecordedEventKind, response: Option<(Value, ResponseWriter)>) {
        let message = ReadMessage { on: self.on, what, response };
        assert!(self.queue.send(message).is_ok(), "the handlers of {:?} have failed", self.on);
    }
}

/// Starts a handler thread; returns its queue. The thread exits when all senders are dropped.
fn start_handlers(
    handling: MessageHandling,
    recorder: TrafficRecorder,
    handled: Arc<AtomicUsize>,
) -> Sender<ReadMessage> {
    let (queue, read) = channel();
    let handler = Handler { handling, recorder, handled };
    std::thread::spawn(move || match handling.queues {
        HandlerQueues::PerConnection | HandlerQueues::Shared => {
            read.iter().for_each(|message| handler.handle(message));
        }
        HandlerQueues::InTurn => handle_in_turn(&handler, &read),
    });
    queue
}

struct Handler {
    handling: MessageHandling,
    recorder: TrafficRecorder,
    handled: Arc<AtomicUsize>,
}

/// Handles one message from each connection in turn.
fn handle_in_turn(handler: &Handler, read: &Receiver<ReadMessage>) {
    let mut waiting: BTreeMap<ClientConnection, VecDeque<ReadMessage>> = BTreeMap::new();
    let mut last = ClientConnection::Main;
    while let Ok(message) = read.recv() {
        waiting.entry(message.on).or_default().push_back(message);
        loop {
            read.try_iter().for_each(|more| waiting.entry(more.on).or_default().push_back(more));
            waiting.retain(|_, queue| !queue.is_empty());
            let next = waiting.keys().find(|on| **on > last).or_else(|| waiting.keys().next()).copied();
            let Some(on) = next else { break };
            last = on;
            let message = waiting.get_mut(&on).and_then(VecDeque::pop_front).expect("it is not empty");
            handler.handle(message);
        }
    }
}

impl Handler {
    fn handle(&self, message: ReadMessage) {
        let Self { handling, recorder, handled } = self;
        let ReadMessage { on, what, response } = message;
        if let RecordedEventKind::Message(message) = &what {
            let changes = message["params"]["changes"].as_array().map_or(0, Vec::len);
            let number = handled.fetch_add(1, Ordering::SeqCst);
            if let Some((_, time)) = handling.busy_once.filter(|(at, _)| *at == number) {
                recorder.note(on, "is busy");
                work(time);
            }
            match handling.duration {
                _ if message.get("method").is_none() => {}
                HandlerDuration::PerNotification(time) => work(time),
                HandlerDuration::PerChange(time) => {
                    work(time * u32::try_from(changes).expect("frames are bounded"))
                }
            }
            recorder.note(on, &format!("handled {}", summary(message)));
        }
        recorder.record(on, what);
        if let Some((response, stream)) = response {
            respond(recorder, on, &response, &stream);
        }
    }
}

fn respond(recorder: &TrafficRecorder, on: ClientConnection, response: &Value, stream: &ResponseWriter) {
    recorder.note(on, &format!("responds to {}", response["id"]));
    // The peer may have closed the connection.
    framing::write_message(&mut **stream.lock().unwrap(), response).ok();
}

/// Keeps a handler busy. To simulate a slow client, nothing interrupts it.
fn work(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn summary(message: &Value) -> String {
    let (method, id) = (message["method"].as_str().unwrap_or("response"), &message["id"]);
    let params = &message["params"];
    match params.get("changes") {
        Some(Value::Array(changes)) => {
            let uid = |change: Option<&Value>| {
                change.map_or(Value::Null, |change| {
                    json!([change["node"]["uid"], change["node"]["execution-state"]])
                })
            };
            let (first, last) = (uid(changes.first()), uid(changes.last()));
            format!("{method} id {id} run {} {} changes {first} to {last}", params["runId"], changes.len())
        }
        Some(_) => format!("{method} id {id} run {} COMPLETION", params["runId"]),
        None => format!("{method} id {id}"),
    }
}
