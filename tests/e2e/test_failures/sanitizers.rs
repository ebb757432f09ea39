//! Sanitizer findings are attributed only to the test that caused them.

use crate::support::{
    fixtures,
    world::{TestWorld, copy_program},
};

fn world_with(sanitizer: &str) -> TestWorld {
    let world = TestWorld::new();
    copy_program(&fixtures::sanitized_gtest("sanitized", sanitizer), &world.path("sanitized"));
    world
}

#[test]
fn report_of_a_race_belongs_to_the_test_in_whose_body_it_was() {
    let world = world_with("thread");
    // Repeated, because the report may be read in one or several pieces, alone or together with the ends of
    // other tests.
    for _ in 0..5 {
        let ran = world.run(&["run", "sanitized", "-j1"]).assert_code(2);
        ran.line_with(&["TSAN", "Sanitized.Races"]);
        ran.assert_stdout("3 passed, 1 failed");
        ran.line_with(&["at ", "sanitized.cc:1"]);
    }
}

#[test]
fn leak_that_is_found_at_the_exit_is_the_message_and_isolation_shows_the_test() {
    let world = world_with("address");
    let ran = world.run(&["run", "sanitized", "-j1"]).assert_code(2);
    ran.line_with(&["ERROR", "sanitized", "(outside any test)"]);
    let found = "AddressSanitizer: 400 byte(s) leaked in 1 allocation(s).";
    assert!(ran.stdout.lines().any(|line| line.trim() == found), "{}", ran.stdout);
    let ran = world.run(&["run", "sanitized", "--isolate"]).assert_code(2);
    ran.line_with(&["ASAN", "Sanitized.Leaks"]);
    ran.assert_stdout("3 passed, 1 failed");
}
