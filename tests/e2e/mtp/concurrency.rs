//! Several requests at the same time in one session: they share the slots, but have separate updates,
//! cancellations and completions.

use serde_json::{Value, json};

use crate::support::{
    checked_run::ExpectedDelivery,
    process::{ProcessRole, processes_of_role, signal, wait_until},
    rendezvous::TestRendezvous,
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

const CASES: [&str; 4] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];

fn world(jobs: usize) -> TestWorld {
    let world = TestWorld::with_gtest("meet");
    let limits = "client-stall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\nstartup-timeout = \"5s\"\nisolate = true\n";
    world.write("heeler.toml", &format!("[profile.default]\njobs = {jobs}\n{limits}"));
    world
}

fn start<'w>(world: &'w TestWorld, is_listening: bool) -> TestServer<'w> {
    TestServer::with_optional_callback(world, &["meet"], is_listening)
}

fn run(server: &mut TestServer<'_>, cases: &[&'static str]) -> RequestedRun {
    let selected = uids("meet", cases.iter().copied());
    server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Waits until all earlier requests have begun: requests are handled in order, and the server answers a
/// discovery at once.
fn wait_begun(server: &mut TestServer<'_>, number: u64) {
    let answer = server.request_and_wait("testing/discoverTests", json!({"runId": run_id(number)}));
    assert!(answer.get("error").is_none(), "{answer}");
}

fn all(server: &TestServer<'_>, (run, cases): (&RequestedRun, &[&'static str]), delivery: ExpectedDelivery) {
    server.finish_as(run, &uids("meet", cases.iter().copied()), delivery).assert_all("passed");
}

#[test]
fn later_run_gets_next_free_slot() {
    for is_listening in [true, false] {
        let world = world(2);
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES);
        let guests = [rendezvous.next_test(), rendezvous.next_test()];
        assert_eq!(
            [&*guests[0].test_name, &*guests[1].test_name].iter().filter(|who| who.ends_with("/3")).count(),
            0
        );
        let second = run(&mut server, &CASES[3..]);
        wait_begun(&mut server, 901);
        let [one, other] = guests;
        one.release();
        // The second run gets this slot, although Case/2 of the first run was requested earlier.
        let next = rendezvous.next_test();
        assert_eq!(next.test_name, CASES[3], "{is_listening}");
        assert!(server.processes(ProcessRole::Guard).len() <= 2);
        next.release();
        other.release();
        server.release_tests_until_done(&rendezvous, &[&first, &second]);
        all(&server, (&first, &CASES), ExpectedDelivery::Once);
        all(&server, (&second, &CASES[3..]), ExpectedDelivery::Once);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn runs_alternate_on_one_slot() {
    let world = world(1);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, false);
    let first = run(&mut server, &CASES[..2]);
    let connected = rendezvous.next_test();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 902);
    connected.release();
    let order: Vec<_> = std::iter::repeat_with(|| {
        let connected = rendezvous.next_test();
        let who = connected.test_name.clone();
        assert_eq!(server.processes(ProcessRole::Guard).len(), 1);
        connected.release();
        who
    })
    .take(3)
    .collect();
    assert_eq!(order, [CASES[2], CASES[1], CASES[3]]);
    all(&server, (&first, &CASES[..2]), ExpectedDelivery::Once);
    all(&server, (&second, &CASES[2..]), ExpectedDelivery::Once);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn discovery_completes_during_run() {
    let world = world(1);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..1]);
    let connected = rendezvous.next_test();
    wait_begun(&mut server, 903);
    connected.release();
    all(&server, (&first, &CASES[..1]), ExpectedDelivery::Once);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancel_ends_only_its_run() {
    for (is_listening, is_by_request) in [(true, true), (false, true), (false, false)] {
        let world = world(2);
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES[..1]);
        let kept = rendezvous.next_test();
        let second = run(&mut server, &CASES[1..]);
        let lost = rendezvous.next_test();
        assert_eq!(lost.test_name, CASES[1]);
        if is_by_request {
            server.notify("$/cancelRequest", json!({"id": second.request}));
        } else {
            server.notify("testing/cancelTestRun", json!({"runId": second.run_id}));
        }
        let checked_run = server.finish(&second, &uids("meet", CASES)[1..]);
        assert_eq!(checked_run.response["error"]["code"], -32800);
        checked_run.assert_all("cancelled");
        drop(lost);
        kept.release();
        all(&server, (&first, &CASES[..1]), ExpectedDelivery::Once);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn run_without_workers_starts_new_ones() {
    let world = world(1);
    let mut server = start(&world, false);
    for number in 1..=4 {
        wait_begun(&mut server, 910 + number);
        for worker in server.processes(ProcessRole::Worker) {
            signal(worker, "KILL");
        }
        // The watchdog reports the reaped worker to the coordinator at once.
        wait_until("the worker is gone", || processes_of_role(server.pid(), ProcessRole::Worker).is_empty());
        wait_begun(&mut server, 920 + number);
        let first = run(&mut server, &CASES[..1]);
        server.wait_response(first.request);
        all(&server, (&first, &CASES[..1]), ExpectedDelivery::AtLeastOnce);
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn run_id_in_use_is_refused() {
    let world = world(1);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, false);
    let first = run(&mut server, &CASES[..1]);
    let connected = rendezvous.next_test();
    let answer = server.request_and_wait("testing/runTests", json!({"runId": first.run_id}));
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("in use"), "{answer}");
    connected.release();
    all(&server, (&first, &CASES[..1]), ExpectedDelivery::Once);
    // The run id can be reused.
    let again = server.request(
        "testing/runTests",
        json!({"runId": first.run_id, "tests": [{"uid": "meet::N/Meet.Case/1"}]}),
    );
    rendezvous.next_test().release();
    assert!(server.wait_response(again).get("error").is_none());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn shared_workers_death_loses_no_result() {
    for is_listening in [true, false] {
        let world = world(1);
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES[..2]);
        let connected = rendezvous.next_test();
        let second = run(&mut server, &CASES[2..]);
        wait_begun(&mut server, 904);
        connected.release();
        let connected = rendezvous.next_test();
        assert_eq!(connected.test_name, CASES[2]);
        for worker in server.processes(ProcessRole::Worker) {
            signal(worker, "KILL");
        }
        connected.wait_gone();
        server.release_tests_until_done(&rendezvous, &[&first, &second]);
        all(&server, (&first, &CASES[..2]), ExpectedDelivery::AtLeastOnce);
        all(&server, (&second, &CASES[2..]), ExpectedDelivery::AtLeastOnce);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn watchdog_death_in_two_runs_loses_no_result() {
    let world = world(2);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..2]);
    let connected = rendezvous.next_test();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 905);
    signal(server.processes(ProcessRole::Watchdog)[0], "KILL");
    connected.wait_gone();
    server.release_tests_until_done(&rendezvous, &[&first, &second]);
    all(&server, (&first, &CASES[..2]), ExpectedDelivery::AtLeastOnce);
    all(&server, (&second, &CASES[2..]), ExpectedDelivery::AtLeastOnce);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn coordinator_death_in_two_runs_completes_both() {
    let world = world(2);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..2]);
    let connected = rendezvous.next_test();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 906);
    // The second run gets a slot only after the first run's other test has ended.
    let other = release_until(&rendezvous, &CASES[2..]);
    signal(server.pid(), "KILL");
    connected.wait_gone();
    other.wait_gone();
    let (guest_name, other_name) = (connected.test_name, other.test_name);
    for (run, cases) in [(&first, &CASES[..2]), (&second, &CASES[2..])] {
        let is_complete = |message: &Value| {
            message["method"] == "testing/testUpdates/tests"
                && message["params"]["runId"] == *run.run_id
                && message["params"]["changes"].is_null()
        };
        server.recorder.wait("the completion of a run whose coordinator is dead", |events| {
            events.iter().filter_map(|event| event.message()).any(is_complete).then_some(())
        });
        let selected = uids("meet", cases.iter().copied());
        let checked_run = crate::support::checked_run::CheckedRun::check(
            &server.recorder.events(),
            run,
            &selected,
            ExpectedDelivery::Orphaned,
        );
        let in_flight = [&guest_name, &other_name].map(|who| format!("meet::{who}"));
        let flown: Vec<_> = in_flight.iter().filter(|uid| selected.contains(uid)).collect();
        assert_eq!(flown.len(), 1, "{in_flight:?}");
        assert_eq!(checked_run.state(flown[0]), "error");
    }
    server.wait_gone();
}

/// Releases tests until one of `cases` connects; returns that test.
fn release_until(
    rendezvous: &TestRendezvous,
    cases: &[&'static str],
) -> crate::support::rendezvous::ConnectedTest {
    loop {
        let connected = rendezvous.next_test();
        if cases.contains(&&*connected.test_name) {
            return connected;
        }
        connected.release();
    }
}

#[test]
fn run_cancelled_while_listing_reports_selected_tests() {
    for is_listening in [true, false] {
        let world = TestWorld::with_fake("hangs-in-listing");
        let mut server = TestServer::with_optional_callback(&world, &["hangs-in-listing"], is_listening);
        let named = ["hangs-in-listing::A.B", "hangs-in-listing::A.C"];
        let run = server.run(Some(&named));
        let worker_lists = || !server.processes(ProcessRole::Guard).is_empty();
        assert!(worker_lists());
        server.notify("$/cancelRequest", json!({"id": run.request}));
        let checked_run = server.finish(&run, &named.map(str::to_owned));
        assert_eq!(checked_run.response["error"]["code"], -32800);
        checked_run.assert_all("cancelled");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn request_beyond_the_limit_of_open_ones_is_refused_and_others_go_on() {
    let world = world(1);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, false);
    let first = run(&mut server, &CASES[..1]);
    let connected = rendezvous.next_test();
    // All these runs wait for the only slot.
    let waiting: Vec<_> = (0..63).map(|_| run(&mut server, &CASES[1..2])).collect();
    let refused = run(&mut server, &CASES[..1]);
    let answer = server.wait_response(refused.request);
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("too many requests in progress (limit: 64"),
        "{answer}"
    );
    for run in &waiting {
        server.notify("$/cancelRequest", json!({"id": run.request}));
        assert_eq!(server.wait_response(run.request)["error"]["code"], -32800);
    }
    connected.release();
    all(&server, (&first, &CASES[..1]), ExpectedDelivery::Once);
    assert_eq!(server.exit(), Some(0));
}
