//! The event stream of `--format json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
};

use serde_json::Value;

use super::commands::SHORT;
use crate::support::{
    process::{signal, wait_until},
    schema::check_run_event,
    world::{FinishedCommand, TestWorld, read_all, run},
};

/// Returns the events after checking each. The first and last are suite events, and every counted test ends
/// exactly once.
#[track_caller]
fn events(stdout: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let all: Vec<Value> = stdout.lines().map(read).collect();
    all.iter().for_each(check_run_event);
    let of_suite = all.iter().filter(|event| event["type"] == "suite").count();
    assert_eq!((of_suite, &all[0]["event"]), (2, &"started".into()), "{stdout}");
    let last = all.last().unwrap();
    assert_eq!(last["type"], "suite");
    assert_eq!(last["test_count"], all[0]["test_count"]);
    let ends = ends(&all);
    assert!(ends.values().all(|number| *number == 1), "{ends:#?}");
    assert_eq!(last["test_count"], ends.len());
    let mut running = BTreeSet::new();
    for event in all.iter().filter(|event| event["type"] == "test") {
        let uid = event["uid"].as_str().unwrap();
        match event["event"].as_str().unwrap() {
            "started" => assert!(running.insert(uid), "{uid} starts twice"),
            "not_run" => assert!(!running.contains(uid), "{uid} has started"),
            _ => assert!(running.remove(uid), "{uid} has not started"),
        }
    }
    assert!(running.is_empty(), "{running:?}");
    let counted =
        ["passed", "failed", "ignored", "not_run", "cancelled"].map(|kind| last[kind].as_u64().unwrap());
    assert_eq!(counted.iter().sum::<u64>(), ends.len() as u64, "{last}");
    all
}

/// Returns how often each test ended.
fn ends(events: &[Value]) -> BTreeMap<&str, usize> {
    let mut ends = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "test" && event["event"] != "started") {
        *ends.entry(event["uid"].as_str().unwrap()).or_default() += 1;
    }
    ends
}

fn event<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let is_end = |event: &&Value| event["name"] == name && event["event"] != "started";
    events.iter().find(is_end).unwrap_or_else(|| panic!("{name} has not ended: {events:#?}"))
}

fn run_json(world: &TestWorld, words: &[&str]) -> FinishedCommand {
    world.run_with_separate_outputs(&[words, &["--format", "json"]].concat())
}

#[test]
fn each_test_has_one_end_and_the_last_line_has_the_exit_code() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = run_json(&world, &["run", "kinds", "--isolate", "--no-capture"]).assert_code(2);
    let live = events(&ran.stdout);
    ran.assert_stderr("FAILED");
    ran.assert_stderr("last words");
    let last = live.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"failed".into(), &2.into()));
    let failed = event(&live, "Math.Fail");
    let failure = &failed["failures"][0];
    assert_eq!((&failed["event"], &failed["outcome"]), (&"failed".into(), &"failed".into()));
    assert!(
        failure["file"].as_str().unwrap().ends_with("kinds.cc") && failure["line"].is_u64(),
        "{failed:#}"
    );
    assert!(failure["message"].as_str().unwrap().contains("quotes"), "{failed:#}");
    assert!(failed["exec_time"].is_f64(), "{failed:#}");
    assert_eq!(event(&live, "Crash.Segv")["signal"], "SIGSEGV");
    assert_eq!(event(&live, "Math.Skip")["event"], "ignored");
    let loud = event(&live, "Noise.Errors");
    assert_eq!((&loud["event"], &loud["stderr"]), (&"ok".into(), &"written to standard error\n".into()));
    // The report of the recorded run has the same test ends.
    let ran = run_json(&world, &["report"]).assert_code(0);
    let recorded = events(&ran.stdout);
    assert_eq!(ran.stderr, "");
    for uid in ends(&live).into_keys() {
        let of = |events: &[Value]| {
            let is_end = |event: &&Value| event["uid"] == uid && event["event"] != "started";
            events.iter().find(is_end).cloned().unwrap()
        };
        let (mut live, mut recorded) = (of(&live), of(&recorded));
        for event in [&mut live, &mut recorded] {
            // Live events lack leaked processes, which are attributed to tests when the run ends.
            event.as_object_mut().unwrap().remove("leaked_processes");
        }
        assert_eq!(live, recorded);
    }
    assert_eq!(recorded.last().unwrap()["outcomes"], last["outcomes"]);
}

#[test]
fn command_that_runs_nothing_prints_its_last_event_only() {
    let world = TestWorld::with_gtest("kinds");
    for (words, code, error) in [
        (&["run", "kinds", "-E", "nothing"][..], 8, "no test matches -E nothing ("),
        (&["run", "missing"], 4, "no such file"),
    ] {
        let ran = run_json(&world, words).assert_code(code);
        let last: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
        check_run_event(&last);
        assert_eq!((&last["event"], &last["exit_code"]), (&"failed".into(), &code.into()), "{ran}");
        assert!(last["error"].as_str().unwrap_or_default().contains(error), "{ran}");
    }
}

#[test]
fn program_that_fails_outside_its_tests_is_an_event_and_no_test() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", "exit code 7");
    let ran = run_json(&world, &["run", "deaths", "-j1"]).assert_code(2);
    let all = events(&ran.stdout);
    let program = all.iter().find(|event| event["type"] == "program").unwrap_or_else(|| panic!("{ran}"));
    assert!(program["message"].as_str().unwrap().contains("exited with code 7"), "{ran}");
    let last = all.last().unwrap();
    assert_eq!((&last["failed_programs"], &last["event"]), (&1.into(), &"failed".into()), "{ran}");
    assert_eq!(last["test_count"], 7, "{ran}");
}

#[test]
fn large_run_streams_its_events_and_a_closed_pipe_does_not_disturb_it() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "5000");
    let ran = run_json(&world, &["run", "big"]).assert_code(0);
    let all = events(&ran.stdout);
    assert_eq!(all.last().unwrap()["passed"], 5_000);
    let program = env!("CARGO_BIN_EXE_heeler");
    let line = format!("{program} run big --format json 2>/dev/null | head -1; exit ${{PIPESTATUS[0]}}");
    let ran = run(world.shell(&line)).assert_code(0);
    assert_eq!(ran.stdout.lines().count(), 1, "{ran}");
    world.check_tidy();
}

#[test]
fn run_that_is_left_at_once_has_an_end_of_each_test() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut command =
        world.heeler(&["run", "meet", "-j1", "-E", "Away.Deaf", "-E", "N/Meet*", "--format", "json"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let connected = rendezvous.next_test();
    signal(child.id(), "INT");
    wait_until("the first is taken", || !super::signals::is_pending(child.id(), 2));
    signal(child.id(), "INT");
    connected.wait_gone();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let stdout = stdout.recv().unwrap();
    let all = events(&stdout);
    assert_eq!(all.last().unwrap()["exit_code"], 3, "{stdout}{}", stderr.recv().unwrap());
    assert_eq!(all.last().unwrap()["test_count"], 5, "{stdout}");
}
