//! A client's progress on all its connections, shared by the processes that send to it: a small file beside
//! the control socket, which each of them overwrites when the client answers a barrier. No process waits for
//! another one, and a file that can't be read or written only means that each connection counts its own
//! answers.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use heeler_core::client_progress::ProgressStamp;
use heeler_protocol::control::ClientId;

/// Number of answers that this process has seen: with its process id, no two signs are equal.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// The shared sign of one client's progress.
#[derive(Debug, Default)]
pub(super) struct SharedProgress {
    file: Option<File>,
}

/// Returns where the sign of a client is, beside the sockets of the session.
pub(super) fn path_beside(socket: &Path, client: ClientId) -> PathBuf {
    socket.with_file_name(format!("answers-{}", client.0))
}

/// Returns the present sign of a client's progress, given the control socket of the session; `None` before
/// its first answer.
#[must_use]
pub fn read_client_progress(control_socket: &Path, client: ClientId) -> Option<ProgressStamp> {
    SharedProgress { file: File::open(path_beside(control_socket, client)).ok() }.read()
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
        let mut sign = [0; 16];
        sign[..8].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
        let count = ANSWERS.fetch_add(1, Ordering::Relaxed) + 1;
        sign[8..].copy_from_slice(&count.to_le_bytes());
        if let Err(error) = file.write_all_at(&sign, 0) {
            tracing::debug!(%error, "a client's progress is not shared");
        }
    }

    /// Returns the present sign; `None` before the first answer.
    pub(super) fn read(&self) -> Option<ProgressStamp> {
        let mut sign = [0; 16];
        self.file.as_ref()?.read_exact_at(&mut sign, 0).ok()?;
        Some(ProgressStamp(u128::from_le_bytes(sign)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_on_any_connection_change_the_sign() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control");
        let client = ClientId(3);
        let [one, other] = [(); 2].map(|()| SharedProgress::open(&path_beside(&control, client)));
        assert_eq!((one.read(), read_client_progress(&control, ClientId(4))), (None, None));
        one.note_answer();
        let first = other.read();
        assert!(first.is_some() && first == read_client_progress(&control, client));
        other.note_answer();
        assert_ne!(one.read(), first);
    }
}
