//! Ends of the process in set-up and tear-down of a suite: they are charged to that suite, and to no other
//! test.

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

const OTHERS: [&str; 4] = ["Before.One", "Before.Two", "Zafter.One", "Zafter.Two"];

fn ending(how: &str, settings: &str) -> CheckedRun {
    let world = TestWorld::with_gtest("suites");
    world.env("HEELER_FIXTURE_END", how);
    let text = format!("[profile.default]\njobs = 1\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n{settings}");
    world.write("heeler.toml", &text);
    let mut selected = uids("suites", OTHERS);
    selected.extend((0..20).map(|number| format!("suites::N/Fixture.Case/{number}")));
    let mut server = TestServer::initialized(&world, &["suites"]);
    let run = server.run(None);
    let books = server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    books
}

#[test]
fn death_in_set_up_is_the_result_of_the_suites_tests() {
    for (how, message) in [
        ("set-up, crash", "crashed with SIGABRT in the set-up of suite N/Fixture"),
        ("set-up, exit", "the process exited with code 3 in the set-up of suite N/Fixture"),
    ] {
        for settings in ["", "isolate = true\n"] {
            let books = ending(how, settings);
            for uid in books.tests.keys() {
                if uid.contains("Fixture") {
                    assert_eq!((books.state(uid), books.message(uid)), ("error", message), "{settings}");
                } else {
                    assert_eq!(books.state(uid), "passed", "{settings}");
                }
            }
            books.assert_no_program_failures();
        }
    }
}

#[test]
fn death_in_tear_down_is_a_failure_of_the_program_only() {
    for (how, settings) in [
        ("tear-down, crash", ""),
        ("tear-down, crash", "isolate = true\n"),
        ("tear-down, exit", ""),
        ("tear-down, hang", ""),
    ] {
        let books = ending(how, settings);
        books.assert_all("passed");
        let message = books.programs["suites"]["error.message"].as_str().unwrap();
        assert!(message.contains("in the tear-down of suite N/Fixture"), "{how}: {message}");
    }
}
