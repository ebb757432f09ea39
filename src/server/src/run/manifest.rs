//! The plan and the result of a run on disk, next to the workers' journals. The watchdog reads them if the
//! coordinator dies, and later commands read them too. Files are not synced: they must survive the death of
//! processes, not of the machine.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    sync::Arc,
    time::Duration,
};

use heeler_core::{OsText, OutcomeCounts, RunRecord, ledger::LedgerEntry};
use heeler_protocol::{
    control::{DueResult, FinishRequest, JournalResend, TestProgram},
    journal::{self, RunEnd, SYNTHESIZED_JOURNAL_NAME},
    manifest::{Manifest, ManifestHead, ManifestPlan, ManifestProgram, ManifestTest, TestDescriptions},
};
use heeler_sys::dirs::write_file_atomically;

use super::{RunOutcome, RunPlan, SelectedTest, schedule::manifest_schedule};

/// Writes the manifest of a run that begins now.
pub(super) fn write_manifest(plan: &RunPlan) -> io::Result<()> {
    let manifest = Manifest {
        head: ManifestHead {
            began_utc: heeler_run_store::wall_clock().to_string(),
            pid: std::process::id(),
            tests: plan.selected_tests().len(),
            fixture_commands: plan.tests.len() - plan.selected_tests().len(),
            profile: plan.profile.clone(),
            state_dir: OsText::from(plan.state_dir.as_path()),
            shard: plan.provenance.shard.clone(),
            ..ManifestHead::new(&plan.run_id, plan.provenance.origin.clone())
        },
        plan: manifest_plan(plan),
    };
    heeler_sys::fail::at("run.manifest")?;
    heeler_run_store::write_manifest(&plan.run_dir.path, &manifest)
}

/// Returns the manifest's description of programs, tests and groups.
pub(super) fn manifest_plan(plan: &RunPlan) -> ManifestPlan {
    ManifestPlan {
        programs: manifest_programs(plan),
        tests: plan.tests.iter().map(manifest_test).collect(),
        groups: plan.groups.clone(),
        earlier_rerun_set: plan.provenance.inherited_rerun_set.clone(),
        schedule: Some(Box::new(manifest_schedule(plan))),
    }
}

fn manifest_programs(plan: &RunPlan) -> Vec<ManifestProgram> {
    let program = |program: &Arc<TestProgram>| ManifestProgram {
        suite: program.suite.clone(),
        path: program.path.clone(),
    };
    plan.programs.iter().map(program).collect()
}

fn manifest_test(selected: &SelectedTest) -> ManifestTest {
    ManifestTest {
        uid: selected.uid.clone(),
        display_name: selected.listed.display.as_ref().unwrap_or(&selected.listed.name).clone(),
        report_name: selected.listed.report_name.clone(),
        program: u32::try_from(selected.program).unwrap_or(u32::MAX),
        group: selected.group,
        file: selected.listed.file.clone(),
        line: selected.listed.line,
        traits: selected.listed.traits.clone(),
    }
}

/// Returns descriptions of the tests in a finish request.
pub(super) fn descriptions(
    plan: &RunPlan,
    resend: &[JournalResend],
    synthesized: &[DueResult],
) -> TestDescriptions {
    let resent = resend.iter().flat_map(|resend| &resend.known).map(|known| known.test);
    let tests: BTreeMap<_, _> = resent
        .chain(synthesized.iter().map(|due| due.test))
        .map(|test| (test, manifest_test(&plan.tests[test.index()])))
        .collect();
    let groups = if tests.is_empty() { Vec::new() } else { plan.groups.clone() };
    TestDescriptions { programs: manifest_programs(plan), groups, tests }
}

/// Writes synthesized results, then program failures. Called before they are sent to the client.
pub(super) fn write_synthesized(plan: &RunPlan, finish: &FinishRequest) -> io::Result<()> {
    if finish.synthesized.is_empty() && finish.program_failures.is_empty() {
        return Ok(());
    }
    let mut bytes = journal::MAGIC.to_vec();
    for due in &finish.synthesized {
        journal::write_finished(&mut bytes, due.test, &due.result);
    }
    for failure in &finish.program_failures {
        journal::write(&mut bytes, &RunRecord::ProgramFailed(failure.clone()));
    }
    write_file_atomically(&plan.run_dir.path.join(SYNTHESIZED_JOURNAL_NAME), &bytes)
}

/// Writes the record of the run's end.
pub(crate) fn write_end(plan: &RunPlan, outcome: &RunOutcome, took: Duration) -> io::Result<()> {
    let end = RunEnd {
        ended_utc: heeler_run_store::wall_clock().to_string(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        stopped_by: outcome.stopped_by.filter(|reason| reason.is_stop()),
        counts: end_counts(plan, outcome),
        failed_programs: outcome.failed_programs,
        result: outcome.result.clone(),
    };
    let path = plan.run_dir.path.join(SYNTHESIZED_JOURNAL_NAME);
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    let is_new = file.metadata()?.len() == 0;
    let mut bytes = if is_new { journal::MAGIC.to_vec() } else { Vec::new() };
    journal::write_end(&mut bytes, &end);
    file.write_all(&bytes).inspect_err(|_| {
        if is_new {
            // A file without records is useless. A torn record at the end of a longer file is recognised as
            // torn.
            let _stays = fs::remove_file(&path);
        }
    })
}

fn end_counts(plan: &RunPlan, outcome: &RunOutcome) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    let tests = outcome.ledger.entries().iter().take(plan.selected_tests().len());
    for outcome in tests.filter_map(LedgerEntry::outcome) {
        counts.add(outcome, None);
    }
    counts
}
