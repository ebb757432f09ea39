//! The plan of a round: its suites, the client's actions, and the faults.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    planned_faults::{FaultMoment, InjectedAction, JUMPS, PlannedFault, SPAN, draw_process_fault},
    protocols::Peculiarity,
    random::SeededRandom,
    suites::{PlannedSettings, PlannedSuite, draw_suites_of_many_runs},
};

/// Gives this protocol random numbers of its own for each seed.
const MCP: u64 = 0x0000_0a9e_2775;

/// The plan of a round.
#[derive(Debug, Clone)]
pub(crate) struct McpPlan {
    pub(crate) seed: u64,
    pub(crate) suites: Vec<PlannedSuite>,
    pub(crate) settings: PlannedSettings,
    /// The era of each request. The list is repeated.
    pub(crate) eras: Vec<ProtocolEra>,
    pub(crate) steps: Vec<McpStep>,
    /// Time that the client spends on each message.
    pub(crate) per_message: Duration,
    pub(crate) end: McpEnding,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) clock: Vec<i64>,
}

/// The protocol era of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// A handshake comes before the requests.
    Legacy,
    /// Each request contains the protocol version.
    Modern,
}

/// A client action.
#[derive(Debug, Clone)]
pub(crate) enum McpStep {
    /// Lists all pages of tests.
    ListTests,
    ListTools,
    /// Calls `run_tests`.
    Run(PlannedRun),
    /// Cancels the latest unanswered `run_tests` call with a notification.
    CancelCall,
    /// Cancels the latest run with a known id by calling `cancel_run`.
    CancelRun,
    /// Reads all failure pages of the latest answered run, and one failure's output.
    ReadFailures,
    /// Writes a line that is not a message.
    Garbage,
    /// Calls a tool that does not exist.
    UnknownTool,
    /// Calls the server's self-test tool.
    SelfTest,
    Pause(Duration),
    /// Waits until all calls are answered.
    AwaitAnswers,
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedRun {
    /// The selected tests; `None` for all.
    pub(crate) tests: Option<Vec<String>>,
    pub(crate) has_progress: bool,
    pub(crate) repeat: Option<usize>,
    /// Also selects the tests that failed in the latest run.
    pub(crate) reruns_failed: bool,
}

/// How the client ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpEnding {
    /// Closes standard input after all calls are answered.
    CloseInput,
    /// Closes standard input without waiting for open calls.
    LeaveCalls,
    /// Sends `SIGTERM` to the server.
    Terminate,
}

impl McpPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = SeededRandom::new(seed ^ MCP);
        let draws = &mut draws;
        let (suites, settings) = draw_suites_of_many_runs(draws);
        let steps = (0..draws.between(2, 9)).map(|_| draw_step(draws, &suites)).collect();
        let faults = draws.pick_weighted(&[(10, 0), (50, 1), (30, 2), (10, 3)]);
        Self {
            seed,
            settings,
            eras: draws.pick(&[
                vec![ProtocolEra::Legacy],
                vec![ProtocolEra::Modern],
                vec![ProtocolEra::Legacy, ProtocolEra::Modern],
            ]),
            steps,
            per_message: match draws.below(100) {
                0..25 => Duration::from_micros(draws.between(100, 20_000) as u64),
                _ => Duration::ZERO,
            },
            end: draws.pick_weighted(&[
                (60, McpEnding::CloseInput),
                (20, McpEnding::LeaveCalls),
                (20, McpEnding::Terminate),
            ]),
            faults: (0..faults).map(|_| draw_fault(draws)).collect(),
            clock: if draws.with_probability(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
            suites,
        }
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self) -> Vec<Peculiarity> {
        let slow = (!self.per_message.is_zero()).then(|| Peculiarity::new("slow client"));
        let clock = (!self.clock.is_empty()).then(|| Peculiarity::new("clock jumps"));
        let end = match self.end {
            McpEnding::CloseInput => "input ends",
            McpEnding::LeaveCalls => "input ends before the answers",
            McpEnding::Terminate => "SIGTERM",
        };
        slow.into_iter().chain(clock).chain([Peculiarity::new(end)]).collect()
    }

    /// Returns the selected tests with the states that they have without faults.
    pub(crate) fn expected(&self, tests: Option<&[String]>) -> BTreeMap<String, &'static str> {
        let all = self.suites.iter().flat_map(PlannedSuite::tests);
        all.filter(|(uid, _)| tests.is_none_or(|tests| tests.contains(uid))).collect()
    }
}

fn draw_step(draws: &mut SeededRandom, suites: &[PlannedSuite]) -> McpStep {
    let run = PlannedRun {
        tests: draw_tests(draws, suites),
        has_progress: draws.with_probability(70),
        repeat: draws.with_probability(10).then_some(2),
        reruns_failed: draws.with_probability(8),
    };
    let pause = draws.duration_below(SPAN);
    draws.pick_weighted(&[
        (45, McpStep::Run(run)),
        (6, McpStep::ListTests),
        (3, McpStep::ListTools),
        (8, McpStep::CancelCall),
        (5, McpStep::CancelRun),
        (8, McpStep::ReadFailures),
        (3, McpStep::Garbage),
        (2, McpStep::UnknownTool),
        (1, McpStep::SelfTest),
        (10, McpStep::Pause(pause)),
        (9, McpStep::AwaitAnswers),
    ])
}

fn draw_tests(draws: &mut SeededRandom, suites: &[PlannedSuite]) -> Option<Vec<String>> {
    let must_name = suites.iter().any(PlannedSuite::has_other_tests);
    let part = draws.between(10, 100);
    (must_name || draws.with_probability(30)).then(|| {
        let uids = suites.iter().flat_map(PlannedSuite::tests).map(|(uid, _)| uid);
        uids.filter(|_| draws.with_probability(part)).collect()
    })
}

fn draw_fault(draws: &mut SeededRandom) -> PlannedFault {
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let of_client = draws.pick_weighted(&[
        (50, InjectedAction::Cancel),
        (30, InjectedAction::StopReadingMain(pause)),
        (20, InjectedAction::Disconnect),
    ]);
    let fault = draw_process_fault(draws);
    let is_of_client = draws.with_probability(20);
    let action = if is_of_client { of_client } else { fault.action };
    // There are few messages in this protocol, so late moments would never come.
    let when = match fault.when {
        FaultMoment::Updates(count) => FaultMoment::Updates(1 + count % 8),
        FaultMoment::Launched(_) if is_of_client => FaultMoment::Requested(draws.duration_below(SPAN)),
        other => other,
    };
    PlannedFault { action, when }
}
