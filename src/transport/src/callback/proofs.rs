//! Proofs of what a client has received on a callback connection: it has handled everything, or at least its
//! kernel has everything.

use std::{os::fd::AsFd as _, time::Duration};

use heeler_core::ack_window::AnswerState;
use heeler_protocol::{
    control::ProofLevel,
    mtp::{self, BarrierMethod},
};

use super::{
    connection::{AnswerWait, CallbackConnection},
    peer::PeerEnd,
    socket::{WaitLimits, wait_for_stall},
};
use tokio::time::Instant;

/// Maximum wait for the kernel of a client without answers, as a multiple of its timeout.
const DRAIN_LIMIT_FACTOR: u32 = 6;

/// Interval between two checks of the kernel's acknowledgements while a client without answers drains.
const DELIVERY_CHECK_INTERVAL: Duration = Duration::from_millis(1);

impl CallbackConnection {
    /// Proves that the client has handled everything sent: waits for the answer to a final barrier. With a
    /// sufficient proof, the connection stays usable.
    ///
    /// Keeps waiting as long as a client that answers barriers answers at least one every `answer_ms`. If
    /// updates were sent without answers, the proof is [`ProofLevel::Delivered`] as soon as the client's
    /// kernel has acknowledged every byte, or [`ProofLevel::None`] after `drain_ms` without progress.
    ///
    /// Cancel safe: yes, because a late answer to an abandoned barrier still counts.
    pub async fn prove(&mut self) -> ProofLevel {
        let proof = self.prove_all().await;
        if let Some(record) = self.record.as_mut().filter(|_| proof == ProofLevel::Handled) {
            record.set_proven();
        }
        proof
    }

    async fn prove_all(&mut self) -> ProofLevel {
        self.note_answers();
        if let Some(barrier) = self.window.final_barrier()
            && self.write_barrier(barrier).await.is_err()
        {
            return ProofLevel::None;
        }
        self.wait_for_proof(|connection| connection.window.is_all_handled()).await
    }

    /// Waits until answers prove the condition, or cannot prove it any more.
    async fn wait_for_proof(&mut self, is_proven: impl Fn(&Self) -> bool) -> ProofLevel {
        let since = Instant::now();
        loop {
            self.note_answers();
            if is_proven(self) {
                return ProofLevel::Handled;
            }
            if self.break_reason().is_some() {
                return ProofLevel::None;
            }
            if self.is_client_silent() {
                return self.prove_delivery().await;
            }
            if self.wait_for_answer(since).await == AnswerWait::Overdue {
                return ProofLevel::None;
            }
        }
    }

    /// Waits until the client's kernel has acknowledged everything, as long as the kernel makes progress
    /// every `drain_ms`. Returns [`ProofLevel::Delivered`] or [`ProofLevel::None`].
    ///
    /// Cancel safe: yes, because it only watches.
    pub async fn prove_delivery(&mut self) -> ProofLevel {
        let limit = Duration::from_millis(self.limits.drain_ms);
        let watch = WaitLimits { limit, end: Some(limit * DRAIN_LIMIT_FACTOR) };
        let delivered = async {
            while !self.kernel_has_all() {
                if self.break_reason().is_some() {
                    return ProofLevel::None;
                }
                tokio::time::sleep(DELIVERY_CHECK_INTERVAL).await;
            }
            ProofLevel::Delivered
        };
        tokio::select! {
            biased;
            proof = delivered => proof,
            () = wait_for_stall(&self.outbox, &self.socket, watch) => ProofLevel::None,
        }
    }

    /// Proves delivery like [`Self::prove`], and closes the connection. The close itself proves nothing: some
    /// clients close as soon as they have read the end of the stream, with updates still in their queue.
    ///
    /// Without a proof, the connection is reset like in [`Self::give_up`].
    ///
    /// Cancel safe: no, because the connection is given up with the call.
    pub async fn finish(mut self) -> ProofLevel {
        let proof = self.prove().await;
        if !proof.is_enough() {
            self.give_up().await;
            return proof;
        }
        self.outbox.close();
        let flushed = Duration::from_millis(self.limits.drain_ms);
        // The proof is complete. Only answers to the client's own requests may still be unwritten.
        drop(tokio::time::timeout(flushed, self.task.join()).await);
        self.reader.shutdown().await;
        self.task.cut().await;
        proof
    }

    /// Proves that the client has handled the completion, like [`Self::prove`] for updates. Otherwise the
    /// client could handle the response of the run, which comes on another connection, before the completion.
    /// No update may follow a completion, so this barrier uses another method.
    ///
    /// The barrier is sent after the client's kernel has acknowledged the completion. From then on, the
    /// client has the completion even if the connection breaks: the proof is at least
    /// [`ProofLevel::Delivered`].
    ///
    /// Cancel safe: yes, because [`Self::prove`] is.
    pub async fn prove_completion(&mut self) -> ProofLevel {
        if !self.is_taken().await {
            return ProofLevel::None;
        }
        let barrier = self.window.open_barrier();
        let frame = mtp::completion_barrier_frame(self.barrier, barrier, &self.run);
        if self.write(frame).await.is_err() {
            return ProofLevel::Delivered;
        }
        let proof = self.wait_for_proof(|connection| connection.answered >= barrier).await;
        if let Some(record) = self.record.as_mut().filter(|_| proof == ProofLevel::Handled) {
            record.set_completed();
        }
        proof.min(ProofLevel::Delivered)
    }

    /// Proves that a client without answers has read everything: ends the sending side, and waits up to
    /// `drain_ms` for the client to close the connection. If the client closes with unread bytes, the
    /// connection is reset, and the result is [`ProofLevel::None`]. If the client keeps the connection open,
    /// the result is [`ProofLevel::Delivered`], because its kernel has everything. Nothing can be sent
    /// afterwards.
    ///
    /// Cancel safe: yes, because the sending side has ended with the first poll.
    pub async fn prove_unanswered_end(&mut self) -> ProofLevel {
        if self.prove_delivery().await == ProofLevel::None {
            return ProofLevel::None;
        }
        self.outbox.close();
        let limit = Duration::from_millis(self.limits.drain_ms);
        let mut peer = self.peer.clone();
        let ended = peer.wait_for(|peer| peer.ended.is_some());
        // A client that keeps its side open may still be reading.
        drop(tokio::time::timeout(limit, ended).await);
        if self.is_reset() { ProofLevel::None } else { ProofLevel::Delivered }
    }

    /// Waits until the client's kernel has acknowledged everything, even if the client closes the connection.
    /// Returns `false` after `drain_ms` without progress, or if the connection ends first.
    async fn is_taken(&self) -> bool {
        let limit = Duration::from_millis(self.limits.drain_ms);
        let watch = WaitLimits { limit, end: Some(limit * DRAIN_LIMIT_FACTOR) };
        let taken = async {
            while !self.kernel_has_taken_all() {
                if self.break_reason().is_some() {
                    return self.kernel_has_taken_all();
                }
                tokio::time::sleep(DELIVERY_CHECK_INTERVAL).await;
            }
            true
        };
        tokio::select! {
            biased;
            is_taken = taken => is_taken,
            () = wait_for_stall(&self.outbox, &self.socket, watch) => false,
        }
    }

    /// Returns whether the client answers the barrier that follows a completion. If unknown, asks the client,
    /// with the timeout of a first answer. Without an answer, the completion takes another route, so nothing
    /// is lost. Call this only after all updates are proven.
    ///
    /// Cancel safe: yes, because a late answer still counts.
    pub async fn answers_completion_barriers(&mut self) -> bool {
        if self.window.answers() != AnswerState::Answering {
            return false;
        }
        if self.barrier == BarrierMethod::Unknown {
            return true;
        }
        if let Some(is_answered) = self.progress.answers().answers_log_requests {
            return is_answered;
        }
        let barrier = self.window.open_barrier();
        if self.write(mtp::log_probe_frame(barrier)).await.is_err() {
            return false;
        }
        let limit = Duration::from_millis(self.limits.first_answer_ms);
        let mut peer = self.peer.clone();
        let answered = peer.wait_for(|peer| peer.answered >= barrier || peer.ended.is_some());
        drop(tokio::time::timeout(limit, answered).await);
        self.note_answers();
        let is_answered = self.answered >= barrier;
        self.progress.note_log_requests(is_answered);
        is_answered
    }

    /// Returns whether the peer's kernel acknowledged every byte, without a sign that it discarded some.
    fn kernel_has_all(&self) -> bool {
        !self.is_reset() && self.kernel_has_taken_all()
    }

    /// Returns whether the connection has failed. The peer's kernel may then have discarded bytes.
    fn is_reset(&self) -> bool {
        matches!(self.peer.borrow().ended, Some(PeerEnd::Failed | PeerEnd::NoClient))
            || self.socket.has_failed()
    }

    /// Returns whether the peer's kernel acknowledged every byte, even if the connection has ended since.
    fn kernel_has_taken_all(&self) -> bool {
        let is_written = self.outbox.backlog_bytes() == 0;
        let unacknowledged = heeler_sys::io::unacknowledged_bytes(self.socket.as_fd());
        is_written && matches!(unacknowledged, Ok(0))
    }
}
