//! Programs that attack what Heeler relies on, and processes that are stopped for good: drawn apart from the
//! others of a round, because such rounds are slow or need programs of their own.

use std::time::Duration;

use crate::{
    guarantees,
    random::SeededRandom,
    round_plan::{
        FaultMoment, FaultTarget, InjectedAction, PlannedFault, PlannedProgram, PlannedSuite,
        PlannedTransport, RoundPlan,
    },
    support::process::ProcessRole,
};

/// Sets the random numbers of hostile rounds apart from the others of a round, which are the same without
/// them.
const HOSTILE: u64 = 0x0bad_c0de;
/// Rounds in a thousand with a process that is stopped for good: each takes ten seconds and more.
const STOPS_PER_MILLE: usize = 25;
/// Rounds in a hundred with a hostile program beside the others.
const PROGRAM_PERCENT: usize = 8;
/// Name of the suite of a hostile program.
const SUITE: &str = "hostile";
/// Beginning of the uids of its tests.
pub(crate) const SUITE_PREFIX: &str = "hostile::";
/// Time limit of the tests where a test process is stopped: nothing else ends it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Within this time after the request, a process is stopped.
const SPAN: Duration = Duration::from_millis(400);

/// A program of the end-to-end tests, the variable that selects its attack, and what becomes of its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostileProgram {
    /// Name of its source.
    pub(crate) fixture: &'static str,
    /// Name and value of the variable.
    pub(crate) attack: (&'static str, &'static str),
    tests: HostileTests,
    /// The tests that do not pass: the beginning of their names, and their state.
    charged: (&'static str, &'static str),
    /// The program itself fails, too.
    fails_itself: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostileTests {
    Named(&'static [&'static str]),
    /// Tests, and the cases of a parameterised one.
    WithCases(&'static [&'static str], &'static str, usize),
}

const FORGING: HostileTests = HostileTests::Named(&[
    "First.Passes",
    "Fork.ChildReturnsParentCrashes",
    "Fork.ChildReturnsParentExits",
    "Fork.ChildReturnsParentFails",
    "Fork.ChildIsGoneWhenParentCrashes",
    "Fork.ChildRunsOnWhileParentCrashes",
    "Again.StartsProgramAndCrashes",
    "Print.NextMarkersAndFails",
    "Print.EverythingAndExits",
    "Print.HandlerExits",
    "Print.ClosesOutput",
    "Print.TearsMarkers",
    "Last.Passes",
]);
const SUITES: HostileTests =
    HostileTests::WithCases(&["Before.One", "Before.Two", "Zafter.One", "Zafter.Two"], "N/Fixture.Case", 20);
const DIRECTORY: HostileTests =
    HostileTests::WithCases(&["Evidence.Directories", "Evidence.Fails"], "N/Directory.Case", 6);

const fn forging(attack: &'static str, charged: (&'static str, &'static str)) -> HostileProgram {
    HostileProgram {
        fixture: "forging",
        attack: ("HEELER_FIXTURE_ATTACK", attack),
        tests: FORGING,
        charged,
        fails_itself: false,
    }
}

const fn suites(
    end: &'static str,
    charged: (&'static str, &'static str),
    fails_itself: bool,
) -> HostileProgram {
    let attack = ("HEELER_FIXTURE_END", end);
    HostileProgram { fixture: "suites", attack, tests: SUITES, charged, fails_itself }
}

const NONE: (&str, &str) = ("none", "");
/// An attack that only a time limit ends.
const HANGING: &str = "fork, hang both";

/// Every hostile program.
pub(crate) const PROGRAMS: [HostileProgram; 16] = [
    forging("fork, crash", ("Fork.ChildReturnsParentCrashes", "error")),
    forging("fork, fail", ("Fork.ChildReturnsParentFails", "failed")),
    forging("fork, crash late", ("Fork.ChildIsGoneWhenParentCrashes", "error")),
    forging("fork, crash early", ("Fork.ChildRunsOnWhileParentCrashes", "error")),
    forging(HANGING, ("Fork.ChildRunsOnWhileParentCrashes", "timed-out")),
    forging("again, crash", ("Again.StartsProgramAndCrashes", "error")),
    forging("next, fail", ("Print.NextMarkersAndFails", "failed")),
    forging("everything, exit 0", ("Print.EverythingAndExits", "error")),
    forging("handler, exit 0", ("Print.HandlerExits", "error")),
    forging("close", NONE),
    forging("tear", NONE),
    forging("own printer", NONE),
    suites("set-up, crash", ("N/Fixture", "error"), false),
    suites("set-up, exit", ("N/Fixture", "error"), false),
    suites("tear-down, crash", NONE, true),
    HostileProgram {
        fixture: "tmpdir",
        attack: ("HEELER_FIXTURE_UNUSED", "none"),
        tests: DIRECTORY,
        charged: ("Evidence.Fails", "failed"),
        fails_itself: false,
    },
];

impl HostileProgram {
    /// Returns the names of its tests, with their states without faults.
    pub(crate) fn tests(self) -> Vec<(String, &'static str)> {
        let names: Vec<String> = match self.tests {
            HostileTests::Named(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            HostileTests::WithCases(names, case, count) => {
                let cases = (0..count).map(|number| format!("{case}/{number}"));
                names.iter().map(|name| (*name).to_owned()).chain(cases).collect()
            }
        };
        let (charged, state) = self.charged;
        let state_of = |name: &str| if name.starts_with(charged) { state } else { "passed" };
        names.into_iter().map(|name| (name.clone(), state_of(&name))).collect()
    }
}

/// Adds what a hostile round has to the plan of one: with a small probability, or always if `is_certain`.
pub(crate) fn make_hostile(plan: &mut RoundPlan, is_certain: bool) {
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
    // Coordinator and watchdog continue each other: where one is killed, nothing continues the other.
    let loses_coordinator =
        plan.faults.iter().any(|fault| guarantees::may_kill(fault.action, FaultTarget::Coordinator));
    if !loses_coordinator && (has_stop || (is_certain && kind == 0)) {
        let stop = draw_stop(&mut draws, plan.client.transport);
        let watchdog = FaultTarget::ProcessRole(ProcessRole::Watchdog);
        let loses_watchdog = plan.faults.iter().any(|fault| guarantees::may_kill(fault.action, watchdog));
        if stop.action == InjectedAction::StopForGood(FaultTarget::Coordinator) && loses_watchdog {
            return;
        }
        if stop.action == InjectedAction::StopForGood(FaultTarget::Test) {
            plan.settings.timeout.get_or_insert(TIMEOUT);
        }
        plan.faults.push(stop);
    }
}

fn is_hostile(plan: &RoundPlan) -> bool {
    plan.faults.iter().any(|fault| matches!(fault.action, InjectedAction::StopForGood(_)))
        || plan.suites.iter().any(|suite| matches!(suite.program, PlannedProgram::Hostile(_)))
}

fn add_program(plan: &mut RoundPlan, draws: &mut SeededRandom) {
    let program = draws.pick(&PROGRAMS);
    // A failure of the program changes the exit code of the command line, and no test.
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
        // The command line's updates are not seen.
        PlannedTransport::CommandLine => requested,
        // Its watchdog, which would continue it, may be gone then, and no test is there that could stop it.
        // Nor does anything continue a watchdog whose coordinator has left.
        _ if [FaultTarget::Coordinator, FaultTarget::ProcessRole(ProcessRole::Watchdog)]
            .contains(&target) =>
        {
            draws.pick_weighted(&[(50, requested), (40, updates)])
        }
        _ => draws.pick_weighted(&[(50, requested), (40, updates), (10, leaving)]),
    };
    PlannedFault { action: InjectedAction::StopForGood(target), when }
}
