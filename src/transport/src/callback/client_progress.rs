//! A client's answers on all its connections, shared between the processes that send to it through a small
//! file next to the control socket. Each process writes to the file when the client answers, or after a
//! timeout. No process waits for another. If the file cannot be read or written, each connection only knows
//! its own answers.
//!
//! ```text
//! 0: time of the last answer ─ 8: time of the last timeout ─ 16 to 18: methods that it answers, a byte each
//! ```

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::client_progress::{ClientAnswers, LastAnswer, OverdueDecision};
use heeler_protocol::control::ClientId;
use heeler_sys::clock;

const LAST_ANSWER_OFFSET: u64 = 0;
const GIVEN_UP_OFFSET: u64 = 8;
const BOUND_METHODS_OFFSET: u64 = 16;
const UNKNOWN_METHODS_OFFSET: u64 = 17;
const LOG_REQUESTS_OFFSET: u64 = 18;
const FILE_BYTES: usize = 19;

/// Answers of one client on all its connections.
#[derive(Debug, Default)]
pub struct SharedProgress {
    file: Option<File>,
}

/// Returns the path of a client's shared answers, next to the session's sockets.
pub(super) fn path_beside(socket: &Path, client: ClientId) -> PathBuf {
    socket.with_file_name(format!("answers-{}", client.0))
}

/// Decides whether to keep waiting for a client that has not answered on one stream for `limit`, given the
/// session's control socket.
#[must_use]
pub fn on_client_overdue(control_socket: &Path, client: ClientId, limit: Duration) -> OverdueDecision {
    SharedProgress { file: File::open(path_beside(control_socket, client)).ok() }.on_overdue(limit)
}

impl SharedProgress {
    /// Opens the shared answers of a client, given a socket of the session.
    #[must_use]
    pub fn of_client(socket: &Path, client: ClientId) -> Self {
        Self::open(&path_beside(socket, client))
    }

    pub(super) fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.inspect_err(|error| tracing::debug!(%error, "failed to share a client's progress"));
        Self { file: file.ok() }
    }

    /// Records that the client has answered.
    pub fn note_answer(&self) {
        self.write_now(LAST_ANSWER_OFFSET);
    }

    /// Records that the client did not answer in time.
    pub(super) fn note_given_up(&self) {
        self.write_now(GIVEN_UP_OFFSET);
    }

    /// Records that the client has answered a request with a method that clients bind as a notification.
    pub(crate) fn note_bound_method(&self) {
        self.write(BOUND_METHODS_OFFSET, &[1]);
    }

    /// Records that the client has sent a result for a request with an unknown method.
    pub fn note_unknown_method(&self) {
        self.write(UNKNOWN_METHODS_OFFSET, &[1]);
    }

    /// Records whether the client answers requests for its log.
    pub fn note_log_requests(&self, is_answered: bool) {
        self.write(LOG_REQUESTS_OFFSET, &[if is_answered { 1 } else { 2 }]);
        if is_answered {
            self.note_bound_method();
        }
    }

    fn write_now(&self, offset: u64) {
        // 64 bits suffice for centuries, and the kernel writes them in one piece.
        let now = u64::try_from(clock::monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.write(offset, &now.to_le_bytes());
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.write_all_at(bytes, offset) {
            tracing::debug!(%error, "failed to share a client's progress");
        }
    }

    /// Decides whether to keep waiting for a client that has not answered on one connection for `limit`.
    pub(super) fn on_overdue(&self, limit: Duration) -> OverdueDecision {
        self.answers().on_overdue(clock::monotonic(), limit)
    }

    /// Returns the client's answers so far.
    #[must_use]
    pub fn answers(&self) -> ClientAnswers {
        let mut bytes = [0; FILE_BYTES];
        // Parts that were never written are zero, even beyond the end of the file.
        let _short = self.file.as_ref().map(|file| file.read_at(&mut bytes, 0));
        let time = |offset: u64| {
            let at = usize::try_from(offset).unwrap_or_default();
            let nanos = bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            (nanos > 0).then(|| Duration::from_nanos(nanos))
        };
        let byte = |offset: u64| bytes[usize::try_from(offset).unwrap_or_default()];
        let flag = |offset: u64| byte(offset) != 0;
        ClientAnswers {
            last: time(LAST_ANSWER_OFFSET).map(LastAnswer),
            given_up: time(GIVEN_UP_OFFSET),
            answers_bound_methods: flag(BOUND_METHODS_OFFSET),
            answers_log_requests: flag(LOG_REQUESTS_OFFSET).then(|| byte(LOG_REQUESTS_OFFSET) == 1),
            accepts_unknown_methods: flag(UNKNOWN_METHODS_OFFSET),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_on_any_connection_prolong_the_wait_on_others() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control");
        let client = ClientId(3);
        let [one, other] = [(); 2].map(|()| SharedProgress::open(&path_beside(&control, client)));
        let limit = Duration::from_secs(3600);
        let decisions = || [one.on_overdue(limit), on_client_overdue(&control, client, limit)];
        assert_eq!(decisions(), [OverdueDecision::GiveUp; 2]);
        let before = clock::monotonic();
        other.note_answer();
        let LastAnswer(first) = one.answers().last.unwrap();
        assert!((before..=clock::monotonic()).contains(&first), "{first:?}");
        // An old answer extends nothing.
        assert_eq!(one.on_overdue(Duration::ZERO), OverdueDecision::GiveUp);
        for decision in decisions() {
            assert!(matches!(decision, OverdueDecision::WaitOn(rest) if rest <= limit), "{decision:?}");
        }
        assert_eq!(on_client_overdue(&control, ClientId(4), limit), OverdueDecision::GiveUp);
    }

    #[test]
    fn what_one_process_notes_all_of_them_know() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control");
        let [one, other] = [(); 2].map(|()| SharedProgress::of_client(&control, ClientId(3)));
        assert_eq!(one.answers(), ClientAnswers::default());
        other.note_unknown_method();
        other.note_given_up();
        assert!(one.answers().needs_unknown_methods() && one.answers().has_stopped());
        other.note_log_requests(false);
        assert_eq!(one.answers().answers_log_requests, Some(false));
        other.note_log_requests(true);
        assert_eq!(one.answers().answers_log_requests, Some(true));
        other.note_answer();
        assert!(!one.answers().needs_unknown_methods() && !one.answers().has_stopped());
        assert_eq!(SharedProgress::default().answers(), ClientAnswers::default());
    }
}
