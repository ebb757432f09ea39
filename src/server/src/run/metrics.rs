//! Metrics of a run, for the client's telemetry.

use std::time::Duration;

use heeler_core::{Outcome, ledger::LedgerEntry};
use heeler_protocol::mtp::RunMetrics;

use super::{RunOutcome, RunPlan};

/// Returns the metrics of a completed run.
pub(crate) fn run_metrics(plan: &RunPlan, outcome: &RunOutcome, took: Duration) -> RunMetrics {
    let mut metrics = RunMetrics {
        selected: plan.tests.len(),
        crashed: outcome.crashed.len(),
        programs: plan.programs.len(),
        failed_programs: outcome.failed_programs,
        workers: outcome.ledger.streams().len(),
        worker_deaths: outcome.worker_deaths,
        attachments: outcome.result.attachments.len(),
        duration_ms: duration_ms(took),
        tests_ms: outcome.durations.iter().map(|(_, duration)| duration_ms(*duration)).sum(),
        ..RunMetrics::default()
    };
    for entry in outcome.ledger.entries() {
        let ended = match entry {
            LedgerEntry::Settled { outcome, .. } => *outcome,
            LedgerEntry::Synthesized(told) => told.outcome(),
            // A completed run has no open entries.
            LedgerEntry::Open => continue,
        };
        *outcome_counter(&mut metrics, ended) += 1;
    }
    metrics
}

fn outcome_counter(metrics: &mut RunMetrics, outcome: Outcome) -> &mut usize {
    match outcome {
        Outcome::Passed => &mut metrics.passed,
        Outcome::Skipped => &mut metrics.skipped,
        Outcome::Failed => &mut metrics.failed,
        Outcome::TimedOut => &mut metrics.timed_out,
        Outcome::Error => &mut metrics.error,
        Outcome::Cancelled => &mut metrics.cancelled,
    }
}

/// Returns a duration in milliseconds, as the wire represents it.
pub(crate) fn duration_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
