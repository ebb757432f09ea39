//! Tool calls in progress, and their progress notifications.

use std::{collections::HashSet, sync::Arc, time::Duration};

use heeler_config::ResolvedSettings;
use heeler_protocol::{
    mcp::{Era, ListTestsArguments, ProgressParams, RunTestsArguments},
    rpc::RequestId,
};
use tokio::time::Instant;

use super::tasks::TaskHandle;

/// Minimum time between two progress notifications of a call.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// A notification is sent after this time even if nothing has changed.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// A call that has not been answered.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// Id chosen by the client.
    pub(super) id: RequestId,
    pub(super) era: Era,
    pub(super) progress: Option<CallProgress>,
    pub(super) work: CallWork,
    /// Set if the call was answered with a task.
    pub(super) task: Option<TaskHandle>,
    /// Whether the client has cancelled the call. It then gets no answer, but the call is kept until its work
    /// has ended.
    pub(super) is_cancelled: bool,
}

/// The work that a call waits for.
#[derive(Debug)]
pub(super) enum CallWork {
    /// Waits for the listing, to list tests.
    ListTests(ListTestsArguments),
    /// Waits for the listing, to run tests.
    AwaitRun(RunTestsArguments),
    /// The run is being planned outside the session's task.
    PlanRun,
    Run(Box<RunningCall>),
    /// Other work outside the session's task.
    Job,
}

impl CallWork {
    /// Describes the work, for the state of a task.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Run(run) => run.describe(),
            Self::AwaitRun(_) | Self::PlanRun | Self::ListTests(_) => "building and listing tests".to_owned(),
            Self::Job => "reading results".to_owned(),
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) run_id: String,
    pub(super) settings: Arc<ResolvedSettings>,
    pub(super) begun: Instant,
    /// Tests that have ended. An update may arrive twice.
    pub(super) ended: HashSet<String>,
    pub(super) failed: usize,
    pub(super) selected: usize,
    pub(super) warnings: Vec<String>,
}

/// Progress notifications of a call: increasing, and at a limited rate. While nothing happens, fractions are
/// added to the number of ended tests, because some clients reset their timeout at each notification and can
/// then wait for any run.
#[derive(Debug)]
pub(super) struct CallProgress {
    token: RequestId,
    begun: Instant,
    sent: Option<SentProgress>,
    /// Number of ended tests, total if known, and current activity.
    latest: (u64, Option<u64>, String),
    /// Whether the latest progress still has to be sent.
    is_pending: bool,
}

#[derive(Debug, Clone, Copy)]
struct SentProgress {
    ended: u64,
    /// Number of notifications since the last increase of `ended`.
    repeats: u32,
    at: Instant,
}

impl CallProgress {
    pub(super) fn new(token: RequestId, begun: Instant) -> Self {
        let latest = (0, None, "in progress".to_owned());
        Self { token, begun, sent: None, latest, is_pending: false }
    }

    /// Sets the description of the current activity, which is sent if the activity takes long.
    pub(super) fn describe(&mut self, message: &str) {
        message.clone_into(&mut self.latest.2);
    }

    /// Records progress, replacing progress that was not sent yet.
    pub(super) fn update(&mut self, ended: u64, total: Option<u64>, message: String) {
        if ended < self.latest.0 {
            return;
        }
        let is_new = ended > self.latest.0 || total != self.latest.1;
        self.latest = (ended, total, message);
        self.is_pending |= is_new || self.sent.is_none();
    }

    /// Returns when the next notification may be sent.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        Some(match (self.is_pending, self.sent) {
            (true, sent) => sent.map_or(now, |sent| sent.at + PROGRESS_INTERVAL),
            (false, sent) => sent.map_or(self.begun, |sent| sent.at) + SILENCE_LIMIT,
        })
    }

    /// Takes the notification that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ProgressParams> {
        self.due(now).filter(|due| *due <= now)?;
        let (ended, total, message) = self.latest.clone();
        let repeats = match self.sent {
            Some(sent) if sent.ended == ended => sent.repeats + 1,
            None if !self.is_pending => 1,
            _ => 0,
        };
        let message = match self.is_pending {
            true => message,
            false => format!("{message}; {} s", now.duration_since(self.begun).as_secs()),
        };
        self.is_pending = false;
        self.sent = Some(SentProgress { ended, repeats, at: now });
        #[expect(clippy::cast_precision_loss, reason = "a number of tests is far below 2^53")]
        let whole = ended as f64;
        // The fractions 1/2, 2/3, 3/4 … increase, but never reach the next test.
        let progress = whole + f64::from(repeats) / f64::from(repeats.saturating_add(1));
        Some(ProgressParams { progress_token: self.token.clone(), progress, total, message: Some(message) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_rises_and_is_sent_at_most_five_times_a_second() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut progress = CallProgress::new(RequestId::number(0), start);
        assert_eq!(progress.due(start), Some(at(5000)), "nothing has happened");
        let mut sent = Vec::new();
        for ms in 0..1000 {
            progress.update(ms / 10, Some(100), String::new());
            sent.extend(progress.take_due(at(ms)).map(|params| (ms, params.progress)));
        }
        assert_eq!(sent, [(0, 0.0), (200, 20.0), (400, 40.0), (600, 60.0), (800, 80.0)]);
        assert_eq!(progress.due(at(1000)), Some(at(1000)));
        assert_eq!(progress.take_due(at(1000)).map(|params| params.progress), Some(99.0));
        progress.update(99, Some(100), String::new());
        progress.update(7, Some(100), String::new());
        assert_eq!(progress.due(at(5000)), Some(at(6000)), "it would not rise");
    }

    #[test]
    fn progress_rises_while_nothing_happens() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = CallProgress::new(RequestId::number(0), start);
        progress.describe("building tests");
        let mut last = 0.0;
        let mut take = |progress: &mut CallProgress, seconds| {
            let params = progress.take_due(at(seconds))?;
            assert!(params.progress > last && params.progress < 4.0, "{params:?} after {last}");
            last = params.progress;
            params.message
        };
        assert_eq!(take(&mut progress, 4), None);
        assert_eq!(take(&mut progress, 5).as_deref(), Some("building tests; 5 s"));
        assert_eq!(take(&mut progress, 9), None);
        assert_eq!(take(&mut progress, 10).as_deref(), Some("building tests; 10 s"));
        progress.update(0, Some(4), "0 of 4 tests".to_owned());
        assert_eq!(take(&mut progress, 11).as_deref(), Some("0 of 4 tests"), "the run has begun");
        progress.update(3, Some(4), "3 of 4 tests".to_owned());
        assert_eq!(take(&mut progress, 12).as_deref(), Some("3 of 4 tests"));
        for seconds in (17..3600).step_by(5) {
            let expected = format!("3 of 4 tests; {seconds} s");
            assert_eq!(take(&mut progress, seconds), Some(expected));
        }
    }
}
