//! The messages that a client receives about a run.

use serde_json::json;

use crate::support::{
    process::{children, wait_until},
    rsp_client::RspServer,
    world::TestWorld,
};

#[test]
fn suites_run_at_the_same_time_and_each_has_its_own_job() {
    let world = TestWorld::new();
    world.gtest("meet");
    world.gtest("deaths");
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = RspServer::start(&world, &["meet", "deaths"]);
    let mut client = server.connect();
    assert_eq!(client.start("meet", json!({"filter": "test(Case)", "jobs": 1}))["severity"], 0);
    let connected = rendezvous.next_test();
    assert_eq!(client.start("deaths", json!({}))["severity"], 0);
    client.wait_state("deaths", 4);
    assert_eq!(client.states("meet"), [1, 2]);
    assert_eq!(client.job_ends().len(), 1);
    assert_eq!(client.job_ends()[0]["message"], "deaths: 7 tests: 7 passed");
    assert_eq!(client.ask("server/getJobs", json!(null)).as_array().unwrap().len(), 1);
    connected.release();
    for _ in 1..4 {
        rendezvous.next_test().release();
    }
    client.wait_state("meet", 4);
    assert_eq!(client.job_ends()[1]["message"], "meet: 4 tests: 4 passed");
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn suite_that_cannot_be_listed_delays_no_other() {
    let world = TestWorld::with_fake("hangs-in-listing");
    world.gtest("deaths");
    world.write("heeler.toml", "[profile.default]\nlist-timeout = \"10m\"\ngrace-period = \"200ms\"\n");
    let mut server = RspServer::start(&world, &["hangs-in-listing", "deaths"]);
    let mut client = server.connect();
    assert_eq!(client.start("hangs-in-listing", json!({}))["severity"], 0);
    assert_eq!(client.start("deaths", json!({}))["severity"], 0);
    client.wait_state("deaths", 4);
    assert_eq!(client.states("hangs-in-listing"), [1]);
    // Listing can be cancelled: the suite passes through all states without running a test.
    assert_eq!(client.ask("server/stopServerAsync", json!({"id": "hangs-in-listing"}))["severity"], 0);
    client.wait_state("hangs-in-listing", 4);
    assert_eq!(client.states("hangs-in-listing"), [1, 2, 3, 4]);
    assert_eq!(client.job_ends()[1]["severity"], 8);
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn program_that_is_no_test_program_ends_its_job_with_the_reason() {
    let world = TestWorld::new();
    std::os::unix::fs::symlink("/bin/true", world.path("true")).unwrap();
    let mut server = RspServer::start(&world, &["true"]);
    let mut client = server.connect();
    assert_eq!(client.start("true", json!({}))["severity"], 0);
    client.wait_state("true", 4);
    assert_eq!(client.states("true"), [1, 2, 4]);
    assert_eq!(client.job_ends()[0]["severity"], 4);
    assert!(client.output(2).contains("not run"), "{}", client.output(2));
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

/// A forced stop kills a test that ignores SIGTERM, even while a normal stop waits for the test.
#[test]
fn forced_stop_waits_for_no_grace_period() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\ngrace-period = \"10m\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = RspServer::start(&world, &["meet"]);
    let mut client = server.connect();
    for stops in [
        &[json!({"id": "meet", "force": true})][..],
        &[json!({"id": "meet"}), json!({"id": "meet", "force": true})],
    ] {
        client.heard.clear();
        assert_eq!(client.start("meet", json!({"filter": "test(Deaf)"}))["severity"], 0);
        let connected = rendezvous.next_test();
        for stop in stops {
            assert_eq!(client.ask("server/stopServerAsync", stop.clone())["severity"], 0);
        }
        client.wait_state("meet", 4);
        connected.wait_gone();
        assert_eq!(client.states("meet"), [1, 2, 3, 4]);
        assert_eq!(client.job_ends()[0]["severity"], 8);
    }
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn progress_is_sent_at_most_ten_times_a_second() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "5000");
    let mut server = RspServer::start(&world, &["big"]);
    let mut client = server.connect();
    let start = std::time::Instant::now();
    client.start("big", json!({}));
    client.wait_state("big", 4);
    let seconds = start.elapsed().as_secs_f64();
    let percents: Vec<_> =
        client.params_of("client/jobChanged").map(|one| one["percent"].as_u64().unwrap()).collect();
    assert!(!percents.is_empty() && percents.is_sorted(), "{percents:?}");
    assert!(percents.len() as f64 <= seconds * 10.0 + 1.0, "{seconds} s: {percents:?}");
    assert_eq!(client.job_ends()[0]["message"], "big: 5000 tests: 5000 passed");
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn termination_of_the_server_ends_runs_and_tells_the_client() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\ngrace-period = \"200ms\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = RspServer::start(&world, &["meet"]);
    let mut client = server.connect();
    client.start("meet", json!({"filter": "test(Case)"}));
    let connected = rendezvous.next_test();
    crate::support::process::signal(server.pid(), "TERM");
    client.wait_closed();
    assert_eq!(client.states("meet"), [1, 2, 3, 4]);
    assert_eq!(client.job_ends()[0]["severity"], 8);
    connected.wait_gone();
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn recorded_run_is_known_to_later_commands() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = RspServer::start(&world, &["--report", "junit=out.xml", "deaths"]);
    let mut client = server.connect();
    client.start("deaths", json!({"filter": "test(One)"}));
    client.wait_state("deaths", 4);
    wait_until("no run is in progress", || !children(server.pid()).is_empty());
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
    assert!(world.read("out.xml").contains("First"), "the report is written");
    let runs = world.run(&["runs"]).assert_code(0);
    runs.assert_stdout("2 passed");
}
