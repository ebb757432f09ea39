//! Commands as tests: every way a script can end, by its exit code and by its report.

use serde_json::json;

use crate::{
    expected::ExpectedResult,
    frameworks::gtest::check_expected,
    support::{server::TestServer, uids, world::TestWorld},
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

/// Scripts with their names, contents and results.
pub(super) const COMMANDS: [(&str, &str, ExpectedResult); 6] = [
    ("t/a.sh", "echo out; echo err >&2", expected("t/a.sh", PASSED, "", "out\n")),
    ("t/b c.sh", "printf 'no end'; exit 3", expected("t/b c.sh", FAILED, "exited with code 3", "no end")),
    ("t/d.sh", "kill -SEGV $$", expected("t/d.sh", ("error", "crashed", "SIGSEGV"), "SIGSEGV", "")),
    ("t/e.sh", "kill -KILL $$", expected("t/e.sh", ("error", "crashed", "SIGKILL"), "SIGKILL", "")),
    (
        "t/f.sh",
        "echo waits; sleep 600",
        expected("t/f.sh", ("timed-out", "", "TIMEOUT"), "timed out", "waits\n"),
    ),
    ("t/g.sh", "echo '[  FAILED  ] A.b'", expected("t/g.sh", PASSED, "", "[  FAILED  ] A.b\n")),
];

/// Scripts that report in the Test Anything Protocol, with their names, contents and results.
pub(super) const REPORTS: [(&str, &str, ExpectedResult); 8] = [
    ("t/a.t", "echo 1..2; echo ok 1 - one; echo ok 2 - two", expected("t/a.t", PASSED, "", "ok 1 - one")),
    ("t/b.t", "echo 1..1; echo not ok 1 - one", expected("t/b.t", FAILED, "not ok 1 - one", "")),
    ("t/c.t", "echo 1..3; echo ok 1; exit 0", expected("t/c.t", FAILED, "3 tests planned, 1 reported", "")),
    ("t/d.t", "echo '1..0 # SKIP no net'", expected("t/d.t", ("skipped", "", "SKIP"), "no net", "")),
    ("t/e.t", "echo ok 1; echo 'Bail out! disk full'", expected("t/e.t", FAILED, "Bail out! disk full", "")),
    ("t/f.t", "echo 1..1; echo ok 1; exit 5", expected("t/f.t", FAILED, "exited with code 5", "")),
    (
        "t/g.t",
        "echo 1..2; echo ok 1; kill -SEGV $$",
        expected("t/g.t", ("error", "crashed", "SIGSEGV"), "SIGSEGV", ""),
    ),
    ("t/h.t", "echo 1..1; echo 'not ok 1 # TODO later'", expected("t/h.t", PASSED, "", "")),
];

pub(super) fn world_of(scripts: &[(&str, &str, ExpectedResult)], suite: &str) -> TestWorld {
    let world = TestWorld::new();
    std::fs::create_dir(world.path("t")).unwrap();
    for (name, script, _) in scripts {
        world.write_program(name, &format!("#!/bin/sh\n{script}\n"));
    }
    world.write("heeler.toml", &format!("{SHORT}[[suite]]\nname = \"s\"\n{suite}"));
    world
}

#[track_caller]
fn check(scripts: &[(&str, &str, ExpectedResult)], suite: &str) -> crate::support::checked_run::CheckedRun {
    let world = world_of(scripts, suite);
    let mut server = TestServer::initialized(&world, &[]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("s", scripts.iter().map(|(name, ..)| *name)));
    for (_, _, result) in scripts {
        check_expected(&checked_run, "s", std::slice::from_ref(result));
    }
    checked_run.assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
    checked_run
}

#[test]
fn every_end_of_a_command_is_reported() {
    let checked_run = check(&COMMANDS, "pattern = [\"t/*.sh\"]\n");
    assert_eq!(checked_run.test("s::t/a.sh")["standardError"], "err\n");
}

#[test]
fn every_end_of_a_report_is_reported_with_its_points() {
    let checked_run = check(&REPORTS, "pattern = [\"t/*.t\"]\nframework = \"tap\"\n");
    assert_eq!(
        checked_run.test("s::t/a.t")["heeler.parts"],
        json!([{"name": "1 - one", "state": "passed"}, {"name": "2 - two", "state": "passed"}])
    );
}

#[test]
fn command_runs_its_files_or_is_a_test_itself() {
    let world = world_of(&[], "command = \"sh -e\"\npattern = [\"t/*.sh\"]\n");
    world.write("t/first.sh", "echo first; false; true");
    world.write("t/second.sh", "test \"$0\" = \"$PWD/t/second.sh\"");
    let ran = world.run(&["run"]).assert_code(2);
    ran.assert_stdout("t/first.sh").assert_stdout("exited with code 1").assert_stdout("1 passed");
    let world = world_of(&[], "command = \"sh -c 'test $A = b'\"\nenv = { A = \"b\" }\n");
    world.run(&["run"]).assert_code(0).assert_stdout("1 passed");
    world.write_program("check", "#!/bin/sh\nexit $1\n");
    world.run(&["run", "check", "--framework", "command", "--", "0"]).assert_code(0);
    let ran = world.run(&["run", "check", "--framework", "command", "--", "4"]).assert_code(2);
    ran.assert_stdout("check").assert_stdout("exited with code 4");
}
