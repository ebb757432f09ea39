//! `heeler connect run --native` and `heeler connect list --native`: the judge is Heeler's own, and the
//! suites are those of the module cache. A fake starts a process of the real judge's own client for each of
//! its processes, and misbehaves at a case. Where both are not installed, only the errors are tried.

use std::{collections::BTreeSet, fs, path::Path};

use heeler_connect_judge::{Case, not_judged};

use super::{
    connect::{real_suite, world},
    connect_cases::{expanded, suites_dir},
};
use crate::support::{
    process::{state, wait_until},
    world::{FinishedCommand, TestWorld},
};

/// The filter of ten cases, all of them judged, of which [`CASE`] is one.
const CASES: &str = "test(Basic) & tag(http=1) & tag(tls=none) & tag(stream=unary) & test(unary/success)";
const CASE_COUNT: usize = 10;
const CASE: &str = "Basic/HTTPVersion:1/Protocol:PROTOCOL_CONNECT/Codec:CODEC_PROTO/\
                    Compression:COMPRESSION_IDENTITY/TLS:false/unary/success";

/// Suites, and a client that misbehaves at [`CASE`]; `None` where they are not installed.
pub(super) struct NativeWorld {
    pub(super) world: TestWorld,
    suites: String,
    pub(super) judge: String,
}

impl NativeWorld {
    pub(super) fn new(behaviour: &str) -> Option<Self> {
        let (programs, suites) = (real_suite()?, suites_dir()?);
        let world = world();
        world.env("HEELER_FIXTURE_CLIENT", &format!("{} -p 1", programs.join("referenceclient").display()));
        world.env("HEELER_FIXTURE_CASE", CASE);
        world.env("HEELER_FIXTURE_BEHAVIOUR", behaviour);
        let judge = programs.join("connectconformance").display().to_string();
        Some(Self { world, suites: suites.display().to_string(), judge })
    }

    fn run_judge(&self, judge: &[&str], words: &[&str]) -> FinishedCommand {
        self.run_judge_of(judge, words, "./connect-client")
    }

    /// Has the judge that the words name judge a client.
    pub(super) fn run_judge_of(&self, judge: &[&str], words: &[&str], client: &str) -> FinishedCommand {
        let words = [&["connect", "run"], judge, words, &["--", client]].concat();
        let ran = self.world.run_with_separate_outputs(&words);
        self.world.check_tidy();
        wait_until("no client is left", || self.world.starts().iter().all(|one| state(one.pid).is_none()));
        ran
    }

    fn run(&self, words: &[&str]) -> FinishedCommand {
        self.run_judge(&self.native(), words)
    }

    /// The words that choose the native judge.
    pub(super) fn native(&self) -> [&str; 3] {
        ["--native", "--suites", &self.suites]
    }

    /// The cases of the default configuration.
    fn cases(&self) -> Vec<Case> {
        expanded(Path::new(&self.suites), "")
    }
}

/// Returns the names of the tests that ended with an event in the event stream.
fn ended_with(ran: &FinishedCommand, event: &str) -> BTreeSet<String> {
    let events = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let ended = events.filter(|one| one["type"] == "test" && one["event"] == event);
    ended.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn reference_client_passes_all_judged_cases_and_the_others_are_skipped() {
    let Some(native) = NativeWorld::new("passes") else { return };
    let (judged, others): (Vec<_>, Vec<_>) = native
        .cases()
        .into_iter()
        .filter(|case| {
            ["Basic", "Connect Error and End-Stream"].iter().any(|suite| case.name().contains(suite))
        })
        .partition(|case| not_judged(case).is_none());
    assert!(judged.len() > 100 && others.len() > 100);
    let words =
        ["-E", "test(Basic) | test(Connect Error and End-Stream)", "--retries", "2", "--junit", "junit.xml"];
    let ran = native.run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let counts = format!("{} passed, {} skipped", judged.len(), others.len());
    assert!(ran.stderr.contains(&counts), "{counts}: {ran:?}");
    assert!(ran.stderr.contains(&format!("{} not judged by the native judge", others.len())), "{ran:?}");
    let junit = fs::read_to_string(native.world.path("junit.xml")).unwrap();
    let reason = "<skipped message=\"not judged by the native judge: it needs a raw HTTP response\">";
    assert_eq!(junit.matches(reason).count(), others.len(), "{junit}");
}

#[test]
fn client_with_mistakes_fails_the_same_cases_of_both_judges() {
    let Some(native) = NativeWorld::new("passes") else { return };
    native.world.env("HEELER_FIXTURE_MISTAKES", "1");
    let words = ["-E", "test(Basic) & tag(tls=none)", "--format", "json"];
    let ours = native.run(&words);
    let real = native.run_judge(&["--judge", &native.judge], &words);
    for event in ["ok", "failed"] {
        let names = [ended_with(&ours, event), ended_with(&real, event)];
        assert!(names[0].len() > 20, "{event}: {ours:?}");
        assert_eq!(names[0], names[1], "{event}");
    }
    assert_eq!((ours.code, real.code), (Some(2), Some(2)));
}

#[test]
fn dead_client_costs_its_own_case_by_name() {
    for (behaviour, message) in
        [("aborts", "SIGABRT"), ("hangs", "timed out after 5 s"), ("prints", "what is no answer")]
    {
        let Some(native) = NativeWorld::new(behaviour) else { return };
        let ran = native.run(&["-E", CASES, "--timeout", "5s"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let counts = format!("{} passed, 1 ", CASE_COUNT - 1);
        assert!(ran.stderr.contains(message) && ran.stderr.contains(&counts), "{behaviour}: {ran:?}");
        assert!(ran.stderr.contains(CASE), "{ran:?}");
        if behaviour == "aborts" {
            assert!(ran.stderr.contains("heeler_fake::connect::answer_to at "), "a stack: {ran:?}");
        }
        native.world.env("HEELER_FIXTURE_BEHAVIOUR", "passes");
        let rerun = native.run(&["--rerun", "failed"]);
        assert_eq!(rerun.code, Some(0), "{rerun:?}");
        assert!(rerun.stderr.contains("PASSED 1 test"), "{rerun:?}");
    }
}

#[test]
fn retries_and_known_failures_are_those_of_any_judge() {
    let Some(native) = NativeWorld::new("aborts-once") else { return };
    let ran = native.run(&["-E", CASES, "--retries", "1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("1 flaky"), "{ran:?}");
    // What is known to be flaky is not retried, and may pass.
    std::fs::remove_file(native.world.path("aborted-once")).unwrap();
    let flaky = ["-E", CASES, "--retries", "1", "--known-flaky", CASE];
    for counts in [format!("{} passed, 1 skipped", CASE_COUNT - 1), format!("{CASE_COUNT} passed")] {
        let ran = native.run(&flaky);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(&counts), "{counts}: {ran:?}");
    }
    let known = ["-E", CASES, "--known-failing", "Basic/HTTPVersion:1/*/*/*/TLS:false/unary/success"];
    let ran = native.run(&known);
    assert!(ran.stderr.contains("passed, and is named as known to fail"), "{ran:?}");
    native.world.env("HEELER_FIXTURE_BEHAVIOUR", "says-error");
    let ran = native.run(&["-E", CASES, "--known-failing", CASE]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(&format!("{} passed, 1 skipped", CASE_COUNT - 1)), "{ran:?}");
}

#[test]
fn cases_are_listed_with_the_reason_and_none_is_run() {
    let Some(native) = NativeWorld::new("aborts") else { return };
    let list = |words: &[&str]| {
        let head = ["connect", "list", "--native", "--suites", &native.suites];
        native.world.run_with_separate_outputs(&[&head[..], words, &["--", "./connect-client"]].concat())
    };
    let cases = native.cases();
    let listed = list(&[]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for (reason, count) in [
        ("it needs a raw HTTP response)", cases.iter().filter(|case| case.raw_response().is_some()).count()),
        ("(not judged", cases.iter().filter(|case| not_judged(case).is_some()).count()),
    ] {
        assert_eq!(listed.stdout.matches(reason).count(), count, "{reason}");
    }
    let listed = list(&["--format", "names", "-E", CASES]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), CASE_COUNT), "{listed:?}");
    assert!(listed.stdout.lines().any(|line| line == format!("connect-client::{CASE}")), "{listed:?}");
    let listed = list(&["--format", "names", "-E", CASES, "--skip", CASE, "--skip", "Errors/**"]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), CASE_COUNT - 1), "{listed:?}");
    assert!(!listed.stdout.contains(&format!("::{CASE}\n")), "{listed:?}");
    assert!(native.world.starts().is_empty());
}

const SUITE: &str = "name: Own\ntestCases:\n- request: {testName: unary, streamType: STREAM_TYPE_UNARY}\n";

#[test]
fn wrong_input_is_one_error() {
    let world = world();
    for dir in ["suites", "damaged", "empty"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    world.write("suites/own.yaml", SUITE);
    world.write("damaged/own.yaml", "name: Own\ntestCases: [\n");
    world.write("empty/own.txt", SUITE);
    world.write("conf.yaml", "features: {versions: [nope]}\n");
    let own = ["--native", "--suites", "suites"];
    for (words, message) in [
        (&["--suites", "suites"][..], "--native"),
        (&[&own[..], &["--judge", "x"]].concat(), "'--native' cannot be used with '--judge <PROGRAM>'"),
        (&["--native", "--suites", "none"], "list the suite files in none: No such file or directory"),
        (&["--native", "--suites", "empty"], "empty has no suite files: expected files named *.yaml"),
        (&["--native", "--suites", "damaged"], "read the suites: damaged/own.yaml: line "),
        (
            &[&own[..], &["--conf", "conf.yaml"]].concat(),
            "read the configuration conf.yaml: line 1: \"nope\"",
        ),
        (&[&own[..], &["--conf", "none.yaml"]].concat(), "read none.yaml: No such file"),
        (&[&own[..], &["--known-failing", "x/**"]].concat(), "the pattern \"x/**\" matches no case"),
        (&[&own[..], &["--known-failing", "@none"]].concat(), "read none: No such file"),
        (
            &[&own[..], &["--known-flaky", "x/**"]].concat(),
            "read the cases of --known-flaky: the pattern \"x/**\" matches no case",
        ),
        (&[&own[..], &["--skip", "@none"]].concat(), "read the cases of --skip: read none: No such file"),
        (
            &[&own[..], &["--known-flaky", "Own/**", "--known-failing", "Own/**"]].concat(),
            "both --known-failing and --known-flaky name the case \"Own/",
        ),
    ] {
        for command in ["run", "list"] {
            let words = [&["connect", command], words, &["--", "./connect-client"]].concat();
            let ran = world.run_with_separate_outputs(&words);
            assert_eq!(ran.code, Some(5), "{words:?}: {ran:?}");
            assert!(ran.stderr.contains(message), "{words:?}: {ran:?}");
            assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran:?}");
        }
    }
    assert!(world.starts().is_empty());
    world.check_tidy();
}

/// Returns a world whose only program in `PATH` is `go`, a shell script.
fn world_with_go(script: &str) -> TestWorld {
    let world = world();
    fs::create_dir(world.path("bin")).unwrap();
    world.write_program("bin/go", &format!("#!/bin/sh\n{script}\n"));
    world.env("PATH", world.path("bin").to_str().unwrap());
    world
}

#[test]
fn suites_are_found_in_the_module_cache_of_go() {
    let world = world_with_go("[ \"$*\" = 'env GOMODCACHE' ] && echo \"$HOME/cache dir\"");
    let list = || {
        let words = ["connect", "list", "--native", "--format", "names", "--", "./connect-client"];
        world.run_with_separate_outputs(&words)
    };
    let suites =
        "home/cache dir/connectrpc.com/conformance@v1.0.5/internal/app/connectconformance/testsuites/data";
    let missing = list();
    assert_eq!(missing.code, Some(5), "{missing:?}");
    let message = format!("find the suite files: there is no directory {}", world.path(suites).display());
    assert!(missing.stderr.contains(&message) && missing.stderr.contains("--suites"), "{missing:?}");
    fs::create_dir_all(world.path(suites)).unwrap();
    world.write(&format!("{suites}/own.yaml"), SUITE);
    let listed = list();
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("connect-client::Own/"), "{listed:?}");
}

#[test]
fn go_that_names_no_module_cache_is_one_error_that_names_the_option() {
    for (script, message) in [
        ("exit 1", "go has not named its module cache, but printed \"\""),
        ("echo nonsense", "go has not named its module cache, but printed \"nonsense\\n\""),
        ("exec /bin/sleep 1000", "go has not named its module cache within 10 s"),
    ] {
        let world = world_with_go(script);
        let ran = world.run_with_separate_outputs(&["connect", "run", "--native", "--", "./connect-client"]);
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains(message) && ran.stderr.contains("--suites"), "{ran:?}");
        assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran:?}");
        world.check_tidy();
    }
    let world = world();
    world.env("PATH", world.path("tmp").to_str().unwrap());
    let ran = world.run_with_separate_outputs(&["connect", "run", "--native", "--", "./connect-client"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("there is no go in PATH") && ran.stderr.contains("--suites"), "{ran:?}");
}
