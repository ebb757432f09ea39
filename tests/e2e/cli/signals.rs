//! Ctrl-C, Ctrl-Z and similar signals on the command line.

use std::{
    io::Read,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::support::{
    process::{signal, state, wait_until},
    world::TestWorld,
};

fn start(world: &TestWorld, words: &[&str]) -> Child {
    let mut command = world.heeler(words);
    command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the exit; returns the exit code and the printed results.
fn wait_exit(mut child: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

#[test]
fn ctrl_z_stops_all_and_fg_resumes() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let child = start(&world, &["run", "meet", "-j1", "-E", "Meet.Case/0", "--timeout", "20s"]);
    let connected = rendezvous.next_test();
    signal(child.id(), "TSTP");
    wait_until("the test stands still", || is_stopped(connected.pid));
    wait_until("heeler stands still", || state(child.id()) == Some('T'));
    signal(child.id(), "CONT");
    wait_until("the test goes on", || state(connected.pid) == Some('S'));
    connected.release();
    let (code, text) = wait_exit(child);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn time_in_a_pause_is_no_duration_of_the_test() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let started = Instant::now();
    let child = start(&world, &["run", "meet", "-j1", "-E", "Meet.Case/0", "--junit", "r.xml"]);
    let connected = rendezvous.next_test();
    signal(child.id(), "TSTP");
    wait_until("heeler stands still", || state(child.id()) == Some('T'));
    let (pause, paused) = (Duration::from_secs(3), Instant::now());
    wait_until("the pause is long enough to be seen", || paused.elapsed() >= pause);
    signal(child.id(), "CONT");
    connected.release();
    let (code, text) = wait_exit(child);
    assert_eq!(code, Some(0), "{text}");
    // GoogleTest's clock keeps running during the pause.
    let report = world.read("r.xml");
    let case = report.split("<testcase").nth(1).unwrap();
    let time: f64 = case.split("time=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!(time <= (started.elapsed() - pause).as_secs_f64(), "{time}: {report}");
}

/// Returns whether a process is stopped. The state of a traced process is a lower-case `t`.
fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

#[test]
fn ctrl_z_works_repeatedly() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let child = start(&world, &["run", "meet", "-j1", "-E", "Meet.Case/0"]);
    let connected = rendezvous.next_test();
    for _ in 0..3 {
        signal(child.id(), "TSTP");
        wait_until("heeler stands still", || state(child.id()) == Some('T'));
        assert!(is_stopped(connected.pid), "{:?}", state(connected.pid));
        signal(child.id(), "CONT");
        wait_until("the test goes on", || state(connected.pid) == Some('S'));
    }
    connected.release();
    assert_eq!(wait_exit(child).0, Some(0));
}

#[test]
fn ctrl_c_once_cancels_with_summary() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let child = start(&world, &["run", "meet", "-j1", "-E", "Meet.Case"]);
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    signal(child.id(), "INT");
    connected.wait_gone();
    let (code, text) = wait_exit(child);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("CANCELLED") && text.contains("1 passed"), "{text}");
    world.check_tidy();
}

#[test]
fn ctrl_c_twice_kills_deaf_tests() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let args = ["run", "meet", "-j1", "-E", "Away.Deaf", "-E", "N/Meet.Case/0", "--junit", "r.xml"];
    let child = start(&world, &args);
    let connected = rendezvous.next_test();
    signal(child.id(), "INT");
    // Wait until the first signal was delivered: the kernel would merge two pending signals.
    wait_until("the first is taken", || !is_pending(child.id(), 2));
    signal(child.id(), "INT");
    let gone = connected.wait_gone();
    assert!(gone.as_secs() < 3, "{gone:?}");
    let (code, text) = wait_exit(child);
    assert_eq!(code, Some(3), "{text}");
    // The output of the first test's start may not have been read yet.
    assert!(text.contains("1 interrupted") || text.contains("2 not run"), "{text}");
    let report = world.read("r.xml");
    assert!(report.contains("the run was interrupted"), "{report}");
    assert_eq!(report.matches("<testcase").count(), 2, "{report}");
    world.check_tidy();
}

#[test]
fn ctrl_c_ends_a_command_whose_report_nothing_reads() {
    let world = TestWorld::with_gtest("deaths");
    let made = std::process::Command::new("mkfifo").arg(world.path("pipe")).status().unwrap();
    assert!(made.success());
    let child = start(&world, &["run", "deaths", "-E", "First.One", "--junit", "pipe"]);
    let is_waiting = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.trim_end() == "heeler-report")
    };
    wait_until("the report is being written", is_waiting);
    signal(child.id(), "INT");
    let (code, text) = wait_exit(child);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("interrupted before all reports were written"), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Returns whether a signal is pending for a process.
pub(super) fn is_pending(pid: u32, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks =
        status.lines().filter_map(|line| line.strip_prefix("ShdPnd:").or(line.strip_prefix("SigPnd:")));
    masks
        .map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap())
        .any(|mask| mask & (1 << (number - 1)) != 0)
}

#[test]
fn killed_paused_run_leaves_nothing_behind() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "Away.Family"]);
    let connected = rendezvous.next_test();
    signal(child.id(), "TSTP");
    wait_until("heeler stands still", || state(child.id()) == Some('T'));
    child.kill().unwrap();
    connected.wait_gone();
    assert_eq!(wait_exit(child).0, None);
}
