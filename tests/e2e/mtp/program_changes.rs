//! Test programs that change while a session is open: the notification, and builds before a discovery.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{
    fixtures,
    process::{signal, state, wait_until},
    second_client::SecondClient,
    server::{ServerTransport, TestServer, run_id},
    world::{self, TestWorld},
};

const CHANGED: &str = "$/heeler/programsChanged";

/// Builds `bin/a_test`. If the file `more` exists, also builds `bin/b_test`; if `broken` exists, fails; if
/// `slow` exists, waits for the file `go`.
const BUILD: &str = r#"#!/bin/sh
echo $$ >> builds
if [ -e slow ]; then until [ -e go ]; do sleep 0.02; done; fi
if [ -e broken ]; then echo "src/a.cc:7: error: oh" >&2; exit 2; fi
mkdir -p bin
cp "$FIXTURE" bin/new && mv bin/new bin/a_test
if [ -e more ]; then cp "$FIXTURE" bin/b_test; fi
exit 0
"#;

/// Returns a world with a suite that finds programs with a glob and builds them with a command.
fn world_with_build(settings: &str) -> TestWorld {
    let world = TestWorld::new();
    world.env("FIXTURE", fixtures::gtest("deaths").to_str().unwrap());
    world.write_program("build.sh", BUILD);
    let suite = "[[suite]]\nname = \"s\"\nprograms = [\"bin/*_test\"]\nbuild = [\"./build.sh\"]\n";
    world.write("heeler.toml", &format!("{settings}{suite}"));
    world
}

fn initialize(server: &mut TestServer<'_>) {
    let answer = server
        .initialize(json!({"testing": {"debuggerProvider": false, "heeler": {"programChanges": true}}}));
    let offered = &answer["capabilities"]["testing"]["heeler"];
    assert_eq!((&offered["programChanges"], &offered["build"]), (&json!(true), &json!(true)), "{answer}");
}

/// Waits until a notification reports this change of a program; returns the program's suite.
fn wait_change(server: &TestServer<'_>, path: &Path, change: &str) -> Value {
    let path = path.to_str().unwrap();
    server.recorder.wait(&format!("that {path} has {change}"), |events| {
        let programs = events.iter().filter_map(|event| event.params(CHANGED));
        let mut programs = programs.flat_map(|params| params["programs"].as_array().unwrap());
        let found = programs.find(|program| program["path"] == path && program["change"] == change)?;
        Some(found["suite"].clone())
    })
}

fn copy_program(world: &TestWorld, name: &str) {
    world::copy_program(&fixtures::gtest("deaths"), &world.path("part"));
    fs::rename(world.path("part"), world.path(name)).unwrap();
}

/// Discovers tests; returns the response and the uids of the tests.
fn discover(server: &mut TestServer<'_>, number: u64, is_built: bool) -> (Value, Vec<String>) {
    let mut params = json!({"runId": run_id(number)});
    if is_built {
        params["heeler.build"] = json!(true);
    }
    let response = server.request_and_wait("testing/discoverTests", params);
    let events = server.recorder.events();
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes = updates.filter(|params| params["runId"] == run_id(number));
    let changes = changes.filter_map(|params| params["changes"].as_array()).flatten();
    let tests = changes.filter(|change| change["node"]["node-type"] == "action");
    (response, tests.map(|change| change["node"]["uid"].as_str().unwrap().to_owned()).collect())
}

/// Stops a listening server, which outlives its sessions.
fn end(server: &TestServer<'_>) {
    signal(server.pid(), "TERM");
    server.wait_gone();
}

fn build_count(world: &TestWorld) -> usize {
    world.read("builds").lines().count()
}

#[test]
fn changed_program_is_reported_to_client_that_requests_it() {
    for transport in [ServerTransport::Stdio, ServerTransport::Listen, ServerTransport::Dial] {
        let world = world_with_build("");
        let mut server = TestServer::start_over(transport, &world, &[]);
        initialize(&mut server);
        let program = world.path("bin/a_test");
        // There was no discovery before, and the test does not wait until the file watch is active.
        copy_program(&world, "bin/a_test");
        assert_eq!(wait_change(&server, &program, "changed"), "s");
        fs::remove_dir_all(world.path("bin")).unwrap();
        assert_eq!(wait_change(&server, &program, "removed"), "s");
        // The directory was recreated. New programs can be copied or hard-linked into it.
        fs::create_dir(world.path("bin")).unwrap();
        copy_program(&world, "bin/a_test");
        assert_eq!(wait_change(&server, &program, "appeared"), "s");
        fs::hard_link(&program, world.path("bin/b_test")).unwrap();
        assert_eq!(wait_change(&server, &world.path("bin/b_test"), "appeared"), Value::Null);
        let (response, tests) = discover(&mut server, 901, false);
        assert!(response["result"].is_object() && !tests.is_empty(), "{response}");
        match transport {
            ServerTransport::Listen | ServerTransport::Pipe => end(&server),
            ServerTransport::Stdio | ServerTransport::Dial => assert_eq!(server.exit(), Some(0)),
        }
    }
}

#[test]
fn program_named_by_a_link_is_reported_at_its_target() {
    let world = TestWorld::new();
    fs::create_dir(world.path("real")).unwrap();
    copy_program(&world, "real/unit");
    std::os::unix::fs::symlink(world.path("real/unit"), world.path("unit")).unwrap();
    let mut server = TestServer::start(&world, &["unit"]);
    initialize(&mut server);
    copy_program(&world, "real/unit");
    assert_eq!(wait_change(&server, &world.path("unit"), "changed"), "unit");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn client_that_does_not_request_changes_gets_none() {
    let world = world_with_build("");
    let mut server = TestServer::start_over(ServerTransport::Listen, &world, &[]);
    initialize(&mut server);
    let mut other = SecondClient::connect(&server, false);
    copy_program(&world, "bin/a_test");
    wait_change(&server, &world.path("bin/a_test"), "changed");
    other.wait_begun(901);
    let events = other.events();
    assert!(events.iter().all(|event| event.params(CHANGED).is_none()));
    end(&server);
}

#[test]
fn discovery_builds_before_it_lists_where_it_is_told_to() {
    let world = world_with_build("");
    let mut server = TestServer::start(&world, &[]);
    initialize(&mut server);
    let (_, before) = discover(&mut server, 901, false);
    assert_eq!(build_count(&world), 1, "at the start only");
    assert!(before.contains(&"s::First.One".to_owned()), "{before:?}");
    // After the build, the session includes the new program that the glob finds.
    world.write("more", "");
    let (_, after) = discover(&mut server, 902, true);
    assert_eq!((build_count(&world), after.len()), (2, 2 * before.len()));
    assert!(after.contains(&"s::b_test::First.One".to_owned()), "{after:?}");
    // The response reports the failed build; it does not list the old programs.
    world.write("broken", "");
    let (response, tests) = discover(&mut server, 903, true);
    assert_eq!((response["error"]["code"].as_i64(), tests.len()), (Some(-32603), 0), "{response}");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("failed to build the suite \"s\": `build.sh` failed in "), "{message}");
    assert!(message.ends_with(" (exit code 2)\nsrc/a.cc:7: error: oh"), "{message}");
    wait_until("the build's own words", || server.errors_so_far().contains("src/a.cc:7: error: oh"));
    // The programs of the earlier build can still be listed. Once a build succeeds, runs work again.
    assert_eq!(discover(&mut server, 904, false).1, after);
    fs::remove_file(world.path("broken")).unwrap();
    let tests = json!([{"uid": "s::b_test::First.One"}]);
    let run = json!({"runId": run_id(905), "tests": tests, "heeler.build": true});
    assert!(server.request_and_wait("testing/runTests", run)["result"].is_object());
    assert_eq!(build_count(&world), 4);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn editor_without_extensions_builds_by_configuration() {
    let world = world_with_build("[profile.default]\nbuild-on-discovery = true\n");
    let mut server = TestServer::start_over(ServerTransport::Dial, &world, &[]);
    server.initialize(json!({"testing": {"debuggerProvider": false}}));
    let (_, tests) = discover(&mut server, 901, false);
    assert_eq!((build_count(&world), tests.is_empty()), (2, false));
    let run = server.run(Some(&["s::First.One"]));
    server.finish(&run, &["s::First.One".to_owned()]).assert_all("passed");
    assert_eq!(build_count(&world), 2, "a run builds nothing");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn concurrent_discoveries_share_a_build() {
    let world = world_with_build("");
    let mut server = TestServer::start_over(ServerTransport::Listen, &world, &[]);
    initialize(&mut server);
    let mut other = SecondClient::connect(&server, false);
    world.write("slow", "");
    let params = |number: u64| json!({"runId": run_id(number), "heeler.build": true});
    let first = server.request("testing/discoverTests", params(901));
    wait_until("the build runs", || build_count(&world) == 2);
    let second = server.request("testing/discoverTests", params(902));
    let third = other.request("testing/discoverTests", params(903));
    // A listing does not wait for a concurrent build.
    other.wait_begun(904);
    world.write("go", "");
    for id in [first, second] {
        assert!(server.wait_response(id)["result"].is_object());
    }
    assert!(other.wait_response(third)["result"].is_object());
    assert_eq!(build_count(&world), 2);
    end(&server);
}

#[test]
fn build_ends_with_the_last_request_that_waits_for_it() {
    let world = world_with_build("");
    for is_cancelled in [true, false] {
        world.write("go", "");
        let mut server = TestServer::start(&world, &[]);
        initialize(&mut server);
        fs::remove_file(world.path("go")).unwrap();
        world.write("slow", "");
        let before = build_count(&world);
        let params = json!({"runId": run_id(901), "heeler.build": true});
        let id = server.request("testing/discoverTests", params);
        wait_until("the build runs", || build_count(&world) > before);
        let build: u32 = world.read("builds").lines().last().unwrap().parse().unwrap();
        if is_cancelled {
            server.notify("$/cancelRequest", json!({"id": id}));
            assert_eq!(server.wait_response(id)["error"]["code"], -32800);
            wait_until("the build is gone", || state(build).is_none_or(|state| state == 'Z'));
            assert_eq!(server.exit(), Some(0));
        } else {
            server.disconnect();
            wait_until("the build is gone", || state(build).is_none_or(|state| state == 'Z'));
            server.wait_gone();
        }
    }
}
