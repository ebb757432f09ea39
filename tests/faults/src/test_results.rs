//! Compares the results reported by protocols that use labels with the expected results: no test is reported
//! better or worse than its actual result, and faults explain every affected test.

use std::{collections::BTreeMap, path::Path};

use heeler_core::Outcome;
use heeler_run_store::{EarlierRun, EarlierRunState, RecordedRunError, list_runs, read_recorded_run};

use crate::{
    injector::InjectedFault,
    planned_faults::{FaultTarget, InjectedAction},
    support::process::ProcessRole,
};

/// Losses that the injected faults may cause in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermittedLosses {
    /// Number of faults that may each lose the running test.
    pub(crate) tests: usize,
    /// Number of workers and watchdogs that died. Their tests are rerun unless a second process dies as well.
    pub(crate) replaced: usize,
    /// A process was stopped, so timeouts may have elapsed.
    pub(crate) is_stopped: bool,
}

impl PermittedLosses {
    pub(crate) fn new<'a>(hits: impl Iterator<Item = &'a InjectedFault> + Clone) -> Self {
        let count = |targets: &[FaultTarget]| {
            let is_one =
                |hit: &&InjectedFault| targets.iter().any(|target| hit.fault.action.may_kill(*target));
            hits.clone().filter(is_one).count()
        };
        let role = FaultTarget::ProcessRole;
        Self {
            tests: count(&[FaultTarget::Test, role(ProcessRole::Guard), role(ProcessRole::ForkServer)]),
            replaced: count(&[role(ProcessRole::Worker), role(ProcessRole::Watchdog)]),
            is_stopped: hits
                .clone()
                .any(|hit| matches!(hit.fault.action.equivalent(), InjectedAction::Stop(..))),
        }
    }

    /// Returns whether faults may prevent a listing. A listing is tried twice. If its process dies both
    /// times, the program's tests are missing and a failure is reported.
    pub(crate) fn may_hide_a_program(&self) -> bool {
        self.tests + self.replaced >= 2
    }

    /// Returns whether faults may end a process outside its tests, which is reported as a program failure.
    pub(crate) fn may_fail_a_program(&self) -> bool {
        self.tests > 0 || self.may_hide_a_program()
    }

    /// Checks the labels of one run's tests against the states that the tests have without faults. Returns
    /// the number of tests lost to faults.
    ///
    /// # Panics
    ///
    /// If a test is reported better than its actual result, or as failed although it does not fail.
    pub(crate) fn check(
        &self,
        expected: &BTreeMap<String, &'static str>,
        labels: &BTreeMap<String, String>,
    ) -> usize {
        let mut lost = 0;
        for (uid, label) in labels {
            let Some(expected) = expected.get(uid) else { panic!("{uid} is no selected test: {label}") };
            let state = state_of_label(label);
            if state == *expected {
                continue;
            }
            let is_better = matches!(state, "passed" | "skipped");
            assert!(!is_better, "{uid} is {expected} and is reported better: {label}");
            assert!(state != "failed", "{uid} is {expected} and is reported as failed");
            lost += 1;
        }
        lost
    }
}

/// Returns the final state that a label stands for.
fn state_of_label(label: &str) -> &str {
    match label {
        "passed" | "flaky" => "passed",
        "timed out" | "idle" => "timed-out",
        "skipped" | "failed" | "cancelled" => label,
        _ => "error",
    }
}

/// The results of a run as received by its client.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedRun {
    pub(crate) run_id: String,
    /// Labels by uid.
    pub(crate) labels: BTreeMap<String, String>,
    /// The client has received the end of the run, and tests ran.
    pub(crate) is_over: bool,
}

/// Checks the run directories after all processes have exited: every run has ended and contains the results
/// that the client received.
pub(crate) fn check_run_files(dir: &Path, received: &[ReceivedRun]) {
    let all = list_runs(&dir.join(".heeler"));
    for run in &all {
        let is_over = matches!(run.state, EarlierRunState::Ended(_) | EarlierRunState::Interrupted { .. });
        assert!(is_over, "all processes are gone, and a run is {:?}: {:?}", run.state, run.problems);
    }
    for seen in received {
        let is_it = |run: &&EarlierRun| run.head.as_ref().is_some_and(|head| head.run == seen.run_id);
        let Some(run) = all.iter().find(is_it) else {
            assert!(seen.labels.is_empty(), "the run {} has results and is not on the disk", seen.run_id);
            continue;
        };
        let is_ended = matches!(run.state, EarlierRunState::Ended(_));
        assert!(is_ended || !seen.is_over, "a run that is over has the state {:?}", run.state);
        let story = match read_recorded_run(run) {
            Ok(story) => story,
            Err(RecordedRunError::NoManifest { .. }) => {
                assert!(seen.labels.is_empty(), "there are results of a run without a manifest");
                continue;
            }
            Err(error) => panic!("a run's files can't be read: {error}: {:?}", run.problems),
        };
        assert!(story.losses.is_empty(), "lost: {:?}", story.losses);
        let stored: BTreeMap<String, Outcome> =
            story.reports().map(|report| (report.uid, report.outcome)).collect();
        for (uid, label) in &seen.labels {
            let stored = stored.get(uid).map(|outcome| outcome.label());
            assert_eq!(stored, Some(label.as_str()), "{uid} has another outcome in the files");
        }
    }
}
