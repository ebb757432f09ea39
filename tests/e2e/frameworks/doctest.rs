//! doctest programs over the protocol: every way a test case can end, and names that are hard to select.

use serde_json::json;

use crate::{
    expected::ExpectedResult,
    frameworks::gtest::check_expected,
    support::{fixtures, server::TestServer, uids, world::TestWorld},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n";

const fn expected(
    name: &'static str,
    (state, kind, label): (&'static str, &'static str, &'static str),
    message: &'static str,
    stdout: &'static str,
) -> ExpectedResult {
    ExpectedResult { name, state, kind, label, message, stdout }
}

const PASSED: (&str, &str, &str) = ("passed", "", "PASS");
const FAILED: (&str, &str, &str) = ("failed", "", "FAIL");
const EXITED: (&str, &str, &str) = ("error", "exited-early", "EXIT 0");

/// Test cases of `tests/fixtures/doctest/kinds.cc`, in the order of their listing.
const KINDS: &[ExpectedResult] = &[
    expected("passes", PASSED, "", "out of passes\n"),
    expected(
        "fails",
        FAILED,
        "CHECK( 1 + 1 == 3 ) is NOT correct!\n  values: 2 == 3",
        "out of fails, without newline",
    ),
    expected("off", ("skipped", "", "SKIP"), "skipped by its decorator", ""),
    expected("segfaults", ("error", "crashed", "SIGSEGV"), "also crashes in isolation", "out of segfaults\n"),
    expected(
        "exits with 0",
        EXITED,
        "the process exited with code 0 before the test ended",
        "out of exits\n",
    ),
    expected("leaves with 0", EXITED, "the process exited with code 0 before the test ended", ""),
    expected("is killed", ("error", "crashed", "SIGKILL"), "SIGKILL", ""),
    expected("hangs", ("timed-out", "", "TIMEOUT"), "timed out after", ""),
    expected("has parts", FAILED, "in subcase: left > wrong", ""),
    expected("may fail", PASSED, "", ""),
    expected("should fail and does not", FAILED, "should have failed but did not", ""),
    expected("throws", FAILED, "threw: unknown exception", ""),
    expected("twice", PASSED, "", "the first\n"),
    expected("twice#2", PASSED, "", "the second\n"),
    expected("last", PASSED, "", ""),
];

fn world_with(name: &str) -> TestWorld {
    let world = TestWorld::new();
    std::os::unix::fs::symlink(fixtures::doctest(name), world.path(name)).unwrap();
    world.write("heeler.toml", SHORT);
    world
}

#[test]
fn every_doctest_outcome_is_reported() {
    let world = world_with("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("kinds", KINDS.iter().map(|one| one.name)));
    check_expected(&checked_run, "kinds", KINDS);
    checked_run.assert_no_program_failures();
    let fails = checked_run.test("kinds::fails");
    assert_eq!(fails["standardOutput"], "out of fails, without newline", "{fails:#}");
    // If several tests end within one read, Heeler cannot tell which of them wrote to standard error.
    assert!(fails["standardError"].as_str().unwrap().ends_with("err of fails\n"), "{fails:#}");
    assert_eq!(
        checked_run.test("kinds::has parts")["heeler.parts"],
        json!([
            {"name": "left", "state": "failed"},
            {"name": "left > deep", "state": "passed"},
            {"name": "left > wrong", "state": "failed"},
            {"name": "right", "state": "passed"},
        ])
    );
    let crashed = &checked_run.test("kinds::segfaults")["heeler.parts"];
    assert_eq!(
        *crashed,
        json!([{"name": "first", "state": "passed"}, {"name": "second", "state": "in-progress"}])
    );
    assert_eq!(server.exit(), Some(0));
}

/// Names in `tests/fixtures/doctest/names.cc` as in uids, in the order of their listing.
const NAMES: [&str; 37] = [
    "plain",
    "PLAIN",
    "two words",
    "a,b",
    "a\\,b",
    "*",
    "a*",
    "*a",
    "a?b",
    "a\\b",
    "ends with \\",
    "\"quoted\"",
    "'single'",
    "<tag attr=\"x\">",
    "&amp;",
    "]]>",
    "(no name)",
    " ",
    " leading",
    "trailing ",
    "two  spaces",
    "new\nline",
    "tab\there",
    "carriage\rreturn",
    "bell\\x07",
    "ünï¢ödé 日本",
    "bytes \\xFF\\xFE",
    "exclude:x",
    "[tag]",
    "-dash",
    "--dt-list-test-cases",
    "a::b",
    "a/b.c",
    "$(echo x) `y` ; z #",
    "dup",
    "dup#2",
    "duplicate",
];

#[test]
fn nasty_doctest_names_are_selected_exactly() {
    let world = world_with("names");
    let mut server = TestServer::initialized(&world, &["names"]);
    // Selecting every second name prevents a range from covering the selection. The second round runs the
    // other half.
    for first in [0, 1] {
        let selected = uids("names", NAMES.iter().skip(first).step_by(2).copied());
        let wanted: Vec<&str> = selected.iter().map(String::as_str).collect();
        let run = server.run(Some(&wanted));
        let checked_run = server.finish(&run, &selected);
        for (place, name) in NAMES.iter().enumerate().skip(first).step_by(2) {
            let uid = format!("names::{name}");
            let node = checked_run.test(&uid);
            assert_eq!(checked_run.state(&uid), "passed", "{node:#}");
            // The output is exactly this test's: no other test ran instead or in addition.
            assert_eq!(node["standardOutput"], format!("I am {}.\n", place + 1), "{node:#}");
        }
        checked_run.assert_no_program_failures();
    }
    assert_eq!(server.exit(), Some(0));
}
