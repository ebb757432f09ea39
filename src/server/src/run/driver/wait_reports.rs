//! Limits how often a run computes what its tests wait for, and reports only changes.

use std::time::Duration;

use heeler_core::run::WaitingTests;
use tokio::time::Instant;

use super::model::RunModel;

/// Minimum time between two reports: displays are redrawn at this interval.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct WaitReports {
    /// Whether tests may wait for more than a slot, and the client wants to know. Otherwise there is no
    /// deadline, and nothing is computed.
    is_needed: bool,
    /// Number of the model's events when the waits were last computed.
    seen_events: u64,
    /// When the waits may be computed again.
    earliest: Instant,
    waits: Vec<WaitingTests>,
    is_reported: bool,
}

impl WaitReports {
    pub(super) fn new(is_needed: bool) -> Self {
        Self { is_needed, seen_events: 0, earliest: Instant::now(), waits: Vec::new(), is_reported: true }
    }

    /// Returns when to call [`WaitReports::update`]; `None` if nothing has happened since the last call.
    pub(super) fn next_deadline(&self, model: &RunModel) -> Option<Instant> {
        (self.is_needed && model.events() != self.seen_events).then_some(self.earliest)
    }

    /// Computes the waits if they are due.
    pub(super) fn update(&mut self, model: &RunModel, now: Instant) {
        if self.next_deadline(model).is_none_or(|due| due > now) {
            return;
        }
        self.seen_events = model.events();
        self.earliest = now + REPORT_INTERVAL;
        let waits = model.state().waits();
        if waits != self.waits {
            self.waits = waits;
            self.is_reported = false;
        }
    }

    /// Returns the waits if they have changed since the last call.
    pub(super) fn take(&mut self) -> Option<&[WaitingTests]> {
        let is_new = !std::mem::replace(&mut self.is_reported, true);
        is_new.then_some(self.waits.as_slice())
    }
}
