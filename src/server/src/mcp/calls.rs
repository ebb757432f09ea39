//! The calls of tools that are in progress, and their progress notifications.

use std::{collections::HashSet, sync::Arc, time::Duration};

use heeler_config::ResolvedSettings;
use heeler_protocol::{
    mcp::{Era, ListTestsArguments, ProgressParams, RunTestsArguments},
    rpc::RequestId,
};
use tokio::time::Instant;

/// Minimum time between two progress notifications of a call.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// A call that has no answer yet.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// The client's id of it.
    pub(super) id: RequestId,
    pub(super) era: Era,
    pub(super) progress: Option<CallProgress>,
    pub(super) work: CallWork,
    /// The client has cancelled it and gets no answer; it is kept until its work has ended.
    pub(super) is_cancelled: bool,
}

/// What a call waits for.
#[derive(Debug)]
pub(super) enum CallWork {
    /// The listing, to list tests.
    ListTests(ListTestsArguments),
    /// The listing, to run tests.
    AwaitRun(RunTestsArguments),
    /// The plan of the run, which is made aside from the session.
    PlanRun,
    Run(Box<RunningCall>),
    /// Something that is done aside from the session.
    Job,
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) run_id: String,
    pub(super) settings: Arc<ResolvedSettings>,
    pub(super) begun: Instant,
    /// The tests that have ended. An update may arrive twice.
    pub(super) ended: HashSet<String>,
    pub(super) failed: usize,
    pub(super) selected: usize,
    pub(super) warnings: Vec<String>,
}

/// The progress notifications of a call: they rise, and are not too many.
#[derive(Debug)]
pub(super) struct CallProgress {
    token: RequestId,
    /// The progress that was sent last, and when.
    sent: Option<(u64, Instant)>,
    /// The latest progress, if it was not sent.
    pending: Option<ProgressParams>,
}

impl CallProgress {
    pub(super) fn new(token: RequestId) -> Self {
        Self { token, sent: None, pending: None }
    }

    /// Notes the progress, in place of one that was not sent yet.
    pub(super) fn update(&mut self, progress: u64, total: Option<u64>, message: String) {
        if self.sent.is_none_or(|(sent, _)| progress > sent) {
            let message = Some(message);
            self.pending =
                Some(ProgressParams { progress_token: self.token.clone(), progress, total, message });
        }
    }

    /// Returns when the next notification may be sent; `None` if there is none.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.pending.as_ref().map(|_| self.sent.map_or(now, |(_, at)| at + PROGRESS_INTERVAL))
    }

    /// Takes the notification that may be sent now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ProgressParams> {
        let params =
            self.pending.take_if(|_| self.sent.is_none_or(|(_, at)| at + PROGRESS_INTERVAL <= now))?;
        self.sent = Some((params.progress, now));
        Some(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_rises_and_is_sent_at_most_five_times_a_second() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut progress = CallProgress::new(RequestId::number(0));
        assert_eq!(progress.due(start), None);
        let mut sent = Vec::new();
        for ms in 0..1000 {
            progress.update(ms / 10, Some(100), String::new());
            sent.extend(progress.take_due(at(ms)).map(|params| (ms, params.progress)));
        }
        assert_eq!(sent, [(0, 0), (200, 20), (400, 40), (600, 60), (800, 80)]);
        assert_eq!(progress.due(at(1000)), Some(at(1000)));
        assert_eq!(progress.take_due(at(1000)).map(|params| params.progress), Some(99));
        progress.update(99, None, String::new());
        progress.update(7, None, String::new());
        assert_eq!(progress.due(at(5000)), None, "it would not rise");
    }
}
