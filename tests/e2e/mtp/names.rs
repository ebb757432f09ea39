//! Uids and display names of tests and groups.

use std::{os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use crate::support::{
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

/// Lists a program's tests from a working directory.
fn list_from(world: &TestWorld, directory: &Path, program: &str) -> String {
    let output = world.heeler(&["list", program]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn uids_do_not_depend_on_the_working_directory() {
    let world = TestWorld::with_gtest("deaths");
    std::fs::create_dir_all(world.path("build/tests")).unwrap();
    symlink(std::fs::canonicalize(world.path("deaths")).unwrap(), world.path("build/tests/deaths")).unwrap();
    let program = world.path("build/tests/deaths");
    let from_root = list_from(&world, &world.path("."), "build/tests/deaths");
    assert!(from_root.contains("First.One") && !from_root.contains("build"), "{from_root}");
    for (directory, name) in [
        (world.path("build"), "tests/deaths"),
        (world.path("build/tests"), "deaths"),
        (world.path("build/tests"), "../../build/./tests/deaths"),
        ("/".into(), program.to_str().unwrap()),
    ] {
        assert_eq!(list_from(&world, &directory, name), from_root, "{name} from {}", directory.display());
    }
}

/// Returns the uid and display name of every test in the updates.
fn named_tests(server: &TestServer<'_>) -> Vec<(String, String)> {
    let events = server.recorder.events();
    let updates =
        events.iter().filter_map(|event| event.params("testing/testUpdates/tests")?["changes"].as_array());
    let nodes = updates.flatten().map(|change| &change["node"]).filter(|node| node["node-type"] == "action");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    nodes.map(|node| (text(&node["uid"]), text(&node["display-name"]))).collect()
}

#[test]
fn parameterised_test_is_a_group() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "3");
    let mut server = TestServer::initialized(&world, &["big"]);
    server.request_and_wait("testing/discoverTests", json!({"runId": run_id(99)}));
    let group = "big::N/Big.Case/";
    let events = server.recorder.events();
    let updates =
        events.iter().filter_map(|event| event.params("testing/testUpdates/tests")?["changes"].as_array());
    let changes: Vec<_> = updates.flatten().collect();
    let change = |uid: &str| changes.iter().find(|change| change["node"]["uid"] == uid).unwrap();
    let parent = change(group);
    assert_eq!((&parent["parent"], &parent["node"]["display-name"]), (&json!("big::N/Big."), &json!("Case")));
    let instance = change("big::N/Big.Case/1");
    assert_eq!(instance["parent"], group);
    let node = &instance["node"];
    assert_eq!(node["display-name"], "1 (1)");
    assert_eq!((&node["location.type"], &node["location.method"]), (&json!("N/Big"), &json!("Case/1")));
    // Requesting the group selects its instances. In the path, group and instance are one segment.
    let selected = uids("big", ["N/Big.Case/0", "N/Big.Case/1", "N/Big.Case/2"]);
    let run = server.run(Some(&[group]));
    server.finish(&run, &selected).assert_all("passed");
    let params = json!({"runId": run_id(98), "filter": "/big/N%2FBig/Case%2F1"});
    let request = server.request("testing/runTests", params);
    let run = RequestedRun { run_id: run_id(98), request };
    server.finish(&run, &selected[1..2]).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn leaf_names_leave_out_their_groups() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    server.request_and_wait("testing/discoverTests", json!({"runId": run_id(99)}));
    let discovered = named_tests(&server);
    for (uid, name) in [
        ("kinds::Math.Add", "Add"),
        ("kinds::Typed/0.Default", "Default (int)"),
        ("kinds::Leak.Child", "Child"),
    ] {
        assert!(discovered.contains(&(uid.to_owned(), name.to_owned())), "{uid}: {discovered:?}");
    }
    assert!(discovered.iter().all(|(_, name)| !name.contains('\n')), "{discovered:?}");
    let selected = uids("kinds", ["Math.Add", "Typed/0.Default"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    server.finish(&run, &selected).assert_all("passed");
    // A run reports the same names.
    assert!(
        named_tests(&server).iter().all(|named| discovered.contains(named)),
        "{:?}",
        named_tests(&server)
    );
    assert_eq!(server.exit(), Some(0));
}
