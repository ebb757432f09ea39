//! The reports at the end of a run equal the later reports from its record byte for byte, including times, in
//! every format and for every framework.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::{command, go::Toolchain, mcp, pytest};
use crate::support::{
    fixtures::{self, Catch2Version, fixtures},
    has_long_forms,
    world::TestWorld,
};

const FORMATS: [&str; 2] = ["junit", "ctrf"];

/// Runs a suite; compares its reports and its summary line with the output of `heeler report`.
#[track_caller]
fn check(world: &TestWorld, words: &[&str]) {
    let requests = |prefix: &str| FORMATS.map(|format| format!("{format}={prefix}.{format}"));
    let (live, later) = (requests("live"), requests("later"));
    fn options(requests: &[String; 2]) -> Vec<&str> {
        requests.iter().flat_map(|request| ["--report", request.as_str()]).collect()
    }
    // The second run has a history. A run with a retry covers everything that a run without retries does.
    let runs: &[&[&str]] =
        if has_long_forms() { &[&[], &["--retries", "1"]] } else { &[&["--retries", "1"]] };
    for more in runs {
        let ran = world.run(&[&["run"], words, *more, options(&live).as_slice()].concat());
        world.run(&[&["report", "latest"], options(&later).as_slice()].concat()).assert_code(0);
        for format in FORMATS {
            let (live, later) =
                (world.read(&format!("live.{format}")), world.read(&format!("later.{format}")));
            assert_eq!(live, later, "{format} of {words:?}");
        }
        let tests = world.read("live.junit").matches("<testcase ").count();
        assert!(tests > 1, "{words:?} has {tests} tests: {ran}");
        let shown = world.run(&["report", "latest"]).assert_code(0);
        let closing = |text: &str| text.lines().rfind(|line| line.contains(" tests in ")).map(str::to_owned);
        let of_record = closing(&shown.stdout);
        assert!(of_record.is_some(), "{shown}");
        assert_eq!(closing(&ran.stdout), of_record, "{ran}");
    }
}

#[track_caller]
fn check_program(program: &Path) {
    let world = TestWorld::new();
    world.write("heeler.toml", "[profile.default]\ntimeout = \"2s\"\ngrace-period = \"200ms\"\n");
    symlink(program, world.path("program")).unwrap();
    check(&world, &["program"]);
}

#[test]
fn gtest_reports_equal_those_of_the_record() {
    check_program(&fixtures::gtest("kinds"));
}

#[test]
fn gtest_deaths_and_leaks_equal_those_of_the_record() {
    check_program(&fixtures::gtest("deaths"));
    check_program(&fixtures::gtest("leaks"));
}

#[test]
fn doctest_reports_equal_those_of_the_record() {
    check_program(&fixtures::doctest("kinds"));
}

#[test]
fn boost_reports_equal_those_of_the_record() {
    check_program(&fixtures::boost("kinds"));
}

#[test]
fn catch2_reports_equal_those_of_the_record() {
    for version in [Catch2Version::Two, Catch2Version::Three] {
        if let Some(program) = fixtures::catch2("kinds", version) {
            check_program(&program);
        }
    }
}

#[test]
fn libtest_reports_equal_those_of_the_record() {
    check_program(&fixtures::libtest());
}

#[test]
fn go_reports_equal_those_of_the_record() {
    let Some(go) = Toolchain::current() else { return };
    check(&go.world(), &["--go", "./kinds"]);
}

#[test]
fn pytest_reports_equal_those_of_the_record() {
    let Some(python) = pytest::python() else { return };
    let world = pytest::world(&["pytest.ini", "conftest.py", "calc.py", "test_ends.py", "test_skipped.py"]);
    check(&world, &["--pytest", ".", "--python", python.to_str().unwrap(), "-j2"]);
}

#[test]
fn command_and_tap_reports_equal_those_of_the_record() {
    check(&command::world_of(&command::COMMANDS, "pattern = [\"t/*.sh\"]\n"), &[]);
    check(&command::world_of(&command::REPORTS, "pattern = [\"t/*.t\"]\nframework = \"tap\"\n"), &[]);
}

#[test]
fn ctest_reports_equal_those_of_the_record() {
    let folder = fixtures::ctest_project();
    check(&TestWorld::new(), &["--ctest", folder.to_str().unwrap(), "--timeout", "5s"]);
}

#[test]
fn json_lines_reports_equal_those_of_the_record() {
    let world = TestWorld::new();
    world.env("ATTACHING_DIRECTORY", world.dir().to_str().unwrap());
    let adapter = fs::read_to_string(fixtures().join("json-lines/attaching.py")).unwrap();
    world.write_program("adapter", &adapter);
    let suite = "[[suite]]\nname = \"a\"\nprograms = [\"adapter\"]\nframework = \"json-lines\"\n";
    world.write("heeler.toml", suite);
    check(&world, &[]);
}

#[test]
fn mcp_reports_equal_those_of_the_record() {
    check(&mcp::world(), &["--mcp", &mcp::server("outcomes modern pages"), "--timeout", "3s"]);
}

#[test]
fn mtp_reports_equal_those_of_the_record() {
    let program = fixtures().join("mtp/application.py");
    let command = format!("python3 {} plain", program.display());
    check(&TestWorld::new(), &["--mtp", &command, "--timeout", "3s"]);
}
