//! Record of a connection, and the processes that receive duplicates of it.

use std::{os::fd::BorrowedFd, path::PathBuf, sync::Arc};

use bytes::Bytes;
use heeler_core::ack_window::AnswerState;
use heeler_protocol::{
    control::{ClientId, DeliveryLimits, OsText, StreamMark, StreamSender},
    mtp::BarrierMethod,
};

use super::{
    client_progress::{self, SharedProgress},
    held_stream,
    positions::StreamPositions,
    stream_record::StreamRecord,
};

/// Maximum number of completed runs in a record. The coordinator has read the reports of earlier runs by
/// then.
const NAMED_COMPLETIONS: usize = 8;

/// Data recorded along with the frames of a connection.
#[derive(Debug)]
pub(super) struct ConnectionRecord {
    record: Arc<StreamRecord>,
    is_unproven: bool,
    /// Directory of the run whose completion is the last sent frame, until the completion is handled.
    completing: Option<OsText>,
    /// Directories of the latest runs with a handled completion.
    completed: Vec<OsText>,
}

impl ConnectionRecord {
    pub(super) fn new(record: Arc<StreamRecord>) -> Self {
        Self { record, is_unproven: false, completing: None, completed: Vec::new() }
    }

    /// Returns the mark of a run's next frame. With a run directory, the frame is the run's completion;
    /// otherwise an update.
    pub(super) fn next_mark(
        &mut self,
        run: &str,
        completing: Option<&OsText>,
        positions: &StreamPositions,
        answers: AnswerState,
        barrier: BarrierMethod,
    ) -> Bytes {
        if !self.is_unproven {
            self.is_unproven = true;
            self.record.set_unproven(true);
        }
        self.completing = completing.cloned();
        let [sent, handled] = positions.all();
        let mark = StreamMark {
            run: run.to_owned(),
            positions: sent,
            handled,
            is_answering: match answers {
                AnswerState::Unknown => None,
                AnswerState::Answering => Some(true),
                AnswerState::Silent => Some(false),
            },
            barrier,
            completing: self.completing.clone(),
            completed: self.completed.clone(),
        };
        serde_json::to_vec(&mark).unwrap_or_default().into()
    }

    /// Records that everything sent is proven.
    pub(super) fn set_proven(&mut self) {
        if std::mem::replace(&mut self.is_unproven, false) {
            self.record.set_unproven(false);
        }
    }

    /// Records that the client has handled the latest completion.
    pub(super) fn set_completed(&mut self) {
        self.set_proven();
        self.completed.extend(self.completing.take());
        let excess = self.completed.len().saturating_sub(NAMED_COMPLETIONS);
        self.completed.drain(..excess);
    }
}

/// Processes that receive duplicates of a process's connection. If the process dies, they settle the
/// connection.
#[derive(Debug, Clone)]
pub struct StreamHolders {
    /// Process that sends on the connection.
    pub sender: StreamSender,
    /// Client that is dialled.
    pub client: ClientId,
    /// Sockets of the holders; see [`HeldStreams::listen`](super::HeldStreams::listen).
    pub sockets: Vec<PathBuf>,
}

impl StreamHolders {
    /// Returns the client's answers on all its connections.
    #[must_use]
    pub fn shared_progress(&self) -> SharedProgress {
        let path = self.sockets.first().map(|socket| client_progress::path_beside(socket, self.client));
        path.map(|path| SharedProgress::open(&path)).unwrap_or_default()
    }

    /// Hands duplicates over before the first byte is sent; returns the record if there is a holder.
    pub(super) fn hand_over(
        &self,
        socket: BorrowedFd<'_>,
        limits: &DeliveryLimits,
    ) -> Option<Arc<StreamRecord>> {
        let record = heeler_sys::io::tcp_accepted_bytes(socket).and_then(StreamRecord::create);
        let record = record
            .inspect_err(|error| tracing::debug!(%error, "failed to record a callback connection"))
            .ok()?;
        let mut has_holder = false;
        for holder in &self.sockets {
            let duplicates = [socket, record.as_fd()];
            match held_stream::hand_over(holder, self.sender, self.client, limits, duplicates) {
                Ok(()) => has_holder = true,
                Err(error) => tracing::debug!(%error, ?holder, "failed to hand over a callback connection"),
            }
        }
        has_holder.then_some(record)
    }
}
