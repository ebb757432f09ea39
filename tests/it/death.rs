//! Deaths of Heeler's own processes: whichever dies, every test gets one result; when the client is gone, all
//! of our processes exit.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    books::Delivery,
    listener::Behaviour,
    process::{Role, signal, signal_if_there},
    recorder::On,
    server::{Server, Transport},
    uids,
    world::World,
};

const CASES: [&str; 4] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];

/// Two slots, and deadlines short enough for a test.
const TWO: &str = "[profile.default]\njobs = 2\nstall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\nstartup-timeout = \"5s\"\n";

fn world() -> World {
    let world = World::with_gtest("meet");
    world.write("heeler.toml", TWO);
    world
}

fn start<'w>(world: &'w World, is_listening: bool) -> Server<'w> {
    Server::listening_or_not(world, &["meet"], is_listening)
}

fn run_cases(server: &mut Server<'_>) -> crate::support::server::Run {
    let selected = uids("meet", CASES);
    server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// One second is guaranteed; a loaded machine gets two more.
const GONE: Duration = Duration::from_secs(3);

#[test]
fn nothing_is_left_when_the_client_hangs_up() {
    for transport in [Transport::Stdio, Transport::Dial] {
        let world = world();
        let meet = world.meet();
        let mut server = Server::start_over(transport, &world, &["meet"]);
        server.initialize(json!({"testing": {}}));
        server.run(Some(&["meet::Away.Family"]));
        let guest = meet.next();
        server.hang_up();
        // The process tree has seven members, in sessions of their own; all of them hold the connection.
        assert!(guest.wait_gone() < GONE, "{transport:?}");
        assert!(server.wait_gone() < GONE, "{transport:?}");
        world.check_tidy();
    }
}

#[test]
fn nothing_is_left_when_the_coordinator_is_killed() {
    let world = world();
    world.write("heeler.toml", &format!("{TWO}isolate = true\n"));
    let meet = world.meet();
    let mut server = start(&world, false);
    server.run(Some(&["meet::Away.Family", "meet::Away.Deaf"]));
    let guests = [meet.next(), meet.next()];
    signal(server.pid(), "KILL");
    for guest in guests {
        assert!(guest.wait_gone() < GONE);
    }
    assert!(server.wait_gone() < GONE);
}

#[test]
fn nothing_is_left_when_all_above_a_guard_are_killed_at_once() {
    let world = world();
    let meet = world.meet();
    let mut server = start(&world, false);
    server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    let mut above = [Role::Watchdog, Role::Worker, Role::Nursery].map(|role| server.processes(role)).concat();
    // Last: its death would resume the stopped watchdog, because the kernel resumes an orphaned process
    // group.
    above.push(server.pid());
    let [guard] = server.processes(Role::Guard)[..] else { panic!("one guard") };
    // None of them can react to the others' deaths, and the guard is notified of them while it is stopped.
    for pid in above.iter().chain([&guard]) {
        signal(*pid, "STOP");
    }
    for pid in above {
        signal_if_there(pid, "KILL");
    }
    assert!(guest.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
}

#[test]
fn nothing_is_left_when_the_process_dies_that_was_to_be_watched() {
    let world = world();
    let meet = world.meet();
    let mut parent = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = parent.id().to_string();
    let mut server =
        Server::start_with(Transport::Dial, &world, &["meet"], &["--exit-on-process-exit", &pid]);
    server.initialize(json!({"testing": {}}));
    server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(guest.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
    world.check_tidy();
}

#[test]
fn nothing_is_left_when_the_client_dies_that_named_itself() {
    let world = world();
    let meet = world.meet();
    let mut client = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut server = Server::start(&world, &["meet"]);
    server.ask("initialize", json!({"processId": client.id(), "capabilities": {"testing": {}}}));
    server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    client.kill().unwrap();
    client.wait().unwrap();
    // The connection is still open.
    assert!(guest.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
    world.check_tidy();
}

#[test]
fn a_killed_worker_costs_no_result() {
    for is_listening in [true, false] {
        let world = world();
        let meet = world.meet();
        let mut server = start(&world, is_listening);
        let run = run_cases(&mut server);
        let guest = meet.next();
        let worker = server.processes(Role::Worker)[0];
        signal(worker, "KILL");
        drop(guest);
        // Later tests are released at once, so that everything that is rerun passes.
        let delivery = Delivery::AtLeastOnce;
        let (server, books) = finish_letting_go(server, &run, &meet, delivery);
        books.all("passed");
        assert!(books.log.iter().any(|log| log.contains("died")), "{:?}", books.log);
        assert_eq!(server.exit(), Some(0));
    }
}

/// Releases every test that comes, until the run is answered.
fn finish_letting_go<'w>(
    server: Server<'w>,
    run: &crate::support::server::Run,
    meet: &crate::support::meet::Meet,
    delivery: Delivery,
) -> (Server<'w>, crate::support::books::Books) {
    server.let_go_until_answered(meet, &[run]);
    let books = server.finish_as(run, &uids("meet", CASES), delivery);
    (server, books)
}

#[test]
fn a_killed_guard_or_nursery_costs_the_test_in_flight_and_no_other() {
    for role in [Role::Guard, Role::Nursery] {
        killed_in_a_test(role);
    }
}

fn killed_in_a_test(role: Role) {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let meet = world.meet();
    let mut server = start(&world, true);
    let run = run_cases(&mut server);
    let guest = meet.next();
    let [victim] = server.processes(role)[..] else { panic!("one {role:?}") };
    signal(victim, "KILL");
    guest.wait_gone();
    let (server, books) = finish_letting_go(server, &run, &meet, Delivery::Once);
    let bad: Vec<_> = books.tests.keys().filter(|uid| books.state(uid) != "passed").collect();
    assert!(bad.len() <= 1, "{books:#?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_killed_watchdog_is_replaced_and_costs_no_result() {
    for is_listening in [true, false] {
        let world = world();
        let meet = world.meet();
        let mut server = start(&world, is_listening);
        let run = run_cases(&mut server);
        let guest = meet.next();
        let watchdog = server.processes(Role::Watchdog)[0];
        signal(watchdog, "KILL");
        // Its workers and their tests exit with it.
        guest.wait_gone();
        let (server, books) = finish_letting_go(server, &run, &meet, Delivery::AtLeastOnce);
        books.all("passed");
        assert!(books.log.iter().any(|log| log.contains("the watchdog died")), "{:?}", books.log);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_killed_test_process_is_the_death_of_its_test() {
    let world = world();
    let meet = world.meet();
    let mut server = start(&world, true);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let guest = meet.next();
    signal(guest.pid, "KILL");
    let again = meet.next_until(std::time::Instant::now() + Duration::from_secs(1));
    if let Some(again) = again {
        again.let_go();
    }
    let books = server.finish(&run, &uids("meet", ["N/Meet.Case/0"]));
    let node = books.test("meet::N/Meet.Case/0");
    assert_eq!(
        (&node["execution-state"], &node["heeler.signal"]),
        (&json!("error"), &json!("SIGKILL")),
        "{node:#}"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn workers_that_die_again_and_again_end_the_run_truthfully() {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let meet = world.meet();
    let mut server = start(&world, true);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    for _ in 0..2 {
        let guest = meet.next();
        for worker in server.processes(Role::Worker) {
            signal(worker, "KILL");
        }
        guest.wait_gone();
    }
    let books = server.finish_as(&run, &uids("meet", ["N/Meet.Case/0"]), Delivery::AtLeastOnce);
    assert_eq!(books.message("meet::N/Meet.Case/0"), "not run to its end: its worker died under it twice");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn results_of_a_dead_worker_are_sent_again_by_the_watchdog() {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let meet = world.meet();
    // The worker's connection accepts data and never acknowledges it.
    let mut server = Server::with_callback(&world, &["meet"], |number| match number {
        0 => Behaviour::NeverReads,
        _ => Behaviour::Normal,
    });
    let run = run_cases(&mut server);
    meet.next().let_go();
    let guest = meet.next();
    let worker = server.processes(Role::Worker)[0];
    signal(worker, "KILL");
    guest.wait_gone();
    let (server, books) = finish_letting_go(server, &run, &meet, Delivery::AtLeastOnce);
    books.all("passed");
    // The first result was on the connection that was not read.
    assert_ne!(books.results_on["meet::N/Meet.Case/0"], On::Callback(0));
    assert_eq!(server.exit(), Some(0));
}
