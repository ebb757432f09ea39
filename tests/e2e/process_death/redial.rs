//! The coordinator is dead and the client drops the watchdog's connections. As long as the client's port
//! listens, the watchdog reconnects and completes the run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::CheckedRun,
    process::{ProcessRole, signal},
    recorder::ClientConnection,
    rendezvous::{ConnectedTest, TestRendezvous},
    server::{RequestedRun, TestServer},
    uids,
    world::TestWorld,
};

const CASES: [&str; 3] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2"];

/// Number of connections that the client will still drop.
type RemainingDrops = Arc<AtomicUsize>;

/// Starts a server whose client drops connections while the returned counter is above zero, each with
/// `behaviour`.
fn start<'w>(world: &'w TestWorld, behaviour: ListenerBehaviour) -> (TestServer<'w>, RemainingDrops) {
    world.write("heeler.toml", "[profile.default]\njobs = 1\nhistory = false\n");
    let drops = RemainingDrops::default();
    let left = Arc::clone(&drops);
    let server = TestServer::with_callback(world, &["meet"], move |_| {
        let is_dropped =
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_dropped { behaviour } else { ListenerBehaviour::Normal }
    });
    (server, drops)
}

/// Runs until the second test has begun and the client has handled the first result.
fn run_to_second_test(
    rendezvous: &TestRendezvous,
    server: &mut TestServer<'_>,
) -> (RequestedRun, ConnectedTest) {
    let selected = uids("meet", CASES);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    server.wait_state("meet::N/Meet.Case/0", "passed");
    (run, connected)
}

/// Kills the coordinator during the second test; the client drops the next `count` connections.
fn kill_in_second_test(
    rendezvous: &TestRendezvous,
    server: &mut TestServer<'_>,
    drops: &RemainingDrops,
    count: usize,
) -> RequestedRun {
    let (run, connected) = run_to_second_test(rendezvous, server);
    drops.store(count, Ordering::SeqCst);
    signal(server.pid(), "KILL");
    connected.wait_gone();
    run
}

fn completions(server: &TestServer<'_>, run: &RequestedRun) -> usize {
    server.recorder.events().iter().filter(|event| event.is_completion_of(&run.run_id)).count()
}

fn check_states(checked_run: &CheckedRun) {
    let kinds = CASES.map(|case| {
        let node = checked_run.test(&format!("meet::{case}"));
        node["outcome-kind"].as_str().or(node["execution-state"].as_str()).unwrap().to_owned()
    });
    assert_eq!(kinds, ["passed", "interrupted", "not-run"]);
}

/// The client drops this many of the watchdog's connections. Checks that it still receives exactly one
/// completion.
fn check_redials(behaviour: ListenerBehaviour, count: usize) {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let (mut server, drops) = start(&world, behaviour);
    let run = kill_in_second_test(&rendezvous, &mut server, &drops, count);
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &uids("meet", CASES));
    check_states(&checked_run);
    assert_eq!(completions(&server, &run), 1);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    world.check_tidy();
}

#[test]
fn watchdog_dials_again_when_the_client_closes_behind_the_first_message() {
    check_redials(ListenerBehaviour::ClosesAfter(1), 1);
}

#[test]
fn watchdog_dials_again_when_the_client_closes_three_times() {
    check_redials(ListenerBehaviour::ClosesAfter(2), 3);
}

#[test]
fn watchdog_dials_again_when_the_client_resets_twice() {
    check_redials(ListenerBehaviour::ResetsAfter(1), 2);
}

#[test]
fn watchdog_dials_again_when_the_client_closes_at_barriers() {
    check_redials(ListenerBehaviour::ClosesAtTheBarrier, 2);
}

#[test]
fn completion_that_a_client_without_answers_has_not_read_is_sent_again() {
    check_redials(ListenerBehaviour::ResetsBehindUnreadCompletion, 1);
}

#[test]
fn watchdog_leaves_a_client_that_drops_every_connection() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let (mut server, drops) = start(&world, ListenerBehaviour::ClosesAfter(1));
    let run = kill_in_second_test(&rendezvous, &mut server, &drops, usize::MAX);
    server.wait_gone();
    assert_eq!(completions(&server, &run), 0);
    assert!(server.callback().connections() > 3, "{}", server.callback().connections());
    world.check_tidy();
}

/// Kills a process of this role during the second test, after the client has handled the first result.
fn kill_role_in_second_test(
    rendezvous: &TestRendezvous,
    server: &mut TestServer<'_>,
    role: ProcessRole,
) -> RequestedRun {
    let (run, interrupted) = run_to_second_test(rendezvous, server);
    signal(server.processes(role)[0], "KILL");
    interrupted.wait_gone();
    run
}

/// Returns how many times a test was reported in this state.
fn reports(server: &TestServer<'_>, uid: &str, state: &str) -> usize {
    let events = server.recorder.events();
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
    changes.filter(|one| one["node"]["uid"] == uid && one["node"]["execution-state"] == state).count()
}

#[test]
fn what_was_handled_of_a_killed_watchdogs_workers_is_not_sent_again_by_its_successor() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let (mut server, _) = start(&world, ListenerBehaviour::Normal);
    let run = kill_role_in_second_test(&rendezvous, &mut server, ProcessRole::Watchdog);
    // A worker of the new watchdog reruns the test.
    let again = rendezvous.next_test();
    signal(server.pid(), "KILL");
    again.wait_gone();
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &uids("meet", CASES));
    assert_eq!(checked_run.test("meet::N/Meet.Case/0")["execution-state"], "passed");
    assert_eq!(completions(&server, &run), 1);
    assert_eq!(reports(&server, "meet::N/Meet.Case/0", "passed"), 1, "it was handled before");
    world.check_tidy();
}

#[test]
fn completion_stays_on_the_callback_port_when_a_worker_dies_whose_results_were_handled() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let (mut server, _) = start(&world, ListenerBehaviour::Normal);
    let run = kill_role_in_second_test(&rendezvous, &mut server, ProcessRole::Worker);
    server.release_tests_until_done(&rendezvous, &[&run]);
    server.finish(&run, &uids("meet", CASES)).assert_all("passed");
    // The completion must not go over the main connection: it would be lost if the coordinator were killed
    // with messages in its queue.
    let events = server.recorder.events();
    let completions = events.iter().filter(|event| event.is_completion_of(&run.run_id));
    let connections: Vec<_> = completions.map(|event| event.on).collect();
    assert!(matches!(connections[..], [ClientConnection::Callback(_)]), "{connections:?}");
    assert_eq!(server.exit(), Some(0));
}
