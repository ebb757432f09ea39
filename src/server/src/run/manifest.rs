//! The plan and the result of a run on disk, beside the workers' journals: for the watchdog if the
//! coordinator dies, and for later commands. Nothing here is synced to the disk: it protects against the
//! death of processes, not of the machine.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    time::Duration,
};

use heeler_core::{Outcome, ledger::LedgerEntry};
use heeler_protocol::{
    control::{JournalledResult, OsText},
    journal::{self, EndCounts, JournalRecord, RunEnd, SYNTHESIZED_JOURNAL_NAME, StopReason},
    manifest::{MANIFEST_FILE_NAME, Manifest, ManifestHead, ManifestPlan, ManifestTest},
    mtp::EncodedChange,
};
use heeler_sys::dirs::write_file_atomically;

use super::{RunOutcome, RunPlan};

/// Writes the manifest of a run that begins now.
pub(super) fn write_manifest(plan: &RunPlan) -> io::Result<()> {
    let manifest = Manifest {
        head: ManifestHead {
            began_utc: heeler_run_store::wall_clock().to_string(),
            pid: std::process::id(),
            tests: plan.tests.len(),
            profile: plan.profile.clone(),
            state_dir: OsText::from(plan.state_dir.as_path()),
            ..ManifestHead::new(&plan.run_id, plan.provenance.origin.clone())
        },
        plan: manifest_plan(plan),
    };
    heeler_sys::fail::at("run.manifest")?;
    write_file_atomically(&plan.run_dir.path.join(MANIFEST_FILE_NAME), &manifest.to_bytes())
}

/// Returns the manifest's description of the tests.
pub(super) fn manifest_plan(plan: &RunPlan) -> ManifestPlan {
    let test = |selected: &super::SelectedTest| ManifestTest {
        uid: selected.uid.clone(),
        display_name: selected.listed.display.as_ref().unwrap_or(&selected.listed.name).clone(),
        suite: plan.programs[selected.program].suite.clone(),
        group: selected.group,
        client_members: selected.foreign.as_deref().map(str::to_owned),
    };
    ManifestPlan {
        tests: plan.tests.iter().map(test).collect(),
        groups: plan.groups.clone(),
        earlier_rerun_set: plan.provenance.inherited_rerun_set.clone(),
    }
}

/// Writes the synthesized results before they are sent to the client: results of tests, then program
/// failures.
pub(super) fn write_synthesized(
    plan: &RunPlan,
    tests: &[JournalledResult],
    changes: &[EncodedChange],
) -> io::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut bytes = journal::MAGIC.to_vec();
    let (of_tests, of_programs) = changes.split_at(tests.len());
    for (result, change) in tests.iter().zip(of_tests) {
        journal::write_settled(&mut bytes, *result, change.as_bytes());
    }
    for change in of_programs {
        journal::write(&mut bytes, &JournalRecord::ProgramFailure { change: change.as_bytes().to_vec() });
    }
    write_file_atomically(&plan.run_dir.path.join(SYNTHESIZED_JOURNAL_NAME), &bytes)
}

/// Writes the record of the run's end.
pub(crate) fn write_end(plan: &RunPlan, outcome: &RunOutcome, took: Duration) -> io::Result<()> {
    let end = RunEnd {
        ended_utc: heeler_run_store::wall_clock().to_string(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        stopped_by: outcome.stopped_by.and_then(stop_reason),
        counts: end_counts(plan, outcome),
        failed_programs: outcome.failed_programs,
        result: outcome.result.clone(),
    };
    let path = plan.run_dir.path.join(SYNTHESIZED_JOURNAL_NAME);
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    let is_new = file.metadata()?.len() == 0;
    let mut bytes = if is_new { journal::MAGIC.to_vec() } else { Vec::new() };
    journal::write(&mut bytes, &JournalRecord::Ended(Box::new(end)));
    file.write_all(&bytes).inspect_err(|_| {
        if is_new {
            // A file without records is useless. At the end of a file with records, a torn record is
            // recognised as such.
            let _stays = fs::remove_file(&path);
        }
    })
}

fn stop_reason(reason: heeler_core::NotRunReason) -> Option<StopReason> {
    match reason {
        heeler_core::NotRunReason::Cancelled => Some(StopReason::Cancelled),
        heeler_core::NotRunReason::TooManyFailures => Some(StopReason::TooManyFailures),
        heeler_core::NotRunReason::TimeLimitReached => Some(StopReason::TimeLimitReached),
        heeler_core::NotRunReason::Unrunnable
        | heeler_core::NotRunReason::ProgramGivenUp { .. }
        | heeler_core::NotRunReason::NeverStarted
        | heeler_core::NotRunReason::WorkerDied
        | heeler_core::NotRunReason::NoWorker => None,
    }
}

fn end_counts(plan: &RunPlan, outcome: &RunOutcome) -> EndCounts {
    let mut counts = EndCounts::default();
    for entry in outcome.ledger.entries() {
        let ended = match entry {
            LedgerEntry::Settled { outcome, .. } => *outcome,
            LedgerEntry::Synthesized(heeler_core::SynthesizedResult::NotRun(_)) | LedgerEntry::Open => {
                counts.not_run += 1;
                continue;
            }
            LedgerEntry::Synthesized(told) => told.outcome(),
        };
        *match ended {
            Outcome::Passed => &mut counts.passed,
            Outcome::Skipped => &mut counts.skipped,
            Outcome::Failed => &mut counts.failed,
            Outcome::TimedOut => &mut counts.timed_out,
            Outcome::Error => &mut counts.error,
            Outcome::Cancelled => &mut counts.cancelled,
        } += 1;
    }
    // Only the workers' journals record which of the errors were crashes.
    if counts.error > 0 {
        counts.crashed = heeler_run_store::count_crashed_tests(&plan.run_dir.path).min(counts.error);
        counts.error -= counts.crashed;
    }
    counts
}
