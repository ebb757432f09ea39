//! What is recorded beside the frames of a connection, and to whom duplicates of it are handed.

use std::{collections::VecDeque, os::fd::BorrowedFd, path::PathBuf, sync::Arc};

use bytes::Bytes;
use heeler_core::ack_window::AnswerState;
use heeler_protocol::control::{ClientId, DeliveryLimits, OsText, StreamMark, StreamSender};

use super::{held_stream, stream_record::StreamRecord};

/// Number of completed runs that a record names: the coordinator has long read the reports of earlier ones.
const NAMED_COMPLETIONS: usize = 8;

/// What is recorded beside the frames of a connection.
#[derive(Debug)]
pub(super) struct ConnectionRecord {
    record: Arc<StreamRecord>,
    mark: StreamMark,
    is_unproven: bool,
    /// Number of frames sent.
    frames: u64,
    /// The frames that the client has not handled yet, with the position of their run; none of a silent client.
    unhandled: VecDeque<(u64, String, u64)>,
}

impl ConnectionRecord {
    pub(super) fn new(record: Arc<StreamRecord>) -> Self {
        Self {
            record,
            mark: StreamMark::default(),
            is_unproven: false,
            frames: 0,
            unhandled: VecDeque::new(),
        }
    }

    /// Returns the mark of the next frame.
    pub(super) fn next_mark(&mut self, run: &str, answers: AnswerState) -> Bytes {
        self.frames += 1;
        self.begin_mark(run, answers);
        if answers == AnswerState::Silent {
            self.unhandled.clear();
        } else {
            let position = self.mark.positions.get(run).copied().unwrap_or(0);
            self.unhandled.push_back((self.frames, run.to_owned(), position));
        }
        serde_json::to_vec(&self.mark).unwrap_or_default().into()
    }

    /// Returns the mark of the completion of a run, which ends what is recorded of the run.
    pub(super) fn completion_mark(&mut self, run: &str, run_dir: &OsText, answers: AnswerState) -> Bytes {
        self.forget_run(run);
        self.begin_mark(run, answers);
        self.mark.completing = Some(run_dir.clone());
        serde_json::to_vec(&self.mark).unwrap_or_default().into()
    }

    fn begin_mark(&mut self, run: &str, answers: AnswerState) {
        if !self.is_unproven {
            self.is_unproven = true;
            self.record.set_unproven(true);
        }
        if self.mark.run != run {
            run.clone_into(&mut self.mark.run);
        }
        self.mark.completing = None;
        self.mark.is_answering = match answers {
            AnswerState::Unknown => None,
            AnswerState::Answering => Some(true),
            AnswerState::Silent => Some(false),
        };
    }

    /// Records that the client has handled the completion that was sent last.
    pub(super) fn set_completed(&mut self) {
        self.set_proven();
        self.mark.completed.extend(self.mark.completing.take());
        let excess = self.mark.completed.len().saturating_sub(NAMED_COMPLETIONS);
        self.mark.completed.drain(..excess);
    }

    /// Notes which frames the client has handled.
    pub(super) fn release(&mut self, handled_frames: u64) {
        while let Some((_, run, position)) =
            self.unhandled.pop_front_if(|(frame, _, _)| *frame <= handled_frames)
        {
            self.mark.handled.insert(run, position);
        }
    }

    /// Sets the number of results of a run, or of frames, that are sent including the next frame.
    pub(super) fn set_position(&mut self, run: &str, position: u64) {
        self.mark.positions.insert(run.to_owned(), position);
    }

    /// Records that everything sent is proven.
    pub(super) fn set_proven(&mut self) {
        if std::mem::replace(&mut self.is_unproven, false) {
            self.record.set_unproven(false);
        }
    }

    /// Forgets a run of which everything is proven.
    pub(super) fn forget_run(&mut self, run: &str) {
        self.mark.positions.remove(run);
        self.mark.handled.remove(run);
        self.unhandled.retain(|(_, one, _)| one != run);
    }
}

/// To whom duplicates of a process's connection are handed: those that bring it to an end if the process dies.
#[derive(Debug, Clone)]
pub struct StreamHolders {
    /// The process.
    pub sender: StreamSender,
    /// The client that is dialled.
    pub client: ClientId,
    /// The sockets at which the holders listen, see [`HeldStreams::listen`](super::HeldStreams::listen).
    pub sockets: Vec<PathBuf>,
}

impl StreamHolders {
    /// Hands duplicates over, before the first byte is sent; returns the record, if there is a holder.
    pub(super) fn hand_over(
        &self,
        socket: BorrowedFd<'_>,
        limits: &DeliveryLimits,
    ) -> Option<Arc<StreamRecord>> {
        let record = heeler_sys::io::tcp_accepted_bytes(socket).and_then(StreamRecord::create);
        let record = record
            .inspect_err(|error| tracing::debug!(%error, "a callback connection is not recorded"))
            .ok()?;
        let mut has_holder = false;
        for holder in &self.sockets {
            let duplicates = [socket, record.as_fd()];
            match held_stream::hand_over(holder, self.sender, self.client, limits, duplicates) {
                Ok(()) => has_holder = true,
                Err(error) => tracing::debug!(%error, ?holder, "a callback connection was not handed over"),
            }
        }
        has_holder.then_some(record)
    }
}
