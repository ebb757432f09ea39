//! For front ends: plans a run and makes its directory, and records the run on disk after its end.

use std::{num::NonZeroU32, time::Duration};

use heeler_sys::{
    dirs::{DirError, private_dir, temporary_dir, unique_dir},
    machine::MachineReading,
};

use super::{
    HistorySnapshot, RunOutcome, RunPlan, manifest,
    plan::{PlannedTests, RunPlanInputs},
    test_history,
};
use crate::discovery::{Catalogue, TestRef, TestSelection, select_tests};
use heeler_config::ResolvedSettings;
use heeler_run_store::{DIR_NAME, Provenance, RunDir, fallback_state_dir, make_run_dir};

/// A client's request for a run.
pub struct RunRequest<'a> {
    pub run_id: &'a str,
    pub selection: &'a TestSelection,
    pub is_debugged: bool,
    pub has_attachments_stream: bool,
}

/// Inputs of a plan besides the request.
pub struct PlanContext<'a> {
    pub catalogue: &'a Catalogue,
    /// The settings of the client's session.
    pub settings: &'a ResolvedSettings,
    pub provenance: &'a Provenance,
}

/// A planned run.
pub struct PreparedRun {
    pub plan: RunPlan,
    /// Problems that were worked around, for the client's log.
    pub warnings: Vec<String>,
}

/// Plans a run and makes its directory.
///
/// # Errors
/// No directory can be made for the journals.
pub fn prepare_run(request: &RunRequest<'_>, context: &PlanContext<'_>) -> Result<PreparedRun, DirError> {
    let planned = plan_tests(request.selection, context);
    let mut prepared = prepare_planned_run(request.run_id, planned, context)?;
    prepared.plan.has_attachments_stream = request.has_attachments_stream;
    if request.is_debugged {
        prepared.plan.make_debug_run();
    }
    Ok(prepared)
}

/// Plans an open run that starts with these tests, and makes its directory.
///
/// # Errors
/// Same as [`prepare_run`].
#[cfg_attr(not(feature = "connect"), expect(dead_code, reason = "only runs of Connect's suite are open"))]
pub(crate) fn prepare_open_run(
    run_id: &str,
    planned: PlannedTests,
    context: &PlanContext<'_>,
) -> Result<PreparedRun, DirError> {
    let mut prepared = prepare_planned_run(run_id, planned, context)?;
    prepared.plan.model.is_open = true;
    Ok(prepared)
}

/// Plans a run of these tests and makes its directory.
///
/// # Errors
/// Same as [`prepare_run`].
pub(crate) fn prepare_planned_run(
    run_id: &str,
    planned: PlannedTests,
    context: &PlanContext<'_>,
) -> Result<PreparedRun, DirError> {
    let mut warnings = Vec::new();
    let run_dir = prepare_run_dir(run_id, context.settings, &mut warnings)?;
    let mut plan = RunPlan::new(run_id, run_dir, context.settings, planned);
    plan.provenance = context.provenance.clone();
    Ok(PreparedRun { plan, warnings })
}

/// Plans tests for a new run, or to be added to an open run.
#[must_use]
pub(crate) fn plan_tests(selection: &TestSelection, context: &PlanContext<'_>) -> PlannedTests {
    let (selected, missing) = select_tests(context.catalogue, selection);
    let history = read_history(context, &selected);
    let inputs = RunPlanInputs {
        catalogue: context.catalogue,
        selected: &selected,
        missing: &missing,
        settings: context.settings,
        history: &history,
        available_kib: history.knows_peaks().then(available_kib).flatten(),
    };
    PlannedTests::new(&inputs)
}

/// Returns the memory that test processes can use, in KiB.
fn available_kib() -> Option<u64> {
    let machine = MachineReading::read().ok()?;
    let in_group = machine.group.map_or(u64::MAX, |group| group.free_bytes);
    Some(machine.available_bytes.min(in_group) / 1024)
}

fn read_history(context: &PlanContext<'_>, selected: &[TestRef]) -> HistorySnapshot {
    if !context.settings.run.is_history_kept {
        return HistorySnapshot::default();
    }
    let uids = selected.iter().filter_map(|place| Some(context.catalogue.test(*place)?.uid()));
    HistorySnapshot::read(&context.settings.state_dir, uids).unwrap_or_else(|error| {
        tracing::warn!(
            error = heeler_core::error_chain(&error),
            "failed to read the test history; scheduling without durations of earlier runs"
        );
        HistorySnapshot::default()
    })
}

fn prepare_run_dir(
    run_id: &str,
    settings: &ResolvedSettings,
    warnings: &mut Vec<String>,
) -> Result<RunDir, DirError> {
    let keep = settings.run.keep_runs;
    let error = match make_run_dir(&settings.state_dir.join(DIR_NAME), run_id, keep) {
        Ok(dir) => return Ok(dir),
        Err(error) => error,
    };
    let made = make_fallback_run_dir(run_id, keep);
    if let Ok(dir) = &made {
        let place = dir.path.parent().unwrap_or(&dir.path).display();
        warnings.push(format!(
            "failed to {}; this run is recorded in {place} instead",
            heeler_core::error_chain(&error)
        ));
    }
    made
}

/// Makes the run directory under this user's fallback directory, where later commands find it. If another
/// user owns that name, a new unique directory is used.
fn make_fallback_run_dir(run_id: &str, keep: NonZeroU32) -> Result<RunDir, DirError> {
    let known = fallback_state_dir();
    let made = private_dir(&known).and_then(|()| make_run_dir(&known.join(DIR_NAME), run_id, keep));
    made.or_else(|_taken| {
        let new = unique_dir(&temporary_dir(), "heeler-runs")?;
        make_run_dir(&new.join(DIR_NAME), run_id, keep)
    })
}

/// Removes the directory of a run that has executed nothing, since no later command needs it.
pub fn discard_run(plan: &RunPlan) {
    let _stays = std::fs::remove_dir_all(&plan.run_dir.path);
}

/// Records the end of a run, and its durations and crashes for later runs. Returns a warning for the client's
/// log. A history that can't be written does not fail the run.
pub fn record_run(
    settings: &ResolvedSettings,
    plan: &RunPlan,
    outcome: &RunOutcome,
    took: Duration,
) -> Option<String> {
    // Durations and outcomes under a debugger say little about the next run.
    if settings.run.is_history_kept
        && !plan.is_debugged
        && let Err(error) = test_history::record_history(&settings.state_dir, plan, outcome)
    {
        tracing::warn!(
            error = heeler_core::error_chain(&error),
            "failed to write the test history; later runs will not know the durations of this run"
        );
    }
    let error = manifest::write_end(plan, outcome, took).err()?;
    Some(format!(
        "failed to record the end of this run, so later commands will show it as interrupted: {error}"
    ))
}
