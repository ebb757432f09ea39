//! Leaked processes: Heeler kills and names them and, where possible, attributes them to the test that
//! started them, wherever results are shown.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
};

use heeler_sys::process::{Pid, Signal, effective_uid, pidfd_open, pidfd_signal};
use serde_json::Value;

use crate::support::{
    callback_listener::ListenerBehaviour,
    fixtures,
    other_user::UNPRIVILEGED_UID,
    requirement,
    server::TestServer,
    uids,
    world::{FinishedCommand, TestWorld, copy_program},
};

const NAMES: [&str; 7] = [
    "Tidy.First",
    "Leaves.InTheMiddle",
    "Tidy.Second",
    "Leaves.AtOnce",
    "Tidy.Third",
    "Leaves.AndFails",
    "Tidy.Last",
];

/// Returns the command lines of leaked processes; panics if one of them is still running.
#[track_caller]
fn leaked_commands(processes: &Value) -> Vec<&str> {
    let processes = processes.as_array().unwrap_or_else(|| panic!("no list: {processes}"));
    let command = |process: &'_ Value| -> (u64, String) {
        (process["pid"].as_u64().unwrap(), process["command"].as_str().unwrap().to_owned())
    };
    for (pid, command) in processes.iter().map(command) {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert_ne!(line.trim_end_matches('\0').replace('\0', " "), command, "{pid} is still there");
    }
    processes.iter().map(|process| process["command"].as_str().unwrap()).collect()
}

/// Id of a leaked process that is still running, parsed from a displayed line. Killed on drop.
struct RunningLeak(Pid);

impl Drop for RunningLeak {
    fn drop(&mut self) {
        if let Ok(pidfd) = pidfd_open(self.0) {
            pidfd_signal(&pidfd, Signal::KILL).ok();
        }
    }
}

#[test]
fn process_that_has_become_roots_is_named_as_running() {
    if effective_uid() != 0 {
        requirement::leave_out("root", "only root can make a program whose file gives privileges");
        return;
    }
    let mut world = TestWorld::with_gtest("becomes_root");
    world.write("heeler.toml", "[profile.default]\nisolate = true\n");
    world.change_owner(UNPRIVILEGED_UID);
    let program = world.path("become-root");
    copy_program(&fixtures::gtest("becomes_root"), &program);
    chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let ran = world.run(&["run", "becomes_root", "--junit", "junit.xml"]);
    let line = ran.line_with(&["become-root", ", still running)"]).to_owned();
    let (_, rest) = line.split_once("pid ").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let leak = RunningLeak(Pid(digits.parse().unwrap()));
    assert!(heeler_sys::process::command_line(leak.0).contains("become-root"), "{ran}");
    assert_eq!(ran.code, Some(0), "{ran}");
    let junit = world.read("junit.xml");
    assert!(junit.contains("which could not be killed and is still running"), "{junit}");
}

#[test]
fn single_test_process_reports_leaks_with_result() {
    let world = TestWorld::with_gtest("leaks");
    world.write("heeler.toml", "[profile.default]\nisolate = true\nshow-env = true\n");
    let mut server = TestServer::with_callback(&world, &["leaks"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("leaks", NAMES));
    checked_run.assert_no_program_failures();
    let kind = |name: &str| checked_run.test(&format!("leaks::{name}"))["outcome-kind"].clone();
    for (name, state, expected) in [
        ("Leaves.InTheMiddle", "passed", "sleep 1009"),
        ("Leaves.AtOnce", "passed", "sleep 1013"),
        ("Leaves.AndFails", "failed", "sleep 1019"),
    ] {
        let uid = format!("leaks::{name}");
        let node = checked_run.test(&uid);
        assert_eq!(checked_run.state(&uid), state, "{node:#}");
        assert_eq!(leaked_commands(&node["heeler.leaked"]), [expected], "{node:#}");
        let process = &node["heeler.leaked"][0];
        assert_eq!(process["name"], "sleep", "{node:#}");
        assert!(process["age-s"].as_u64() < Some(60) && process["memory-kib"].as_u64() > Some(0), "{node:#}");
        let errors = node["standardError"].as_str().unwrap();
        assert!(errors.contains(" old, "), "{errors}");
        assert!(errors.contains("leaked a process") && errors.contains(expected), "{node:#}");
        let logged = checked_run.log.iter().any(|line| line.contains(&uid) && line.contains(expected));
        assert!(logged, "{:#?}", checked_run.log);
    }
    assert_eq!((kind("Leaves.AtOnce"), kind("Leaves.AndFails")), ("leaky".into(), Value::Null));
    for name in NAMES.iter().filter(|name| name.starts_with("Tidy")) {
        let node = checked_run.test(&format!("leaks::{name}"));
        assert_eq!((&node["heeler.leaked"], &node["outcome-kind"]), (&Value::Null, &Value::Null), "{node:#}");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn batch_leaks_are_charged_by_start_time() {
    let world = TestWorld::with_gtest("leaks");
    world.write("heeler.toml", "[profile.default]\nshow-env = true\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["leaks"]);
    let run = server.run(None);
    for name in ["Leaves.InTheMiddle", "Leaves.AndFails"] {
        let connected = rendezvous.next_test();
        assert_eq!(connected.test_name, name);
        // The server has seen the end of the earlier tests by now.
        server.wait_state(&format!("leaks::{name}"), "in-progress");
        connected.release();
    }
    let checked_run = server.finish(&run, &uids("leaks", NAMES));
    let leaks = checked_run.response["result"]["heeler.leaks"].as_array().unwrap();
    // A worker that reads late may not be able to distinguish a test from its successors. It then names all
    // of them.
    let tests_of = |command: &str| -> Vec<&str> {
        let found: Vec<_> =
            leaks.iter().filter(|leak| leaked_commands(&leak["processes"]).contains(&command)).collect();
        assert!(found.len() == 1 && found[0]["suite"] == "leaks", "{command}: {leaks:#?}");
        found[0]["tests"].as_array().unwrap().iter().map(|uid| uid.as_str().unwrap()).collect()
    };
    let (first, second, third) = (tests_of("sleep 1009"), tests_of("sleep 1013"), tests_of("sleep 1019"));
    assert!(first.contains(&"leaks::Leaves.InTheMiddle"), "{leaks:#?}");
    assert!(second.contains(&"leaks::Leaves.AtOnce"), "{leaks:#?}");
    assert!(third.contains(&"leaks::Leaves.AndFails"), "{leaks:#?}");
    for early in ["Tidy.First", "Leaves.InTheMiddle", "Tidy.Second", "Leaves.AtOnce", "Tidy.Third"] {
        let uid = format!("leaks::{early}");
        assert!(!third.contains(&uid.as_str()), "{early} was over: {leaks:#?}");
    }
    assert!(!first.contains(&"leaks::Tidy.First") && !second.contains(&"leaks::Tidy.First"), "{leaks:#?}");
    assert_eq!(server.exit(), Some(0));
}

fn run(world: &TestWorld, words: &[&str]) -> FinishedCommand {
    let mut all = vec!["run", "leaks", "--no-history", "--junit", "report.xml", "--show-env"];
    all.extend(words);
    world.run(&all)
}

#[test]
fn leaky_test_passes_and_lists_processes() {
    let world = TestWorld::with_gtest("leaks");
    let ran = run(&world, &["-E", "Tidy", "-E", "Leaves.InTheMiddle", "--isolate"]).assert_code(0);
    ran.line_with(&["LEAK", "Leaves.InTheMiddle"]);
    ran.line_with(&["left", "sleep 1009", "(pid ", " s old, ", "iB, killed)"]);
    ran.line_with(&["Summary", "5 passed", "(1 leaky)"]);
    ran.line_with(&["Leaky", "Leaves.InTheMiddle"]);
    let report = world.read("report.xml");
    assert!(report.contains("<property name=\"heeler.leaked\" value=\"sleep 1009 (pid "), "{report}");
    assert!(report.contains("leaked a process, which was killed: sleep 1009"), "{report}");
    assert!(report.contains("failures=\"0\" errors=\"0\""), "{report}");

    let ran = run(&world, &["-E", "Leaves.InTheMiddle", "-E", "Tidy.First", "-j1"]).assert_code(0);
    ran.line_with(&["PASS", "Leaves.InTheMiddle"]);
    ran.line_with(&["warning", "leaks::Leaves.InTheMiddle: leaked a process", "sleep 1009"]);
    ran.line_with(&["Leaky", "Leaves.InTheMiddle"]);
    ran.line_with(&["Summary", "2 passed", "(1 leaky)"]);
    assert_eq!(world.read("report.xml").matches("heeler.leaked").count(), 1);
}

#[test]
fn arguments_of_leaked_processes_are_reported_only_on_request() {
    let world = TestWorld::with_gtest("leaks");
    let words = ["run", "leaks", "--no-history", "--report", "junit=a.xml", "--report", "ctrf=a.json"];
    for mode in ["--isolate", "-j1"] {
        let ran = world.run(&[&words[..], &[mode]].concat());
        ran.line_with(&["sleep  (pid ", " s old, ", ", killed)"]);
        let text = [ran.stdout.as_str(), &ran.stderr, &world.read("a.xml"), &world.read("a.json")].concat();
        for number in ["1009", "1013", "1019"] {
            assert!(!text.contains(&format!("sleep {number}")), "{mode}: {text}");
        }
        assert!(text.contains("leaked a process, which was killed: sleep (pid "), "{mode}: {text}");
    }
}

#[test]
fn ambiguous_leak_names_all_candidates() {
    let world = TestWorld::with_gtest("leaks");
    let ran =
        run(&world, &["-E", "Leaves.AtOnce", "-E", "Tidy.Second", "-E", "Tidy.Third", "-j1"]).assert_code(0);
    let report = world.read("report.xml");
    ran.line_with(&["Summary", "3 passed", "(1 leaky)"]);
    ran.line_with(&["sleep 1013", ", killed)"]);
    if ran.stdout.contains("one of ") {
        ran.line_with(&["Leaky", "one of ", "--isolate"]);
        ran.line_with(&["leaks::Leaves.AtOnce"]);
        assert!(!report.contains("heeler.leaked"), "{report}");
        assert!(report.contains("[heeler: one of these ") && report.contains("sleep 1013"), "{report}");
    } else {
        // The clock tick ended between the two tests, so only one test can have leaked the process.
        ran.line_with(&["Leaky", "Leaves.AtOnce"]);
    }
}
