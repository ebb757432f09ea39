//! Rust test programs, run over the protocol and found through cargo.

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
    let books = server.finish(&run, &selected);
    check_expected(&books, "libtest", LIBTEST);
    books.assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn failed_assertion_has_both_sides_and_location() {
    let world = TestWorld::with_libtest();
    let mut server = TestServer::initialized(&world, &["libtest"]);
    let run = server.run(Some(&["libtest::c_fails"]));
    let books = server.finish(&run, &uids("libtest", ["c_fails"]));
    let node = books.test("libtest::c_fails");
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
