//! The plan of a round: its cases, the judge's actions, and the faults.

use std::time::Duration;

use crate::{
    planned_faults::{FaultMoment, InjectedAction, JUMPS, PlannedFault, SPAN, draw_process_fault},
    protocols::Peculiarity,
    random::SeededRandom,
    suites::{PlannedSettings, draw_settings},
};

/// Gives this protocol random numbers of its own for each seed.
const CONNECT: u64 = 0x00c0_22ec_7000;

/// The plan of a round.
#[derive(Debug, Clone)]
pub(crate) struct ConnectPlan {
    pub(crate) seed: u64,
    /// Groups of cases, each written at once and followed by a pause.
    pub(crate) writes: Vec<(Vec<PlannedCase>, Duration)>,
    pub(crate) settings: PlannedSettings,
    /// Timeout of a case.
    pub(crate) timeout: Duration,
    pub(crate) judge: JudgePlan,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) clock: Vec<i64>,
}

#[derive(Debug, Clone)]
pub(crate) struct JudgePlan {
    /// The judge is a separate process that starts the relay and may be killed.
    pub(crate) is_process: bool,
    /// Time that the judge spends on each answer.
    pub(crate) per_answer: Duration,
    /// The judge closes its output only after it has received the last answer.
    pub(crate) waits_for_answers: bool,
    /// The judge stops the relay with `SIGTERM` instead of closing its output.
    pub(crate) terminates: bool,
}

/// A case and its client's behaviour.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCase {
    pub(crate) name: String,
    pub(crate) answer: ExpectedAnswer,
}

/// The expected answer if no fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedAnswer {
    /// The client's response.
    Response,
    /// An error sent by the client itself.
    OwnError,
    /// The error that Heeler reports if the client does not answer.
    Failure,
}

/// Client behaviours with their weights.
const BEHAVIOURS: [(usize, (&str, ExpectedAnswer)); 10] = [
    (20, ("answers-twice", ExpectedAnswer::Response)),
    (20, ("exits-after-answer", ExpectedAnswer::Response)),
    (10, ("says-error", ExpectedAnswer::OwnError)),
    (15, ("aborts", ExpectedAnswer::Failure)),
    (15, ("exits", ExpectedAnswer::Failure)),
    (10, ("hangs", ExpectedAnswer::Failure)),
    (10, ("prints", ExpectedAnswer::Failure)),
    (10, ("answers-half", ExpectedAnswer::Failure)),
    (10, ("answers-other", ExpectedAnswer::Failure)),
    (10, ("answers-nothing", ExpectedAnswer::Failure)),
];

impl ConnectPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = SeededRandom::new(seed ^ CONNECT);
        let draws = &mut draws;
        let bad = draws.pick_weighted(&[(30, 0), (50, 4), (20, 15)]);
        let mut number = 0;
        let mut left = LeftBehaviours { bad: 12, hanging: 1 };
        let writes = (0..draws.pick_weighted(&[(50, 1), (30, 2), (20, 4)])).map(|_| {
            let count = draws.pick_weighted(&[(80, 60), (20, 400)]);
            let cases = (0..draws.between(1, count)).map(|_| {
                number += 1;
                draw_case(draws, number, bad, &mut left)
            });
            let cases = cases.collect();
            (cases, draws.duration_below(SPAN))
        });
        let writes = writes.collect();
        let faults = draws.pick_weighted(&[(10, 0), (50, 1), (30, 2), (10, 3)]);
        let is_process = draws.with_probability(40);
        Self {
            seed,
            writes,
            settings: PlannedSettings { jobs: draws.between(1, 6), ..draw_settings(draws, false) },
            // Long enough that a case does not time out on a busy machine.
            timeout: Duration::from_millis(draws.between(4000, 6000) as u64),
            judge: JudgePlan {
                is_process,
                per_answer: match draws.below(100) {
                    0..25 => Duration::from_micros(draws.between(100, 4000) as u64),
                    _ => Duration::ZERO,
                },
                waits_for_answers: draws.with_probability(50),
                terminates: draws.with_probability(10),
            },
            faults: (0..faults).map(|_| draw_fault(draws, is_process)).collect(),
            clock: if draws.with_probability(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
        }
    }

    /// Returns all cases.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &PlannedCase> {
        self.writes.iter().flat_map(|(cases, _)| cases)
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self) -> Vec<Peculiarity> {
        let JudgePlan { per_answer, terminates, is_process, .. } = self.judge;
        let all = [
            (!per_answer.is_zero(), "slow judge"),
            (terminates, "SIGTERM"),
            (is_process, "judge in a process of its own"),
            (!self.clock.is_empty(), "clock jumps"),
        ];
        all.into_iter().filter(|(is_it, _)| *is_it).map(|(_, name)| Peculiarity::new(name)).collect()
    }
}

/// Limits the number of misbehaving clients in a round: each costs a process start and a dump or a timeout.
struct LeftBehaviours {
    bad: usize,
    hanging: usize,
}

fn draw_case(
    draws: &mut SeededRandom,
    number: usize,
    bad_percent: usize,
    left: &mut LeftBehaviours,
) -> PlannedCase {
    let (mut behaviour, mut answer) = (draws.pick(&["passes", "passes", "waits"]), ExpectedAnswer::Response);
    if draws.with_probability(bad_percent) {
        let bad = draws.pick_weighted(&BEHAVIOURS);
        let is_hanging = bad.0 == "hangs";
        if left.bad > 0 && (left.hanging > 0 || !is_hanging) {
            left.bad -= 1;
            left.hanging -= usize::from(is_hanging);
            (behaviour, answer) = bad;
        }
    }
    PlannedCase { name: format!("Suite {}/HTTPVersion:2/{number}/{behaviour}", number % 7), answer }
}

fn draw_fault(draws: &mut SeededRandom, is_process: bool) -> PlannedFault {
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let of_judge = draws.pick_weighted(&[
        (50, InjectedAction::StopReadingMain(pause)),
        (20, InjectedAction::Disconnect),
        (if is_process { 50 } else { 0 }, InjectedAction::KillClient),
    ]);
    let fault = draw_process_fault(draws);
    let is_of_judge = draws.with_probability(20);
    let action = if is_of_judge { of_judge } else { fault.action };
    let when = match fault.when {
        FaultMoment::Launched(_) if is_of_judge => FaultMoment::Requested(draws.duration_below(SPAN)),
        other => other,
    };
    PlannedFault { action, when }
}
