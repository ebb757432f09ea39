//! Programs of both Catch2 versions over the protocol: every way a test case can end, and names that are hard
//! to select.

use serde_json::json;

use crate::{
    expected::ExpectedResult,
    frameworks::gtest::check_expected,
    support::{
        fixtures::{self, Catch2Version},
        server::TestServer,
        uids,
        world::TestWorld,
    },
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

/// Test cases of `tests/fixtures/catch2/kinds.cc`, in the order of their listing.
const KINDS: &[ExpectedResult] = &[
    expected("passes", PASSED, "", "out of passes\n"),
    expected("fails", FAILED, "CHECK( 1 + 1 == 3 )\n  values: 2 == 3", "printed by fails\n"),
    expected("off", SKIPPED, "hidden by its tag", ""),
    expected("segfaults", ("error", "crashed", "SIGSEGV"), "also crashes in isolation", "out of segfaults\n"),
    // In a batch, Catch2 redirects the streams, and at `exit` a destructor in Catch2 crashes. The test's
    // output is lost; the isolated rerun has it.
    expected(
        "exits with 0",
        ("error", "crashed", "SIGSEGV"),
        "in isolation: the process exited with code 0 before the test ended",
        "out of exits\n",
    ),
    expected("leaves with 0", EXITED, EXIT_TEXT, ""),
    expected("is killed", ("error", "crashed", "SIGKILL"), "SIGKILL", ""),
    expected("hangs", ("timed-out", "", "TIMEOUT"), "timed out after", ""),
    expected("has parts", FAILED, "CHECK( 2 < 1 )", ""),
    expected("may fail", PASSED, "", ""),
    expected("should fail and does", PASSED, "", ""),
    expected("should fail and does not", FAILED, "its tags mark it as failed", ""),
    expected("throws", FAILED, "thrown on purpose", ""),
    expected("throws in a check", FAILED, "inside a check", ""),
    expected("fails explicitly", FAILED, "explicit <message> & more", ""),
    expected("warns", PASSED, "", "only a warning\n"),
    expected("asserts nothing", PASSED, "", ""),
    expected("skips", SKIPPED, "no device", ""),
    expected("template - int", PASSED, "", ""),
    expected("template - float", PASSED, "", ""),
    expected("fixture", PASSED, "", ""),
    expected("last", PASSED, "", ""),
];

fn world_with(name: &str, version: Catch2Version) -> Option<TestWorld> {
    let program = fixtures::catch2(name, version)?;
    let world = TestWorld::new();
    std::os::unix::fs::symlink(program, world.path(name)).unwrap();
    Some(world)
}

fn check_every_outcome(version: Catch2Version) {
    let Some(world) = world_with("kinds", version) else { return };
    world.write("heeler.toml", SHORT);
    let kinds: Vec<_> =
        KINDS.iter().filter(|one| one.name != "skips" || version == Catch2Version::Three).copied().collect();
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("kinds", kinds.iter().map(|one| one.name)));
    check_expected(&checked_run, "kinds", &kinds);
    checked_run.assert_no_program_failures();
    let fails = checked_run.test("kinds::fails");
    let text = fails.to_string();
    assert!(text.contains("out of fails, without newline") && text.contains("err of fails"), "{fails:#}");
    assert_eq!(fails["assert.expected"], "3", "{fails:#}");
    assert_eq!(fails["assert.actual"], "2", "{fails:#}");
    assert!(checked_run.message("kinds::fails").contains("the reason is arithmetic"), "{fails:#}");
    // Catch2 reports only the innermost sections of a test that runs alone.
    let parts = &checked_run.test("kinds::has parts")["heeler.parts"];
    let state_of = |name: &str| {
        let part = parts.as_array().unwrap().iter().find(|part| part["name"] == name);
        part.map(|part| part["state"].clone())
    };
    assert_eq!(state_of("left > deep"), Some(json!("passed")), "{parts:#}");
    assert_eq!(state_of("left > wrong"), Some(json!("failed")), "{parts:#}");
    assert_eq!(state_of("right"), Some(json!("passed")), "{parts:#}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn every_catch2_outcome_is_reported() {
    check_every_outcome(Catch2Version::Three);
}

#[test]
fn every_outcome_of_version_2_is_reported() {
    check_every_outcome(Catch2Version::Two);
}

#[test]
fn lone_catch2_test_has_its_verdict_and_details() {
    for version in [Catch2Version::Two, Catch2Version::Three] {
        let Some(world) = world_with("kinds", version) else { continue };
        let mut server = TestServer::initialized(&world, &["kinds"]);
        for name in
            ["passes", "fails", "has parts", "may fail", "should fail and does not", "asserts nothing"]
        {
            let one = KINDS.iter().find(|one| one.name == name).unwrap();
            let uid = format!("kinds::{name}");
            let run = server.run(Some(&[&uid]));
            let checked_run = server.finish(&run, std::slice::from_ref(&uid));
            let node = checked_run.test(&uid);
            assert_eq!(checked_run.state(&uid), one.state, "{version:?}: {node:#}");
            checked_run.assert_no_program_failures();
            if name == "fails" {
                assert_eq!(node["assert.expected"], "3", "{node:#}");
                assert!(node["standardOutput"].as_str().unwrap().contains("out of fails"), "{node:#}");
                assert!(node["standardError"].as_str().unwrap().contains("err of fails"), "{node:#}");
            }
            if name == "has parts" {
                let parts = node["heeler.parts"].to_string();
                assert!(parts.contains("left > wrong"), "{node:#}");
            }
        }
        assert_eq!(server.exit(), Some(0));
    }
}

/// Names in `tests/fixtures/catch2/names.cc`, in the order of their listing.
const NAMES: [&str; 48] = [
    "plain",
    "two words",
    "a,b",
    "a\\,b",
    "*",
    "a*",
    "*a",
    "*a*",
    "a*b",
    "a?b",
    "a\\b",
    "ends with \\",
    "\"quoted\"",
    "one \" mark",
    "'single'",
    "<tag attr=\"x\">",
    "&amp;",
    "]]>",
    " leading",
    "trailing ",
    "two  spaces",
    "new\nline",
    "tab\there",
    "carriage\rreturn",
    "bell\u{7}",
    "ünï¢ödé 日本",
    "bytes \\xFF\\xFE",
    "exclude:x",
    "~tilde",
    "[tag]",
    "a [tag] inside",
    "[.]",
    "#hash",
    "# hash and space",
    "-dash",
    "--list-tests",
    "a::b",
    "a/b.c",
    "$(echo x) `y` ; z #",
    "Upper",
    "{brace}",
    "%s %n",
    "a - int",
    "a\n\"b\", c\n",
    "twice",
    "twice#2",
    "UPPER",
    "last",
];

/// Numbers, counted from 1, of names that Catch2 2 rejects because it does not allow two tests with the same
/// name.
const ONLY_VERSION_3: [usize; 2] = [45, 46];

#[test]
fn nasty_catch2_names_are_selected_exactly() {
    for version in [Catch2Version::Two, Catch2Version::Three] {
        let Some(world) = world_with("names", version) else { continue };
        let mut server = TestServer::initialized(&world, &["names"]);
        let has = |number: &usize| version == Catch2Version::Three || !ONLY_VERSION_3.contains(number);
        for first in [1, 2] {
            let numbers: Vec<_> = (first..=NAMES.len()).step_by(2).filter(has).collect();
            let selected = uids("names", numbers.iter().map(|number| NAMES[number - 1]));
            let wanted: Vec<&str> = selected.iter().map(String::as_str).collect();
            let run = server.run(Some(&wanted));
            let checked_run = server.finish(&run, &selected);
            for (number, uid) in numbers.iter().zip(&selected) {
                let node = checked_run.test(uid);
                assert_eq!(checked_run.state(uid), "passed", "{version:?}: {node:#}");
                // The output is exactly this test's: no other test ran instead.
                assert_eq!(node["standardOutput"], format!("I am {number}.\n"), "{version:?}: {node:#}");
            }
            checked_run.assert_no_program_failures();
        }
        assert_eq!(server.exit(), Some(0));
    }
}
