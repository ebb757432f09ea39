//! The client's callback port, with correct and incorrect client behaviour.

use std::{
    io::{ErrorKind, Read},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    framing::{self, MessageReader},
    message_handlers::{MessageHandlers, ReadQueue, ResponseWriter},
    process::wait_until,
    recorder::{ClientConnection, RecordedEventKind, TrafficRecorder},
};

/// How a client behaves on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerBehaviour {
    /// Reads everything, responds to unknown requests with an error.
    Normal,
    /// Responds to unknown requests with a result, contrary to JSON-RPC.
    RespondsWithResult,
    /// Reads everything and responds to nothing.
    NeverResponds,
    /// Never reads a byte.
    NeverReads,
    /// Reads one byte per second.
    OneByteASecond,
    /// Reads this number of messages, then closes the connection.
    ClosesAfter(usize),
    /// Closes the connection instead of responding to a barrier.
    ClosesAtTheBarrier,
    /// Reads this number of messages, then shuts down its sending side and continues to read.
    HalfClosesAfter(usize),
    /// Reads this number of messages, then closes the connection with unread data, which resets it.
    ResetsAfter(usize),
    /// Reads one message, then closes the connection once an unread completion is in the kernel's buffer.
    ResetsBehindUnreadCompletion,
    /// Reads this number of messages, then pauses for this long.
    PausesAfter(usize, Duration),
    /// Waits this long before each response.
    RespondsAfter(Duration),
    /// Reads at most this number of bytes at a time and pauses for this long after each read.
    ReadsAtRate(usize, Duration),
}

impl ListenerBehaviour {
    /// Returns whether the client reads everything and responds to every request.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Normal | Self::ReadsAtRate(..))
    }
}

/// A client that listens for callback connections and records them.
pub(crate) struct RecordingListener {
    pub(crate) port: u16,
    accepted: Arc<AtomicUsize>,
    state: Arc<ListenerState>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ListenerState {
    is_over: std::sync::atomic::AtomicBool,
    /// Weak, so that the last thread that serves a stream closes it.
    streams: Mutex<Vec<Weak<TcpStream>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

impl RecordingListener {
    /// Starts listening. `choose` selects the behaviour of each connection by its number.
    pub(crate) fn new(
        recorder: TrafficRecorder,
        choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
    ) -> Self {
        Self::with_handlers(recorder, None, choose)
    }

    /// Like [`RecordingListener::new`], but `handlers` handle the messages of reliable connections.
    pub(crate) fn with_handlers(
        recorder: TrafficRecorder,
        handlers: Option<MessageHandlers>,
        choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let state = Arc::new(ListenerState::default());
        let (count, shared) = (Arc::clone(&accepted), Arc::clone(&state));
        let acceptor = std::thread::spawn(move || {
            loop {
                // Pending connections are served even at the end, because one of them may carry the
                // completion.
                let is_over = shared.is_over.load(Ordering::SeqCst);
                listener.set_nonblocking(is_over).unwrap();
                let stream = match listener.accept() {
                    Ok((stream, _)) => Arc::new(stream),
                    Err(error) if is_over && error.kind() == ErrorKind::WouldBlock => return,
                    Err(error) => panic!("the callback port failed: {error}"),
                };
                let number = count.fetch_add(1, Ordering::SeqCst);
                let behaviour = choose(number);
                recorder.record(ClientConnection::Callback(number), RecordedEventKind::Opened);
                shared.streams.lock().unwrap().push(Arc::downgrade(&stream));
                let recorder = recorder.clone();
                let state = Arc::clone(&shared);
                let on = ClientConnection::Callback(number);
                let handlers = handlers.clone().filter(|_| behaviour.is_reliable());
                let queue = handlers.map(|handlers| {
                    let responses = stream.try_clone().ok().map(|stream| {
                        let writer: ResponseWriter = Arc::new(Mutex::new(Box::new(stream)));
                        writer
                    });
                    handlers.connect(on, responses)
                });
                let serve = move || match (behaviour, queue) {
                    (ListenerBehaviour::OneByteASecond, _) => read_slowly(&stream, &state),
                    (ListenerBehaviour::NeverReads, _) => state.wait_for_the_end(),
                    (_, Some(queue)) => read_into(queue, &stream, behaviour),
                    (_, None) => serve(&stream, behaviour, on, &recorder),
                };
                shared.readers.lock().unwrap().push(std::thread::spawn(serve));
            }
        });
        Self { port, accepted, state, acceptor: Some(acceptor) }
    }

    /// Returns the number of accepted connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for RecordingListener {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // This connection wakes the accepting thread.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the acceptor of the callback port failed");
        }
        for stream in self.state.streams.lock().unwrap().drain(..).filter_map(|stream| stream.upgrade()) {
            // The peer may have closed the connection already.
            stream.shutdown(Shutdown::Both).ok();
        }
        for reader in std::mem::take(&mut *self.state.readers.lock().unwrap()) {
            reader.thread().unpark();
            let ended = reader.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a reader of the callback port failed");
        }
    }
}

impl ListenerState {
    fn wait_for_the_end(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
}

fn serve(stream: &TcpStream, behaviour: ListenerBehaviour, on: ClientConnection, recorder: &TrafficRecorder) {
    read(stream, behaviour, on, recorder);
    // Record the close before closing, so that the peer's reaction is recorded after it.
    recorder.record(on, RecordedEventKind::Closed);
    // The caller drops the last handle. Unread data turns this close into a reset, as with real clients.
}

/// Reads everything into the handlers' queue and closes the connection at the end of the stream. As in real
/// client libraries, the close does not wait for the handlers.
fn read_into(queue: ReadQueue, stream: &TcpStream, behaviour: ListenerBehaviour) {
    let mut frames = frames_of(stream, behaviour);
    while let Some(message) = frames.next() {
        queue.push(message);
    }
    // The peer may have closed already.
    stream.shutdown(Shutdown::Both).ok();
    queue.close();
}

fn frames_of(stream: &TcpStream, behaviour: ListenerBehaviour) -> MessageReader<RateLimitedStream<'_>> {
    let (ahead, pause) = match behaviour {
        // Connections that must leave data unread must not read ahead.
        ListenerBehaviour::ClosesAfter(_)
        | ListenerBehaviour::ClosesAtTheBarrier
        | ListenerBehaviour::ResetsAfter(_)
        | ListenerBehaviour::ResetsBehindUnreadCompletion => (1, Duration::ZERO),
        ListenerBehaviour::ReadsAtRate(bytes, pause) => (bytes, pause),
        _ => (8 << 10, Duration::ZERO),
    };
    let limit = if pause.is_zero() { usize::MAX } else { ahead };
    MessageReader::with_buffer_size(ahead, RateLimitedStream { stream, limit, pause })
}

/// A stream that reads at most `limit` bytes at a time and pauses after each read.
struct RateLimitedStream<'a> {
    stream: &'a TcpStream,
    limit: usize,
    pause: Duration,
}

impl Read for RateLimitedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = buffer.len().min(self.limit);
        let count = self.stream.read(&mut buffer[..end])?;
        wait(self.pause);
        Ok(count)
    }
}

/// Reads one byte per second until the listener is dropped.
fn read_slowly(mut stream: &TcpStream, state: &ListenerState) {
    let mut byte = [0];
    while !state.is_over.load(Ordering::SeqCst) && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

fn read(stream: &TcpStream, behaviour: ListenerBehaviour, on: ClientConnection, recorder: &TrafficRecorder) {
    let mut frames = frames_of(stream, behaviour);
    let mut count = 0;
    while let Some(message) = frames.next() {
        let is_barrier = framing::is_request(&message) && message["method"] != "initialize";
        recorder.record(on, RecordedEventKind::Message(message.clone()));
        count += 1;
        match behaviour {
            ListenerBehaviour::ClosesAfter(after) if count == after => return,
            ListenerBehaviour::ClosesAtTheBarrier if is_barrier => return,
            // Unread data turns the close into a reset.
            ListenerBehaviour::ResetsAfter(after) if count == after => {
                return stream.peek(&mut [0]).map_or((), drop);
            }
            ListenerBehaviour::ResetsBehindUnreadCompletion => return wait_for_unread_completion(stream),
            ListenerBehaviour::HalfClosesAfter(after) if count == after => {
                stream.shutdown(Shutdown::Write).ok();
            }
            ListenerBehaviour::PausesAfter(after, pause) if count == after => wait(pause),
            ListenerBehaviour::RespondsAfter(pause) if is_barrier => wait(pause),
            _ => {}
        }
        if framing::is_request(&message) && behaviour != ListenerBehaviour::NeverResponds {
            let answer = match behaviour {
                ListenerBehaviour::RespondsWithResult => framing::empty_result(&message["id"]),
                _ if is_barrier => framing::method_not_found(&message["id"]),
                _ => framing::empty_result(&message["id"]),
            };
            response_to(stream, &answer);
        }
    }
}

/// Waits until the kernel has received a completion, without reading it.
fn wait_for_unread_completion(stream: &TcpStream) {
    let mut unread = vec![0; 1 << 20];
    wait_until("the kernel has an unread completion", || {
        let length = stream.peek(&mut unread).unwrap_or(0);
        let text = String::from_utf8_lossy(&unread[..length]);
        text.contains("\"changes\":null")
    });
}

/// Sleeps for all of `pause`. Dropping the listener unparks the thread, so it goes back to sleep.
fn wait(pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn response_to(mut stream: &TcpStream, answer: &Value) {
    // The peer may have closed the connection.
    framing::write_message(&mut stream, answer).ok();
}
