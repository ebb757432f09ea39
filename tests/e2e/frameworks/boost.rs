//! Boost.Test programs over the protocol: every way a test case can end, and dependencies.

use crate::{
    expected::ExpectedResult,
    frameworks::gtest::check_expected,
    support::{fixtures, server::TestServer, uids, world::TestWorld},
};

/// One test hangs. The timeout is long because a busy machine may take seconds to start a process.
const SHORT: &str = "[profile.default]\ntimeout = \"10s\"\ngrace-period = \"200ms\"\n";

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
const SKIPPED: (&str, &str, &str) = ("skipped", "", "SKIP");
const EXITED: (&str, &str, &str) = ("error", "exited-early", "EXIT 0");
const EXIT_TEXT: &str = "the process exited with code 0 before the test ended";

/// Test cases of `tests/fixtures/boost/kinds.cc`, in the order of their listing.
const KINDS: &[ExpectedResult] = &[
    expected("math/passes", PASSED, "", "out of passes\n"),
    expected("math/fails", FAILED, "check 1 + 1 == 3 has failed [1 + 1 != 3]", "out of fails"),
    expected("math/off", SKIPPED, "disabled by its decorator", ""),
    expected("math/base", PASSED, "", ""),
    expected("math/depends", PASSED, "", ""),
    expected("math/depends_on_failure", SKIPPED, "has failed", ""),
    expected("math/expected", PASSED, "", ""),
    expected("math/needs", SKIPPED, "precondition failed", ""),
    expected("math/throws", FAILED, "thrown on purpose", ""),
    expected("math/asserts_nothing", PASSED, "", ""),
    expected("not_here/one", SKIPPED, "precondition failed", ""),
    expected("not_here/inside/two", SKIPPED, "precondition failed", ""),
    expected("rows/_0", PASSED, "", ""),
    expected("rows/_1", FAILED, "check value != 1 has failed", "value = 1; "),
    expected("rows/_2", PASSED, "", ""),
    expected(
        "deaths/segfaults",
        ("error", "crashed", "SIGSEGV"),
        "also crashes in isolation",
        "out of segfaults\n",
    ),
    expected("deaths/exits_with_0", EXITED, EXIT_TEXT, "out of exits\n"),
    expected("deaths/leaves_with_0", EXITED, EXIT_TEXT, ""),
    expected("deaths/is_killed", ("error", "crashed", "SIGKILL"), "SIGKILL", ""),
    expected("deaths/hangs", ("timed-out", "", "TIMEOUT"), "timed out after", ""),
    expected("deaths/last", PASSED, "", ""),
];

fn boost_world() -> TestWorld {
    let world = TestWorld::new();
    std::os::unix::fs::symlink(fixtures::boost("kinds"), world.path("kinds")).unwrap();
    world.write("heeler.toml", SHORT);
    world
}

#[test]
fn every_boost_test_outcome_is_reported() {
    let world = boost_world();
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("kinds", KINDS.iter().map(|one| one.name)));
    check_expected(&checked_run, "kinds", KINDS);
    checked_run.assert_no_program_failures();
    let row = checked_run.test("kinds::rows/_1");
    assert_eq!(
        row["location.line-start"],
        checked_run.test("kinds::rows/_0")["location.line-start"],
        "{row:#}"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unselected_dependency_runs_and_has_no_result() {
    let world = boost_world();
    let mut server = TestServer::initialized(&world, &["kinds"]);
    for (name, state) in [("kinds::math/depends", "passed"), ("kinds::math/depends_on_failure", "skipped")] {
        let run = server.run(Some(&[name]));
        let checked_run = server.finish(&run, &[name.to_owned()]);
        assert_eq!(checked_run.state(name), state, "{:#}", checked_run.test(name));
        checked_run.assert_no_program_failures();
    }
    assert_eq!(server.exit(), Some(0));
}
