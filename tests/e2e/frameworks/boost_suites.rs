//! Suite fixtures and test dependencies of Boost.Test: a failing fixture is reported for its suite and does
//! not affect other tests.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::{checked_run::CheckedRun, fixtures, server::TestServer, uids, world::TestWorld};

/// Tests of `tests/fixtures/boost/suites.cc`.
const ALL: [&str; 10] = [
    "fine/a",
    "fine/b",
    "outer/first",
    "outer/inner/a",
    "outer/inner/b",
    "base",
    "needs_base",
    "needing/a",
    "needing/b",
    "needs_suite",
];

/// Runs all tests in batches, then each in a separate process, with the failure `what`; `check` gets each
/// run.
fn run_failing(what: &str, check: impl Fn(&CheckedRun)) {
    run_failing_with("", what, check);
}

/// Like [`run_failing`], with additional settings.
fn run_failing_with(further: &str, what: &str, check: impl Fn(&CheckedRun)) {
    let world = TestWorld::new();
    symlink(fixtures::boost("suites"), world.path("suites")).unwrap();
    world.env("FAILS", what);
    for settings in ["jobs = 1\n", "jobs = 4\nisolate = true\n"] {
        eprintln!("{what} {settings}");
        world.write("heeler.toml", &format!("[profile.default]\n{further}{settings}"));
        let mut server = TestServer::initialized(&world, &["suites"]);
        let run = server.run(None);
        check(&server.finish(&run, &uids("suites", ALL)));
        assert_eq!(server.exit(), Some(0));
    }
}

/// Checks that exactly these tests did not pass, each with this text in its message.
fn check_bad(checked_run: &CheckedRun, bad: &[&str], text: &str) {
    for name in ALL {
        let uid = format!("suites::{name}");
        let is_bad = bad.contains(&name);
        assert_eq!(checked_run.state(&uid) != "passed", is_bad, "{:#}", checked_run.test(&uid));
        if is_bad {
            assert!(checked_run.message(&uid).contains(text), "{:#}", checked_run.test(&uid));
        }
    }
}

fn program_message(checked_run: &CheckedRun) -> String {
    let messages = checked_run.programs.values().map(|node: &Value| node["error.message"].to_string());
    messages.collect()
}

#[test]
fn death_in_the_set_up_of_a_boost_suite_is_charged_to_its_tests() {
    for (how, text) in
        [("segv", "crashed with SIGSEGV"), ("kill", "killed by SIGKILL"), ("exit", "exited with code 0")]
    {
        let inner = format!("{text} in the set-up of suite outer/inner");
        run_failing(&format!("inner-set-up:{how}"), |checked_run| {
            check_bad(checked_run, &["outer/inner/a", "outer/inner/b"], &inner);
            checked_run.assert_no_program_failures();
        });
        let outer = format!("{text} in the set-up of suite outer");
        run_failing(&format!("outer-set-up:{how}"), |checked_run| {
            check_bad(checked_run, &["outer/first", "outer/inner/a", "outer/inner/b"], &outer);
        });
    }
}

#[test]
fn boost_suite_whose_set_up_hangs_costs_only_its_tests() {
    let limit = "startup-timeout = \"700ms\"\ngrace-period = \"100ms\"\n";
    let outer = ["outer/first", "outer/inner/a", "outer/inner/b"];
    for (what, suite, bad) in [("inner", "outer/inner", &outer[1..]), ("outer", "outer", &outer[..])] {
        run_failing_with(limit, &format!("{what}-set-up:hang"), |checked_run| {
            // Heeler extends the limit on a slow machine, so the exact time is not checked.
            check_bad(checked_run, bad, &format!(" s in the set-up of suite {suite}"));
            check_bad(checked_run, bad, "timed out after ");
            checked_run.assert_no_program_failures();
        });
    }
    let limit = "startup-timeout = \"1s\"\ngrace-period = \"100ms\"\n";
    run_failing_with(limit, "inner-set-up:slow", |checked_run| {
        check_bad(checked_run, &[], "");
        checked_run.assert_no_program_failures();
    });
}

#[test]
fn boost_tear_down_that_hangs_has_a_limit_without_a_time_limit() {
    let limit = "startup-timeout = \"500ms\"\ngrace-period = \"100ms\"\n";
    // The hang comes after the last test of a suite, after its last nested suite, or after all tests.
    for (what, suite) in [("inner", "outer/inner"), ("outer", "outer"), ("module", "module")] {
        run_failing_with(limit, &format!("{what}-tear-down:hang"), |checked_run| {
            check_bad(checked_run, &[], "");
            let named: Vec<_> = checked_run.programs.keys().collect();
            assert_eq!(named, [&format!("suites::{suite} (tear-down)")], "{checked_run:#?}");
            let message = program_message(checked_run);
            let limit = "(four times startup-timeout) in the tear-down of the suite";
            assert!(message.contains(limit), "{message}");
        });
    }
}

#[test]
fn boost_test_that_hangs_costs_only_those_that_depend_on_it() {
    let limits = "startup-timeout = \"700ms\"\ngrace-period = \"100ms\"\ntimeout = \"3s\"\n";
    run_failing_with(limits, "base:hang", |checked_run| {
        let needing = ["base", "needs_base", "needing/a", "needing/b", "needs_suite"];
        check_bad(checked_run, &needing, "timed out after ");
        for name in &needing[1..] {
            let message = checked_run.message(&format!("suites::{name}"));
            assert!(message.ends_with("in its dependency base"), "{message}");
        }
        checked_run.assert_no_program_failures();
    });
}

#[test]
fn exit_in_the_tear_down_of_a_boost_suite_is_its_own() {
    for what in ["inner", "outer", "module"] {
        run_failing(&format!("{what}-tear-down:exit"), |checked_run| {
            check_bad(checked_run, &[], "");
            let message = program_message(checked_run);
            assert!(message.contains("exited with code 0 in the tear-down of the suite"), "{message}");
        });
    }
}

#[test]
fn boost_test_that_logs_its_own_end_and_exits_does_not_pass() {
    run_failing("fine-b:forge", |checked_run| {
        check_bad(checked_run, &["fine/b"], "exited with code 0");
        let message = checked_run.message("suites::fine/b");
        assert!(!message.contains("tear-down"), "{message}");
    });
}

#[test]
fn boost_suite_whose_set_up_fails_has_its_message() {
    run_failing("inner-set-up:throw", |checked_run| {
        let text = "the set-up of suite outer/inner failed: std::runtime_error: thrown in inner-set-up";
        check_bad(checked_run, &["outer/inner/a", "outer/inner/b"], text);
        checked_run.assert_no_program_failures();
    });
    run_failing("module-set-up:throw", |checked_run| {
        check_bad(
            checked_run,
            &ALL,
            "the set-up of the module failed: std::runtime_error: thrown in module-set-up",
        );
    });
    // The failed set-up does not prevent the suite's tests from running.
    run_failing("inner-set-up:error", |checked_run| {
        check_bad(checked_run, &[], "");
        let message = program_message(checked_run);
        assert!(message.contains("error in inner-set-up") && !message.contains("exited"), "{message}");
    });
}

#[test]
fn error_in_the_tear_down_of_a_boost_suite_has_its_message() {
    for (what, how) in [("inner", "throw"), ("outer", "error"), ("module", "error"), ("module", "throw")] {
        run_failing(&format!("{what}-tear-down:{how}"), |checked_run| {
            check_bad(checked_run, &[], "");
            let message = program_message(checked_run);
            assert!(message.contains(&format!("in {what}-tear-down")), "{message}");
            assert!(!message.contains("explains this exit code"), "{message}");
            assert_eq!(
                message.contains("the tear-down of module module failed"),
                what == "module",
                "{message}"
            );
        });
    }
    // The stack trace shows where the process died.
    for what in ["inner", "outer", "module"] {
        run_failing(&format!("{what}-tear-down:segv"), |checked_run| {
            check_bad(checked_run, &[], "");
            let message = program_message(checked_run);
            assert!(message.contains("was killed by SIGSEGV in the tear-down of the suite"), "{message}");
        });
    }
}

#[test]
fn crash_of_a_boost_test_costs_only_those_that_depend_on_it() {
    let needing = ["base", "needs_base", "needing/a", "needing/b", "needs_suite"];
    for (how, text) in [("segv", "crashed with SIGSEGV"), ("exit", "exited with code 0")] {
        run_failing(&format!("base:{how}"), |checked_run| {
            check_bad(checked_run, &needing, text);
            for name in &needing[1..] {
                let message = checked_run.message(&format!("suites::{name}"));
                assert!(message.contains("in its dependency base"), "{message}");
            }
        });
    }
    run_failing("base:error", |checked_run| {
        check_bad(checked_run, &needing, "");
        assert!(needing[1..].iter().all(|name| checked_run.state(&format!("suites::{name}")) == "skipped"));
    });
}

#[test]
fn boost_program_with_many_tests_is_listed() {
    let world = TestWorld::new();
    symlink(fixtures::boost("suites"), world.path("suites")).unwrap();
    world.env("ADDED", "12000");
    let listed = world.run(&["list", "suites"]).assert_code(0);
    assert!(listed.stdout.contains("added_test_with_a_name_of_some_length_11999"), "{}", listed.stderr);
}
