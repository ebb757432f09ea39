//! The deadlines of one run.

use std::{collections::BTreeMap, time::Duration};

use heeler_core::{LeaseId, ProgramId, TestId, run::RunStage};
use tokio::time::Instant;

pub(super) struct RunTimers {
    /// End of the current stage, unless the client makes progress.
    stage: Option<(RunStage, Instant)>,
    /// When cancelled leases must have ended.
    cancel: Option<Instant>,
    /// End of the whole run (`run-timeout`).
    run: Option<Instant>,
    /// When each delayed retry is due.
    retries: BTreeMap<TestId, Instant>,
    /// When further processes of a program may start.
    starts: BTreeMap<ProgramId, Instant>,
    /// Time limits of set-ups that block the process of a lease.
    set_ups: BTreeMap<LeaseId, Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiredTimer {
    Retry(TestId),
    Starts(ProgramId),
    SetUp(LeaseId),
    Run,
    Cancel,
    Stage(RunStage),
}

impl RunTimers {
    /// Starts with the time limit of the whole run.
    pub(super) fn new(run_limit: Option<Duration>) -> Self {
        Self {
            stage: None,
            cancel: None,
            run: run_limit.map(|limit| Instant::now() + limit),
            retries: BTreeMap::new(),
            starts: BTreeMap::new(),
            set_ups: BTreeMap::new(),
        }
    }

    pub(super) fn delay_retry(&mut self, test: TestId, delay: Duration) {
        // A delay too long for the clock never ends.
        let due = Instant::now().checked_add(delay);
        self.retries.extend(due.map(|due| (test, due)));
    }

    pub(super) fn delay_starts(&mut self, program: ProgramId, delay: Duration) {
        self.starts.insert(program, Instant::now() + delay);
    }

    pub(super) fn limit_set_up(&mut self, lease: LeaseId, limit: Duration) {
        self.set_ups.insert(lease, Instant::now() + limit);
    }

    /// Limits how long cancelled leases may take, unless a limit is already set.
    pub(super) fn limit_cancel(&mut self, limit: Duration) {
        self.cancel.get_or_insert(Instant::now() + limit);
    }

    /// Sets the time limit of a stage, unless one is already set for it.
    pub(super) fn begin_stage(&mut self, stage: RunStage, limit: Duration) {
        if self.stage.is_none_or(|(earlier, _)| earlier != stage) {
            self.extend_stage(stage, limit);
        }
    }

    /// Replaces the time limit of a stage.
    pub(super) fn extend_stage(&mut self, stage: RunStage, limit: Duration) {
        self.stage = Some((stage, Instant::now() + limit));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let single = self.stage.map(|(_, deadline)| deadline).into_iter().chain(self.cancel).chain(self.run);
        let delayed = self.retries.values().chain(self.starts.values()).chain(self.set_ups.values());
        single.chain(delayed.copied()).min()
    }

    /// Removes and returns the expired deadlines.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<ExpiredTimer> {
        let mut expired: Vec<_> = take_due(&mut self.retries, now).map(ExpiredTimer::Retry).collect();
        expired.extend(take_due(&mut self.starts, now).map(ExpiredTimer::Starts));
        expired.extend(take_due(&mut self.set_ups, now).map(ExpiredTimer::SetUp));
        expired.extend(self.run.take_if(|due| *due <= now).map(|_| ExpiredTimer::Run));
        expired.extend(self.cancel.take_if(|due| *due <= now).map(|_| ExpiredTimer::Cancel));
        let stage = self.stage.take_if(|(_, due)| *due <= now);
        expired.extend(stage.map(|(stage, _)| ExpiredTimer::Stage(stage)));
        expired
    }
}

fn take_due<Key: Copy + Ord>(
    delayed: &mut BTreeMap<Key, Instant>,
    now: Instant,
) -> impl Iterator<Item = Key> + '_ {
    delayed.extract_if(.., move |_, due| *due <= now).map(|(key, _)| key)
}
