//! Rounds with a program that attacks Heeler's assumptions, or with a process that is stopped for good. These
//! rounds are slow or need special programs, so they are drawn separately.

use std::time::Duration;

use super::plan::{MtpPlan, PlannedTransport};
use crate::{
    hostile::{HANGING, PROGRAMS},
    planned_faults::{FaultMoment, FaultTarget, InjectedAction, PlannedFault},
    random::SeededRandom,
    suites::{PlannedProgram, PlannedSuite},
    support::process::ProcessRole,
};

/// Separates the random numbers of hostile rounds, so that other rounds stay the same.
const HOSTILE: u64 = 0x0bad_c0de;
/// Rounds per thousand that stop a process for good. Each of them takes at least ten seconds.
const STOPS_PER_MILLE: usize = 25;
/// Percentage of rounds with an additional hostile program.
const PROGRAM_PERCENT: usize = 8;
/// Timeout of the tests in rounds that stop a test process, which nothing else would end.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Processes are stopped within this time after the request.
const SPAN: Duration = Duration::from_millis(400);
/// Name of the suite of a hostile program.
const SUITE: &str = "hostile";

/// Adds hostility to a plan: with a small probability, or always if `is_certain`.
pub(crate) fn make_hostile(plan: &mut MtpPlan, is_certain: bool) {
    if is_hostile(plan) {
        return;
    }
    let mut draws = SeededRandom::new(plan.seed ^ HOSTILE);
    let has_stop = draws.below(1000) < STOPS_PER_MILLE;
    let has_program = draws.with_probability(PROGRAM_PERCENT);
    let kind = draws.below(3);
    if has_program || (is_certain && kind > 0) {
        add_program(plan, &mut draws);
    }
    // The coordinator and the watchdog resume each other. If one is killed, nothing resumes the other.
    let loses_coordinator = plan.faults.iter().any(|fault| fault.action.may_kill(FaultTarget::Coordinator));
    if !loses_coordinator && (has_stop || (is_certain && kind == 0)) {
        let stop = draw_stop(&mut draws, plan.client.transport);
        let watchdog = FaultTarget::ProcessRole(ProcessRole::Watchdog);
        let loses_watchdog = plan.faults.iter().any(|fault| fault.action.may_kill(watchdog));
        if stop.action == InjectedAction::StopForGood(FaultTarget::Coordinator) && loses_watchdog {
            return;
        }
        if stop.action == InjectedAction::StopForGood(FaultTarget::Test) {
            plan.settings.timeout.get_or_insert(TIMEOUT);
        }
        plan.faults.push(stop);
    }
}

fn is_hostile(plan: &MtpPlan) -> bool {
    plan.faults.iter().any(|fault| matches!(fault.action, InjectedAction::StopForGood(_)))
        || plan.suites.iter().any(|suite| matches!(suite.program, PlannedProgram::Hostile(_)))
}

fn add_program(plan: &mut MtpPlan, draws: &mut SeededRandom) {
    let program = draws.pick(&PROGRAMS);
    // A program failure changes the exit code of the command line, but not the test results.
    if program.fails_itself && plan.client.transport == PlannedTransport::CommandLine {
        return;
    }
    if program.attack.1 == HANGING {
        plan.settings.timeout.get_or_insert(TIMEOUT);
    }
    let suite = PlannedSuite { name: SUITE.to_owned(), program: PlannedProgram::Hostile(program) };
    if let Some(selection) = &mut plan.selection {
        selection.extend(suite.tests().into_iter().map(|(uid, _)| uid));
    }
    plan.suites.push(suite);
}

fn draw_stop(draws: &mut SeededRandom, transport: PlannedTransport) -> PlannedFault {
    let target = draws.pick_weighted(&[
        (20, FaultTarget::Coordinator),
        (20, FaultTarget::ProcessRole(ProcessRole::Watchdog)),
        (20, FaultTarget::ProcessRole(ProcessRole::Worker)),
        (12, FaultTarget::ProcessRole(ProcessRole::ForkServer)),
        (14, FaultTarget::ProcessRole(ProcessRole::Guard)),
        (14, FaultTarget::Test),
    ]);
    let requested = FaultMoment::Requested(draws.duration_below(SPAN));
    let updates = FaultMoment::Updates(draws.between(1, 12));
    let leaving = FaultMoment::Leaving(draws.duration_below(SPAN / 4));
    let when = match transport {
        // The harness cannot see the updates of the command line.
        PlannedTransport::CommandLine => requested,
        // At the end of a session, no test is running that could stop these processes. The watchdog may
        // already have exited, so nothing would resume the coordinator, and vice versa.
        _ if [FaultTarget::Coordinator, FaultTarget::ProcessRole(ProcessRole::Watchdog)]
            .contains(&target) =>
        {
            draws.pick_weighted(&[(50, requested), (40, updates)])
        }
        _ => draws.pick_weighted(&[(50, requested), (40, updates), (10, leaving)]),
    };
    PlannedFault { action: InjectedAction::StopForGood(target), when }
}
