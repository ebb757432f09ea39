//! Rust test programs, run over the protocol and found through Cargo.

use crate::{
    expected::LIBTEST,
    frameworks::gtest::check_expected,
    support::{callback_listener::ListenerBehaviour, fixtures, server::TestServer, uids, world::TestWorld},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n";

#[test]
fn every_libtest_outcome_is_reported() {
    let world = TestWorld::with_libtest();
    world.write("heeler.toml", SHORT);
    let selected = uids("libtest", LIBTEST.iter().map(|one| one.name));
    let mut server = TestServer::with_callback(&world, &["libtest"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    check_expected(&checked_run, "libtest", LIBTEST);
    checked_run.assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn output_is_kept_whatever_ends_a_test_among_others_on_the_first_run() {
    let world = TestWorld::with_libtest();
    world.write("heeler.toml", SHORT);
    world.note_starts();
    let names =
        ["a_adds", "b_prints", "c_fails", "f_should_panic_and_does_not", "g_returns_an_error", "l_hangs"];
    let filters: Vec<&str> = names.iter().flat_map(|name| ["-E", *name]).collect();
    let words = [&["run", "libtest", "-j1", "--format", "json", "--success-output", "final"], &filters[..]];
    let ran = world.run_with_separate_outputs(&words.concat()).assert_code(2);
    assert_eq!(world.starts().len(), 1, "all run in one process: {:?}", world.starts());
    let events: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = |name: &str| {
        let found = events.iter().find(|event| event["name"] == *name && event["outcome"].is_string());
        found.unwrap_or_else(|| panic!("{name}: {ran}")).clone()
    };
    let hung = end("l_hangs");
    assert_eq!(hung["outcome"], "timed-out");
    assert_eq!(hung["stdout"], "said before it hangs\n", "{hung:#}");
    let failed = end("c_fails");
    let output = failed["stdout"].as_str().unwrap();
    assert!(
        output.starts_with("said before the failure\n") && output.contains("the sum is wrong"),
        "{output}"
    );
    assert!(failed["message"].as_str().unwrap().contains("the sum is wrong"), "{failed:#}");
    assert!(end("g_returns_an_error")["message"].as_str().unwrap().contains("no luck"));
    let message = end("f_should_panic_and_does_not")["message"].clone();
    assert!(message.as_str().unwrap().contains("did not panic as expected"), "{message}");
    // Output belongs to the test that wrote it, even if the test passes.
    assert!(!ran.stdout.contains("some output\\nsaid"), "{ran}");
}

#[test]
fn failed_assertion_has_both_sides_and_location() {
    let world = TestWorld::with_libtest();
    let mut server = TestServer::initialized(&world, &["libtest"]);
    let run = server.run(Some(&["libtest::c_fails"]));
    let checked_run = server.finish(&run, &uids("libtest", ["c_fails"]));
    let node = checked_run.test("libtest::c_fails");
    assert_eq!((&node["assert.actual"], &node["assert.expected"]), (&"2".into(), &"3".into()), "{node:#}");
    assert!(node["location.file"].as_str().unwrap().ends_with("lib.rs"), "{node:#}");
    let command = node["heeler.reproduce"].as_str().unwrap();
    let again = crate::support::world::run(world.shell(command)).assert_code(101);
    again.assert_stdout("1 failed; 0 ignored");
}

#[test]
fn cargo_package_is_built_and_listed() {
    let world = TestWorld::new();
    world.env("CARGO_TARGET_DIR", env!("CARGO_TARGET_TMPDIR"));
    let package = fixtures::libtest_crate();
    let ran = world
        .run(&["run", "--cargo", package.to_str().unwrap(), "-E", "a_adds", "-E", "deep"])
        .assert_code(0);
    ran.line_with(&["PASS", "a_adds"]);
    ran.line_with(&["PASS", "deep::down::is_found"]);
    ran.assert_stdout("2 tests");
}

#[test]
fn package_with_compile_error_is_reported() {
    let world = TestWorld::new();
    std::fs::create_dir_all(world.path("broken/src")).unwrap();
    world.write(
        "broken/Cargo.toml",
        "[workspace]\n[package]\nname = \"broken\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
    );
    world.write("broken/src/lib.rs", "fn wrong() -> u8 { \"text\" }\n");
    let ran = world.run(&["run", "--cargo", "broken"]).assert_code(4);
    ran.assert_stderr("mismatched types");
}
