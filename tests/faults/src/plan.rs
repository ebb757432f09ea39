//! The plan of one round: its programs, its configuration, its client, and its faults. All of it is drawn.

use std::{path::Path, time::Duration};

use crate::{
    draws::Draws,
    points::{Cost, POINTS, Point},
    support::{listener::Behaviour, process::Role},
    system::Disk,
};

/// The plan of one round.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) suites: Vec<Suite>,
    pub(crate) settings: Settings,
    pub(crate) client: ClientPlan,
    /// The explicitly selected tests; `None` for all.
    pub(crate) selection: Option<Vec<String>>,
    pub(crate) is_discovered_first: bool,
    /// Runs of the same selection, one after the other or concurrent.
    pub(crate) runs: Runs,
    pub(crate) faults: Vec<Fault>,
    pub(crate) end: End,
    /// Offsets of the wall clock in seconds, one for each call.
    pub(crate) clock: Vec<i64>,
    /// The disk of the state directory.
    pub(crate) disk: Disk,
}

/// The tests of one program.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) program: Program,
}

#[derive(Debug, Clone)]
pub(crate) enum Program {
    /// One letter for each case; `faults.cc` defines the letters.
    Gtest(String),
    Libtest,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
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
    pub(crate) transport: Transport,
    pub(crate) callback: Option<Callback>,
    pub(crate) has_attachments: bool,
    /// The client gives another process as its own.
    pub(crate) names_process: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Dial,
    /// The command line, which is its own client.
    CommandLine,
}

/// The listener on the callback port.
#[derive(Debug, Clone)]
pub(crate) enum Callback {
    /// Behaviour by the number of the connection; the last one applies to all further ones.
    Open(Vec<Behaviour>),
    /// No process listens.
    Refused,
}

impl Callback {
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Self::Open(all) if all.iter().all(|one| *one == Behaviour::Normal))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    One,
    OneBehindTheOther,
    AtOnce,
}

/// The way in which the client ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exit,
    HangUp,
}

/// A fault and its moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) action: Action,
    pub(crate) when: When,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Action {
    Kill(Target),
    /// Stop the process, and resume it after a while.
    Stop(Target, Duration),
    /// The client cancels its run.
    Cancel,
    /// The client does not read its first connection for a while.
    StopReadingMain(Duration),
    /// The client does not read its further connections for a while.
    StopReadingCallbacks(Duration),
    /// The client disconnects without `exit`.
    HangUp,
    /// The process that the client gave as its own dies.
    KillClient,
    /// Limits a process to this number of files above those it has open.
    FewFiles(Target, usize),
    /// Limits a process and its descendants to this number of KiB above what it has mapped.
    LittleMemory(Target, usize),
    /// Limits the round for a while to this number of processes and threads above the existing ones.
    FewProcesses(usize, Duration),
    /// At the n-th pass of a named point of the program.
    At(&'static Point, usize, Doing),
}

/// The action at a named point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Kill,
    Stop(Duration),
    Sleep(Duration),
    /// An error of the system, by its name.
    Error(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Coordinator,
    Role(Role),
    /// A test process, or one below it.
    Test,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
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

/// Tests of the libtest fixture, with their final state.
pub(crate) const LIBTEST: [(&str, &str); 14] = [
    ("a_adds", "passed"),
    ("b_prints", "passed"),
    ("c_fails", "failed"),
    ("d_is_ignored", "skipped"),
    ("e_panics_as_it_should", "passed"),
    ("f_should_panic_and_does_not", "failed"),
    ("g_returns_an_error", "failed"),
    ("h_aborts", "error"),
    ("i_exits_with_0", "error"),
    ("j_segfaults", "error"),
    ("m_forges_markers", "passed"),
    ("n_meets", "passed"),
    ("deep::down::is_found", "passed"),
    ("z_is_last", "passed"),
];

impl Plan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let draws = &mut draws;
        let suites = suites(draws);
        let client = client(draws);
        let selection = selection(draws, &suites);
        let count = draws.weighed(&[(10, 0), (45, 1), (30, 2), (15, 3)]);
        let faults = (0..count).map(|_| fault(draws, &client)).collect();
        let has_hang = suites.iter().any(Suite::has_hang);
        Self {
            seed,
            settings: settings(draws, has_hang),
            runs: match client.transport {
                Transport::CommandLine => Runs::One,
                _ => draws.weighed(&[(70, Runs::One), (15, Runs::OneBehindTheOther), (15, Runs::AtOnce)]),
            },
            is_discovered_first: draws.chance(25),
            end: draws.weighed(&[(80, End::Exit), (20, End::HangUp)]),
            clock: if draws.chance(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
            disk: match draws.below(100) {
                0..6 => Disk::Small(4 * draws.between(1, 60)),
                6..9 => Disk::ReadOnly,
                _ => Disk::Ample,
            },
            suites,
            client,
            selection,
            faults,
        }
    }

    /// Draws the round of a seed with a single fault at one point: the number selects from all possible
    /// actions at all points, cyclically.
    pub(crate) fn at_point(seed: u64, number: usize) -> Self {
        let pause = Duration::from_millis(300);
        let doings = |point: &'static Point| {
            let error = point.error.map(|_| Doing::Error("ENOSPC"));
            [Doing::Kill, Doing::Stop(pause)].into_iter().chain(error).map(move |doing| (point, doing))
        };
        let all: Vec<_> = POINTS.iter().flat_map(doings).collect();
        let (point, doing) = all[number % all.len()];
        let fault = Fault { action: Action::At(point, 1, doing), when: When::Launched(Duration::ZERO) };
        Self { faults: vec![fault], clock: Vec::new(), disk: Disk::Ample, ..Self::draw(seed) }
    }

    /// Returns the uids of the tests to run, with their state without faults.
    pub(crate) fn expected(&self) -> Vec<(String, &'static str)> {
        let all = self.suites.iter().flat_map(Suite::tests);
        all.filter(|(uid, _)| self.selection.as_ref().is_none_or(|chosen| chosen.contains(uid))).collect()
    }

    /// Returns whether an error of the system may make the request impossible: the response is an error, and
    /// the command line exits with 10.
    pub(crate) fn may_lose_a_request(&self) -> bool {
        self.faults.iter().any(|fault| match fault.action {
            Action::At(point, _, Doing::Error(_)) => point.error == Some(Cost::Request),
            Action::FewFiles(..) | Action::LittleMemory(..) | Action::FewProcesses(..) => true,
            _ => false,
        })
    }

    /// Returns whether the processes of the round may be counted and limited.
    pub(crate) fn counts_processes(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.action, Action::FewProcesses(..)))
    }

    /// Returns the environment variables that arm the points of the round.
    pub(crate) fn environment(&self, dir: &Path) -> Vec<(&'static str, String)> {
        let arm = |fault: &Fault| match fault.action {
            Action::At(point, nth, doing) => Some(format!("{}:{nth}:{}", point.name, doing.word())),
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
        let Settings { jobs, is_isolated, retries, is_history_kept, .. } = self.settings;
        let milliseconds = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
        let timeout = self.settings.timeout.map_or("false".to_owned(), milliseconds);
        let (stall, drain) = (milliseconds(self.settings.stall), milliseconds(self.settings.drain));
        let memory = if self.settings.has_memory_limit { "max-memory = \"1GiB\"\n" } else { "" };
        let mut text = format!(
            "[profile.default]\njobs = {jobs}\nisolate = {is_isolated}\nretries = {retries}\n\
             history = {is_history_kept}\ntimeout = {timeout}\ngrace-period = \"100ms\"\n\
             stall-timeout = {stall}\ndrain-timeout = {drain}\nconnect-timeout = \"2s\"\n\
             startup-timeout = \"10s\"\nlist-timeout = \"10s\"\n{memory}"
        );
        for Suite { name, program } in &self.suites {
            text += &format!("[[suite]]\nname = \"{name}\"\nprograms = [\"{name}\"]\n");
            if let Program::Gtest(script) = program {
                text += &format!("env = {{ HEELER_FIXTURE_SCRIPT = \"{script}\" }}\n");
            }
        }
        text
    }
}

impl Doing {
    fn word(self) -> String {
        match self {
            Self::Kill => "kill".to_owned(),
            Self::Stop(_) => "stop".to_owned(),
            Self::Sleep(pause) => format!("sleep={}", pause.as_millis()),
            Self::Error(name) => name.to_owned(),
        }
    }
}

impl Suite {
    fn has_hang(&self) -> bool {
        match &self.program {
            Program::Gtest(script) => script.contains(['h', 'd', 'H']),
            Program::Libtest => false,
        }
    }

    fn tests(&self) -> Vec<(String, &'static str)> {
        let uid = |test: &str| format!("{}::{test}", self.name);
        match &self.program {
            Program::Gtest(script) => script
                .chars()
                .enumerate()
                .map(|(number, letter)| (uid(&format!("N/Fault.Case/{number}")), state_of(letter)))
                .collect(),
            // The two tests that are missing overflow their stack, or hang.
            Program::Libtest => LIBTEST.iter().map(|(test, state)| (uid(test), *state)).collect(),
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

fn suites(draws: &mut Draws) -> Vec<Suite> {
    let count = draws.weighed(&[(60, 1), (30, 2), (10, 3)]);
    let mut suites: Vec<_> = (0..count)
        .map(|number| Suite { name: format!("faults-{number}"), program: Program::Gtest(script(draws)) })
        .collect();
    if draws.chance(30) {
        suites[0] = Suite { name: "libtest".to_owned(), program: Program::Libtest };
    }
    suites
}

/// Draws the actions of a program's cases: most of them pass, and a few misbehave.
fn script(draws: &mut Draws) -> String {
    let length = draws.between(4, 24);
    let bad = draws.weighed(&[(40, 0), (40, 8), (20, 20)]);
    let mut hangs = 1;
    let mut crashes = 3;
    let letter = |_| {
        if draws.chance(bad) {
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
            draws.weighed(&[(45, 'p'), (40, 'w'), (15, 'W')])
        }
    };
    (0..length).map(letter).collect()
}

fn client(draws: &mut Draws) -> ClientPlan {
    let transport =
        draws.weighed(&[(50, Transport::Stdio), (40, Transport::Dial), (10, Transport::CommandLine)]);
    let is_served = transport != Transport::CommandLine;
    let callback = match draws.below(100) {
        _ if !is_served => None,
        0..35 => None,
        35..65 => Some(Callback::Open(vec![Behaviour::Normal])),
        65..68 => Some(Callback::Refused),
        _ => {
            let count = draws.between(1, 4);
            Some(Callback::Open((0..count).map(|_| behaviour(draws)).collect()))
        }
    };
    let has_attachments = draws.chance(60);
    ClientPlan { transport, callback, has_attachments, names_process: is_served && draws.chance(20) }
}

fn behaviour(draws: &mut Draws) -> Behaviour {
    let after = draws.between(1, 12);
    let pause = Duration::from_millis(draws.between(1, 900) as u64);
    draws.weighed(&[
        (30, Behaviour::Normal),
        (5, Behaviour::AnswersWithResult),
        (8, Behaviour::NeverAnswers),
        (6, Behaviour::NeverReads),
        (5, Behaviour::OneByteASecond),
        (10, Behaviour::ClosesAfter(after)),
        (8, Behaviour::ClosesAtTheBarrier),
        (8, Behaviour::HalfClosesAfter(after)),
        (8, Behaviour::ResetsAfter(after)),
        (6, Behaviour::PausesAfter(after, pause)),
        (6, Behaviour::AnswersAfter(pause)),
    ])
}

fn settings(draws: &mut Draws, has_hang: bool) -> Settings {
    Settings {
        jobs: draws.between(1, 3),
        is_isolated: draws.chance(15),
        retries: draws.weighed(&[(85, 0), (15, 1)]),
        // Long enough that a test that only waits for CPU time does not reach it.
        timeout: has_hang.then(|| Duration::from_millis(draws.between(2000, 4000) as u64)),
        is_history_kept: draws.chance(40),
        has_memory_limit: draws.chance(10),
        stall: Duration::from_millis(draws.between(1200, 2500) as u64),
        drain: Duration::from_millis(draws.between(300, 800) as u64),
    }
}

fn selection(draws: &mut Draws, suites: &[Suite]) -> Option<Vec<String>> {
    // The libtest fixture has two tests that are not part of the expected results.
    let must_name = suites.iter().any(|suite| matches!(suite.program, Program::Libtest));
    if !must_name && draws.chance(60) {
        return None;
    }
    let part = draws.between(30, 100);
    let chosen: Vec<_> =
        suites.iter().flat_map(Suite::tests).filter(|_| draws.chance(part)).map(|(uid, _)| uid).collect();
    Some(chosen)
}

/// Draws a fault at a named point.
fn at_a_point(draws: &mut Draws) -> Fault {
    let point = &POINTS[draws.below(POINTS.len())];
    let pause = Duration::from_millis(draws.between(1, 900) as u64);
    let mut doings = vec![(60, Doing::Kill), (15, Doing::Stop(pause)), (15, Doing::Sleep(pause))];
    if point.error.is_some() {
        let error = draws.pick(&["ENOSPC", "EROFS", "EMFILE", "ENOMEM", "EAGAIN"]);
        doings.push((60, Doing::Error(error)));
    }
    let nth = draws.weighed(&[(60, 1), (20, 2), (10, 3), (10, 5)]);
    let doing = draws.weighed(&doings);
    Fault { action: Action::At(point, nth, doing), when: When::Launched(Duration::ZERO) }
}

fn fault(draws: &mut Draws, client: &ClientPlan) -> Fault {
    if draws.chance(40) {
        return at_a_point(draws);
    }
    let is_served = client.transport != Transport::CommandLine;
    let target = draws.weighed(&[
        (20, Target::Coordinator),
        (20, Target::Role(Role::Watchdog)),
        (25, Target::Role(Role::Worker)),
        (8, Target::Role(Role::Nursery)),
        (12, Target::Role(Role::Guard)),
        (15, Target::Test),
    ]);
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    let few = Action::FewFiles(target, draws.below(12));
    let few_processes = Action::FewProcesses(draws.below(5), pause);
    let mut actions =
        vec![(45, Action::Kill(target)), (20, Action::Stop(target, pause)), (6, few), (6, few_processes)];
    // The effect on a test is not checked.
    if target != Target::Test {
        actions.push((6, Action::LittleMemory(target, draws.below(3000))));
    }
    if is_served {
        actions.extend([
            (12, Action::Cancel),
            (6, Action::StopReadingMain(pause)),
            (6, Action::StopReadingCallbacks(pause)),
            (6, Action::HangUp),
        ]);
        if client.names_process {
            actions.push((20, Action::KillClient));
        }
    }
    let action = draws.weighed(&actions);
    let when = match draws.below(100) {
        0..10 => When::Launched(draws.moment(SPAN)),
        10..50 => When::Requested(draws.moment(SPAN)),
        50..88 => When::Updates(draws.weighed(&[(70, 12), (30, 60)])),
        88..94 => When::Completed,
        _ => When::Leaving(draws.moment(SPAN / 4)),
    };
    let when = match when {
        When::Updates(limit) => When::Updates(draws.between(1, limit)),
        other => other,
    };
    Fault { action, when }
}
