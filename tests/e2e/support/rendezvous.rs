//! Rendezvous socket: running fixture tests connect to it and wait for a command. A connection ends when the
//! last process that has it open exits, which proves that all these processes are dead.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::recorder::DEADLINE;

/// Number of connected tests that may wait for [`TestRendezvous::next_test`].
const WAITING: usize = 256;

pub(crate) struct TestRendezvous {
    pub(crate) path: PathBuf,
    guests: Receiver<ConnectedTest>,
    is_over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// A running test that has connected.
pub(crate) struct ConnectedTest {
    pub(crate) test_name: String,
    pub(crate) pid: u32,
    stream: UnixStream,
}

impl TestRendezvous {
    pub(crate) fn new(dir: &Path) -> Self {
        let path = dir.join("meeting-point");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, guests) = sync_channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // A buffer of one byte does not read beyond the line. A test that dies before writing sends
                // nothing.
                let mut line = String::new();
                if BufReader::with_capacity(1, &stream).read_line(&mut line).is_ok()
                    && let Some((who, pid)) = line.trim_end().rsplit_once(' ')
                    && sender
                        .send(ConnectedTest { test_name: who.to_owned(), pid: pid.parse().unwrap(), stream })
                        .is_err()
                {
                    return;
                }
            }
        });
        Self { path, guests, is_over, acceptor: Some(acceptor) }
    }

    /// Waits for the next test to connect.
    pub(crate) fn next_test(&self) -> ConnectedTest {
        self.guests.recv_timeout(DEADLINE).expect("a test comes to the meeting point")
    }

    /// Returns the next test that connects before the deadline.
    pub(crate) fn next_test_until(&self, deadline: Instant) -> Option<ConnectedTest> {
        self.guests.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for TestRendezvous {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the acceptor of the meeting point failed");
        }
    }
}

impl ConnectedTest {
    /// Sends a command: `f` fails the test, `s` crashes it, `a` aborts it, anything else passes it.
    pub(crate) fn send_command(&self, word: u8) {
        (&self.stream).write_all(&[word]).unwrap();
    }

    /// Waits until no process has the connection open; returns how long this took.
    pub(crate) fn wait_gone(&self) -> Duration {
        let start = Instant::now();
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        match (&self.stream).read(&mut [0]) {
            // A process that is killed with unread data in its socket resets the connection.
            Ok(0) | Err(_) if start.elapsed() < DEADLINE => start.elapsed(),
            other => panic!("{} ({}) is still there: {other:?}", self.test_name, self.pid),
        }
    }

    /// Closes the connection, which makes the test pass.
    pub(crate) fn release(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
