//! The plan of one round: its programs, configuration, client and faults, all drawn at random.

use std::{path::Path, time::Duration};

use super::{hostility, slow_client};
use crate::{
    fault_points::{FaultPoint, POINTS, PossibleLoss},
    planned_faults::{
        FaultMoment, FaultTarget, InjectedAction, JUMPS, PlannedFault, PointAction, SPAN, draw_point_fault,
        environment_of,
    },
    protocols::Peculiarity,
    random::SeededRandom,
    suites::{
        PlannedProgram, PlannedSettings, PlannedSuite, config_of, draw_settings, draw_suites, go_suite,
    },
    support::{
        callback_listener::ListenerBehaviour,
        message_handlers::{MessageHandling, ResponseRule},
        process::ProcessRole,
    },
    system_limits::StateDisk,
};

/// The plan of one round.
#[derive(Debug, Clone)]
pub(crate) struct MtpPlan {
    pub(crate) seed: u64,
    pub(crate) suites: Vec<PlannedSuite>,
    pub(crate) settings: PlannedSettings,
    pub(crate) client: ClientPlan,
    /// The explicitly selected tests; `None` for all tests.
    pub(crate) selection: Option<Vec<String>>,
    pub(crate) is_discovered_first: bool,
    /// Runs with the same selection, one after the other or at the same time.
    pub(crate) runs: RunPattern,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) end: SessionEnding,
    /// Wall clock offsets in seconds, one per reading of the clock.
    pub(crate) clock: Vec<i64>,
    /// The disk of the state directory.
    pub(crate) disk: StateDisk,
}

#[derive(Debug, Clone)]
pub(crate) struct ClientPlan {
    pub(crate) transport: PlannedTransport,
    pub(crate) callback: Option<PlannedCallback>,
    pub(crate) has_attachments: bool,
    /// The client reports another process as its own.
    pub(crate) names_process: bool,
    /// How the client handles messages; `None` if handling takes no time.
    pub(crate) handling: Option<MessageHandling>,
}

impl ClientPlan {
    /// Returns whether the client responds to barriers and handles the messages of each connection in order.
    /// Handling up to the completion can then be proven, whichever process dies.
    pub(crate) fn proves_handling(&self) -> bool {
        let is_silent = self.handling.is_some_and(|handling| handling.responses == ResponseRule::Never);
        self.callback.as_ref().is_some_and(PlannedCallback::is_good) && !is_silent
    }

    /// Returns whether some of the client's runs may use the main connection: the client is blocked during
    /// the first probe, or never answers log requests. If the coordinator dies, no process can ask for proof
    /// of handling on that connection.
    pub(crate) fn may_use_main(&self) -> bool {
        self.handling.is_some_and(|handling| {
            handling.busy_once.is_some() || handling.responses == ResponseRule::NoneForLog
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedTransport {
    Stdio,
    Dial,
    /// The command line, which acts as its own client.
    CommandLine,
}

/// The client's callback port.
#[derive(Debug, Clone)]
pub(crate) enum PlannedCallback {
    /// Behaviour by connection number; the last entry applies to all later connections.
    Open(Vec<ListenerBehaviour>),
    /// The port refuses connections.
    Refused,
}

impl PlannedCallback {
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Self::Open(all) if all.iter().all(|one| one.is_reliable()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunPattern {
    One,
    Sequential,
    Concurrent,
}

/// How the client ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnding {
    Exit,
    Disconnect,
}

impl MtpPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        Self::draw_with(seed, None)
    }

    /// Draws the round of a seed, with the Go program.
    pub(crate) fn with_go(seed: u64) -> Self {
        Self::draw_with(seed, Some(go_suite()))
    }

    /// Draws the round of a seed, with this suite in place of the first.
    fn draw_with(seed: u64, first: Option<PlannedSuite>) -> Self {
        let mut draws = SeededRandom::new(seed);
        let draws = &mut draws;
        let mut suites = draw_suites(draws);
        if let Some(first) = first {
            suites[0] = first;
        }
        let client = draw_client(draws);
        let selection = draw_selection(draws, &suites);
        let count = draws.pick_weighted(&[(10, 0), (45, 1), (30, 2), (15, 3)]);
        let faults = (0..count).map(|_| draw_fault(draws, &client)).collect();
        let has_hang = suites.iter().any(PlannedSuite::has_hang);
        let mut plan = Self {
            seed,
            settings: draw_settings(draws, has_hang),
            runs: match client.transport {
                PlannedTransport::CommandLine => RunPattern::One,
                _ => draws.pick_weighted(&[
                    (70, RunPattern::One),
                    (15, RunPattern::Sequential),
                    (15, RunPattern::Concurrent),
                ]),
            },
            is_discovered_first: draws.with_probability(25),
            end: draws.pick_weighted(&[(80, SessionEnding::Exit), (20, SessionEnding::Disconnect)]),
            clock: if draws.with_probability(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
            disk: match draws.below(100) {
                0..6 => StateDisk::Small(4 * draws.between(1, 60)),
                6..9 => StateDisk::ReadOnly,
                _ => StateDisk::Unlimited,
            },
            suites,
            client,
            selection,
            faults,
        };
        slow_client::slow_down(&mut plan, false);
        hostility::make_hostile(&mut plan, false);
        plan
    }

    /// Draws the round of a seed, with a hostile program or a process that is stopped for good.
    pub(crate) fn with_hostility(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        hostility::make_hostile(&mut plan, true);
        plan
    }

    /// Draws the round of a seed, with a slow client.
    pub(crate) fn with_slow_client(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        slow_client::slow_down(&mut plan, true);
        plan
    }

    /// Draws the round of a seed with a single fault at one point. `number` cycles through all actions at all
    /// points: first kills, then errors, then pauses.
    pub(crate) fn at_point(seed: u64, number: usize) -> Self {
        let pause = Duration::from_millis(300);
        let errors = POINTS.iter().filter(|point| point.error.is_some());
        let all: Vec<(&'static FaultPoint, PointAction)> =
            (POINTS.iter().map(|point| (point, PointAction::Kill)))
                .chain(errors.map(|point| (point, PointAction::Error("ENOSPC"))))
                .chain(POINTS.iter().map(|point| (point, PointAction::Stop(pause))))
                .collect();
        let (point, doing) = all[number % all.len()];
        let fault = PlannedFault {
            action: InjectedAction::At(point, 1, doing),
            when: FaultMoment::Launched(Duration::ZERO),
        };
        Self { faults: vec![fault], clock: Vec::new(), disk: StateDisk::Unlimited, ..Self::draw(seed) }
    }

    /// Returns the uids of the tests to run, with the states that they have without faults.
    pub(crate) fn expected(&self) -> Vec<(String, &'static str)> {
        let all = self.suites.iter().flat_map(PlannedSuite::tests);
        all.filter(|(uid, _)| self.selection.as_ref().is_none_or(|chosen| chosen.contains(uid))).collect()
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self, has_disk: bool) -> Vec<Peculiarity> {
        let disk = match self.disk {
            StateDisk::Unlimited => None,
            StateDisk::ReadOnly => Some("read-only disk"),
            StateDisk::Small(_) => Some("small disk"),
        };
        let disk = disk.map(|name| Peculiarity { name: name.to_owned(), is_there: has_disk });
        let clock = (!self.clock.is_empty()).then(|| Peculiarity::new("clock jumps"));
        let client = self.client.handling.map(|_| Peculiarity::new("slow client"));
        let hostile = self.suites.iter().filter_map(|suite| match &suite.program {
            PlannedProgram::Hostile(hostile) => {
                Some(Peculiarity::new(format!("{}: {}", hostile.fixture, hostile.attack.1)))
            }
            PlannedProgram::Mtp(quirk, _) => Some(Peculiarity::new(format!("mtp: {quirk}"))),
            PlannedProgram::Pytest(_) => Some(Peculiarity::new("pytest")),
            PlannedProgram::Gtest(_)
            | PlannedProgram::Libtest
            | PlannedProgram::Go
            | PlannedProgram::Mcp
            | PlannedProgram::Native(_) => None,
        });
        hostile.chain(disk).chain(clock).chain(client).collect()
    }

    /// Returns whether a system error may make the request fail. The response is then an error, and the
    /// command line exits with 10.
    pub(crate) fn may_lose_a_request(&self) -> bool {
        self.faults.iter().any(|fault| match fault.action {
            InjectedAction::At(point, _, PointAction::Error(_)) => point.error == Some(PossibleLoss::Request),
            InjectedAction::LimitFiles(..)
            | InjectedAction::LimitMemory(..)
            | InjectedAction::LimitProcesses(..) => true,
            _ => false,
        })
    }

    /// Returns whether a fault kills the process that the client reported as its own.
    pub(crate) fn kills_client(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.action, InjectedAction::KillClient))
    }

    /// Returns whether the round's processes must be counted, because a fault limits them.
    pub(crate) fn counts_processes(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.action, InjectedAction::LimitProcesses(..)))
    }

    /// Returns the environment variables that enable the round's fault points.
    pub(crate) fn environment(&self, dir: &Path) -> Vec<(&'static str, String)> {
        environment_of(&self.faults, &self.clock, dir)
    }

    /// Returns the configuration file.
    pub(crate) fn config(&self) -> String {
        config_of(&self.suites, &self.settings)
    }
}

fn draw_client(draws: &mut SeededRandom) -> ClientPlan {
    let transport = draws.pick_weighted(&[
        (50, PlannedTransport::Stdio),
        (40, PlannedTransport::Dial),
        (10, PlannedTransport::CommandLine),
    ]);
    let is_served = transport != PlannedTransport::CommandLine;
    let callback = match draws.below(100) {
        _ if !is_served => None,
        0..35 => None,
        35..65 => Some(PlannedCallback::Open(vec![ListenerBehaviour::Normal])),
        65..68 => Some(PlannedCallback::Refused),
        _ => {
            let count = draws.between(1, 4);
            Some(PlannedCallback::Open((0..count).map(|_| draw_behaviour(draws)).collect()))
        }
    };
    let has_attachments = draws.with_probability(60);
    ClientPlan {
        transport,
        callback,
        has_attachments,
        names_process: is_served && draws.with_probability(20),
        handling: None,
    }
}

fn draw_behaviour(draws: &mut SeededRandom) -> ListenerBehaviour {
    let after = draws.between(1, 12);
    let pause = Duration::from_millis(draws.between(1, 900) as u64);
    draws.pick_weighted(&[
        (30, ListenerBehaviour::Normal),
        (5, ListenerBehaviour::RespondsWithResult),
        (8, ListenerBehaviour::NeverResponds),
        (6, ListenerBehaviour::NeverReads),
        (5, ListenerBehaviour::OneByteASecond),
        (10, ListenerBehaviour::ClosesAfter(after)),
        (8, ListenerBehaviour::ClosesAtTheBarrier),
        (8, ListenerBehaviour::HalfClosesAfter(after)),
        (8, ListenerBehaviour::ResetsAfter(after)),
        (6, ListenerBehaviour::PausesAfter(after, pause)),
        (6, ListenerBehaviour::RespondsAfter(pause)),
    ])
}

fn draw_selection(draws: &mut SeededRandom, suites: &[PlannedSuite]) -> Option<Vec<String>> {
    let must_name = suites.iter().any(PlannedSuite::has_other_tests);
    if !must_name && draws.with_probability(60) {
        return None;
    }
    let part = draws.between(30, 100);
    let chosen: Vec<_> = suites
        .iter()
        .flat_map(PlannedSuite::tests)
        .filter(|_| draws.with_probability(part))
        .map(|(uid, _)| uid)
        .collect();
    Some(chosen)
}

fn draw_fault(draws: &mut SeededRandom, client: &ClientPlan) -> PlannedFault {
    if draws.with_probability(40) {
        return draw_point_fault(draws);
    }
    // Draw the target process.
    let is_served = client.transport != PlannedTransport::CommandLine;
    let target = draws.pick_weighted(&[
        (20, FaultTarget::Coordinator),
        (20, FaultTarget::ProcessRole(ProcessRole::Watchdog)),
        (25, FaultTarget::ProcessRole(ProcessRole::Worker)),
        (8, FaultTarget::ProcessRole(ProcessRole::ForkServer)),
        (12, FaultTarget::ProcessRole(ProcessRole::Guard)),
        (15, FaultTarget::Test),
    ]);
    // Draw the action from those that are possible with this client.
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let few = InjectedAction::LimitFiles(target, draws.below(12));
    let few_processes = InjectedAction::LimitProcesses(draws.below(5), pause);
    let mut actions = vec![
        (45, InjectedAction::Kill(target)),
        (20, InjectedAction::Stop(target, pause)),
        (6, few),
        (6, few_processes),
    ];
    // The effect of these limits on a test process is not checked.
    if target != FaultTarget::Test {
        actions.push((6, InjectedAction::LimitMemory(target, draws.below(3000))));
    }
    if is_served {
        actions.extend([
            (12, InjectedAction::Cancel),
            (6, InjectedAction::StopReadingMain(pause)),
            (6, InjectedAction::StopReadingCallbacks(pause)),
            (6, InjectedAction::Disconnect),
        ]);
        if client.names_process {
            actions.push((20, InjectedAction::KillClient));
        }
    }
    let action = draws.pick_weighted(&actions);
    // Draw the moment.
    let when = match draws.below(100) {
        0..10 => FaultMoment::Launched(draws.duration_below(SPAN)),
        10..50 => FaultMoment::Requested(draws.duration_below(SPAN)),
        50..88 => FaultMoment::Updates(draws.pick_weighted(&[(70, 12), (30, 60)])),
        88..94 => FaultMoment::Completed,
        _ => FaultMoment::Leaving(draws.duration_below(SPAN / 4)),
    };
    let when = match when {
        FaultMoment::Updates(limit) => FaultMoment::Updates(draws.between(1, limit)),
        other => other,
    };
    PlannedFault { action, when }
}
