//! One round: a run with faults, then a run without faults that continues from its verdicts.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use super::{
    plan::MutationPlan,
    project::{self, Verdicts},
};
use crate::{
    heeler_process::HeelerProcess,
    injector::{RoundClient, RoundProgress, RoundStage},
    planned_faults::{FaultTarget, InjectedAction, environment_of},
    round::{FaultRound, is_own_panic},
    suites,
    support::process::signal_if_there,
};

/// Exit code of a cancelled run.
const CANCELLED: i32 = 3;

/// The user, who starts and interrupts the command.
struct User(HeelerProcess);

impl RoundClient for User {
    fn coordinator(&self) -> u32 {
        self.0.pid
    }

    fn updates(&self) -> usize {
        0
    }

    fn has_completed_run(&self) -> bool {
        false
    }

    fn act(&self, _action: InjectedAction, _progress: &RoundProgress) -> Option<String> {
        // Never drawn for mutation testing.
        None
    }
}

/// Plays a round.
pub(crate) fn play(plan: &MutationPlan, round: &mut FaultRound<'_>) {
    let expected = project::verdicts_without_faults(plan.functions);
    suites::prepare(round.dir, &[], &plan.settings);
    project::write(round.dir, plan.functions);
    let mut command = project::mutate(round.dir, &round.mark, plan.settings.jobs, "first.json");
    command.envs(environment_of(&plan.faults, &plan.clock, round.dir));
    let user = User(HeelerProcess::start(command));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        round.with_faults(&plan.faults, &user, |round, progress| {
            progress.reach(RoundStage::Requested);
            if let Some(after) = plan.interrupted {
                progress.wait_for(after);
                signal_if_there(user.0.pid, "INT");
            }
            round.measure(user.0.pid);
            assert!(user.0.wait_gone(), "processes of Heeler's own are left\n{}", user.0.errors());
        });
        check_first_run(plan, &user.0, round, &expected);
        check_second_run(plan, round, &expected);
    }));
    round.errors = user.0.errors();
    if outcome.is_err() {
        fs::write(round.dir.join("stderr.txt"), &round.errors).ok();
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Checks the run with faults: reported verdicts are correct, and mutants without a verdict are pending.
fn check_first_run(
    plan: &MutationPlan,
    process: &HeelerProcess,
    round: &FaultRound<'_>,
    expected: &Verdicts,
) {
    round.check_nothing_left();
    let errors = process.errors();
    assert!(!errors.lines().any(is_own_panic), "{errors}");
    let code = process.exit_code();
    let is_disturbed = round.hits().next().is_some() || plan.interrupted.is_some();
    assert!(is_disturbed || code == Some(0), "the exit code is {code:?}\n{errors}");
    let is_killed = round.is_killed(FaultTarget::Coordinator);
    assert!(is_killed || plan.interrupted.is_some() || code.is_some(), "it was ended by a signal\n{errors}");
    if code == Some(CANCELLED) {
        assert!(plan.interrupted.is_some(), "nobody has cancelled it\n{errors}");
    }
    if let Some(found) = project::read(&round.dir.join("first.json")) {
        check_verdicts(&found, expected, code == Some(0), &errors);
    }
    round.check_peaks();
}

/// Runs again without faults: every verdict must equal the verdict of an undisturbed run.
fn check_second_run(plan: &MutationPlan, round: &FaultRound<'_>, expected: &Verdicts) {
    let mut command = project::mutate(round.dir, &round.mark, plan.settings.jobs, "second.json");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the second run\n{errors}");
    let found = project::read(&round.dir.join("second.json")).expect("it has written a report");
    check_verdicts(&found, expected, true, &errors);
    assert_no_sources_changed(round.dir, plan.functions);
}

fn check_verdicts(found: &Verdicts, expected: &Verdicts, are_all_known: bool, errors: &str) {
    let differs = |(place, status): &(&String, &String)| {
        let is_open = !are_all_known && *status == "Pending";
        !is_open && expected.get(*place) != Some(status)
    };
    let wrong: Vec<_> =
        found.iter().filter(differs).map(|(place, status)| (place, status, expected.get(place))).collect();
    assert!(wrong.is_empty(), "wrong verdicts: {wrong:#?}\n{errors}");
    assert_eq!(found.len(), expected.len(), "mutants are missing\n{errors}");
}

/// Checks that the user's sources are unchanged.
fn assert_no_sources_changed(dir: &Path, functions: usize) {
    let fresh = tempfile::tempdir().unwrap();
    project::write(fresh.path(), functions);
    for entry in fs::read_dir(fresh.path()).unwrap().map(Result::unwrap) {
        let now = fs::read(dir.join(entry.file_name())).unwrap();
        assert_eq!(now, fs::read(entry.path()).unwrap(), "{:?} has changed", entry.file_name());
    }
}
