//! The plan of one round: its programs, its configuration, its client, and its faults. All of it is drawn.

use std::{path::Path, time::Duration};

use crate::{
    fault_points::{FaultPoint, POINTS, PossibleLoss},
    fixture_tests::{LIBTEST, MCP},
    hostile::{self, HostileProgram},
    random::SeededRandom,
    slow_client,
    support::{
        callback_listener::ListenerBehaviour,
        message_handlers::{MessageHandling, ResponseRule},
        process::ProcessRole,
    },
    system_limits::StateDisk,
};

/// The plan of one round.
#[derive(Debug, Clone)]
pub(crate) struct RoundPlan {
    pub(crate) seed: u64,
    pub(crate) suites: Vec<PlannedSuite>,
    pub(crate) settings: PlannedSettings,
    pub(crate) client: ClientPlan,
    /// The explicitly selected tests; `None` for all.
    pub(crate) selection: Option<Vec<String>>,
    pub(crate) is_discovered_first: bool,
    /// Runs of the same selection, one after the other or concurrent.
    pub(crate) runs: RunPattern,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) end: SessionEnding,
    /// Offsets of the wall clock in seconds, one for each call.
    pub(crate) clock: Vec<i64>,
    /// The disk of the state directory.
    pub(crate) disk: StateDisk,
}

/// The tests of one program.
#[derive(Debug, Clone)]
pub(crate) struct PlannedSuite {
    pub(crate) name: String,
    pub(crate) program: PlannedProgram,
}

#[derive(Debug, Clone)]
pub(crate) enum PlannedProgram {
    /// One letter for each case; `faults.cc` defines the letters.
    Gtest(String),
    Libtest,
    /// The fixture server of the Model Context Protocol.
    Mcp,
    Hostile(HostileProgram),
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedSettings {
    pub(crate) jobs: usize,
    pub(crate) is_isolated: bool,
    pub(crate) retries: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) is_history_kept: bool,
    pub(crate) has_memory_limit: bool,
    pub(crate) stall: Duration,
    pub(crate) drain: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct ClientPlan {
    pub(crate) transport: PlannedTransport,
    pub(crate) callback: Option<PlannedCallback>,
    pub(crate) has_attachments: bool,
    /// The client gives another process as its own.
    pub(crate) names_process: bool,
    /// The way in which the client handles what it has read; `None` if handlers take no time.
    pub(crate) handling: Option<MessageHandling>,
}

impl ClientPlan {
    /// Returns whether the client responds to barriers, and handles messages in the order of each connection:
    /// what it has handled at the completion can then be proven, whatever dies.
    pub(crate) fn proves_handling(&self) -> bool {
        let is_silent = self.handling.is_some_and(|handling| handling.responses == ResponseRule::Never);
        self.callback.as_ref().is_some_and(PlannedCallback::is_good) && !is_silent
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedTransport {
    Stdio,
    Dial,
    /// The command line, which is its own client.
    CommandLine,
}

/// The listener on the callback port.
#[derive(Debug, Clone)]
pub(crate) enum PlannedCallback {
    /// ListenerBehaviour by the number of the connection; the last one applies to all further ones.
    Open(Vec<ListenerBehaviour>),
    /// No process listens.
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

/// The way in which the client ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnding {
    Exit,
    Disconnect,
}

/// A fault and its moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedFault {
    pub(crate) action: InjectedAction,
    pub(crate) when: FaultMoment,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum InjectedAction {
    Kill(FaultTarget),
    /// Stop the process, and resume it after a while.
    Stop(FaultTarget, Duration),
    /// Stop the process; Heeler itself is to continue it or to do without it.
    StopForGood(FaultTarget),
    /// The client cancels its run.
    Cancel,
    /// The client does not read its first connection for a while.
    StopReadingMain(Duration),
    /// The client does not read its further connections for a while.
    StopReadingCallbacks(Duration),
    /// The client disconnects without `exit`.
    Disconnect,
    /// The process that the client gave as its own dies.
    KillClient,
    /// Limits a process to this number of files above those it has open.
    LimitFiles(FaultTarget, usize),
    /// Limits a process and its descendants to this number of KiB above what it has mapped.
    LimitMemory(FaultTarget, usize),
    /// Limits the round for a while to this number of processes and threads above the existing ones.
    LimitProcesses(usize, Duration),
    /// At the n-th pass of a named point of the program.
    At(&'static FaultPoint, usize, PointAction),
}

/// The action at a named point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointAction {
    Kill,
    Stop(Duration),
    Sleep(Duration),
    /// An error of the system, by its name.
    Error(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    Coordinator,
    ProcessRole(ProcessRole),
    /// A test process, or one below it.
    Test,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultMoment {
    /// This time after the process was started.
    Launched(Duration),
    /// This time after the run was requested.
    Requested(Duration),
    /// After this number of updates.
    Updates(usize),
    /// After the completion of a run was received.
    Completed,
    /// This time after the client began to leave.
    Leaving(Duration),
}

/// Expected length of a round; faults are drawn within it.
const SPAN: Duration = Duration::from_millis(400);

/// Clock faults: an hour ahead, a day back, to and fro, to the epoch and far ahead.
const JUMPS: [&[i64]; 5] =
    [&[3600], &[-86_400], &[0, 3600, -3600], &[0, -1_790_000_000, 1], &[0, 4_000_000_000]];

impl RoundPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = SeededRandom::new(seed);
        let draws = &mut draws;
        let suites = draw_suites(draws);
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
        hostile::make_hostile(&mut plan, false);
        plan
    }

    /// Draws the round of a seed, with a hostile program or a process that is stopped for good.
    pub(crate) fn with_hostility(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        hostile::make_hostile(&mut plan, true);
        plan
    }

    /// Draws the round of a seed, with a slow client.
    pub(crate) fn with_slow_client(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        slow_client::slow_down(&mut plan, true);
        plan
    }

    /// Draws the round of a seed with a single fault at one point: the number selects from all possible
    /// actions at all points, cyclically.
    pub(crate) fn at_point(seed: u64, number: usize) -> Self {
        let pause = Duration::from_millis(300);
        let doings = |point: &'static FaultPoint| {
            let error = point.error.map(|_| PointAction::Error("ENOSPC"));
            [PointAction::Kill, PointAction::Stop(pause)]
                .into_iter()
                .chain(error)
                .map(move |doing| (point, doing))
        };
        let all: Vec<_> = POINTS.iter().flat_map(doings).collect();
        let (point, doing) = all[number % all.len()];
        let fault = PlannedFault {
            action: InjectedAction::At(point, 1, doing),
            when: FaultMoment::Launched(Duration::ZERO),
        };
        Self { faults: vec![fault], clock: Vec::new(), disk: StateDisk::Unlimited, ..Self::draw(seed) }
    }

    /// Returns the uids of the tests to run, with their state without faults.
    pub(crate) fn expected(&self) -> Vec<(String, &'static str)> {
        let all = self.suites.iter().flat_map(PlannedSuite::tests);
        all.filter(|(uid, _)| self.selection.as_ref().is_none_or(|chosen| chosen.contains(uid))).collect()
    }

    /// Returns whether an error of the system may make the request impossible: the response is an error, and
    /// the command line exits with 10.
    pub(crate) fn may_lose_a_request(&self) -> bool {
        self.faults.iter().any(|fault| match fault.action {
            InjectedAction::At(point, _, PointAction::Error(_)) => point.error == Some(PossibleLoss::Request),
            InjectedAction::LimitFiles(..)
            | InjectedAction::LimitMemory(..)
            | InjectedAction::LimitProcesses(..) => true,
            _ => false,
        })
    }

    /// Returns whether the process that the client names is killed.
    pub(crate) fn kills_client(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.action, InjectedAction::KillClient))
    }

    /// Returns whether the processes of the round may be counted and limited.
    pub(crate) fn counts_processes(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.action, InjectedAction::LimitProcesses(..)))
    }

    /// Returns the environment variables that arm the points of the round.
    pub(crate) fn environment(&self, dir: &Path) -> Vec<(&'static str, String)> {
        let arm = |fault: &PlannedFault| match fault.action {
            InjectedAction::At(point, nth, doing) => Some(format!("{}:{nth}:{}", point.name, doing.name())),
            _ => None,
        };
        let armed: Vec<_> = self.faults.iter().filter_map(arm).collect();
        let jumps: Vec<_> = self.clock.iter().map(i64::to_string).collect();
        let once = dir.join("points").to_string_lossy().into_owned();
        let all = [
            ("HEELER_FAIL", armed.join(",")),
            ("HEELER_FAIL_CLOCK", jumps.join(",")),
            ("HEELER_FAIL_ONCE", once),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns the configuration file.
    pub(crate) fn config(&self) -> String {
        let PlannedSettings { jobs, is_isolated, retries, is_history_kept, .. } = self.settings;
        let milliseconds = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
        let timeout = self.settings.timeout.map_or("false".to_owned(), milliseconds);
        let (stall, drain) = (milliseconds(self.settings.stall), milliseconds(self.settings.drain));
        let memory = if self.settings.has_memory_limit { "max-memory = \"1GiB\"\n" } else { "" };
        let mut text = format!(
            "[profile.default]\njobs = {jobs}\nisolate = {is_isolated}\nretries = {retries}\n\
             history = {is_history_kept}\ntimeout = {timeout}\ngrace-period = \"100ms\"\n\
             client-stall-timeout = {stall}\ndrain-timeout = {drain}\nconnect-timeout = \"2s\"\n\
             startup-timeout = \"10s\"\nlist-timeout = \"10s\"\n{memory}"
        );
        for PlannedSuite { name, program } in &self.suites {
            text += &format!("[[suite]]\nname = \"{name}\"\nprograms = [\"{name}\"]\n");
            let (variable, value) = match program {
                PlannedProgram::Gtest(script) => ("HEELER_FIXTURE_SCRIPT", script.as_str()),
                PlannedProgram::Hostile(hostile) => hostile.attack,
                PlannedProgram::Libtest => continue,
                PlannedProgram::Mcp => {
                    text += "framework = \"mcp\"\nargs = [\"faults\"]\n";
                    continue;
                }
            };
            text += &format!("env = {{ {variable} = \"{value}\" }}\n");
        }
        text
    }
}

impl PointAction {
    fn name(self) -> String {
        match self {
            Self::Kill => "kill".to_owned(),
            Self::Stop(_) => "stop".to_owned(),
            Self::Sleep(pause) => format!("sleep={}", pause.as_millis()),
            Self::Error(name) => name.to_owned(),
        }
    }
}

impl PlannedSuite {
    fn has_hang(&self) -> bool {
        match &self.program {
            PlannedProgram::Gtest(script) => script.contains(['h', 'd', 'H']),
            PlannedProgram::Libtest | PlannedProgram::Mcp | PlannedProgram::Hostile(_) => false,
        }
    }

    pub(crate) fn tests(&self) -> Vec<(String, &'static str)> {
        let uid = |test: &str| format!("{}::{test}", self.name);
        match &self.program {
            PlannedProgram::Gtest(script) => script
                .chars()
                .enumerate()
                .map(|(number, letter)| (uid(&format!("N/Fault.Case/{number}")), state_of(letter)))
                .collect(),
            // The two tests that are missing overflow their stack, or hang.
            PlannedProgram::Libtest => LIBTEST.iter().map(|(test, state)| (uid(test), *state)).collect(),
            PlannedProgram::Mcp => MCP.iter().map(|(test, state)| (uid(test), *state)).collect(),
            PlannedProgram::Hostile(hostile) => {
                hostile.tests().into_iter().map(|(test, state)| (uid(&test), state)).collect()
            }
        }
    }
}

/// Returns the final state of the case with this letter.
fn state_of(letter: char) -> &'static str {
    match letter {
        's' => "skipped",
        'f' | 'M' | 'T' => "failed",
        'c' | 'a' | 'k' | 'e' | 'q' | 'E' => "error",
        'h' | 'd' | 'H' => "timed-out",
        _ => "passed",
    }
}

fn draw_suites(draws: &mut SeededRandom) -> Vec<PlannedSuite> {
    let count = draws.pick_weighted(&[(60, 1), (30, 2), (10, 3)]);
    let mut suites: Vec<_> = (0..count)
        .map(|number| PlannedSuite {
            name: format!("faults-{number}"),
            program: PlannedProgram::Gtest(draw_script(draws)),
        })
        .collect();
    if draws.with_probability(30) {
        suites[0] = PlannedSuite { name: "libtest".to_owned(), program: PlannedProgram::Libtest };
    } else if draws.with_probability(15) {
        suites[0] = PlannedSuite { name: "mcp".to_owned(), program: PlannedProgram::Mcp };
    }
    suites
}

/// Draws the actions of a program's cases: most of them pass, and a few misbehave.
fn draw_script(draws: &mut SeededRandom) -> String {
    let length = draws.between(4, 24);
    let bad = draws.pick_weighted(&[(40, 0), (40, 8), (20, 20)]);
    let mut hangs = 1;
    let mut crashes = 3;
    let letter = |_| {
        if draws.with_probability(bad) {
            let letter = draws.pick(&[
                'f', 'f', 's', 'T', 'c', 'a', 'k', 'e', 'q', 'E', 'h', 'd', 'H', 'l', 'g', 'G', 'F', 'm',
                'j', 'M', 'D',
            ]);
            match letter {
                'h' | 'd' | 'H' if hangs == 0 => 'p',
                'c' | 'a' | 'k' | 'e' | 'q' | 'E' if crashes == 0 => 'p',
                'h' | 'd' | 'H' => {
                    hangs -= 1;
                    letter
                }
                'c' | 'a' | 'k' | 'e' | 'q' | 'E' => {
                    crashes -= 1;
                    letter
                }
                other => other,
            }
        } else {
            draws.pick_weighted(&[(45, 'p'), (40, 'w'), (15, 'W')])
        }
    };
    (0..length).map(letter).collect()
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

fn draw_settings(draws: &mut SeededRandom, has_hang: bool) -> PlannedSettings {
    PlannedSettings {
        jobs: draws.between(1, 3),
        is_isolated: draws.with_probability(15),
        retries: draws.pick_weighted(&[(85, 0), (15, 1)]),
        // Long enough that a test that only waits for CPU time does not reach it.
        timeout: has_hang.then(|| Duration::from_millis(draws.between(2000, 4000) as u64)),
        is_history_kept: draws.with_probability(40),
        has_memory_limit: draws.with_probability(10),
        stall: Duration::from_millis(draws.between(1200, 2500) as u64),
        drain: Duration::from_millis(draws.between(300, 800) as u64),
    }
}

fn draw_selection(draws: &mut SeededRandom, suites: &[PlannedSuite]) -> Option<Vec<String>> {
    // The libtest fixture has two tests that are not part of the expected results.
    let must_name = suites.iter().any(|suite| matches!(suite.program, PlannedProgram::Libtest));
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

/// Draws a fault at a named point.
fn draw_point_fault(draws: &mut SeededRandom) -> PlannedFault {
    let point = &POINTS[draws.below(POINTS.len())];
    let pause = Duration::from_millis(draws.between(1, 900) as u64);
    let mut doings =
        vec![(60, PointAction::Kill), (15, PointAction::Stop(pause)), (15, PointAction::Sleep(pause))];
    if point.error.is_some() {
        let error = draws.pick(&["ENOSPC", "EROFS", "EMFILE", "ENOMEM", "EAGAIN"]);
        doings.push((60, PointAction::Error(error)));
    }
    let nth = draws.pick_weighted(&[(60, 1), (20, 2), (10, 3), (10, 5)]);
    let doing = draws.pick_weighted(&doings);
    PlannedFault {
        action: InjectedAction::At(point, nth, doing),
        when: FaultMoment::Launched(Duration::ZERO),
    }
}

fn draw_fault(draws: &mut SeededRandom, client: &ClientPlan) -> PlannedFault {
    if draws.with_probability(40) {
        return draw_point_fault(draws);
    }
    let is_served = client.transport != PlannedTransport::CommandLine;
    let target = draws.pick_weighted(&[
        (20, FaultTarget::Coordinator),
        (20, FaultTarget::ProcessRole(ProcessRole::Watchdog)),
        (25, FaultTarget::ProcessRole(ProcessRole::Worker)),
        (8, FaultTarget::ProcessRole(ProcessRole::ForkServer)),
        (12, FaultTarget::ProcessRole(ProcessRole::Guard)),
        (15, FaultTarget::Test),
    ]);
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let few = InjectedAction::LimitFiles(target, draws.below(12));
    let few_processes = InjectedAction::LimitProcesses(draws.below(5), pause);
    let mut actions = vec![
        (45, InjectedAction::Kill(target)),
        (20, InjectedAction::Stop(target, pause)),
        (6, few),
        (6, few_processes),
    ];
    // The effect on a test is not checked.
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
