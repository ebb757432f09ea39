//! Clients that handle messages slowly, or read one of their connections slowly.

use std::time::Duration;

use super::plan::{ClientPlan, MtpPlan, PlannedCallback, PlannedTransport, RunPattern, SessionEnding};
use crate::{
    random::SeededRandom,
    suites::{PlannedProgram, PlannedSettings, PlannedSuite},
    support::{
        callback_listener::ListenerBehaviour,
        message_handlers::{HandlerDuration, HandlerQueues, MessageHandling, ResponseRule},
    },
    system_limits::StateDisk,
};

/// Separates the random numbers of slow clients, so that other rounds stay the same.
const SLOW_CLIENTS: u64 = 0x510c_11e2;
/// Longest time to handle a notification.
const SLOWEST: Duration = Duration::from_millis(20);
/// Longest time to handle a change. In a short round, one notification may contain all changes.
const SLOWEST_CHANGE: Duration = Duration::from_millis(4);
/// Maximum time that a client's handler may block once.
const LONG_BUSY: Duration = Duration::from_secs(4);
/// Longer than a slow client needs to handle all messages that can be unanswered at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// A fixed load. The slow client must have handled all results by the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SlowClientLoad {
    /// 20,000 tests; each change takes 0.3 ms to handle.
    ManyTests,
    /// 2,000 tests; each change takes 2 ms to handle.
    SlowChanges,
    /// One of three connections is throttled; tests crash and are retried.
    ThrottledStream,
}

impl SlowClientLoad {
    /// Returns the load's name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("no load is hidden").get_name().to_owned()
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::ManyTests => "20,000 tests, 0.3 ms a change",
            Self::SlowChanges => "2,000 tests, 2 ms a change",
            Self::ThrottledStream => "one stream of three throttled, crashes, retries",
        }
    }

    /// Returns the number of rounds. In every round, nothing may be handled after the completion.
    pub(crate) fn rounds(self) -> u64 {
        match self {
            Self::ManyTests | Self::SlowChanges => 50,
            Self::ThrottledStream => 200,
        }
    }

    /// Returns the round of a seed, without faults. Half of the clients handle messages like StreamJsonRpc,
    /// half like vscode-jsonrpc.
    pub(crate) fn plan(self, seed: u64) -> MtpPlan {
        let mut draws = SeededRandom::new(seed ^ SLOW_CLIENTS);
        // Draw the tests, the handling and the connections.
        let (script, time) = match self {
            Self::ManyTests => ("p".repeat(20_000), Duration::from_micros(300)),
            Self::SlowChanges => ("p".repeat(2_000), Duration::from_millis(2)),
            Self::ThrottledStream => (draw_crashing_script(&mut draws), Duration::ZERO),
        };
        let (queues, responses) = if seed.is_multiple_of(2) {
            (HandlerQueues::PerConnection, ResponseRule::UnknownAtOnce)
        } else {
            (HandlerQueues::InTurn, ResponseRule::InOrder)
        };
        let is_throttled = self == Self::ThrottledStream;
        let connections =
            if is_throttled { draw_connections(&mut draws) } else { vec![ListenerBehaviour::Normal] };
        MtpPlan {
            seed,
            suites: vec![PlannedSuite { name: "slow".to_owned(), program: PlannedProgram::Gtest(script) }],
            settings: PlannedSettings {
                jobs: 2,
                is_isolated: false,
                retries: if is_throttled { draws.below(3) } else { 0 },
                timeout: None,
                is_history_kept: false,
                has_memory_limit: false,
                has_needs: false,
                stall: PATIENCE,
                drain: Duration::from_millis(500),
            },
            client: ClientPlan {
                transport: PlannedTransport::Stdio,
                callback: Some(PlannedCallback::Open(connections)),
                has_attachments: true,
                names_process: false,
                handling: Some(MessageHandling {
                    queues,
                    duration: HandlerDuration::PerChange(time),
                    responses,
                    busy_once: None,
                }),
            },
            selection: None,
            is_discovered_first: false,
            runs: RunPattern::One,
            faults: Vec::new(),
            end: SessionEnding::Exit,
            clock: Vec::new(),
            disk: StateDisk::Unlimited,
        }
    }
}

/// Makes the client of a round slow: always if `is_always`, otherwise in 40 % of the rounds with a callback
/// port.
pub(crate) fn slow_down(plan: &mut MtpPlan, is_always: bool) {
    let mut draws = SeededRandom::new(plan.seed ^ SLOW_CLIENTS);
    let is_drawn = plan.client.callback.is_some() && draws.with_probability(40);
    if plan.client.transport == PlannedTransport::CommandLine || !(is_drawn || is_always) {
        return;
    }
    // Draw how the client handles messages and responds.
    let is_per_change = draws.with_probability(50);
    let duration = if is_per_change {
        HandlerDuration::PerChange(SLOWEST_CHANGE.mul_f64(draws.below(101) as f64 / 100.0))
    } else {
        HandlerDuration::PerNotification(SLOWEST.mul_f64(draws.below(101) as f64 / 100.0))
    };
    let queues = draws.pick_weighted(&[
        (40, HandlerQueues::PerConnection),
        (40, HandlerQueues::InTurn),
        (20, HandlerQueues::Shared),
    ]);
    let responses = draws.pick_weighted(&[
        (35, ResponseRule::UnknownAtOnce),
        (35, ResponseRule::InOrder),
        (10, ResponseRule::UnknownInOrder),
        (10, ResponseRule::NoneForLog),
        (10, ResponseRule::Never),
    ]);
    // As with a breakpoint, a cold start or a blocked editor thread: once, for longer than the timeout of the
    // first response.
    let is_busy = draws.with_probability(25);
    let busy_once =
        is_busy.then(|| (draws.below(12), LONG_BUSY.mul_f64(draws.between(10, 100) as f64 / 100.0)));
    // Draw connections, retries and additional tests.
    let is_throttled = draws.with_probability(50);
    let connections =
        if is_throttled { draw_connections(&mut draws) } else { vec![ListenerBehaviour::Normal] };
    plan.client.handling = Some(MessageHandling { queues, duration, responses, busy_once });
    plan.client.callback = Some(PlannedCallback::Open(connections));
    plan.settings.stall = PATIENCE;
    if draws.with_probability(40) {
        plan.settings.retries = 1;
    }
    if plan.selection.is_none() && !plan.settings.is_isolated && draws.with_probability(40) {
        add_trivial_tests(plan, draws.between(50, 300));
    }
}

/// Adds passing tests so that the client's queues are long when a fault takes effect.
fn add_trivial_tests(plan: &mut MtpPlan, count: usize) {
    let mut scripts = plan.suites.iter_mut().filter_map(|suite| match &mut suite.program {
        PlannedProgram::Gtest(script) => Some(script),
        PlannedProgram::Libtest
        | PlannedProgram::Go
        | PlannedProgram::Mcp
        | PlannedProgram::Native(_)
        | PlannedProgram::Mtp(..)
        | PlannedProgram::Pytest(_)
        | PlannedProgram::Hostile(_) => None,
    });
    if let Some(script) = scripts.next() {
        script.push_str(&"p".repeat(count));
    }
}

/// Draws three connections. One is read slowly: at 1 MB/s, or so slowly that reading a few results takes
/// longer than the rest of the run.
fn draw_connections(draws: &mut SeededRandom) -> Vec<ListenerBehaviour> {
    let pause = Duration::from_millis(draws.between(2, 20) as u64);
    let bytes = draws.pick(&[1 << 10, 4 << 10]);
    let throttled = draws.below(3);
    let behaviour = |number| match number {
        _ if number == throttled => ListenerBehaviour::ReadsAtRate(bytes, pause),
        _ => ListenerBehaviour::Normal,
    };
    // Later connections behave like the last entry, which is read at full speed.
    (0..3).map(behaviour).chain([ListenerBehaviour::Normal]).collect()
}

/// Draws tests with crashes, after enough tests for a slow connection to fall behind.
fn draw_crashing_script(draws: &mut SeededRandom) -> String {
    let letters = [(930, 'p'), (20, 'w'), (20, 'f'), (10, 'c'), (10, 'a'), (10, 'k')];
    (0..draws.between(200, 600)).map(|_| draws.pick_weighted(&letters)).collect()
}
