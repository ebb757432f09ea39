//! Process deaths at any moment: every test has one result, and the client receives the end of the run.

use serde_json::json;

use crate::support::{
    books::{Books, Delivery},
    listener::Behaviour,
    process::{Role, of_role, signal, signal_if_there, state, wait_until},
    recorder::Event,
    server::{Run, Server},
    uids,
    world::World,
};

const CASES: usize = 300;
/// Number of messages to the client before a process is killed.
const MOMENTS: [usize; 6] = [0, 1, 2, 3, 5, 8];

fn world() -> (World, Vec<String>) {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write(
        "heeler.toml",
        "[profile.default]\njobs = 2\nstall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\n",
    );
    let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
    (world, uids("big", names.iter().map(String::as_str)))
}

/// Waits until this number of updates of the run have come.
fn wait_updates(server: &Server<'_>, run: &Run, count: usize) {
    let is_update = |event: &&Event| {
        event.params("testing/testUpdates/tests").is_some_and(|params| params["runId"] == run.run_id.as_str())
    };
    let is_over = |event: &Event| event.message().is_some_and(|message| message["id"] == run.request);
    server.recorder.wait(&format!("{count} updates"), |events| {
        let is_enough = events.iter().filter(is_update).count() >= count;
        (is_enough || events.iter().any(is_over)).then_some(())
    });
}

/// Runs everything once for each moment and kills one process of a role at it. Returns the checked records.
fn injured(role: Role, is_listening: bool) -> Vec<Books> {
    let injure = |moment: &usize| {
        let (world, selected) = world();
        let mut server = Server::listening_or_not(&world, &["big"], is_listening);
        // The processes exist before the run.
        let id =
            server.request("testing/discoverTests", json!({"runId": crate::support::server::run_id(77)}));
        server.answer(id);
        let run = server.run(None);
        wait_updates(&server, &run, *moment);
        // The run may have ended by now, and a guard lives no longer than its test process.
        if let Some(victim) = of_role(server.pid(), role).first() {
            signal_if_there(*victim, "KILL");
        }
        let books = server.finish_as(&run, &selected, Delivery::AtLeastOnce);
        assert_eq!(server.exit(), Some(0), "{role:?} after {moment}");
        books
    };
    MOMENTS.iter().map(injure).collect()
}

#[test]
fn a_worker_may_die_at_any_moment() {
    for is_listening in [true, false] {
        for books in injured(Role::Worker, is_listening) {
            books.all("passed").no_charges();
        }
    }
}

#[test]
fn the_watchdog_may_die_at_any_moment() {
    for is_listening in [true, false] {
        for books in injured(Role::Watchdog, is_listening) {
            books.all("passed").no_charges();
        }
    }
}

#[test]
fn a_guard_may_die_at_any_moment() {
    for books in injured(Role::Guard, true) {
        let bad = books.tests.keys().filter(|uid| books.state(uid) != "passed").count();
        assert!(bad <= 1, "{books:#?}");
    }
}

#[test]
fn a_nursery_may_die_at_any_moment() {
    for books in injured(Role::Nursery, true) {
        let bad = books.tests.keys().filter(|uid| books.state(uid) != "passed").count();
        assert!(bad <= 1, "{books:#?}");
    }
}

#[test]
fn when_the_coordinator_dies_the_watchdog_tells_the_client_what_became_of_every_test() {
    let world = World::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let meet = world.meet();
    let mut server = Server::with_callback(&world, &["meet"], |_| Behaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    meet.next().let_go();
    let guest = meet.next();
    server.wait_state("meet::N/Meet.Case/0", "passed");
    server.wait_state("meet::N/Meet.Case/1", "in-progress");
    signal(server.pid(), "KILL");
    guest.wait_gone();
    server.wait_gone();
    let books = server.finish_orphaned(&run, &selected);
    assert_eq!(books.state("meet::N/Meet.Case/0"), "passed");
    assert_eq!(books.test("meet::N/Meet.Case/1")["outcome-kind"], "interrupted", "{books:#?}");
    assert_eq!(books.test("meet::N/Meet.Case/2")["outcome-kind"], "not-run", "{books:#?}");
}

#[test]
fn a_process_that_dies_as_soon_as_it_is_there_is_replaced() {
    for role in [Role::Watchdog, Role::Worker] {
        let (world, selected) = world();
        let mut server = Server::ready(&world, &["big"]);
        let run = server.run(None);
        for _ in 0..2 {
            signal_if_there(server.processes(role)[0], "KILL");
        }
        let books = server.finish_as(&run, &selected, Delivery::AtLeastOnce);
        books.all("passed").no_charges();
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_listing_whose_workers_all_die_ends_and_says_so() {
    let (world, selected) = world();
    let mut server = Server::ready(&world, &["big"]);
    let run = server.run(Some(&[selected[0].as_str()]));
    let is_answer =
        |message: &serde_json::Value| message["id"] == run.request && message.get("method").is_none();
    wait_until("the run is answered", || {
        for worker in of_role(server.pid(), Role::Worker) {
            signal_if_there(worker, "KILL");
        }
        server.recorder.events().iter().filter_map(Event::message).any(is_answer)
    });
    let books = server.finish(&run, &selected[..1]);
    assert_eq!(books.test(&selected[0])["outcome-kind"], "not-run");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_worker_that_its_watchdog_does_not_end_is_ended_before_its_tests_are_told() {
    let world = World::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let meet = world.meet();
    let mut server = Server::with_callback(&world, &["meet"], |_| Behaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&[&selected[0]]));
    let guest = meet.next();
    let (worker, watchdog) = (server.processes(Role::Worker)[0], server.processes(Role::Watchdog)[0]);
    signal(worker, "STOP");
    signal(watchdog, "STOP");
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let books = server.finish_as(&run, &selected, Delivery::AtLeastOnce);
    assert_eq!(books.state("meet::N/Meet.Case/0"), "cancelled");
    assert!(matches!(state(worker), None | Some('Z')));
    // A watchdog whose death is only found at the finish is too late: the worker might have continued before.
    assert!(!books.log.iter().any(|line| line.contains("did not finish the run")), "{:#?}", books.log);
    guest.wait_gone();
}

#[test]
fn the_coordinator_may_die_at_any_moment() {
    for moment in MOMENTS {
        let (world, selected) = world();
        let mut server = Server::with_callback(&world, &["big"], |_| Behaviour::Normal);
        let run = server.run(None);
        wait_updates(&server, &run, moment.max(1));
        signal(server.pid(), "KILL");
        server.wait_gone();
        server.finish_orphaned(&run, &selected);
    }
}

#[test]
fn a_client_that_answers_no_barrier_hears_the_end_though_the_coordinator_is_dead() {
    let (world, selected) = world();
    let mut server = Server::with_callback(&world, &["big"], |_| Behaviour::NeverAnswers);
    let run = server.run(None);
    wait_updates(&server, &run, 1);
    signal(server.pid(), "KILL");
    server.wait_gone();
    server.finish_orphaned(&run, &selected);
}

#[test]
fn the_journals_of_a_run_are_left_for_whoever_wants_them() {
    let (world, selected) = world();
    let mut server = Server::ready(&world, &["big"]);
    let run = server.run(None);
    server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    wait_until("a journal is there", || {
        let runs = std::fs::read_dir(world.path(".heeler/runs")).unwrap();
        runs.map(|entry| entry.unwrap().path()).any(|run| run.join("worker-1.journal").exists())
    });
}
