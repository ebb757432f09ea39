//! The client's callback port, with clients of every behaviour.

use std::{
    io::Read,
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
    recorder::{ClientConnection, RecordedEventKind, TrafficRecorder},
};

/// The client's behaviour on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerBehaviour {
    /// Reads everything, responds to unknown requests with an error.
    Normal,
    /// Responds to unknown requests with a result, as no peer should.
    RespondsWithResult,
    /// Reads everything and responds to nothing.
    NeverResponds,
    /// Never reads a byte.
    NeverReads,
    /// Reads one byte a second.
    OneByteASecond,
    /// Reads this number of messages, then closes.
    ClosesAfter(usize),
    /// Closes instead of responding to the barrier.
    ClosesAtTheBarrier,
    /// Reads this number of messages, then shuts down its sending side and continues to read.
    HalfClosesAfter(usize),
    /// Reads this number of messages, then ends the connection with unread data in it.
    ResetsAfter(usize),
    /// Reads this number of messages, then nothing for a while.
    PausesAfter(usize, Duration),
    /// Waits this long before each response.
    RespondsAfter(Duration),
}

/// A listening client.
pub(crate) struct RecordingListener {
    pub(crate) port: u16,
    accepted: Arc<AtomicUsize>,
    state: Arc<ListenerState>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ListenerState {
    is_over: std::sync::atomic::AtomicBool,
    /// Each is closed by its last serving thread.
    streams: Mutex<Vec<Weak<TcpStream>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

impl RecordingListener {
    /// Listens. The behaviour is chosen by the number of the connection.
    pub(crate) fn new(
        recorder: TrafficRecorder,
        choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let state = Arc::new(ListenerState::default());
        let (count, shared) = (Arc::clone(&accepted), Arc::clone(&state));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let stream = Arc::new(stream.unwrap());
                let number = count.fetch_add(1, Ordering::SeqCst);
                let behaviour = choose(number);
                recorder.record(ClientConnection::Callback(number), RecordedEventKind::Opened);
                shared.streams.lock().unwrap().push(Arc::downgrade(&stream));
                let recorder = recorder.clone();
                let state = Arc::clone(&shared);
                let serve = move || match behaviour {
                    ListenerBehaviour::OneByteASecond => read_slowly(&stream, &state),
                    ListenerBehaviour::NeverReads => state.wait_for_the_end(),
                    _ => serve(&stream, behaviour, ClientConnection::Callback(number), &recorder),
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
        // Wakes the acceptor.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the acceptor of the callback port failed");
        }
        for stream in self.state.streams.lock().unwrap().drain(..).filter_map(|stream| stream.upgrade()) {
            // A closed connection needs no shutdown.
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
    // Recorded first, so that the peer's reaction comes after it. The peer may have closed already.
    recorder.record(on, RecordedEventKind::Closed);
    // The last handle is dropped with the caller: unread data makes that close a reset, as with real clients.
}

/// Reads a byte a second, until the listener is gone.
fn read_slowly(mut stream: &TcpStream, state: &ListenerState) {
    let mut byte = [0];
    while !state.is_over.load(Ordering::SeqCst) && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

fn read(stream: &TcpStream, behaviour: ListenerBehaviour, on: ClientConnection, recorder: &TrafficRecorder) {
    // A connection that must leave data unread reads nothing ahead of time.
    let ahead = match behaviour {
        ListenerBehaviour::ClosesAfter(_)
        | ListenerBehaviour::ClosesAtTheBarrier
        | ListenerBehaviour::ResetsAfter(_) => 1,
        _ => 8 << 10,
    };
    let mut frames = MessageReader::with_buffer_size(ahead, stream);
    let mut count = 0;
    while let Some(message) = frames.next() {
        let is_barrier = framing::is_request(&message) && message["method"] != "initialize";
        recorder.record(on, RecordedEventKind::Message(message.clone()));
        count += 1;
        match behaviour {
            ListenerBehaviour::ClosesAfter(after) if count == after => return,
            ListenerBehaviour::ClosesAtTheBarrier if is_barrier => return,
            // Unread data makes the close a reset.
            ListenerBehaviour::ResetsAfter(after) if count == after => {
                return stream.peek(&mut [0]).map_or((), drop);
            }
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

/// Sleeps; the listener's end wakes the thread only to check the clock.
fn wait(pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn response_to(mut stream: &TcpStream, answer: &Value) {
    // A peer that has closed gets no response.
    framing::write_message(&mut stream, answer).ok();
}
