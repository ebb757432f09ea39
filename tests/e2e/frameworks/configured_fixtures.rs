//! Fixtures of `heeler.toml`: set up before the tests that need them, torn down after them, whatever happens
//! in between, and not counted as tests.

use std::process::Stdio;

use crate::support::{
    process::{signal, wait_until},
    world::TestWorld,
};

/// Two fixtures, of which the inner one needs the outer one, four scripts that need the inner one, and one
/// that needs none. Each command writes a line to the file `log`.
fn world(setup: &str, teardown: &str) -> TestWorld {
    let world = TestWorld::new();
    for number in 0..4 {
        world.write_program(
            &format!("user-{number}"),
            "#!/bin/sh\ntest \"$URL\" = db://host-1/x && echo \"used $URL\" >> log\n",
        );
    }
    world.write_program("other", "#!/bin/sh\ntest -z \"$URL$HOST\"\n");
    world.write(
        "heeler.toml",
        &format!(
            r#"
[[suite]]
name = "scripts"
pattern = ["user-*", "other"]
[[fixture]]
name = "host"
setup = ["sh", "-c", '{setup}']
teardown = ["sh", "-c", '{teardown}']
[[fixture]]
name = "db"
setup = ["sh", "-c", 'echo "db up on $HOST" >> log; echo "URL=db://$HOST/x" >> "$HEELER_ENV"']
teardown = ["sh", "-c", 'echo "db down on $HOST with $URL" >> log']
needs = ["host"]
[[profile.default.override]]
filter = "test(user)"
needs = ["db"]
"#
        ),
    );
    world
}

const HOST_UP: &str = "echo host up >> log; echo HOST=host-1 >> \"$HEELER_ENV\"";
const HOST_DOWN: &str = "echo host down >> log";

#[test]
fn fixtures_surround_their_users_and_are_not_counted() {
    let world = world(HOST_UP, HOST_DOWN);
    let words = ["run", "-j4", "--report", "junit=junit.xml", "--no-history"];
    world.run(&words).assert_code(0).assert_stdout("PASSED 5 tests");
    let log = world.read("log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["host up", "db up on host-1"], "{log}");
    assert_eq!(lines[2..6], ["used db://host-1/x"; 4], "{log}");
    assert_eq!(lines[6..], ["db down on host-1 with db://host-1/x", "host down"], "{log}");
    let junit = world.read("junit.xml");
    assert!(junit.contains("tests=\"5\"") && !junit.contains("@fixture"), "{junit}");
    let runs = world.run(&["runs", "--format", "json"]).assert_code(0);
    assert!(runs.stdout.contains("\"tests\":5"), "{}", runs.stdout);
    // Tests that need no fixture set none up, and repeated tests set it up once.
    std::fs::remove_file(world.path("log")).unwrap();
    world.run(&["run", "-E", "test(other)"]).assert_code(0);
    assert!(!world.path("log").exists());
    world.run(&["run", "-E", "test(user-1)", "--repeat", "3"]).assert_code(0).assert_stdout("PASSED 1 test");
    assert_eq!(world.read("log").lines().count(), 4 + 3);
}

#[test]
fn failed_set_up_stops_its_users_and_is_torn_down() {
    let world = world(&format!("{HOST_UP}; echo no network >&2; exit 3"), HOST_DOWN);
    let ran = world.run(&["run", "-j2", "--status-level", "fail"]).assert_code(2);
    ran.assert_stdout("@fixture host::setup");
    ran.assert_stdout("no network");
    ran.assert_stdout("4 tests: the set-up @fixture::host::setup, which it needs, failed");
    ran.assert_stdout("FAILED 1 fixture command");
    assert_eq!(world.read("log"), "host up\nhost down\n");
    // A rerun selects the tests that were not run, and no command of a fixture.
    let again = world.run(&["run", "--rerun", "not-run"]).assert_code(2);
    again.assert_stdout("Running 4 tests");
    assert_eq!(world.read("log"), "host up\nhost down\n".repeat(2));
}

#[test]
fn failed_tear_down_fails_the_run() {
    let world = world(HOST_UP, "echo host down >> log; exit 1");
    let ran = world.run(&["run", "--report", "junit=junit.xml"]).assert_code(2);
    ran.assert_stdout("5 passed");
    ran.assert_stdout("FAILED 1 fixture command");
    assert!(world.read("junit.xml").contains("host::teardown"));
    world.run(&["report", "latest"]).assert_code(0).assert_stdout("FAILED 1 fixture command");
}

#[test]
fn fixtures_are_torn_down_after_a_cancel_and_at_the_failure_limit() {
    let world = world(HOST_UP, HOST_DOWN);
    world.write_program("user-0", "#!/bin/sh\necho began >> log\nexec sleep 600\n");
    let mut command = world.heeler(&["run", "-j1", "-E", "test(user-0)"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a test runs", || world.path("log").exists() && world.read("log").contains("began"));
    signal(child.id(), "INT");
    assert!(child.wait().is_ok_and(|status| !status.success()));
    let torn_down = "db down on host-1 with db://host-1/x\nhost down\n";
    assert!(world.read("log").ends_with(torn_down), "{}", world.read("log"));
    // The failure limit stops the other users.
    world.write_program("user-0", "#!/bin/sh\nexit 1\n");
    std::fs::remove_file(world.path("log")).unwrap();
    let ran = world.run(&["run", "-j1", "--fail-fast", "-E", "test(user)", "--no-history"]).assert_code(13);
    ran.assert_stdout("3 not run");
    assert_eq!(world.read("log"), format!("host up\ndb up on host-1\n{torn_down}"));
}

#[test]
fn wrong_exports_and_missing_programs_are_told() {
    let world = world(&format!("{HOST_UP}; echo no variable >> \"$HEELER_ENV\""), HOST_DOWN);
    let ran = world.run(&["run"]).assert_code(0);
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("expected NAME=VALUE, found \"no variable\""), "{told}");
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"scripts\"\npattern = [\"other\"]\nneeds = [\"gone\"]\n\
         [[fixture]]\nname = \"gone\"\nsetup = [\"no-such-program\"]\n",
    );
    world.run(&["run"]).assert_code(2).assert_stdout("no-such-program does not exist");
}
