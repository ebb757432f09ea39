//! A client that stops reading stalls its run but does not lose results. Meanwhile, memory stays bounded and
//! other requests are processed. When the client reads again, every result arrives once.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde_json::json;

use crate::support::{
    callback_listener::ListenerBehaviour,
    process::{ProcessRole, peak_mib, processes_of_role, signal, wait_until},
    recorder::{DEADLINE, RecordedEvent, TrafficRecorder},
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

const UPDATES: &str = "testing/testUpdates/tests";
/// With this many cases, the results are several times larger than all queues and socket buffers between a
/// test and the client.
const CASES: usize = 5_000;
/// Bytes of output per case.
const PRINTS: usize = 12 << 10;
/// Maximum memory growth of the coordinator (plan and queues) during a run of all cases. The results are
/// larger in total.
const COORDINATOR_MIB: u64 = 50;
/// Memory limit of a worker or the watchdog: kept outputs (8 MiB) and three update batches, two in the queue
/// and one in progress. The journal, the changes and the texts of a batch each take about as much. The limit
/// is independent of the number of cases, whose total output is larger.
const PROCESS_MIB: u64 = 90;

fn world() -> (TestWorld, Vec<String>) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.env("HEELER_FIXTURE_PRINTS", &PRINTS.to_string());
    world.write(
        "heeler.toml",
        "[profile.default]\njobs = 2\nclient-stall-timeout = \"10m\"\ngrace-period = \"200ms\"\n",
    );
    let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    (world, selected)
}

/// Routes of results to the client.
#[derive(Debug, Clone, Copy)]
enum ResultRoute {
    Main,
    Callback,
}

impl ResultRoute {
    fn start(self, world: &TestWorld) -> TestServer<'_> {
        match self {
            Self::Main => TestServer::initialized(world, &["big"]),
            Self::Callback => TestServer::with_callback(world, &["big"], |_| ListenerBehaviour::Normal),
        }
    }

    /// Stops reading the connections that carry this route's results.
    fn stop_reading(self, recorder: &TrafficRecorder) {
        match self {
            Self::Main => recorder.stop_main(),
            Self::Callback => recorder.stop_callbacks(),
        }
    }
}

/// Returns the total size of the workers' journals.
fn journalled(world: &TestWorld) -> u64 {
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

/// Starts a run of all tests, stops reading after the first results, and waits until the run is stalled.
fn wait_stalled(way: ResultRoute, server: &mut TestServer<'_>, world: &TestWorld) -> RequestedRun {
    let run = server.run(None);
    server.recorder.wait("its first results", |events| {
        let of_run = |event: &RecordedEvent| Some(event.params(UPDATES)?["runId"] == run.run_id.as_str());
        events.iter().any(|event| of_run(event) == Some(true)).then_some(())
    });
    way.stop_reading(&server.recorder);
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

fn check_memory(server: &TestServer<'_>, before_mib: u64) {
    let coordinator = peak_mib(server.pid()) - before_mib;
    assert!(coordinator < COORDINATOR_MIB, "the coordinator took {coordinator} MiB beside {before_mib}");
    for role in [ProcessRole::Worker, ProcessRole::Watchdog] {
        for pid in server.processes(role) {
            let process = peak_mib(pid);
            assert!(process < PROCESS_MIB, "a {role:?} took {process} MiB");
        }
    }
}

fn check_everything_arrives_once(way: ResultRoute) {
    let (world, selected) = world();
    let mut server = way.start(&world);
    server.request_and_wait("testing/discoverTests", json!({"runId": run_id(1)}));
    let before_mib = peak_mib(server.pid());
    let run = wait_stalled(way, &mut server, &world);
    let still = journalled(&world);
    check_memory(&server, before_mib);
    server.recorder.resume();
    server.finish(&run, &selected).assert_all("passed").assert_no_program_failures();
    assert!(journalled(&world) > still, "{still} bytes were all of it");
    check_memory(&server, before_mib);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unread_main_connection_pauses_run_without_loss() {
    check_everything_arrives_once(ResultRoute::Main);
}

#[test]
fn unread_callback_connections_pause_run_without_loss() {
    check_everything_arrives_once(ResultRoute::Callback);
}

fn check_cancel(way: ResultRoute) {
    let (world, selected) = world();
    let mut server = way.start(&world);
    let run = wait_stalled(way, &mut server, &world);
    server.notify("$/cancelRequest", json!({"id": run.request}));
    wait_until("the test processes are gone", || {
        processes_of_role(server.pid(), ProcessRole::Guard).is_empty()
    });
    server.recorder.resume();
    let checked_run = server.finish(&run, &selected);
    assert_eq!(checked_run.response["error"]["code"], -32800);
    let states: BTreeSet<_> = selected.iter().map(|uid| checked_run.state(uid)).collect();
    assert_eq!(states.into_iter().collect::<Vec<_>>(), ["cancelled", "passed"]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancel_with_unread_main_connection_ends_tests() {
    check_cancel(ResultRoute::Main);
}

#[test]
fn cancel_with_unread_callback_connections_ends_tests() {
    check_cancel(ResultRoute::Callback);
}

/// Stops the server of a client that does not read; checks that no process or file is left.
fn check_nothing_left(way: ResultRoute, word: &str) {
    let (world, _) = world();
    let mut server = way.start(&world);
    wait_stalled(way, &mut server, &world);
    match word {
        "exit twice" => {
            // The first `exit` would drain the run and therefore wait for the client.
            server.notify("exit", json!({}));
            server.notify("exit", json!({}));
        }
        "hang up" => server.disconnect(),
        signal_name => signal(server.pid(), signal_name),
    }
    let took = server.wait_gone();
    assert!(took < DEADLINE / 5, "{way:?}, {word}: {took:?}");
    world.check_tidy();
}

#[test]
fn non_reading_client_disconnect_leaves_nothing_behind() {
    check_nothing_left(ResultRoute::Main, "hang up");
    check_nothing_left(ResultRoute::Callback, "hang up");
}

// Each drain takes ten seconds, so these tests use one route each. In the server, a second `exit` and the
// signal run the same code.

#[test]
fn second_exit_with_non_reading_client_is_quick() {
    check_nothing_left(ResultRoute::Callback, "exit twice");
}

#[test]
fn termination_with_non_reading_client_is_quick() {
    check_nothing_left(ResultRoute::Main, "TERM");
}
