//! Delivery of a run to its client: how the end of the run has to be sent, and which results are proven.

use std::collections::BTreeSet;

use heeler_protocol::control::{FinishRequest, ProofLevel, RunKey, StreamPosition, ToWatchdog, WorkerId};

/// The delivery of one run.
pub(super) struct RunDelivery {
    /// The client takes callback connections.
    has_callback: bool,
    /// A worker's results went over the main connection, or can't be proven on its own one: the end of the
    /// run goes over the main connection as well.
    must_finish_on_main: bool,
    /// Workers with results of the run that went over the main connection.
    relayed_workers: BTreeSet<WorkerId>,
    /// Proof for each dead worker: the results that the client has handled on the worker's connection.
    handled_streams: Vec<StreamPosition>,
    /// The finish request sent to the watchdog, kept so that it can be sent again to a replacement.
    finish: Option<Box<FinishRequest>>,
    proof: ProofLevel,
}

impl RunDelivery {
    pub(super) fn new(has_callback: bool) -> Self {
        Self {
            has_callback,
            must_finish_on_main: false,
            relayed_workers: BTreeSet::new(),
            handled_streams: Vec::new(),
            finish: None,
            proof: ProofLevel::None,
        }
    }

    /// Notes that a worker's connection is drained.
    pub(super) fn on_drained(&mut self, worker: WorkerId, proof: ProofLevel) {
        // A completion on another connection would overtake frames in the queue of the main connection.
        let is_relayed = proof == ProofLevel::Ordered && self.has_callback;
        self.must_finish_on_main |= proof == ProofLevel::Delivered || is_relayed;
        if is_relayed {
            self.relayed_workers.insert(worker);
        }
    }

    /// Notes that a worker has died with results that went over the main connection.
    pub(super) fn on_dead_relay(&mut self, worker: WorkerId) {
        // Frames on a connection of their own are proven there, so no other connection can overtake them.
        if self.has_callback {
            self.must_finish_on_main = true;
            self.relayed_workers.insert(worker);
        }
    }

    /// Notes what the client has handled on the connection of a worker that has died.
    pub(super) fn on_dead_stream(&mut self, handled: StreamPosition) {
        self.handled_streams.push(handled);
    }

    /// Returns what the watchdog has to know of dead workers, if there is something: if this process is
    /// killed, the watchdog must not send it again, and one that is new has no duplicates of their
    /// connections.
    pub(super) fn handled_streams(&self, run: &RunKey) -> Option<ToWatchdog> {
        let positions = self.handled_streams.clone();
        (!positions.is_empty()).then(|| ToWatchdog::StreamsHandled { run: run.clone(), positions })
    }

    /// Completes a finish of everything that is due.
    pub(super) fn finish_of(&self, finish: FinishRequest) -> FinishRequest {
        FinishRequest { is_relayed: self.must_finish_on_main, ..self.completion_of(finish) }
    }

    /// Completes a finish of only the completion, for a client that is proven to have received everything
    /// before it.
    pub(super) fn completion_of(&self, finish: FinishRequest) -> FinishRequest {
        FinishRequest { relayed_workers: self.relayed_workers.iter().copied().collect(), ..finish }
    }

    /// Keeps a finish that is sent to the watchdog; returns its message.
    pub(super) fn begin_finish(&mut self, finish: Box<FinishRequest>) -> ToWatchdog {
        self.finish = Some(finish.clone());
        ToWatchdog::Finish(finish)
    }

    /// Returns the finish for another watchdog, if it was begun.
    pub(super) fn begun_finish(&self) -> Option<ToWatchdog> {
        self.finish.clone().map(ToWatchdog::Finish)
    }

    /// Takes over how many frames of its finish a dead watchdog has sent, on its own connection and on the
    /// main connection.
    pub(super) fn on_dead_finisher(&mut self, sent: u64, relayed: u64) {
        if let Some(finish) = &mut self.finish {
            finish.sent_frames = finish.sent_frames.max(sent);
            finish.relayed_frames = finish.relayed_frames.max(relayed);
            // What was relayed lies in the queue of the main connection, and a completion elsewhere would
            // overtake it.
            finish.is_relayed |= relayed > 0;
        }
    }

    /// Completes the finish of a run without a watchdog: it goes on where the last watchdog has stopped.
    pub(super) fn finish_after(&self, finish: FinishRequest) -> FinishRequest {
        let begun = self.finish.as_ref().map(|begun| [begun.sent_frames, begun.relayed_frames]);
        let [sent_frames, relayed_frames] = begun.unwrap_or_default();
        FinishRequest { sent_frames, relayed_frames, ..finish }
    }

    pub(super) fn set_proof(&mut self, proof: ProofLevel) {
        self.proof = proof;
    }

    pub(super) fn proof(&self) -> ProofLevel {
        self.proof
    }
}
