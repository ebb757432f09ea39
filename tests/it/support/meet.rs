//! Where tests of the fixtures say that they run, and wait for a word. The connection of a test ends when the last
//! process that holds it is gone: that is how deaths are proven.

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

/// So many tests may wait to be noticed.
const WAITING: usize = 256;

/// The meeting point.
pub(crate) struct Meet {
    pub(crate) path: PathBuf,
    guests: Receiver<Guest>,
    is_over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// A test that runs now.
pub(crate) struct Guest {
    /// Its name.
    pub(crate) who: String,
    /// Its process.
    pub(crate) pid: u32,
    stream: UnixStream,
}

impl Meet {
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
                // Byte by byte, so that nothing of what follows is taken; a test that dies in between says nothing.
                let mut line = String::new();
                if BufReader::with_capacity(1, &stream).read_line(&mut line).is_ok()
                    && let Some((who, pid)) = line.trim_end().rsplit_once(' ')
                    && sender.send(Guest { who: who.to_owned(), pid: pid.parse().unwrap(), stream }).is_err()
                {
                    return;
                }
            }
        });
        Self { path, guests, is_over, acceptor: Some(acceptor) }
    }

    /// Waits for the next test to come.
    pub(crate) fn next(&self) -> Guest {
        self.guests.recv_timeout(DEADLINE).expect("a test comes to the meeting point")
    }

    /// Returns the next test if one comes before the deadline.
    pub(crate) fn next_until(&self, deadline: Instant) -> Option<Guest> {
        self.guests.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for Meet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the acceptor of the meeting point failed");
        }
    }
}

impl Guest {
    /// Says a word: `f` fail, `s` crash, `a` abort, anything else pass.
    pub(crate) fn say(&self, word: u8) {
        (&self.stream).write_all(&[word]).unwrap();
    }

    /// Waits until no process holds the connection any more; returns how long that took.
    pub(crate) fn wait_gone(&self) -> Duration {
        let start = Instant::now();
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        match (&self.stream).read(&mut [0]) {
            // A process that is killed with an unread word in its socket resets the connection.
            Ok(0) | Err(_) if start.elapsed() < DEADLINE => start.elapsed(),
            other => panic!("{} ({}) is still there: {other:?}", self.who, self.pid),
        }
    }

    /// Lets the test go by ending the conversation: it passes.
    pub(crate) fn let_go(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
