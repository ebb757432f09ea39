//! Programs that report on a channel of their own, in a dialogue of several batches, played by the fake.

use std::collections::HashMap;

use serde_json::json;

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

fn all_names() -> Vec<String> {
    (0..64).map(|number| format!("t{number:02}")).collect()
}

fn run_fake(role: &str) -> CheckedRun {
    let world = TestWorld::new();
    world.fake(role);
    world.write(
        "heeler.toml",
        &format!("[[suite]]\nname = \"fake\"\nprograms = [\"{role}\"]\nframework = \"json-lines\"\n"),
    );
    let mut server = TestServer::initialized(&world, &[]);
    let run = server.run(None);
    let names = all_names();
    let books = server.finish(&run, &uids("fake", names.iter().map(String::as_str)));
    assert_eq!(server.exit(), Some(0));
    books
}

#[test]
fn one_process_runs_several_requested_batches() {
    let books = run_fake("json-lines");
    let mut batches: HashMap<String, Vec<String>> = HashMap::new();
    for name in all_names() {
        let uid = format!("fake::{name}");
        let node = books.test(&uid);
        assert_eq!(books.state(&uid), if name == "t05" { "failed" } else { "passed" }, "{node:#}");
        let part = node["heeler.parts"][0]["name"].as_str().unwrap();
        let words: Vec<_> = part.split(' ').collect();
        batches.entry(words[4].to_owned()).or_default().push(words[1].to_owned());
    }
    assert!(batches.values().any(|batches| batches.contains(&"2".to_owned())), "{batches:?}");
    let failed = books.test("fake::t05");
    assert_eq!(
        (&failed["assert.actual"], &failed["assert.expected"]),
        (&"1".into(), &"2".into()),
        "{failed:#}"
    );
    assert_eq!(failed["heeler.parts"][1], json!({"name": "row 1", "state": "passed"}));
    assert_eq!(failed["heeler.parts"][2], json!({"name": "row 2", "state": "failed", "message": "odd"}));
    assert!(failed["standardOutput"].as_str().unwrap().contains("out of t05\n"), "{failed:#}");
    books.assert_no_program_failures();
}

#[test]
fn death_in_a_dialogue_is_named_and_the_rest_runs_on() {
    let books = run_fake("json-lines-dies");
    for name in all_names() {
        let uid = format!("fake::{name}");
        let expected = match name.as_str() {
            "t05" => "failed",
            "t20" => "error",
            _ => "passed",
        };
        assert_eq!(books.state(&uid), expected, "{:#}", books.test(&uid));
    }
    let crashed = books.test("fake::t20");
    assert_eq!(crashed["heeler.signal"], "SIGABRT", "{crashed:#}");
    books.assert_no_program_failures();
}

#[test]
fn several_tests_in_flight_get_one_result_each() {
    let books = run_fake("json-lines-parallel");
    for name in all_names() {
        assert_eq!(books.state(&format!("fake::{name}")), "passed");
    }
    books.assert_no_program_failures();
}
