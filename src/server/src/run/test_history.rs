//! Test history: reads results of earlier runs, and records results for later runs.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Duration,
};

use heeler_core::{Outcome, TestId, ledger::LedgerEntry};

use super::{RunOutcome, RunPlan};
use heeler_run_store::history::{
    self, FILE_NAME, HistoryError, HistoryStore, ProgramCost, ProgramHistory, TestHistory,
};

/// Results of earlier runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistorySnapshot {
    tests: HashMap<String, TestHistory>,
    programs: HashMap<String, ProgramHistory>,
    conflicts: HashSet<String>,
}

impl HistorySnapshot {
    /// Reads the history of these tests and of all programs.
    pub(crate) fn read<'a>(
        state_dir: &Path,
        uids: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, HistoryError> {
        let path = state_dir.join(FILE_NAME);
        if !path.exists() {
            return Ok(Self::default());
        }
        let history = HistoryStore::open(&path)?;
        let conflicts = history.load_conflicts()?;
        Ok(Self { tests: history.load(uids)?, programs: history.load_programs()?, conflicts })
    }

    pub(super) fn start_of(&self, suite: &str) -> Option<Duration> {
        self.programs.get(suite).map(|program| program.start)
    }

    /// Returns whether the peak memory of any test or program is known.
    pub(super) fn knows_peaks(&self) -> bool {
        self.tests.values().any(|test| test.peak_kib.is_some())
            || self.programs.values().any(|program| program.peak_kib.is_some())
    }

    /// Returns the recorded peak memory in KiB of a test's own process, otherwise of its program's processes.
    pub(super) fn peak_kib_of(&self, uid: &str, suite: &str) -> Option<u64> {
        let own = self.tests.get(uid).and_then(|test| test.peak_kib);
        own.or_else(|| self.programs.get(suite)?.peak_kib)
    }

    /// Returns whether processes of the program have blocked each other.
    pub(super) fn has_conflict(&self, suite: &str) -> bool {
        self.conflicts.contains(suite)
    }

    pub(super) fn duration_of(&self, uid: &str) -> Option<Duration> {
        self.tests.get(uid)?.expected_duration()
    }

    pub(crate) fn outcome_of(&self, uid: &str) -> Option<Outcome> {
        self.tests.get(uid).map(|test| test.outcome)
    }

    /// Returns whether a test crashed or timed out in its last run. Such a test runs in its own process, so
    /// that another death does not interrupt other tests.
    pub(super) fn needs_isolation(&self, uid: &str) -> bool {
        self.tests.get(uid).is_some_and(|test| matches!(test.outcome, Outcome::Crashed | Outcome::TimedOut))
    }
}

/// Records the outcomes and durations of a run.
pub(crate) fn record_history(
    state_dir: &Path,
    plan: &RunPlan,
    outcome: &RunOutcome,
) -> Result<(), HistoryError> {
    // One outcome for each test that has a result or crashed.
    let durations: HashMap<_, _> = outcome.durations.iter().copied().collect();
    let ended = |(test, entry): (TestId, &LedgerEntry)| {
        let selected = &plan.tests[test.index()];
        let last = last_outcome(test, *entry, outcome)?;
        let suite = plan.programs[selected.program].suite.as_str();
        let duration = durations.get(&test).copied().unwrap_or_default();
        let usage = outcome.resource_usage.tests.get(&test).map(|usage| history::RecordedUsage {
            cpu: Duration::from_micros(usage.cpu_us),
            peak_kib: usage.peak_kib,
        });
        Some(history::RecordedOutcome { uid: &selected.uid, suite, outcome: last, duration, usage })
    };
    let tests = outcome.ledger.entries().iter().take(plan.selected_tests().len());
    let outcomes: Vec<_> = (0..).map(TestId).zip(tests).filter_map(ended).collect();
    // Start time and peak memory of each program.
    let costs: Vec<_> = outcome
        .resource_usage
        .start_times
        .iter()
        .map(|(program, start)| ProgramCost {
            suite: plan.programs[*program].suite.as_str(),
            start: *start,
            peak_kib: outcome.resource_usage.peaks_kib.get(program).copied(),
        })
        .collect();
    heeler_sys::fail::at("run.history").map_err(|source| {
        HistoryError::Directory(heeler_sys::dirs::DirError::Create { path: state_dir.to_owned(), source })
    })?;
    let conflicts: Vec<_> = outcome
        .resource_usage
        .conflicts
        .iter()
        .map(|program| plan.programs[*program].suite.as_str())
        .collect();
    let mut history = HistoryStore::open(&state_dir.join(FILE_NAME))?;
    history.record(&outcomes, &costs)?;
    history.record_conflicts(&conflicts)
}

fn last_outcome(test: TestId, entry: LedgerEntry, outcome: &RunOutcome) -> Option<Outcome> {
    if outcome.crashed.contains(&test) {
        return Some(Outcome::Crashed);
    }
    match entry {
        LedgerEntry::Settled { outcome, .. } => history::stored_outcome(outcome),
        LedgerEntry::Synthesized(_) | LedgerEntry::Open => None,
    }
}
