//! Programs that crash while they list their tests. A complete listing is still used, and the crash is a
//! program failure.

use std::os::unix::fs::symlink;

use crate::support::{fixtures, world::TestWorld};

#[test]
fn program_that_crashes_after_its_listing_is_run_and_has_failed() {
    for (name, program) in fixtures::dying_listings() {
        let world = TestWorld::new();
        symlink(program, world.path(name)).unwrap();
        world.env("HEELER_FIXTURE_DIES", "after");
        let listed = world.run(&["list", name]).assert_code(0);
        listed.line_with(&["passes", "dies.cc"]);
        listed.assert_stderr("SIGABRT");
        let ran = world.run(&["run", name]).assert_code(2);
        ran.line_with(&["PASS", "passes"]);
        ran.line_with(&["FAIL", "fails"]);
        ran.assert_stdout("was killed by SIGABRT while listing its tests");
        ran.assert_stdout("1 passed");
        ran.assert_stdout("1 failed");
        ran.assert_stdout("~Dying");
    }
}

#[test]
fn program_that_crashes_before_its_listing_is_an_error() {
    for (name, program) in fixtures::dying_listings() {
        let world = TestWorld::new();
        symlink(program, world.path(name)).unwrap();
        world.env("HEELER_FIXTURE_DIES", "before");
        let ran = world.run(&["run", name]).assert_code(4);
        ran.assert_stdout("was killed by SIGABRT while listing its tests");
        assert!(!ran.stdout.contains("passed"), "{ran}");
        assert_ne!(world.run(&["list", name]).code, Some(0));
    }
}
