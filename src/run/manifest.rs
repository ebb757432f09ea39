//! The plan and the result of a run on disk, beside the workers' journals: for the watchdog if the
//! coordinator dies, and for later commands. Nothing here is synced to the disk: it protects against the
//! death of processes, not of the machine.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    time::Duration,
};

use host::dirs::write_whole_file;
use model::{Outcome, ledger::Entry};
use wire::{
    control::{JournalledResult, OsBytes},
    journal::{self, EndCounts, FINISH_NAME, Record, RunEnd, StopReason},
    manifest::{FILE_NAME, Head, Manifest, Plan, PlannedTest},
    mtp::RawChange,
};

use super::{RunOutcome, RunPlan};

/// Writes the manifest of a run that begins now.
pub(super) fn write(plan: &RunPlan) -> io::Result<()> {
    let manifest = Manifest {
        head: Head {
            began_utc: crate::runs::now().to_string(),
            pid: std::process::id(),
            tests: plan.tests.len(),
            profile: plan.profile.clone(),
            state_dir: OsBytes::from(plan.state_dir.as_path()),
            ..Head::new(&plan.run, plan.provenance.origin.clone())
        },
        plan: planned(plan),
    };
    host::fail::at("run.manifest")?;
    write_whole_file(&plan.run_dir.path.join(FILE_NAME), &manifest.to_bytes())
}

/// Returns the manifest's description of the tests.
pub(super) fn planned(plan: &RunPlan) -> Plan {
    let test = |selected: &super::SelectedTest| PlannedTest {
        uid: selected.uid.clone(),
        display_name: selected.listed.display.as_ref().unwrap_or(&selected.listed.name).clone(),
        suite: plan.programs[selected.program].suite.clone(),
        group: selected.group,
        foreign: selected.foreign.as_deref().map(str::to_owned),
    };
    Plan {
        tests: plan.tests.iter().map(test).collect(),
        groups: plan.groups.clone(),
        left_before: plan.provenance.left_before.clone(),
    }
}

/// Writes the synthesized results before they are sent to the client: results of tests, then program
/// failures.
pub(super) fn write_told(
    plan: &RunPlan,
    tests: &[JournalledResult],
    changes: &[RawChange],
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
        journal::write(&mut bytes, &Record::Charged { change: change.as_bytes().to_vec() });
    }
    write_whole_file(&plan.run_dir.path.join(FINISH_NAME), &bytes)
}

/// Writes the record of the run's end.
pub(crate) fn write_end(plan: &RunPlan, outcome: &RunOutcome, took: Duration) -> io::Result<()> {
    let end = RunEnd {
        ended_utc: crate::runs::now().to_string(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        stopped_by: outcome.stopped_by.and_then(stop_reason),
        counts: counts(plan, outcome),
        charged_programs: outcome.charged_programs,
        result: outcome.result.clone(),
    };
    let path = plan.run_dir.path.join(FINISH_NAME);
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    let is_new = file.metadata()?.len() == 0;
    let mut bytes = if is_new { journal::MAGIC.to_vec() } else { Vec::new() };
    journal::write(&mut bytes, &Record::Ended(Box::new(end)));
    file.write_all(&bytes).inspect_err(|_| {
        if is_new {
            // A file without records is useless. At the end of a file with records, a torn record is
            // recognised as such.
            let _stays = fs::remove_file(&path);
        }
    })
}

fn stop_reason(reason: model::NotRun) -> Option<StopReason> {
    match reason {
        model::NotRun::Cancelled => Some(StopReason::Cancelled),
        model::NotRun::TooManyFailures => Some(StopReason::TooManyFailures),
        model::NotRun::TimeIsUp => Some(StopReason::TimeIsUp),
        model::NotRun::Unrunnable
        | model::NotRun::GivenUp { .. }
        | model::NotRun::NeverBegan
        | model::NotRun::WorkerDied
        | model::NotRun::NoWorker => None,
    }
}

fn counts(plan: &RunPlan, outcome: &RunOutcome) -> EndCounts {
    let mut counts = EndCounts::default();
    for entry in outcome.ledger.entries() {
        let ended = match entry {
            Entry::Settled { outcome, .. } => *outcome,
            Entry::Told(model::Told::NotRun(_)) | Entry::Open => {
                counts.not_run += 1;
                continue;
            }
            Entry::Told(told) => told.outcome(),
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
        counts.crashed = crate::runs::crashed(&plan.run_dir.path).min(counts.error);
        counts.error -= counts.crashed;
    }
    counts
}
