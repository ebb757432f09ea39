//! Tracks which results the client is proven to have, and over which connection the end of the run must be
//! sent.

use std::collections::BTreeSet;

use heeler_protocol::control::{FinishRequest, ProofLevel, RunKey, StreamPosition, ToWatchdog, WorkerId};

pub(super) struct RunDelivery {
    /// Whether the client accepts callback connections.
    has_callback: bool,
    /// Whether the end of the run must go over the main connection, because some worker's results went over
    /// it or can't be proven on the worker's own connection.
    must_finish_on_main: bool,
    /// Workers whose results of this run went over the main connection.
    relayed_workers: BTreeSet<WorkerId>,
    /// How far the client has handled the results on the callback connection of each dead worker.
    handled_streams: Vec<StreamPosition>,
    /// The finish request sent to the watchdog, kept to be resent to a replacement.
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

    /// Records that a worker's connection is drained.
    pub(super) fn on_drained(&mut self, worker: WorkerId, proof: ProofLevel) {
        // A completion sent on another connection would overtake frames queued on the main connection.
        let is_relayed = proof == ProofLevel::Ordered && self.has_callback;
        self.must_finish_on_main |= proof == ProofLevel::Delivered || is_relayed;
        if is_relayed {
            self.relayed_workers.insert(worker);
        }
    }

    /// Handles the death of a worker whose results went over the main connection.
    pub(super) fn on_dead_relay(&mut self, worker: WorkerId) {
        // Without a callback connection, everything uses the main connection and can't be overtaken.
        if self.has_callback {
            self.must_finish_on_main = true;
            self.relayed_workers.insert(worker);
        }
    }

    /// Records what the client has handled on a dead worker's connection.
    pub(super) fn on_dead_stream(&mut self, handled: StreamPosition) {
        self.handled_streams.push(handled);
    }

    /// Returns the message that reports to the watchdog how far the client has handled the streams of dead
    /// workers, if at all. If this process is killed, the watchdog must not send those results again. A new
    /// watchdog can't find out by itself, since it has no duplicates of the workers' connections.
    pub(super) fn handled_streams(&self, run: &RunKey) -> Option<ToWatchdog> {
        let positions = self.handled_streams.clone();
        (!positions.is_empty()).then(|| ToWatchdog::StreamsHandled { run: run.clone(), positions })
    }

    /// Completes a finish request with the delivery state: the route, and the workers whose results were
    /// relayed.
    pub(super) fn finish_of(&self, finish: FinishRequest) -> FinishRequest {
        FinishRequest { is_relayed: self.must_finish_on_main, ..self.completion_of(finish) }
    }

    /// Completes a finish request that contains only the completion, because the client has everything else.
    pub(super) fn completion_of(&self, finish: FinishRequest) -> FinishRequest {
        FinishRequest { relayed_workers: self.relayed_workers.iter().copied().collect(), ..finish }
    }

    /// Stores the finish request and returns the message for the watchdog.
    pub(super) fn begin_finish(&mut self, finish: Box<FinishRequest>) -> ToWatchdog {
        self.finish = Some(finish.clone());
        ToWatchdog::Finish(finish)
    }

    /// Returns the finish request for a replacement watchdog, if a finish was begun.
    pub(super) fn begun_finish(&self) -> Option<ToWatchdog> {
        self.finish.clone().map(ToWatchdog::Finish)
    }

    /// Records how many frames of its finish a dead watchdog sent, on its own connection and over the main
    /// connection.
    pub(super) fn on_dead_finisher(&mut self, sent: u64, relayed: u64) {
        if let Some(finish) = &mut self.finish {
            finish.sent_frames = finish.sent_frames.max(sent);
            finish.relayed_frames = finish.relayed_frames.max(relayed);
            // Relayed frames are queued on the main connection; a completion sent elsewhere would overtake
            // them.
            finish.is_relayed |= relayed > 0;
        }
    }

    /// Adds delivery state to the finish of a run without a watchdog, to continue where the last watchdog
    /// stopped.
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
