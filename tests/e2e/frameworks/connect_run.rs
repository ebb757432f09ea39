//! `heeler connect run` and `heeler connect list` with the real judge. A fake wraps the judge's reference
//! client and misbehaves at one case. If the judge is not installed, only tests with programs that are not
//! judges run.

use std::{
    fs,
    process::{Child, Stdio},
};

use super::connect::{CASE, real_suite, world};
use crate::support::{
    process::{children, signal, state, wait_until},
    requirement,
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

/// A filter that selects eighteen cases, including [`CASE`].
const CASES: &str = "test(Basic) & tag(http=1) & tag(stream=unary) & test(unary/success)";
const CASE_COUNT: usize = 18;

/// A judge and a client that misbehaves at [`CASE`]; `None` if the judge is not installed.
struct JudgedWorld {
    world: TestWorld,
    judge: String,
}

impl JudgedWorld {
    fn new(behaviour: &str) -> Option<Self> {
        let programs = real_suite()?;
        let world = world();
        world.env("HEELER_FIXTURE_CLIENT", &format!("{} -p 1", programs.join("referenceclient").display()));
        world.env("HEELER_FIXTURE_CASE", CASE);
        world.env("HEELER_FIXTURE_BEHAVIOUR", behaviour);
        Some(Self { world, judge: programs.join("connectconformance").display().to_string() })
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let head = ["connect", "run", "--judge", &self.judge];
        [&head[..], words, &["--", "./connect-client"]].concat()
    }

    fn run(&self, words: &[&str]) -> FinishedCommand {
        let ran = self.world.run_with_separate_outputs(&self.words(words));
        self.world.check_tidy();
        ran
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut heeler = self.world.heeler(&self.words(words));
        heeler.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        heeler.spawn().unwrap()
    }

    /// Waits until the case has been requested; returns the judge's process.
    fn judge_of(&self, heeler: &Child) -> u32 {
        wait_until("the client runs", || !self.world.starts().is_empty());
        let is_judge = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("connectconform"))
        };
        let judges = || children(heeler.id()).into_iter().map(|pid| pid.as_u32()).find(is_judge);
        wait_until("the judge runs", || judges().is_some());
        judges().unwrap()
    }
}

fn finish(heeler: Child) -> (Option<i32>, String) {
    let output = heeler.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn selected_cases_are_judged_recorded_and_reported() {
    let Some(judged) = JudgedWorld::new("passes") else { return };
    let ran = judged.run(&["-E", CASES, "--junit", "junit.xml", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(&format!("{CASE_COUNT} passed")), "{}", ran.stderr);
    let junit = fs::read_to_string(judged.world.path("junit.xml")).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), CASE_COUNT, "{junit}");
    assert_eq!(
        ran.stdout.matches("\"type\":\"test\",\"event\":\"ok\"").count(),
        CASE_COUNT,
        "{}",
        ran.stdout
    );
    let report = judged.world.run_with_separate_outputs(&["report"]);
    assert!(report.stdout.contains(&format!("{CASE_COUNT} passed")), "{report:?}");
    let rerun = judged.run(&["--rerun", "failed"]);
    assert_eq!(rerun.code, Some(8), "nothing failed: {rerun:?}");
}

#[test]
fn cases_are_listed_with_their_tags_and_none_is_run() {
    let Some(judged) = JudgedWorld::new("aborts") else { return };
    let head = ["connect", "list", "--judge", &judged.judge, "--format", "names", "-E"];
    let list = |filter| {
        let words = [&head[..], &[filter, "--", "./connect-client"]].concat();
        judged.world.run_with_separate_outputs(&words)
    };
    let listed = list(CASES);
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), CASE_COUNT), "{listed:?}");
    assert!(listed.stdout.lines().any(|line| line == format!("connect-client::{CASE}")), "{listed:?}");
    assert!(judged.world.starts().is_empty());
    assert_eq!(list("tag(http=7)").code, Some(8));
}

#[test]
fn dead_client_costs_its_own_case_by_name() {
    for (behaviour, message) in [
        ("aborts", "SIGABRT"),
        ("hangs", "timed out after 5 s"),
        ("prints-and-stays", "invalid answer on standard output"),
    ] {
        let Some(judged) = JudgedWorld::new(behaviour) else { return };
        let ran = judged.run(&["-E", CASES, "--timeout", "5s"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message) && ran.stderr.contains("17 passed, 1 "), "{behaviour}: {ran:?}");
        if behaviour == "aborts" {
            assert!(ran.stderr.contains("heeler_fake::connect::answer_to at "), "a stack: {ran:?}");
        }
        let other = judged.world.run_with_separate_outputs(&["run", "--rerun", "failed"]);
        assert_eq!(other.code, Some(8), "{other:?}");
        assert!(other.stderr.contains("was recorded by heeler connect run"), "{other:?}");
        // The rerun runs only this case. This time, the client behaves well.
        judged.world.env("HEELER_FIXTURE_BEHAVIOUR", "passes");
        let rerun = judged.run(&["--rerun", "failed"]);
        assert_eq!(rerun.code, Some(0), "{rerun:?}");
        assert!(rerun.stderr.contains("PASSED 1 test"), "{rerun:?}");
    }
}

#[test]
fn case_that_passes_on_its_retry_is_flaky() {
    let Some(judged) = JudgedWorld::new("aborts-once") else { return };
    let ran = judged.run(&["-E", CASES, "--retries", "1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("1 flaky"), "{ran:?}");
}

#[test]
fn known_failure_is_skipped_and_unexpected_pass_fails() {
    let Some(judged) = JudgedWorld::new("says-error") else { return };
    let words = ["-E", CASES, "--known-failing", CASE, "--retries", "1"];
    let ran = judged.run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("17 passed, 1 skipped"), "{ran:?}");
    judged.world.env("HEELER_FIXTURE_BEHAVIOUR", "passes");
    let ran = judged.run(&words);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("passed, but --known-failing expects it to fail"), "{ran:?}");
}

#[test]
fn command_that_runs_a_case_again_has_the_configuration() {
    let Some(judged) = JudgedWorld::new("says-error") else { return };
    let configuration = "features: { versions: [HTTP_VERSION_1], codecs: [CODEC_PROTO] }\n";
    fs::write(judged.world.path("my conf.yaml"), configuration).unwrap();
    let ran = judged.run(&["--conf", "my conf.yaml", "-E", CASES]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let again = ran.stderr.lines().find_map(|line| line.trim_start().strip_prefix("$ "));
    let again = again.unwrap_or_else(|| panic!("no command: {ran:?}"));
    assert!(again.contains(" --mode client --conf 'my conf.yaml' --run "), "{again}");
    let failed = run_with_separate_outputs(judged.world.shell(again));
    assert_eq!(failed.code, Some(1), "{again}: {failed:?}");
    assert!(failed.stdout.contains(&format!("FAILED: {CASE}")), "{failed:?}");
    judged.world.env("HEELER_FIXTURE_BEHAVIOUR", "passes");
    assert_eq!(run_with_separate_outputs(judged.world.shell(again)).code, Some(0), "{again}");
}

#[test]
fn death_of_the_judge_is_one_error_and_leaves_nothing() {
    let Some(judged) = JudgedWorld::new("hangs") else { return };
    let heeler = judged.start(&["-E", CASES, "--timeout", "60s"]);
    let judge = judged.judge_of(&heeler);
    signal(judge, "KILL");
    let (code, stderr) = finish(heeler);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("error: the judge was killed by SIGKILL"), "{stderr}");
    judged.world.check_tidy();
    wait_until("no client is left", || judged.world.starts().iter().all(|one| state(one.pid).is_none()));
    let report = judged.world.run_with_separate_outputs(&["report"]);
    assert!(report.stdout.contains("no verdict: the judge was killed"), "{report:?}");
}

#[test]
fn judge_that_hangs_is_ended() {
    let Some(judged) = JudgedWorld::new("hangs") else { return };
    // Only one case is running and it is killed soon. After that, the stopped judge sends nothing.
    let heeler = judged.start(&["-E", CASES, "--timeout", "3s", "--judge-timeout", "15s"]);
    let judge = judged.judge_of(&heeler);
    signal(judge, "STOP");
    let (code, stderr) = finish(heeler);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("the judge sent nothing for 15 s and was stopped (--judge-timeout)"), "{stderr}");
    assert!(state(judge).is_none());
    judged.world.check_tidy();
}

#[test]
fn cancelled_run_leaves_nothing() {
    let Some(judged) = JudgedWorld::new("hangs") else { return };
    let heeler = judged.start(&["-E", CASES, "--timeout", "60s"]);
    let judge = judged.judge_of(&heeler);
    signal(heeler.id(), "INT");
    let (code, stderr) = finish(heeler);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(state(judge).is_none());
    judged.world.check_tidy();
    wait_until("no client is left", || judged.world.starts().iter().all(|one| state(one.pid).is_none()));
}

#[test]
fn killed_run_leaves_nothing() {
    let Some(judged) = JudgedWorld::new("hangs") else { return };
    // The judge's reference servers run in its own process or in its child processes.
    let mut heeler = judged.start(&["-E", CASES, "--timeout", "60s"]);
    let judge = judged.judge_of(&heeler);
    let below = |pid| children(pid).into_iter().map(|child| child.as_u32());
    let mut started: Vec<u32> = below(heeler.id()).flat_map(|child| below(child).chain([child])).collect();
    started.extend(judged.world.starts().iter().map(|one| one.pid));
    assert!(started.contains(&judge) && started.len() > 4, "{started:?}");
    signal(heeler.id(), "KILL");
    heeler.wait().unwrap();
    wait_until("nothing is left", || started.iter().all(|pid| state(*pid).is_none_or(|state| state == 'Z')));
}

#[test]
fn known_flaky_case_may_fail_and_skipped_ones_are_left_out() {
    let Some(judged) = JudgedWorld::new("aborts-once") else { return };
    let words = ["-E", CASES, "--retries", "1", "--known-flaky", CASE, "--skip", "**/(grpc server impl)/**"];
    let skipped = CASE_COUNT - 2;
    for counts in [format!("{} passed, 1 skipped", skipped - 1), format!("{skipped} passed")] {
        let ran = judged.run(&words);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(&counts), "{counts}: {ran:?}");
    }
    for (words, message) in [
        (["--skip", "Nope/**"], "invalid value of --skip: the pattern \"Nope/**\" matches no case"),
        (["--known-flaky", "@nope"], "invalid value of --known-flaky: failed to read nope: No such file"),
    ] {
        let ran = judged.run(&words);
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
}

#[test]
fn refused_configuration_is_the_judges_own_error() {
    let Some(judged) = JudgedWorld::new("passes") else { return };
    fs::write(judged.world.path("conf.yaml"), "features: { versions: [nope] }\n").unwrap();
    for (words, message) in [
        (["--conf", "conf.yaml"], "conf.yaml:1:24 unknown enum value"),
        (["--conf", "none.yaml"], "none.yaml"),
        (["--known-failing", "Nope/**"], "unmatched and possibly invalid patterns:\nNope/**"),
    ] {
        let ran = judged.run(&words);
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains("the judge exited with code 1 before it requested a case:"), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
}

#[test]
fn program_that_is_no_judge_is_one_error() {
    let world = world();
    let run = |judge| {
        world.run_with_separate_outputs(&["connect", "run", "--judge", judge, "--", "./connect-client"])
    };
    for (judge, code, message) in [
        (
            "no-such-judge",
            4,
            "no-such-judge not found; install it with Go 1.24 or later: go install \
             connectrpc.com/conformance/cmd/connectconformance@v1.0.7, and add \"$(go env GOPATH)/bin\" to PATH, or \
             give its path with --judge PATH",
        ),
        ("echo", 4, "the judge exited with code 0 without a readable report"),
        ("true", 5, "the judge exited with code 0 before it requested a case"),
    ] {
        let ran = run(judge);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
        assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran:?}");
    }
    world.check_tidy();
}

/// The sample client passes every case of the default configuration that its library passes. Skipped if
/// `scripts/test` could not build the client.
#[test]
#[ignore = "a peer: scripts/test --peers"]
fn sample_client_passes_what_its_library_passes() {
    let client = requirement::directory_of("HEELER_CONNECT_CLIENT", "the sample client of Connect");
    let (Some(programs), Some(client)) = (real_suite(), client) else { return };
    let judge = programs.join("connectconformance");
    let known = concat!("@", env!("CARGO_MANIFEST_DIR"), "/samples/connect-client/known-failing.txt");
    let judge = ["--judge", judge.to_str().unwrap(), "--known-failing", known];
    // On a busy machine, a debug build needs minutes for all cases. docs/guide/connect.md shows the command
    // for all cases.
    let selected = ["-E", "test(Basic) | test(unexpected-compressed-message)"];
    let words = [&["connect", "run"], &judge[..], &selected, &["--retries", "2", "--"]].concat();
    let world = world();
    let ran = world.run_with_separate_outputs(&[&words[..], &[client.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("4 skipped") && !ran.stderr.contains(" failed"), "{ran:?}");
    world.check_tidy();
}
