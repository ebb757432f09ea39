//! One round, from its programs to its leftovers.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    client::{FaultClient, heeler},
    guarantees,
    injector::{InjectedFault, RoundProgress, RoundStage, inject},
    leftovers,
    round_plan::{
        FaultTarget, InjectedAction, PlannedProgram, PlannedTransport, RoundPlan, RunPattern, SessionEnding,
    },
    run_files,
    support::{
        checked_run::RequestedRun,
        fixtures,
        process::{ProcessRole, processes_of_role},
        recorder::{ClientConnection, RecordedEvent, RecordedEventKind},
    },
    system_limits::MountedDisk,
};

/// Peak memory limit of a process of ours, including the pages of the harness's own image.
const PEAK_MIB: u64 = 100;

/// The result of a round.
pub(crate) struct RoundResult {
    pub(crate) injected: Vec<InjectedFault>,
    /// The peak memory of the coordinator, watchdog and workers, in MiB.
    pub(crate) peaks: BTreeMap<&'static str, u64>,
    pub(crate) took: Duration,
    /// Standard error of the program.
    pub(crate) errors: String,
    /// Whether the drawn disk was available.
    pub(crate) has_disk: bool,
    /// The broken guarantee, and the directory where everything of the round is kept.
    pub(crate) finding: Option<RoundFinding>,
}

#[derive(Debug)]
pub(crate) struct RoundFinding {
    pub(crate) what: String,
    pub(crate) kept: PathBuf,
}

/// Plays a round.
pub(crate) fn play(plan: &RoundPlan) -> RoundResult {
    let start = Instant::now();
    let dir = tempfile::Builder::new().prefix("hf-").tempdir().unwrap();
    let mark = format!("{}-{}", std::process::id(), plan.seed);
    let mut round = FaultRound {
        plan,
        dir: dir.path(),
        mark,
        injected: Vec::new(),
        peaks: BTreeMap::new(),
        errors: String::new(),
        has_disk: false,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| round.play()));
    let FaultRound { injected, peaks, errors, has_disk, .. } = round;
    let finding = outcome.err().map(|_| {
        let what = crate::panic_messages::take_first();
        let kept = dir.keep();
        let text = format!("{what}\n\n{injected:#?}\n\n{plan:#?}\n");
        fs::write(kept.join("finding.txt"), text).ok();
        RoundFinding { what, kept }
    });
    RoundResult { injected, peaks, took: start.elapsed(), errors, has_disk, finding }
}

struct FaultRound<'a> {
    plan: &'a RoundPlan,
    dir: &'a Path,
    mark: String,
    injected: Vec<InjectedFault>,
    peaks: BTreeMap<&'static str, u64>,
    errors: String,
    has_disk: bool,
}

impl FaultRound<'_> {
    fn play(&mut self) {
        self.prepare();
        let state_dir = self.dir.join(".heeler");
        let disk = MountedDisk::new(self.plan.disk, &state_dir);
        self.has_disk = disk.is_there();
        let words = match (&self.plan.selection, self.plan.client.transport) {
            (Some(uids), PlannedTransport::CommandLine) => selection_arguments(uids),
            _ => Vec::new(),
        };
        let client = FaultClient::start(self.plan, self.dir, &self.mark, &words);
        // Only a fault at a named point can be that early.
        let Some(client) = client else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.play_with(&client)));
        self.errors = client.errors();
        if outcome.is_err() {
            self.save_record(&client);
            std::panic::resume_unwind(Box::new(()));
        }
    }

    fn prepare(&self) {
        for name in ["tmp", "run", "home", "points"] {
            fs::create_dir(self.dir.join(name)).unwrap();
        }
        for suite in &self.plan.suites {
            let program = match suite.program {
                PlannedProgram::Gtest(_) => fixtures::gtest("faults"),
                PlannedProgram::Libtest => fixtures::libtest(),
                PlannedProgram::Mcp => fixtures::mcp_server(),
                PlannedProgram::Hostile(hostile) => fixtures::gtest(hostile.fixture),
            };
            symlink(program, self.dir.join(&suite.name)).unwrap();
        }
        fs::write(self.dir.join("heeler.toml"), self.plan.config()).unwrap();
    }

    fn play_with(&mut self, client: &FaultClient) {
        let progress = RoundProgress::new();
        let dir = self.dir;
        let plan = self.plan;
        std::thread::scope(|scope| {
            let progress = &progress;
            let injections: Vec<_> = plan
                .faults
                .iter()
                .map(|fault| scope.spawn(move || inject(fault, client, dir, progress)))
                .collect();
            let conversed = catch_unwind(AssertUnwindSafe(|| self.run_session(client, progress)));
            progress.reach(RoundStage::Over);
            for injection in injections {
                self.injected.push(injection.join().expect("a fault is done or missed"));
            }
            if let Err(panic) = conversed {
                std::panic::resume_unwind(panic);
            }
        });
        self.check_guarantees(client);
    }

    /// Exchanges messages with the program until it has exited.
    fn run_session(&mut self, client: &FaultClient, progress: &RoundProgress) {
        if self.plan.client.transport == PlannedTransport::CommandLine {
            progress.reach(RoundStage::Requested);
            wait_closed(client);
            progress.reach(RoundStage::Leaving);
        } else if self.request_runs(client, progress).is_some() {
            progress.reach(RoundStage::Responded);
            self.measure(client);
            progress.reach(RoundStage::Leaving);
            match self.plan.end {
                SessionEnding::Exit => client.notify("exit", json!({})),
                SessionEnding::Disconnect => client.disconnect(),
            }
        } else {
            progress.reach(RoundStage::Leaving);
        }
        assert!(client.wait_gone(), "processes of Heeler's own are left\n{}", client.errors());
    }

    /// Requests all runs of the round and waits for their responses; `None` if the connection ended before.
    fn request_runs(&self, client: &FaultClient, progress: &RoundProgress) -> Option<()> {
        let initialized = client.initialize(&self.plan.client);
        let answer = wait_response(client, initialized)?;
        if self.plan.kills_client() && answer["error"]["code"] == -32602 {
            // Its process was dead before the request was read.
            return None;
        }
        assert!(answer.get("error").is_none(), "{answer}");
        if self.plan.is_discovered_first {
            let id = client
                .request("testing/discoverTests", json!({"runId": "00000000-0000-4000-8000-00000000aaaa"}));
            let answer = wait_response(client, id)?;
            let is_excused = self.plan.may_lose_a_request() && answer["error"]["code"] == -32603;
            assert!(answer.get("error").is_none() || is_excused, "{answer}");
        }
        let run = |number| client.run(number, self.plan.selection.as_deref());
        let wait = |run: &RequestedRun| wait_response(client, run.request).map(drop);
        let first = run(1);
        progress.reach(RoundStage::Requested);
        match self.plan.runs {
            RunPattern::One => wait(&first),
            RunPattern::Sequential => wait(&first).and_then(|()| wait(&run(2))),
            RunPattern::Concurrent => {
                let second = run(2);
                wait(&first).and_then(|()| wait(&second))
            }
        }
    }

    /// Records the memory of our processes.
    fn measure(&mut self, client: &FaultClient) {
        let roles = [("watchdog", ProcessRole::Watchdog), ("worker", ProcessRole::Worker)];
        let below = roles.iter().flat_map(|(name, role)| {
            processes_of_role(client.pid, *role).into_iter().map(move |pid| (*name, pid))
        });
        for (name, pid) in below.chain([("coordinator", client.pid)]) {
            let peak = peak_mib(pid).unwrap_or(0);
            let most = self.peaks.entry(name).or_default();
            *most = peak.max(*most);
        }
    }

    /// Checks every guarantee; panics at the first that is broken.
    fn check_guarantees(&mut self, client: &FaultClient) {
        let killed = |target| {
            let is_kill =
                |one: &&InjectedFault| guarantees::may_kill(one.fault.action, target) && one.hit.is_some();
            self.injected.iter().find(is_kill).is_some()
        };
        let is_coordinator_killed = killed(FaultTarget::Coordinator);
        let is_starved = |one: &InjectedFault| {
            let is_short =
                matches!(one.fault.action, InjectedAction::LimitFiles(..) | InjectedAction::LimitMemory(..));
            is_short && one.hit.is_some()
        };
        let has_no_owner = is_coordinator_killed || self.injected.iter().any(is_starved);
        let mut left = leftovers::wait_clean(self.dir, &self.mark, !has_no_owner);
        if has_no_owner {
            // A coordinator that is killed before or together with its watchdog, or that cannot open a
            // directory to clear it, leaves its own to the next start.
            left.extend(self.left_to_the_next_start());
        }
        assert!(left.is_empty(), "left behind: {left:#?}");
        client.read_to_the_end();
        let errors = client.errors();
        // A process that reaches its limit before it has begun cannot create its runtime, which panics.
        let is_too_early = errors.contains("Too many open files") && self.plan.may_lose_a_request();
        // A process without memory aborts at any allocation.
        let has_little = |one: &InjectedFault| {
            matches!(one.fault.action, InjectedAction::LimitMemory(..)) && one.hit.is_some()
        };
        let is_excused = is_too_early || self.injected.iter().any(has_little);
        // The outputs of tests, which the display of the command line repeats, are indented.
        let is_own_panic = |line: &str| line.contains("panicked at") && !line.starts_with(' ');
        assert!(!errors.lines().any(is_own_panic) || is_excused, "{errors}");
        let code = client.exit_code();
        match self.plan.client.transport {
            _ if is_coordinator_killed => {}
            PlannedTransport::CommandLine => self.check_report(code),
            _ if client.is_gone() => assert!(code.is_some(), "the coordinator died of a signal"),
            // It could not begin, and printed an error.
            _ if self.plan.may_lose_a_request() && matches!(code, Some(4 | 10 | 101)) => {
                assert!(errors.contains("failed to"))
            }
            _ => assert_eq!(code, Some(0), "the exit code\n{errors}"),
        }
        let licence = guarantees::PermittedEffects::new(self.plan, &self.injected, client.is_gone());
        if self.plan.client.transport != PlannedTransport::CommandLine {
            guarantees::check(self.plan, client, (&licence, &self.injected));
        }
        run_files::check(self.plan, self.dir, client, (&licence, &self.injected));
        for (name, peak) in &self.peaks {
            assert!(*peak <= PEAK_MIB, "the {name} took {peak} MiB, and at most {PEAK_MIB} are allowed");
        }
    }

    /// Returns whether faults may prevent that a program is listed, in two attempts or within its limit.
    fn may_hide_a_program(&self) -> bool {
        let stop = InjectedAction::StopForGood(FaultTarget::Test);
        let is_stopped =
            self.injected.iter().any(|injected| injected.fault.action == stop && injected.hit.is_some());
        is_stopped || self.hits() >= 2
    }

    /// Checks that the command line's report accounts for every test.
    fn check_report(&self, code: Option<i32>) {
        let expected = self.plan.expected();
        let is_bad = expected.iter().any(|(_, state)| !["passed", "skipped"].contains(state));
        let wanted: &[i32] = match () {
            // Nothing could be started.
            () if self.plan.may_lose_a_request() && expected.is_empty() => &[4, 8, 10],
            () if self.plan.may_lose_a_request() => &[0, 2, 4, 10],
            () if expected.is_empty() => &[8],
            // No program could be listed.
            () if self.may_hide_a_program() => &[0, 2, 4],
            () if is_bad => &[2],
            () if self.hits() > 0 => &[0, 2],
            () => &[0],
        };
        assert!(code.is_some_and(|code| wanted.contains(&code)), "left with {code:?} instead of {wanted:?}");
        if matches!(code, Some(4 | 8 | 10)) {
            return;
        }
        let report = fs::read_to_string(self.dir.join("report.xml")).unwrap();
        if code == Some(0) {
            assert!(!is_bad, "a run with bad tests has passed\n{report}");
        }
        let cases = report.matches("<testcase ").count();
        // A program that could not be listed takes the place of its tests.
        let may_hide = self.may_hide_a_program() || self.plan.may_lose_a_request();
        let is_whole = cases >= expected.len() || (may_hide && code == Some(2));
        assert!(is_whole, "{cases} tests are reported of {}\n{report}", expected.len());
    }

    /// Returns the entries of the directories for sockets and temporary files that outlive a further start.
    fn left_to_the_next_start(&self) -> Vec<String> {
        let left = leftovers::wait_clean(self.dir, &self.mark, true);
        if left.is_empty() {
            return left;
        }
        let mut next = heeler(self.dir, &self.mark);
        next.arg("list").stdout(Stdio::null()).stderr(Stdio::null());
        next.status().unwrap();
        leftovers::wait_clean(self.dir, &self.mark, true)
    }

    fn hits(&self) -> usize {
        self.injected.iter().filter(|one| one.hit.is_some()).count()
    }

    /// Writes the record beside the journals.
    fn save_record(&self, client: &FaultClient) {
        let events = client.recorder.wait("the record", |events| Some(events.to_vec()));
        let line = |event: &RecordedEvent| match &event.what {
            RecordedEventKind::Opened => format!("{:?}: opened\n", event.on),
            RecordedEventKind::Closed => format!("{:?}: closed\n", event.on),
            RecordedEventKind::SchemaViolation(wrong) => {
                format!("{:?}: against the schema: {wrong}\n", event.on)
            }
            RecordedEventKind::Message(message) => format!("{:?}: {message}\n", event.on),
        };
        fs::write(self.dir.join("traffic.txt"), events.iter().map(line).collect::<String>()).ok();
        fs::write(self.dir.join("wire.txt"), client.recorder.wire_log()).ok();
        fs::write(self.dir.join("stderr.txt"), client.errors()).ok();
        fs::write(self.dir.join("stdout.txt"), client.output()).ok();
    }
}

/// Returns the arguments that select these tests on the command line.
fn selection_arguments(uids: &[String]) -> Vec<String> {
    if uids.is_empty() {
        return vec!["-E".to_owned(), "none()".to_owned()];
    }
    uids.iter().flat_map(|uid| ["-E".to_owned(), format!("test(={uid})")]).collect()
}

/// Waits for a response; `None` if the connection ends before.
fn wait_response(client: &FaultClient, id: u64) -> Option<Value> {
    client.recorder.wait(&format!("the answer to {id}"), |events| {
        let is_answer = |message: &&Value| message.get("method").is_none() && message["id"] == id;
        let answer = events.iter().filter_map(RecordedEvent::message).find(is_answer).cloned();
        let is_closed = events.iter().any(|event| {
            event.on == ClientConnection::Main && matches!(event.what, RecordedEventKind::Closed)
        });
        answer.map(Some).or(is_closed.then_some(None))
    })
}

fn wait_closed(client: &FaultClient) {
    client.recorder.wait("the end of the output", |events| {
        events.iter().any(|event| matches!(event.what, RecordedEventKind::Closed)).then_some(())
    });
}

fn peak_mib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}
