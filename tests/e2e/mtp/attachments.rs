//! Attachments in the nodes of tests, the response, the attachments stream and reports, whichever process
//! sends them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{
    callback_listener::{ListenerBehaviour, RecordingListener},
    checked_run::ExpectedDelivery,
    process::{ProcessRole, signal},
    recorder::RecordedEvent,
    rendezvous::{ConnectedTest, TestRendezvous},
    server::{RequestedRun, TestServer},
    uids,
    world::TestWorld,
};

const STREAM: &str = "testing/testUpdates/attachments";
const UPDATES: &str = "testing/testUpdates/tests";

fn file_of(uri: &Value) -> PathBuf {
    PathBuf::from(uri.as_str().and_then(|uri| uri.strip_prefix("file://")).expect("it is the URI of a file"))
}

/// Returns the files in a node.
fn of_node(node: &Value) -> BTreeSet<PathBuf> {
    (0..).map_while(|n| node.get(format!("attachments.{n}.uri"))).map(file_of).collect()
}

/// Returns the files in a response or in one message of the stream.
fn of_list(list: &Value) -> BTreeSet<PathBuf> {
    list.as_array().into_iter().flatten().map(|one| file_of(&one["uri"])).collect()
}

/// Returns the messages of a run's attachments stream.
fn stream<'a>(events: &'a [RecordedEvent], run: &RequestedRun) -> Vec<&'a Value> {
    let params = events.iter().filter_map(|event| event.params(STREAM));
    params
        .filter(|params| params["runId"] == run.run_id.as_str())
        .map(|params| &params["attachments"])
        .collect()
}

/// Returns the files in a run's attachments stream; panics if a file was sent twice.
#[track_caller]
fn of_stream(events: &[RecordedEvent], run: &RequestedRun) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for file in stream(events, run).into_iter().flat_map(of_list) {
        assert!(files.insert(file.clone()), "{} was sent twice", file.display());
    }
    files
}

/// Panics unless the files exist in the run's evidence directory and have exactly these names.
#[track_caller]
fn check_names(files: &BTreeSet<PathBuf>, names: &[&str]) {
    let found: BTreeSet<&str> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(found, names.iter().copied().collect(), "{files:#?}");
    assert!(
        files.iter().all(|file| file.exists() && file.parent().unwrap().ends_with("evidence")),
        "{files:#?}"
    );
}

#[test]
fn crash_attachments_have_stable_names() {
    let names = ["dmp", "stacks.txt", "stdout.txt", "stderr.txt"];
    let names = names.map(|ending| format!("evidence.Speaks.Crashes.{ending}"));
    let names = names.each_ref().map(String::as_str);
    for declares in [true, false] {
        for has_callback in [true, false] {
            let world = TestWorld::with_gtest("evidence");
            let mut server = TestServer::start(&world, &["evidence"]);
            let mut testing = json!({"debuggerProvider": false, "attachmentsSupport": declares});
            if has_callback {
                let listener = RecordingListener::new(server.recorder.clone(), |_| ListenerBehaviour::Normal);
                testing["callbackProvider"] = json!({"port": listener.port});
                server.listener = Some(listener);
            }
            server.initialize(json!({"testing": testing}));
            let selected = uids("evidence", ["Speaks.Crashes", "Z.IsLast"]);
            let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
            let checked_run = server.finish(&run, &selected);
            // The isolated rerun that confirms the crash has separate files. The test's node lists the files
            // of the reported crash.
            let of_test = of_node(checked_run.test("evidence::Speaks.Crashes"));
            check_names(&of_test, &names);
            let of_answer = of_list(&checked_run.response["result"]["attachments"]);
            assert!(of_answer.is_superset(&of_test), "{of_test:#?} {of_answer:#?}");
            let events = server.recorder.events();
            let lists = stream(&events, &run);
            if declares {
                assert_eq!(of_stream(&events, &run), of_answer);
                assert_eq!(lists.iter().filter(|list| list.is_null()).count(), 1, "{lists:#?}");
                assert!(lists.last().unwrap().is_null(), "{lists:#?}");
            } else {
                assert!(lists.is_empty(), "{lists:#?}");
            }
            let read = |ending: &str| {
                let file = of_test.iter().find(|file| file.to_str().unwrap().ends_with(ending)).unwrap();
                std::fs::read_to_string(file).unwrap()
            };
            assert!(read("stdout.txt").contains("said aloud") && read("stderr.txt").contains("said aside"));
            assert_eq!(server.exit(), Some(0));
        }
    }
}

#[test]
fn report_has_crash_output_and_file_names() {
    let world = TestWorld::with_gtest("evidence");
    let ran = world.run(&["run", "evidence", "-E", "Speaks.Crashes", "--junit", "junit.xml"]).assert_code(2);
    let report = world.read("junit.xml");
    let (_, case) = report.split_once("name=\"Crashes\" classname=\"Speaks\"").expect("it has its case");
    let (_, out) = case.split_once("<system-out>").expect("it has its output");
    let (out, rest) = out.split_once("</system-out>").unwrap();
    assert!(out.contains("said aloud"), "{report}");
    assert!(
        rest.split_once("<system-err>").is_some_and(|(_, errors)| errors.contains("said aside")),
        "{report}"
    );
    ran.line_with(&[
        "files",
        "evidence.Speaks.Crashes.*",
        "(minidump, stacks of all threads, standard output",
    ]);
    for ending in ["dmp", "stacks.txt", "stdout.txt", "stderr.txt"] {
        let name = format!("evidence.Speaks.Crashes.{ending}");
        let (_, path) = out.split_once("[[ATTACHMENT|").expect("files are named in the output");
        assert!(path.contains(&format!("/{name}]]")), "{name}: {report}");
    }
    // The paths are relative to the directory of the run, which is in no workspace.
    let mut paths = out.split("[[ATTACHMENT|").skip(1).map(|rest| rest.split_once("]]").unwrap().0);
    assert!(paths.all(|path| Path::new(path).is_relative() && world.path(path).exists()), "{report}");
}

#[test]
fn dump_after_last_test_precedes_completion() {
    let world = TestWorld::with_gtest("deaths");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    world.env("HEELER_FIXTURE_DIE_AT", "static destruction");
    let mut server = TestServer::with_callback(&world, &["deaths"], |_| ListenerBehaviour::Normal);
    let selected = uids("deaths", ["First.One", "First.Two"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    checked_run.assert_all("passed");
    let events = server.recorder.events();
    let place =
        |is_wanted: &dyn Fn(&RecordedEvent) -> bool| events.iter().position(is_wanted).expect("it is there");
    let dump = place(&|event| {
        event.params(STREAM).is_some_and(|params| {
            of_list(&params["attachments"])
                .iter()
                .any(|file| file.extension().is_some_and(|end| end == "dmp"))
        })
    });
    let end = place(&|event| event.params(STREAM).is_some_and(|params| params["attachments"].is_null()));
    let completion = place(&|event| event.params(UPDATES).is_some_and(|params| params["changes"].is_null()));
    assert!(dump < end && end < completion, "{dump} {end} {completion}");
    assert_eq!(of_stream(&events, &run), of_list(&checked_run.response["result"]["attachments"]));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn watchdog_attaches_crash_files_after_coordinator_death() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    // The first test also crashes in isolation, which confirms the crash.
    for _ in 0..2 {
        let connected = std::iter::repeat_with(|| rendezvous.next_test()).find(|connected| {
            let is_first = connected.test_name.ends_with("/0");
            connected.send_command(if is_first { b's' } else { b'p' });
            is_first
        });
        connected.expect("it comes").wait_gone();
    }
    server.wait_state("meet::N/Meet.Case/0", "error");
    signal(server.pid(), "KILL");
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &selected);
    let files = of_node(checked_run.test("meet::N/Meet.Case/0"));
    assert!(files.iter().any(|file| file.ends_with("meet.N_Meet.Case_0.dmp") && file.exists()), "{files:#?}");
    let events = server.recorder.events();
    assert!(of_stream(&events, &run).is_superset(&files), "{:#?}", of_stream(&events, &run));
    assert_eq!(stream(&events, &run).iter().filter(|list| list.is_null()).count(), 1);
}

#[test]
fn crash_awaiting_isolated_rerun_survives_coordinator_death() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    rendezvous.next_test().send_command(b's');
    // This is the isolated rerun.
    let connected = rendezvous.next_test();
    signal(server.pid(), "KILL");
    connected.wait_gone();
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &selected);
    let node = checked_run.test("meet::N/Meet.Case/0");
    assert!(node["error.message"].as_str().unwrap().contains("SIGSEGV"), "{node:#}");
    assert!(node["error.stacktrace"].as_str().unwrap().contains("frames of raise()"), "{node:#}");
    let files = of_node(node);
    check_names(&files, &["meet.N_Meet.Case_0.dmp", "meet.N_Meet.Case_0.stacks.txt"]);
    assert_eq!(of_stream(&server.recorder.events(), &run), files);
}

#[test]
fn dead_workers_attachments_are_still_sent() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut crashes = 0;
    let mut is_killed = false;
    while crashes < 2 || !is_killed {
        let connected = rendezvous.next_test();
        if connected.test_name.ends_with("/0") {
            crashes += 1;
            connected.send_command(b's');
        } else if is_killed {
            connected.send_command(b'p');
        } else {
            is_killed = true;
            signal(server.processes(ProcessRole::Worker)[0], "KILL");
        }
        connected.wait_gone();
    }
    server.release_tests_until_done(&rendezvous, &[&run]);
    let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
    let files = of_node(checked_run.test("meet::N/Meet.Case/0"));
    assert!(files.iter().any(|file| file.extension().is_some_and(|end| end == "dmp")), "{checked_run:#?}");
    let of_answer = of_list(&checked_run.response["result"]["attachments"]);
    assert!(of_answer.is_superset(&files), "{files:#?} {of_answer:#?}");
    assert_eq!(of_stream(&server.recorder.events(), &run), of_answer);
    assert_eq!(server.exit(), Some(0));
}

/// Process to kill after a run has sent a file and before the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    None,
    Process(ProcessRole),
    /// The watchdog, during the finish, while it sends the outstanding results.
    WatchdogInFinish,
}

/// Crashes the first test; returns when the second test is running.
fn crash_first(rendezvous: &TestRendezvous, server: &TestServer<'_>) -> ConnectedTest {
    loop {
        let connected = rendezvous.next_test();
        if connected.test_name.ends_with("/1") {
            server.wait_state("meet::N/Meet.Case/0", "error");
            return connected;
        }
        connected.send_command(b's');
        connected.wait_gone();
    }
}

#[test]
fn files_arrive_with_their_result_and_once_whichever_process_dies() {
    let victims = [
        Victim::None,
        Victim::Process(ProcessRole::Worker),
        Victim::Process(ProcessRole::Watchdog),
        Victim::WatchdogInFinish,
    ];
    for is_listening in [true, false] {
        for victim in victims {
            check_files_of_crash(victim, is_listening);
        }
    }
}

fn check_files_of_crash(victim: Victim, is_listening: bool) {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\nisolate = true\nhistory = false\n");
    if victim == Victim::WatchdogInFinish {
        std::fs::create_dir(world.path("points")).unwrap();
        world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
        world.env("HEELER_FAIL", "watchdog.due:1:kill");
    }
    let rendezvous = world.open_rendezvous();
    let mut server = if is_listening {
        TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal)
    } else {
        let mut server = TestServer::start(&world, &["meet"]);
        server.initialize(json!({"testing": {"attachmentsSupport": true}}));
        server
    };
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let connected = crash_first(&rendezvous, &server);
    // The first test has crashed: its files arrive on the same connection as its result.
    let is_result = |event: &&RecordedEvent| {
        let changes = event.params(UPDATES).and_then(|params| params["changes"].as_array());
        changes.into_iter().flatten().any(|change| change["node"]["execution-state"] == "error")
    };
    let events = server.recorder.wait("the files of the crash", |events| {
        (!of_stream(events, &run).is_empty()).then(|| events.to_vec())
    });
    let result = events.iter().find(is_result).unwrap();
    let files = events.iter().find(|event| event.params(STREAM).is_some()).unwrap();
    assert_eq!(result.on, files.on, "a file comes with its test's result");
    // Kill the victim while the second test runs.
    if let Victim::Process(role) = victim {
        signal(server.processes(role)[0], "KILL");
        connected.wait_gone();
    } else {
        connected.release();
    }
    // Every file is sent once, and the response names all of them.
    server.release_tests_until_done(&rendezvous, &[&run]);
    let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::Once);
    let events = server.recorder.events();
    let sent = of_stream(&events, &run);
    assert!(sent.is_superset(&of_node(checked_run.test("meet::N/Meet.Case/0"))), "{sent:#?}");
    assert_eq!(sent, of_list(&checked_run.response["result"]["attachments"]), "{victim:?}");
    assert!(stream(&events, &run).last().unwrap().is_null());
    assert_eq!(server.exit(), Some(0));
}
