//! A small run during a large one: the small run gets the next free slot, and batches are short enough that
//! one is free soon.

use serde_json::json;

use crate::support::{
    process::signal,
    rendezvous::TestRendezvous,
    second_client::SecondClient,
    server::{ServerTransport, TestServer, run_id},
    uids,
    world::TestWorld,
};

/// Number of cases of the large run: two batches for one slot if there is no small run.
const CASES: usize = 2000;

fn start<'w>(world: &'w TestWorld, settings: &str) -> TestServer<'w> {
    world.write("heeler.toml", &format!("[profile.default]\njobs = 1\n{settings}"));
    let mut server = TestServer::start_over(ServerTransport::Listen, world, &["meet"]);
    server.initialize(json!({"testing": {"debuggerProvider": false}}));
    server
}

fn end(server: &TestServer<'_>) {
    signal(server.pid(), "TERM");
    server.wait_gone();
}

/// Waits until all earlier requests have begun: requests are handled in order, and the server answers a
/// discovery at once.
fn wait_begun(server: &mut TestServer<'_>) {
    let answer = server.request_and_wait("testing/discoverTests", json!({"runId": run_id(901)}));
    assert!(answer.get("error").is_none(), "{answer}");
}

fn case(number: usize) -> String {
    format!("N/Meet.Case/{number}")
}

/// Releases tests until the one with this name connects; returns the number of tests before it.
fn release_until(rendezvous: &TestRendezvous, name: &str) -> usize {
    let mut before = 0;
    loop {
        let connected = rendezvous.next_test();
        let is_last = connected.test_name == name;
        connected.release();
        if is_last {
            return before;
        }
        before += 1;
    }
}

#[test]
fn small_run_of_client_with_many_leases_gets_next_slot() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, "isolate = true\n");
    let mut second = SecondClient::connect(&server, true);
    // By the time of the measured run, the first client has received more leases than the second.
    let earlier = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2"]);
    let run = server.run(Some(&earlier.iter().map(String::as_str).collect::<Vec<_>>()));
    server.release_tests_until_done(&rendezvous, &[&run]);
    server.finish(&run, &earlier).assert_all("passed");
    let second_run = second.run(&earlier);
    let running = rendezvous.next_test();
    let selected = uids("meet", ["N/Meet.Case/3"]);
    let run = server.run(Some(&[selected[0].as_str()]));
    wait_begun(&mut server);
    running.release();
    assert_eq!(release_until(&rendezvous, "N/Meet.Case/3"), 0);
    server.finish(&run, &selected).assert_all("passed");
    // The other two tests follow, in the order of their recorded durations.
    (0..2).for_each(|_| rendezvous.next_test().release());
    second.finish(&second_run, &earlier).assert_all("passed");
    end(&server);
}

#[test]
fn small_run_waits_for_one_short_batch_of_large_run() {
    let world = TestWorld::with_gtest("meet");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, "history = false\n");
    let large: Vec<_> = (0..CASES - 1).map(|number| format!("meet::{}", case(number))).collect();
    let large_run = server.run(Some(&large.iter().map(String::as_str).collect::<Vec<_>>()));
    let running = rendezvous.next_test();
    let selected = vec![format!("meet::{}", case(CASES - 1))];
    let run = server.run(Some(&[selected[0].as_str()]));
    wait_begun(&mut server);
    running.release();
    let before = release_until(&rendezvous, &case(CASES - 1));
    assert!(before < CASES / 4, "the run of one test waited for {before} tests");
    server.finish(&run, &selected).assert_all("passed");
    server.release_tests_until_done(&rendezvous, &[&large_run]);
    server.finish(&large_run, &large).assert_all("passed");
    end(&server);
}
