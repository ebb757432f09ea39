//! A client that stops reading stops the run's progress, but loses nothing: memory stays bounded, other
//! requests are processed meanwhile, and when the client reads again everything arrives once.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde_json::json;

use crate::support::{
    listener::Behaviour,
    process::{Role, of_role, peak_mib, signal, wait_until},
    recorder::{DEADLINE, Event, Recorder},
    server::{Run, Server, run_id},
    uids,
    world::World,
};

const UPDATES: &str = "testing/testUpdates/tests";
/// The results of this many cases are several times larger than all queues and sockets between a test and the
/// client.
const CASES: usize = 15_000;
/// Bytes that each of them prints.
const PRINTS: usize = 4 << 10;
/// Memory limit for the coordinator's growth during a run of all cases: its plan and its queues. All results
/// would be larger.
const COORDINATOR_MIB: u64 = 40;
/// Memory limit of a worker or the watchdog.
const PROCESS_MIB: u64 = 60;

fn world() -> (World, Vec<String>) {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.env("HEELER_FIXTURE_PRINTS", &PRINTS.to_string());
    world.write(
        "heeler.toml",
        "[profile.default]\njobs = 2\nstall-timeout = \"10m\"\ngrace-period = \"200ms\"\n",
    );
    let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    (world, selected)
}

/// The two routes of results to the client.
#[derive(Debug, Clone, Copy)]
enum Way {
    Main,
    Callback,
}

impl Way {
    fn start(self, world: &World) -> Server<'_> {
        match self {
            Self::Main => Server::ready(world, &["big"]),
            Self::Callback => Server::with_callback(world, &["big"], |_| Behaviour::Normal),
        }
    }

    /// Stops the client from reading the connections that carry results.
    fn stop(self, recorder: &Recorder) {
        match self {
            Self::Main => recorder.stop_main(),
            Self::Callback => recorder.stop_callbacks(),
        }
    }
}

/// Returns the total size of the workers' journals.
fn journalled(world: &World) -> u64 {
    fn below(dir: &Path) -> u64 {
        let Ok(entries) = fs::read_dir(dir) else { return 0 };
        let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        entries
            .map(|entry| entry.unwrap().path())
            .map(|path| if path.is_dir() { below(&path) } else { size(&path) })
            .sum()
    }
    below(&world.path(".heeler/runs"))
}

/// Begins a run of everything, stops reading after its first results, and waits until it makes no more
/// progress.
fn stopped(way: Way, server: &mut Server<'_>, world: &World) -> Run {
    let run = server.run(None);
    server.recorder.wait("its first results", |events| {
        let of_run = |event: &Event| Some(event.params(UPDATES)?["runId"] == run.run_id.as_str());
        events.iter().any(|event| of_run(event) == Some(true)).then_some(())
    });
    way.stop(&server.recorder);
    let (mut before, mut looks) = (0, 0);
    wait_until("the run stands still", || {
        std::thread::park_timeout(Duration::from_millis(20));
        let now = journalled(world);
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        looks == 50
    });
    run
}

fn check_memory(server: &Server<'_>, before_mib: u64) {
    let coordinator = peak_mib(server.pid()) - before_mib;
    assert!(coordinator < COORDINATOR_MIB, "the coordinator took {coordinator} MiB beside {before_mib}");
    for role in [Role::Worker, Role::Watchdog] {
        for pid in server.processes(role) {
            let process = peak_mib(pid);
            assert!(process < PROCESS_MIB, "a {role:?} took {process} MiB");
        }
    }
}

fn everything_arrives_once(way: Way) {
    let (world, selected) = world();
    let mut server = way.start(&world);
    server.ask("testing/discoverTests", json!({"runId": run_id(1)}));
    let before_mib = peak_mib(server.pid());
    let run = stopped(way, &mut server, &world);
    let still = journalled(&world);
    assert!(!of_role(server.pid(), Role::Guard).is_empty(), "tests are left to run");
    check_memory(&server, before_mib);
    server.recorder.go_on();
    server.finish(&run, &selected).all("passed").no_charges();
    assert!(journalled(&world) > still, "{still} bytes were all of it");
    check_memory(&server, before_mib);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_client_that_stops_reading_stops_the_run_and_then_gets_everything_once() {
    everything_arrives_once(Way::Main);
}

#[test]
fn a_client_that_stops_reading_its_callback_connections_stops_the_run_and_then_gets_everything_once() {
    everything_arrives_once(Way::Callback);
}

fn a_cancel_is_heard(way: Way) {
    let (world, selected) = world();
    let mut server = way.start(&world);
    let run = stopped(way, &mut server, &world);
    server.notify("$/cancelRequest", json!({"id": run.request}));
    wait_until("the test processes are gone", || of_role(server.pid(), Role::Guard).is_empty());
    server.recorder.go_on();
    let books = server.finish(&run, &selected);
    assert_eq!(books.answer["error"]["code"], -32800);
    let states: BTreeSet<_> = selected.iter().map(|uid| books.state(uid)).collect();
    assert_eq!(states.into_iter().collect::<Vec<_>>(), ["cancelled", "passed"]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_cancel_of_a_client_that_does_not_read_ends_its_tests_at_once() {
    a_cancel_is_heard(Way::Main);
}

#[test]
fn a_cancel_of_a_client_that_does_not_read_its_callback_connections_ends_its_tests_at_once() {
    a_cancel_is_heard(Way::Callback);
}

/// Ends the server of a client that does not read, and checks that nothing is left.
fn nothing_is_left(way: Way, word: &str) {
    let (world, _) = world();
    let mut server = way.start(&world);
    stopped(way, &mut server, &world);
    match word {
        "exit" => server.notify("exit", json!({})),
        "hang up" => server.hang_up(),
        signal_name => signal(server.pid(), signal_name),
    }
    let took = server.wait_gone();
    assert!(took < DEADLINE / 2, "{way:?}, {word}: {took:?}");
    world.check_tidy();
}

#[test]
fn a_client_that_does_not_read_and_hangs_up_leaves_nothing_behind() {
    nothing_is_left(Way::Main, "hang up");
    nothing_is_left(Way::Callback, "hang up");
}

// A drain of ten seconds each: after the session, `exit` and the signal take the same path.

#[test]
fn a_client_that_does_not_read_and_says_exit_is_not_waited_for_long() {
    nothing_is_left(Way::Callback, "exit");
}

#[test]
fn a_client_that_does_not_read_keeps_no_server_from_its_end() {
    nothing_is_left(Way::Main, "TERM");
}
