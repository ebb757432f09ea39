//! Rust test programs, run over the protocol and found through cargo.

use crate::{
    expected::LIBTEST,
    run_gtest::check_expected,
    support::{fixtures, listener::Behaviour, server::Server, uids, world::World},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n";

#[test]
fn every_way_in_which_a_rust_test_can_end_is_told() {
    let world = World::with_libtest();
    world.write("heeler.toml", SHORT);
    let selected = uids("libtest", LIBTEST.iter().map(|one| one.name));
    let mut server = Server::with_callback(&world, &["libtest"], |_| Behaviour::Normal);
    let run = server.run(None);
    let books = server.finish(&run, &selected);
    check_expected(&books, "libtest", LIBTEST);
    books.no_charges();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_failed_assertion_tells_both_sides_and_its_place() {
    let world = World::with_libtest();
    let mut server = Server::ready(&world, &["libtest"]);
    let run = server.run(Some(&["libtest::c_fails"]));
    let books = server.finish(&run, &uids("libtest", ["c_fails"]));
    let node = books.test("libtest::c_fails");
    assert_eq!((&node["assert.actual"], &node["assert.expected"]), (&"2".into(), &"3".into()), "{node:#}");
    assert!(node["location.file"].as_str().unwrap().ends_with("lib.rs"), "{node:#}");
    let command = node["heeler.reproduce"].as_str().unwrap();
    let again = crate::support::world::run(world.shell(command)).code(101);
    again.says("1 failed; 0 ignored");
}

#[test]
fn a_cargo_package_is_built_and_its_tests_are_found() {
    let world = World::new();
    world.env("CARGO_TARGET_DIR", env!("CARGO_TARGET_TMPDIR"));
    let package = fixtures::libtest_crate();
    let ran = world.run(&["run", "--cargo", package.to_str().unwrap(), "-E", "a_adds", "-E", "deep"]).code(0);
    ran.line(&["PASS", "a_adds"]);
    ran.line(&["PASS", "deep::down::is_found"]);
    ran.says("2 tests");
}

#[test]
fn a_package_that_does_not_compile_is_said_to_be_so() {
    let world = World::new();
    std::fs::create_dir_all(world.path("broken/src")).unwrap();
    world.write(
        "broken/Cargo.toml",
        "[workspace]\n[package]\nname = \"broken\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
    );
    world.write("broken/src/lib.rs", "fn wrong() -> u8 { \"text\" }\n");
    let ran = world.run(&["run", "--cargo", "broken"]).code(4);
    ran.complains("mismatched types");
}
