//! The plan of a round: its suites, the client's actions on each connection, and the faults.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    planned_faults::{FaultMoment, InjectedAction, JUMPS, PlannedFault, SPAN, draw_process_fault},
    protocols::Peculiarity,
    random::SeededRandom,
    suites::{PlannedSettings, PlannedSuite, draw_suites_of_many_runs},
};

/// Gives this protocol random numbers of its own for each seed.
const RSP: u64 = 0x0005_e4f1_ce55;
/// Longer than any planned pause in a client's reading.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plan of a round.
#[derive(Debug, Clone)]
pub(crate) struct RspPlan {
    pub(crate) seed: u64,
    pub(crate) suites: Vec<PlannedSuite>,
    pub(crate) settings: PlannedSettings,
    /// The consecutive connections. The last one stops the server.
    pub(crate) connections: Vec<PlannedConnection>,
    /// Time that the client spends on each message.
    pub(crate) per_message: Duration,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) clock: Vec<i64>,
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedConnection {
    pub(crate) steps: Vec<RspStep>,
    pub(crate) end: ConnectionEnding,
}

/// A client action.
#[derive(Debug, Clone)]
pub(crate) enum RspStep {
    /// Starts a suite, with the selected `tests` or all (`None`).
    Start {
        suite: usize,
        tests: Option<Vec<String>>,
    },
    /// Starts a suite with an invalid or unknown attribute.
    StartRefused,
    Stop {
        suite: usize,
        is_forced: bool,
    },
    /// Cancels all jobs that the server lists.
    CancelJobs,
    AskJobs,
    AskState {
        suite: usize,
    },
    Pause(Duration),
    /// Waits until the suite has stopped.
    AwaitEnd {
        suite: usize,
    },
}

/// How the client ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnding {
    /// `server/disconnectClient`.
    Disconnect,
    /// Closes the stream without a message.
    HangUp,
    /// `server/shutdown`, which also stops the server.
    Shutdown,
    /// `SIGTERM` to the server.
    Terminate,
}

impl RspPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = SeededRandom::new(seed ^ RSP);
        let draws = &mut draws;
        let (suites, settings) = draw_suites_of_many_runs(draws);
        let count = draws.pick_weighted(&[(50, 1), (35, 2), (15, 3)]);
        let connections =
            (1..=count).map(|number| draw_connection(draws, &suites, number == count)).collect();
        let faults = draws.pick_weighted(&[(10, 0), (50, 1), (30, 2), (10, 3)]);
        Self {
            seed,
            connections,
            settings: PlannedSettings { stall: PATIENCE, ..settings },
            per_message: match draws.below(100) {
                0..25 => Duration::from_micros(draws.between(100, 4000) as u64),
                _ => Duration::ZERO,
            },
            faults: (0..faults).map(|_| draw_fault(draws)).collect(),
            clock: if draws.with_probability(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
            suites,
        }
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self) -> Vec<Peculiarity> {
        let slow = (!self.per_message.is_zero()).then(|| Peculiarity::new("slow client"));
        let clock = (!self.clock.is_empty()).then(|| Peculiarity::new("clock jumps"));
        let again = self.connections.len() - 1;
        let ends = self.connections.iter().map(|one| Peculiarity::new(one.end.name()));
        slow.into_iter()
            .chain(clock)
            .chain((0..again).map(|_| Peculiarity::new("reconnect")))
            .chain(ends)
            .collect()
    }

    /// Returns a suite's tests, or only the selected tests, with the states that they have without faults.
    pub(crate) fn expected(&self, suite: &str, tests: Option<&[String]>) -> BTreeMap<String, &'static str> {
        let all = self.suites.iter().filter(|one| one.name == suite).flat_map(PlannedSuite::tests);
        all.filter(|(uid, _)| tests.is_none_or(|tests| tests.contains(uid))).collect()
    }
}

impl ConnectionEnding {
    fn name(self) -> &'static str {
        match self {
            Self::Disconnect => "client disconnects",
            Self::HangUp => "client hangs up in the end",
            Self::Shutdown => "shutdown",
            Self::Terminate => "SIGTERM",
        }
    }
}

fn draw_connection(draws: &mut SeededRandom, suites: &[PlannedSuite], is_last: bool) -> PlannedConnection {
    let mut steps: Vec<_> = (0..draws.between(1, 7)).map(|_| draw_step(draws, suites)).collect();
    // Most clients wait for the suites that they started.
    if draws.with_probability(70) {
        steps.extend((0..suites.len()).map(|suite| RspStep::AwaitEnd { suite }));
        steps.push(RspStep::AskJobs);
    }
    let end = if is_last {
        draws.pick_weighted(&[(75, ConnectionEnding::Shutdown), (25, ConnectionEnding::Terminate)])
    } else {
        draws.pick(&[ConnectionEnding::Disconnect, ConnectionEnding::HangUp])
    };
    PlannedConnection { steps, end }
}

fn draw_step(draws: &mut SeededRandom, suites: &[PlannedSuite]) -> RspStep {
    let suite = draws.below(suites.len());
    let must_name = suites[suite].has_other_tests();
    let part = draws.between(10, 100);
    let tests = (must_name || draws.with_probability(30)).then(|| {
        let uids = suites[suite].tests().into_iter().map(|(uid, _)| uid);
        uids.filter(|_| draws.with_probability(part)).collect()
    });
    let pause = draws.duration_below(SPAN);
    let is_forced = draws.with_probability(30);
    draws.pick_weighted(&[
        (50, RspStep::Start { suite, tests }),
        (3, RspStep::StartRefused),
        (8, RspStep::Stop { suite, is_forced }),
        (6, RspStep::CancelJobs),
        (5, RspStep::AskJobs),
        (5, RspStep::AskState { suite }),
        (10, RspStep::Pause(pause)),
        (13, RspStep::AwaitEnd { suite }),
    ])
}

fn draw_fault(draws: &mut SeededRandom) -> PlannedFault {
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let of_client = draws.pick_weighted(&[
        (40, InjectedAction::Cancel),
        (30, InjectedAction::StopReadingMain(pause)),
        (30, InjectedAction::Disconnect),
    ]);
    let fault = draw_process_fault(draws);
    if draws.with_probability(20) {
        let when = FaultMoment::Updates(draws.between(1, 60));
        return PlannedFault { action: of_client, when };
    }
    fault
}
