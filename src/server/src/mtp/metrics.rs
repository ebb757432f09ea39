//! Run metrics for the client's telemetry.

use std::time::Duration;

use heeler_core::{Outcome, ledger::LedgerEntry};
use heeler_protocol::mtp::{ExecutionState, RunMetrics};

use crate::run::{RunOutcome, RunPlan};

pub(super) fn run_metrics(plan: &RunPlan, outcome: &RunOutcome, took: Duration) -> RunMetrics {
    let mut metrics = RunMetrics {
        selected: plan.selected_tests().len(),
        crashed: outcome.crashed.len(),
        programs: plan.programs.len(),
        failed_programs: outcome.failed_programs,
        workers: outcome.ledger.streams().len(),
        worker_deaths: outcome.worker_deaths,
        attachments: outcome.result.attachments.len(),
        duration_ms: duration_ms(took),
        // `fold` from 0.0, because the sum of an empty iterator is -0.
        tests_ms: outcome.durations.iter().fold(0.0, |sum, (_, duration)| sum + duration_ms(*duration)),
        ..RunMetrics::default()
    };
    let tests = outcome.ledger.entries().iter().take(plan.selected_tests().len());
    for outcome in tests.filter_map(LedgerEntry::outcome) {
        *outcome_counter(&mut metrics, outcome) += 1;
    }
    metrics
}

fn outcome_counter(metrics: &mut RunMetrics, outcome: Outcome) -> &mut usize {
    match ExecutionState::from(outcome) {
        ExecutionState::Passed => &mut metrics.passed,
        ExecutionState::Skipped => &mut metrics.skipped,
        ExecutionState::Failed => &mut metrics.failed,
        ExecutionState::TimedOut => &mut metrics.timed_out,
        ExecutionState::Cancelled => &mut metrics.cancelled,
        ExecutionState::Error
        | ExecutionState::Discovered
        | ExecutionState::InProgress
        | ExecutionState::Unknown => &mut metrics.error,
    }
}

/// Returns a duration in milliseconds, as sent to the client.
pub(super) fn duration_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
