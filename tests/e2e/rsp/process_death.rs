//! Process deaths and cancels at any moment: every job ends once, every test has one output line, and the
//! last message is the suite's final state.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    process::{ProcessRole, processes_of_role, signal, signal_if_there},
    rsp_client::{RspClient, RspServer},
    world::TestWorld,
};

const CASES: usize = 300;
/// Numbers of notifications that the client receives, after the response to its start, before a process is
/// killed.
const MOMENTS: [usize; 7] = [0, 1, 3, 4, 20, 90, 200];

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n");
    world
}

/// Starts the suite and reads this many notifications, or all if the run has fewer.
fn start_and_read(client: &mut RspClient, count: usize) {
    client.heard.clear();
    assert_eq!(client.start("big", json!({}))["severity"], 0);
    while client.heard.len() < count && client.states("big").last() != Some(&4) {
        let message = client.next().expect("the server is there");
        client.heard.push(message);
    }
}

/// Reads until the end of the run; returns the status of its only job.
fn check_end(client: &mut RspClient, what: &str) -> Value {
    client.wait_state("big", 4);
    let states = client.states("big");
    assert!(states == [1, 2, 4] || states == [1, 2, 3, 4], "{what}: {states:?}");
    for method in ["client/jobAdded", "client/serverProcessCreated", "client/serverProcessTerminated"] {
        assert_eq!(client.params_of(method).count(), 1, "{what}: {method}");
    }
    let ends = client.job_ends();
    assert_eq!(ends.len(), 1, "{what}: {ends:?}");
    // The response to this request follows all messages about the run.
    assert_eq!(client.ask("server/getJobs", json!(null)), json!([]), "{what}");
    assert_eq!(client.heard.last().unwrap()["params"]["state"], 4, "{what}");
    let output = client.output(2);
    let names: Vec<_> = output.lines().filter_map(|line| Some(line.split_once("  big::")?.1)).collect();
    let different: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), different.len(), "{what}: a test has two lines\n{output}");
    assert!(names.is_empty() || names.len() == CASES, "{what}: {} tests have a line", names.len());
    ends[0].clone()
}

fn check_deaths(role: ProcessRole) {
    for moment in MOMENTS {
        let what = format!("{role:?} dies after {moment} messages");
        // Each case has a separate server, because the number of watchdog replacements is limited.
        let world = world();
        let mut server = RspServer::start(&world, &["big"]);
        let mut client = server.connect();
        start_and_read(&mut client, moment);
        // The run may already have ended, or may not have begun.
        if let Some(victim) = processes_of_role(server.pid(), role).first() {
            signal_if_there(*victim, "KILL");
        }
        let status = check_end(&mut client, &what);
        assert_eq!(status["message"], format!("big: {CASES} tests: {CASES} passed"), "{what}");
        assert_eq!(status["severity"], 0, "{what}");
        client.notify("server/shutdown");
        assert_eq!(server.wait_gone(), Some(0));
    }
}

#[test]
fn worker_death_at_any_moment_leaves_one_end() {
    check_deaths(ProcessRole::Worker);
}

#[test]
fn watchdog_death_at_any_moment_leaves_one_end() {
    check_deaths(ProcessRole::Watchdog);
}

#[test]
fn guard_death_at_any_moment_leaves_one_end() {
    check_deaths(ProcessRole::Guard);
}

#[test]
fn fork_server_death_at_any_moment_leaves_one_end() {
    check_deaths(ProcessRole::ForkServer);
}

#[test]
fn cancel_at_any_moment_leaves_one_end() {
    let world = world();
    let mut server = RspServer::start(&world, &["big"]);
    let mut client = server.connect();
    for is_forced in [false, true] {
        for moment in MOMENTS {
            let what = format!("cancelled after {moment} messages");
            start_and_read(&mut client, moment);
            let stop = json!({"id": "big", "force": is_forced});
            assert_eq!(client.ask("server/stopServerAsync", stop)["severity"], 0, "{what}");
            let status = check_end(&mut client, &what);
            // The run may have ended before the cancel arrived.
            let is_cancelled = client.states("big").contains(&3);
            let severity = status["severity"].as_u64().unwrap();
            assert!(severity == 8 || severity == 0, "{what}: {status}");
            assert!(is_cancelled || severity == 0, "{what}: {status}");
        }
    }
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn coordinator_death_at_any_moment_ends_the_connection_and_leaves_nothing() {
    for moment in MOMENTS {
        let world = world();
        let mut server = RspServer::start(&world, &["big"]);
        let mut client = server.connect();
        start_and_read(&mut client, moment);
        signal(server.pid(), "KILL");
        client.wait_closed();
        assert!(client.job_ends().len() <= 1);
        assert_eq!(server.wait_processes_gone(), None, "after {moment}");
        // If a coordinator dies before its watchdog exists, the next start removes the leftover files.
        world.run(&["list", "big"]).assert_code(0);
    }
}
