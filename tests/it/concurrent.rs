//! Several requests at the same time in one session: each has its own updates, cancellation and completion,
//! and they share the slots.

use serde_json::{Value, json};

use crate::support::{
    books::Delivery,
    meet::Meet,
    process::{Role, of_role, signal, wait_until},
    server::{Run, Server, run_id},
    uids,
    world::World,
};

const CASES: [&str; 4] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];

fn world(jobs: usize) -> World {
    let world = World::with_gtest("meet");
    let limits =
        "stall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\nstartup-timeout = \"5s\"\nisolate = true\n";
    world.write("heeler.toml", &format!("[profile.default]\njobs = {jobs}\n{limits}"));
    world
}

fn start<'w>(world: &'w World, is_listening: bool) -> Server<'w> {
    Server::listening_or_not(world, &["meet"], is_listening)
}

fn run(server: &mut Server<'_>, cases: &[&'static str]) -> Run {
    let selected = uids("meet", cases.iter().copied());
    server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Returns when all earlier requests have begun: a discovery responds at once.
fn wait_begun(server: &mut Server<'_>, number: u64) {
    let answer = server.ask("testing/discoverTests", json!({"runId": run_id(number)}));
    assert!(answer.get("error").is_none(), "{answer}");
}

fn all(server: &Server<'_>, (run, cases): (&Run, &[&'static str]), delivery: Delivery) {
    server.finish_as(run, &uids("meet", cases.iter().copied()), delivery).all("passed");
}

#[test]
fn a_run_that_comes_later_gets_the_next_slot_that_is_free() {
    for is_listening in [true, false] {
        let world = world(2);
        let meet = world.meet();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES);
        let guests = [meet.next(), meet.next()];
        assert_eq!([&*guests[0].who, &*guests[1].who].iter().filter(|who| who.ends_with("/3")).count(), 0);
        let second = run(&mut server, &CASES[3..]);
        wait_begun(&mut server, 901);
        let [one, other] = guests;
        one.let_go();
        // The first run has Case/2 waiting before it.
        let next = meet.next();
        assert_eq!(next.who, CASES[3], "{is_listening}");
        assert!(server.processes(Role::Guard).len() <= 2);
        next.let_go();
        other.let_go();
        server.let_go_until_answered(&meet, &[&first, &second]);
        all(&server, (&first, &CASES), Delivery::Once);
        all(&server, (&second, &CASES[3..]), Delivery::Once);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn with_one_slot_two_runs_take_turns() {
    let world = world(1);
    let meet = world.meet();
    let mut server = start(&world, false);
    let first = run(&mut server, &CASES[..2]);
    let guest = meet.next();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 902);
    guest.let_go();
    let order: Vec<_> = std::iter::repeat_with(|| {
        let guest = meet.next();
        let who = guest.who.clone();
        assert_eq!(server.processes(Role::Guard).len(), 1);
        guest.let_go();
        who
    })
    .take(3)
    .collect();
    assert_eq!(order, [CASES[2], CASES[1], CASES[3]]);
    all(&server, (&first, &CASES[..2]), Delivery::Once);
    all(&server, (&second, &CASES[2..]), Delivery::Once);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_discovery_is_answered_while_a_run_goes_on() {
    let world = world(1);
    let meet = world.meet();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..1]);
    let guest = meet.next();
    wait_begun(&mut server, 903);
    guest.let_go();
    all(&server, (&first, &CASES[..1]), Delivery::Once);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_cancel_ends_its_own_run_and_no_other() {
    for (is_listening, is_by_request) in [(true, true), (false, true), (false, false)] {
        let world = world(2);
        let meet = world.meet();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES[..1]);
        let kept = meet.next();
        let second = run(&mut server, &CASES[1..]);
        let lost = meet.next();
        assert_eq!(lost.who, CASES[1]);
        if is_by_request {
            server.notify("$/cancelRequest", json!({"id": second.request}));
        } else {
            server.notify("testing/cancelTestRun", json!({"runId": second.run_id}));
        }
        let books = server.finish(&second, &uids("meet", CASES)[1..]);
        assert_eq!(books.answer["error"]["code"], -32800);
        books.all("cancelled");
        drop(lost);
        kept.let_go();
        all(&server, (&first, &CASES[..1]), Delivery::Once);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_run_that_begins_when_no_worker_is_left_has_new_ones_started() {
    let world = world(1);
    let mut server = start(&world, false);
    for number in 1..=4 {
        wait_begun(&mut server, 910 + number);
        for worker in server.processes(Role::Worker) {
            signal(worker, "KILL");
        }
        // The watchdog has reaped it, and reports that at once.
        wait_until("the worker is gone", || of_role(server.pid(), Role::Worker).is_empty());
        wait_begun(&mut server, 920 + number);
        let first = run(&mut server, &CASES[..1]);
        server.answer(first.request);
        all(&server, (&first, &CASES[..1]), Delivery::AtLeastOnce);
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_run_id_that_is_in_use_is_refused() {
    let world = world(1);
    let meet = world.meet();
    let mut server = start(&world, false);
    let first = run(&mut server, &CASES[..1]);
    let guest = meet.next();
    let answer = server.ask("testing/runTests", json!({"runId": first.run_id}));
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("in use"), "{answer}");
    guest.let_go();
    all(&server, (&first, &CASES[..1]), Delivery::Once);
    // Afterwards it is free again.
    let again = server.request(
        "testing/runTests",
        json!({"runId": first.run_id, "tests": [{"uid": "meet::N/Meet.Case/1"}]}),
    );
    meet.next().let_go();
    assert!(server.answer(again).get("error").is_none());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_worker_that_served_two_runs_and_dies_costs_neither_a_result() {
    for is_listening in [true, false] {
        let world = world(1);
        let meet = world.meet();
        let mut server = start(&world, is_listening);
        let first = run(&mut server, &CASES[..2]);
        let guest = meet.next();
        let second = run(&mut server, &CASES[2..]);
        wait_begun(&mut server, 904);
        guest.let_go();
        let guest = meet.next();
        assert_eq!(guest.who, CASES[2]);
        for worker in server.processes(Role::Worker) {
            signal(worker, "KILL");
        }
        guest.wait_gone();
        server.let_go_until_answered(&meet, &[&first, &second]);
        all(&server, (&first, &CASES[..2]), Delivery::AtLeastOnce);
        all(&server, (&second, &CASES[2..]), Delivery::AtLeastOnce);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_watchdog_that_dies_under_two_runs_costs_neither_a_result() {
    let world = world(2);
    let meet = world.meet();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..2]);
    let guest = meet.next();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 905);
    signal(server.processes(Role::Watchdog)[0], "KILL");
    guest.wait_gone();
    server.let_go_until_answered(&meet, &[&first, &second]);
    all(&server, (&first, &CASES[..2]), Delivery::AtLeastOnce);
    all(&server, (&second, &CASES[2..]), Delivery::AtLeastOnce);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_coordinator_that_dies_under_two_runs_leaves_both_complete() {
    let world = world(2);
    let meet = world.meet();
    let mut server = start(&world, true);
    let first = run(&mut server, &CASES[..2]);
    let guest = meet.next();
    let second = run(&mut server, &CASES[2..]);
    wait_begun(&mut server, 906);
    // The first run's other test has to end before the second run has its turn.
    let other = wait_for(&meet, &CASES[2..]);
    signal(server.pid(), "KILL");
    guest.wait_gone();
    other.wait_gone();
    let (guest_name, other_name) = (guest.who, other.who);
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
        let books = crate::support::books::Books::check(
            &server.recorder.events(),
            run,
            &selected,
            Delivery::Orphaned,
        );
        let in_flight = [&guest_name, &other_name].map(|who| format!("meet::{who}"));
        let flown: Vec<_> = in_flight.iter().filter(|uid| selected.contains(uid)).collect();
        assert_eq!(flown.len(), 1, "{in_flight:?}");
        assert_eq!(books.state(flown[0]), "error");
    }
    server.wait_gone();
}

/// Releases tests until one of these comes.
fn wait_for(meet: &Meet, cases: &[&'static str]) -> crate::support::meet::Guest {
    loop {
        let guest = meet.next();
        if cases.contains(&&*guest.who) {
            return guest;
        }
        guest.let_go();
    }
}

#[test]
fn a_run_that_is_cancelled_while_its_tests_are_listed_tells_each_test_that_was_named() {
    for is_listening in [true, false] {
        let world = World::with_fake("hangs-in-listing");
        let mut server = Server::listening_or_not(&world, &["hangs-in-listing"], is_listening);
        let named = ["hangs-in-listing::A.B", "hangs-in-listing::A.C"];
        let run = server.run(Some(&named));
        let worker_lists = || !server.processes(Role::Guard).is_empty();
        assert!(worker_lists());
        server.notify("$/cancelRequest", json!({"id": run.request}));
        let books = server.finish(&run, &named.map(str::to_owned));
        assert_eq!(books.answer["error"]["code"], -32800);
        books.all("cancelled");
        assert_eq!(server.exit(), Some(0));
    }
}
