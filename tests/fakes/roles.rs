//! The roles, each with its own listing and run.

use std::{collections::HashSet, process::abort};

use crate::{
    gtest::{self, FakeRunOutput},
    wait::wait_for_ever,
};

const TESTS: [&str; 4] = ["One", "Two", "Three", "Four"];

/// Prints a role's listing; returns the exit code.
pub(crate) fn list(role: &str, xml: Option<&str>) -> u8 {
    match role {
        "hangs-in-listing" => wait_for_ever(),
        "crashes-in-listing" => abort(),
        "crashes-in-its-first-listing" if is_first_call() => abort(),
        "fails-in-listing" => {
            eprintln!("the licence server does not answer");
            return 3;
        }
        "lists-garbage" => {
            println!("Usage: frobnicate [FILE]\n\tdoes what it likes");
            if let Some(path) = xml {
                std::fs::write(path, "<testsuites><testsuite name=\"Fake\"><testcase name=\"On")
                    .expect("the listing can be written");
            }
        }
        "lists-nothing" => gtest::list(&[], xml),
        "lists-duplicates" => gtest::list(&["One", "Duplicate", "Duplicate", "Last"], xml),
        _ => gtest::list(&TESTS, xml),
    }
    0
}

/// Returns whether no process called this before. The file `$HEELER_FIXTURE_FLAKY` records the first call.
fn is_first_call() -> bool {
    let path = std::env::var_os("HEELER_FIXTURE_FLAKY").expect("the tester names a file");
    std::fs::File::create_new(path).is_ok()
}

/// Runs a role's tests; returns the exit code.
pub(crate) fn run(role: &str, filter: &Option<HashSet<String>>) -> u8 {
    let is_asked = |test: &&str| filter.as_ref().is_none_or(|all| all.contains(&format!("Fake.{test}")));
    let listed: &[&str] =
        if role == "lists-duplicates" { &["One", "Duplicate", "Duplicate", "Last"] } else { &TESTS };
    let asked: Vec<&str> = listed.iter().copied().filter(is_asked).collect();
    match role {
        "ignores-the-filter" => all(&TESTS),
        "runs-nothing" => FakeRunOutput::begin(0).end(),
        "says-nothing" => {}
        "dies-before-its-first-test" => {
            eprintln!("no display");
            abort();
        }
        "dies-between-tests" => {
            let run = FakeRunOutput::begin(asked.len());
            run.start(asked[0]);
            run.pass(asked[0]);
            // A line of the suite confirms the end of the first test.
            println!("[----------] 1 test from Fake (0 ms total)");
            abort();
        }
        "never-leaves" => {
            all(&asked);
            wait_for_ever();
        }
        "never-begins" => wait_for_ever(),
        "fails-while-another-runs" => fail_while_another_runs(&asked),
        "stops-after-two" => {
            let run = FakeRunOutput::begin(asked.len());
            for test in asked.iter().take(2) {
                run.start(test);
                run.pass(test);
            }
            run.end();
        }
        "leaves-with-7" => {
            all(&asked);
            return 7;
        }
        "tells-everything-twice" => {
            let run = FakeRunOutput::begin(asked.len());
            for test in &asked {
                for _ in 0..2 {
                    run.start(test);
                    run.pass(test);
                    run.pass(test);
                }
            }
            run.end();
        }
        _ => {
            all(&asked);
            if role == "lists-duplicates" {
                // Only GoogleTest's report tells two tests with the same name apart.
                gtest::report(&asked);
            }
        }
    }
    0
}

fn all(tests: &[&str]) {
    let run = FakeRunOutput::begin(tests.len());
    for test in tests {
        run.start(test);
        run.pass(test);
    }
    run.end();
}

/// `One` aborts once `Two` runs, which `Two` signals with the file `$HEELER_FIXTURE_FLAKY`; `Two` never ends.
/// Each runs in its own process.
fn fail_while_another_runs(asked: &[&str]) {
    let path = std::env::var_os("HEELER_FIXTURE_FLAKY").expect("the tester names a file");
    let run = FakeRunOutput::begin(asked.len());
    for test in asked {
        run.start(test);
        match *test {
            "One" => {
                while !std::path::Path::new(&path).exists() {
                    std::thread::yield_now();
                }
                abort();
            }
            "Two" => {
                std::fs::write(&path, "").expect("the file can be written");
                wait_for_ever();
            }
            _ => run.pass(test),
        }
    }
    run.end();
}
