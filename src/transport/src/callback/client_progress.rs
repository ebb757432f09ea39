//! When a client last answered on any of its connections, shared by the processes that send to it: a small
//! file beside the control socket, which each of them overwrites when the client answers a barrier. No
//! process waits for another one, and a file that can't be read or written only means that each connection
//! knows its own answers.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::client_progress::{self, LastAnswer, OverdueDecision};
use heeler_protocol::control::ClientId;
use heeler_sys::clock;

/// The shared time of one client's last answer.
#[derive(Debug, Default)]
pub(super) struct SharedProgress {
    file: Option<File>,
}

/// Returns where the time of a client's last answer is, beside the sockets of the session.
pub(super) fn path_beside(socket: &Path, client: ClientId) -> PathBuf {
    socket.with_file_name(format!("answers-{}", client.0))
}

/// Decides whether a client is waited for longer that has not answered in one place for `limit`, given the
/// control socket of the session.
#[must_use]
pub fn on_client_overdue(control_socket: &Path, client: ClientId, limit: Duration) -> OverdueDecision {
    SharedProgress { file: File::open(path_beside(control_socket, client)).ok() }.on_overdue(limit)
}

impl SharedProgress {
    pub(super) fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.inspect_err(|error| tracing::debug!(%error, "a client's progress is not shared"));
        Self { file: file.ok() }
    }

    /// Notes that the client has answered.
    pub(super) fn note_answer(&self) {
        let Some(file) = &self.file else { return };
        // In 64 bits, which are enough for centuries, because the kernel writes them as one.
        let now = u64::try_from(clock::monotonic().as_nanos()).unwrap_or(u64::MAX);
        if let Err(error) = file.write_all_at(&now.to_le_bytes(), 0) {
            tracing::debug!(%error, "a client's progress is not shared");
        }
    }

    /// Decides whether the client is waited for longer, if it has not answered on one connection for `limit`.
    pub(super) fn on_overdue(&self, limit: Duration) -> OverdueDecision {
        client_progress::on_overdue(self.read(), clock::monotonic(), limit)
    }

    /// Returns when the client last answered; `None` before its first answer.
    fn read(&self) -> Option<LastAnswer> {
        let mut nanos = [0; 8];
        self.file.as_ref()?.read_exact_at(&mut nanos, 0).ok()?;
        Some(LastAnswer(Duration::from_nanos(u64::from_le_bytes(nanos))))
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
        let LastAnswer(first) = one.read().unwrap();
        assert!((before..=clock::monotonic()).contains(&first), "{first:?}");
        // An answer long ago prolongs nothing.
        assert_eq!(one.on_overdue(Duration::ZERO), OverdueDecision::GiveUp);
        for decision in decisions() {
            assert!(matches!(decision, OverdueDecision::WaitOn(rest) if rest <= limit), "{decision:?}");
        }
        assert_eq!(on_client_overdue(&control, ClientId(4), limit), OverdueDecision::GiveUp);
    }
}
