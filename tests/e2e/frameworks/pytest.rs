//! pytest: a fixture suite with every way a test can end, its output, listings and coverage. Skipped if
//! `scripts/test` could not install pytest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

use crate::support::{
    fixtures::fixtures,
    has_long_forms, requirement,
    world::{FinishedCommand, TestWorld},
};

pub(super) const SETTINGS: &str =
    "[profile.default]\ntimeout = \"10s\"\ngrace-period = \"400ms\"\ndumps = \"off\"\n";

/// Returns the interpreter in `HEELER_PYTEST`, or by default the one with the newest pytest.
pub(crate) fn python() -> Option<PathBuf> {
    let chosen = std::env::var_os("HEELER_PYTEST").map(PathBuf::from);
    chosen.or_else(|| installed_python("pytest"))
}

/// Returns the interpreter with the oldest pytest, unless `HEELER_PYTEST` names an interpreter.
fn oldest_python() -> Option<PathBuf> {
    std::env::var_os("HEELER_PYTEST").map_or_else(|| installed_python("pytest-oldest"), |_| None)
}

/// Returns the interpreter from [`python`]; in the long form, also the one with the oldest pytest.
pub(super) fn pythons() -> Vec<PathBuf> {
    let oldest = if has_long_forms() { oldest_python() } else { None };
    oldest.into_iter().chain(python()).collect()
}

/// Returns the interpreter of an environment that `scripts/test` has installed.
fn installed_python(name: &str) -> Option<PathBuf> {
    let environment = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let is_installed = environment.join("installed").exists();
    if !is_installed {
        requirement::leave_out(name, &format!("scripts/test installs it into {}", environment.display()));
    }
    is_installed.then(|| environment.join("bin/python"))
}

/// Returns a world with these files of the fixture suite.
pub(super) fn world(files: &[&str]) -> TestWorld {
    let world = TestWorld::new();
    world.write("heeler.toml", SETTINGS);
    world.env("PYTHONDONTWRITEBYTECODE", "1");
    for file in files {
        world.write(file, &fs::read_to_string(fixtures().join("pytest").join(file)).unwrap());
    }
    world
}

const ALL_FILES: [&str; 10] = [
    "pytest.ini",
    "conftest.py",
    "calc.py",
    "test_broken.py",
    "test_deaths.py",
    "test_ends.py",
    "test_library.py",
    "test_shared.py",
    "test_skipped.py",
    "test_unittest.py",
];

pub(super) struct PytestRun {
    pub(super) command: FinishedCommand,
    /// Last event of each test, by its node id.
    pub(super) ends: BTreeMap<String, Value>,
    pub(super) program_failures: Vec<Value>,
}

pub(super) fn run(world: &TestWorld, python: &std::path::Path, more: &[&str]) -> PytestRun {
    run_with(world, python, &[&["-j2"], more].concat())
}

pub(super) fn run_with(world: &TestWorld, python: &std::path::Path, more: &[&str]) -> PytestRun {
    let python = python.to_str().unwrap();
    let words = ["run", "--format", "json", "--pytest", ".", "--python", python];
    let command = world.run(&[&words, more].concat());
    let (mut ends, mut program_failures) = (BTreeMap::new(), Vec::new());
    for line in command.stdout.lines().filter(|line| line.starts_with('{')) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if event["type"] == "test" && event["outcome"].is_string() {
            let name = event["name"].as_str().unwrap().to_owned();
            assert!(ends.insert(name, event).is_none(), "two ends: {line}");
        } else if event["type"] == "program" {
            program_failures.push(event);
        }
    }
    PytestRun { command, ends, program_failures }
}

impl PytestRun {
    #[track_caller]
    pub(super) fn end(&self, name: &str) -> &Value {
        self.ends.get(name).unwrap_or_else(|| panic!("no end of {name}\n{}", self.command))
    }

    /// Panics unless the test's last event has this outcome and contains this text.
    #[track_caller]
    pub(super) fn assert_outcome(&self, name: &str, outcome: &str, said: &str) {
        let end = self.end(name);
        assert_eq!(end["outcome"], outcome, "{end:#}");
        assert!(end.to_string().contains(said), "{said:?} is not in {end:#}");
    }
}

const OUTCOMES: [(&str, &str, &str); 46] = [
    ("calc.py::calc.add", "passed", ""),
    ("calc.py::calc.subtract", "failed", "Expected:"),
    ("test_broken.py", "failed", "No module named 'no_such_module_anywhere'"),
    ("test_deaths.py::test_before", "passed", ""),
    ("test_deaths.py::test_segfaults", "crashed", "before the crash"),
    ("test_deaths.py::test_aborts", "crashed", "SIGABRT"),
    ("test_deaths.py::test_is_killed", "crashed", "SIGKILL"),
    ("test_deaths.py::test_exits_with_success", "exited-early", "code 0"),
    ("test_deaths.py::test_exits", "exited-early", "code 3"),
    ("test_deaths.py::test_is_interrupted", "failed", "KeyboardInterrupt"),
    ("test_deaths.py::test_interrupts_itself", "failed", "KeyboardInterrupt"),
    ("test_deaths.py::test_ends_session", "failed", "Exit: enough"),
    ("test_deaths.py::test_hangs", "timed-out", "test_hangs at "),
    ("test_deaths.py::test_hangs_in_c", "timed-out", "test_hangs_in_c at "),
    ("test_deaths.py::test_recurses", "failed", "RecursionError"),
    ("test_deaths.py::test_closes_descriptors", "exited-early", "Bad file descriptor"),
    ("test_deaths.py::test_after", "passed", ""),
    ("test_ends.py::test_passes", "passed", ""),
    ("test_ends.py::test_fails", "failed", "\"expected\":\"{'a': 1}\""),
    ("test_ends.py::test_raises", "failed", "ValueError: no value"),
    ("test_ends.py::test_writes", "passed", ""),
    ("test_ends.py::test_writes_nothing", "passed", ""),
    ("test_ends.py::test_skips", "skipped", "not today"),
    ("test_ends.py::test_is_skipped", "skipped", "never"),
    ("test_ends.py::test_fails_as_expected", "skipped", "expected to fail: a known bug"),
    ("test_ends.py::test_passes_unexpectedly", "passed", ""),
    ("test_ends.py::test_passes_against_strict_expectation", "failed", "[XPASS(strict)] a known bug"),
    ("test_ends.py::test_set_up_fails", "failed", "failed in set-up: RuntimeError: broken before"),
    ("test_ends.py::test_tear_down_fails", "failed", "failed in tear-down: RuntimeError: broken after"),
    ("test_ends.py::test_calls_exit", "failed", "SystemExit: 3"),
    ("test_ends.py::test_parameter[a b]", "passed", ""),
    ("test_ends.py::test_parameter[c::d]", "passed", ""),
    ("test_ends.py::test_parameter[e[f]]", "passed", ""),
    ("test_ends.py::test_parameter[\\xfc]", "passed", ""),
    ("test_ends.py::test_parameter[new\\nline]", "passed", ""),
    ("test_ends.py::test_has_parts", "failed", "assert 1 != 1"),
    ("test_ends.py::TestClass::test_method", "passed", ""),
    ("test_ends.py::test_logs", "failed", "logged"),
    ("test_ends.py::test_forked_child_returns", "passed", ""),
    ("test_library.py::test_library_raises", "failed", "JSONDecodeError"),
    ("test_shared.py::test_first", "passed", ""),
    ("test_shared.py::test_second", "passed", ""),
    ("test_skipped.py", "skipped", "the whole file"),
    ("test_unittest.py::Case::test_passes", "passed", ""),
    ("test_unittest.py::Case::test_fails", "failed", "1 != 2"),
    ("test_unittest.py::Case::test_has_parts", "failed", "1 != 0"),
];

#[test]
fn every_test_has_its_outcome_whatever_ends_its_process() {
    let Some(python) = python() else { return };
    every_test_has_its_outcome(&python);
}

#[test]
fn every_test_has_its_outcome_with_the_oldest_pytest() {
    let Some(python) = oldest_python() else { return };
    every_test_has_its_outcome(&python);
}

fn every_test_has_its_outcome(python: &std::path::Path) {
    let run = run(&world(&ALL_FILES), python, &[]);
    let names: BTreeSet<&str> = run.ends.keys().map(String::as_str).collect();
    assert_eq!(names, OUTCOMES.iter().map(|(name, ..)| *name).collect());
    for (name, outcome, said) in OUTCOMES {
        run.assert_outcome(name, outcome, said);
    }
    assert_eq!(run.program_failures, Vec::<Value>::new());
    let failed = run.end("test_ends.py::test_fails");
    assert_eq!(failed["failures"][0]["actual"], "{'a': 2}", "{failed:#}");
    assert!(
        failed["stacktrace"].as_str().unwrap().ends_with("test_ends.py:18: AssertionError"),
        "{failed:#}"
    );
    // The place is the project's line, not the library's that raised the exception.
    let failure = &run.end("test_library.py::test_library_raises")["failures"][0];
    assert!(failure["file"].as_str().unwrap().ends_with("/test_library.py"), "{failure:#}");
    assert_eq!(failure["line"], 7, "{failure:#}");
    // The Python stack is the result's stack, without pytest's own frames, and is not in the output as well.
    for name in ["test_segfaults", "test_hangs"] {
        let end = run.end(&format!("test_deaths.py::{name}"));
        let stack = end["stacktrace"].as_str().unwrap();
        assert!(stack.contains(&format!("{name} at ")) && stack.contains("frames of pytest"), "{end:#}");
        assert!(!end["stderr"].to_string().contains("most recent call first"), "{end:#}");
    }
    assert_eq!(run.command.code, Some(2), "{}", run.command);
}

#[test]
fn output_is_that_of_its_test_exactly() {
    let Some(python) = python() else { return };
    let world = world(&["conftest.py", "test_ends.py", "test_shared.py"]);
    let run = run(&world, &python, &["-E", "test(test_writes) | test(test_passes) | test(test_first)"]);
    let outputs = |name: &str| {
        let end = run.end(name);
        let text = |stream: &str| end[stream].as_str().unwrap_or_default().to_owned();
        (text("stdout"), text("stderr"))
    };
    let (stdout, stderr) = outputs("test_ends.py::test_writes");
    assert_eq!(stdout, "to standard output\nfrom a child\nfrom C without an end of line");
    assert_eq!(stderr, "to standard error\nerror of a child\n");
    for quiet in ["test_ends.py::test_passes", "test_ends.py::test_writes_nothing"] {
        assert_eq!(outputs(quiet), (String::new(), String::new()), "{quiet}");
    }
    let (stdout, _) = outputs("test_shared.py::test_first");
    let lines: Vec<_> = stdout.lines().collect();
    assert!(lines[0].starts_with("session begins in "), "{lines:?}");
    assert_eq!(lines[1..], ["module begins", "module ends"], "the session's end belongs to no test");
}

#[test]
fn listing_is_what_pytest_collects() {
    let Some(python) = python() else { return };
    let world = world(&ALL_FILES);
    let mut pytest = Command::new(&python);
    pytest.current_dir(world.dir()).args([
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-o",
        "addopts=--doctest-modules",
    ]);
    let collected = pytest.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let collected = String::from_utf8(collected.stdout).unwrap();
    let mut expected: BTreeSet<&str> = collected.lines().filter(|line| line.contains(".py::")).collect();
    assert!(expected.len() > 40, "{collected}");
    expected.extend(["test_broken.py", "test_skipped.py"]);
    let words = ["list", "--format", "names", "--pytest", ".", "--python", python.to_str().unwrap()];
    let listed = world.run(&words);
    let suite = format!("{}::", world.dir().file_name().unwrap().to_str().unwrap());
    let names: BTreeSet<&str> = listed
        .stdout
        .lines()
        .filter_map(|line| line.split_once(suite.as_str()).map(|(_, name)| name))
        .collect();
    assert_eq!(names, expected, "{listed}");
}

#[test]
fn file_that_ends_the_process_when_it_is_imported_costs_itself_alone() {
    let Some(python) = python() else { return };
    let world = world(&["test_shared.py", "conftest.py"]);
    world.write("test_fatal.py", "import os\nos._exit(0)\n");
    let run = run(&world, &python, &[]);
    assert_eq!(run.ends.len(), 3, "{}", run.command);
    run.assert_outcome("test_shared.py::test_first", "passed", "");
    run.assert_outcome("test_fatal.py", "exited-early", "code 0");
}

#[test]
fn fixture_of_the_session_that_fails_at_its_end_is_a_failure_of_the_program() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "test_one.py",
        "import pytest\n@pytest.fixture(scope='session')\ndef s():\n    yield\n    raise RuntimeError('late')\n\
         def test_one(s): pass\n",
    );
    let run = run(&world, &python, &[]);
    run.assert_outcome("test_one.py::test_one", "passed", "");
    let [failure] = run.program_failures.as_slice() else { panic!("{}", run.command) };
    assert!(failure.to_string().contains("RuntimeError: late"), "{failure:#}");
}

#[test]
fn each_process_writes_coverage_of_its_own_and_all_of_it_is_combined() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write("library.py", "def one():\n    return 1\n\n\ndef two():\n    return 2\n");
    for name in ["one", "two"] {
        world.write(
            &format!("test_{name}.py"),
            &format!("import library\ndef test(): assert library.{name}()\n"),
        );
    }
    let covered = |more: &[&str], percent: &str| {
        let words = [more, &["--isolate", "--", "--cov=library", "--cov-fail-under=100"]].concat();
        let run = run(&world, &python, &words);
        assert_eq!(run.command.code, Some(0), "{}", run.command);
        let mut command = Command::new(&python);
        command.current_dir(world.dir()).args(["-m", "coverage", "report"]);
        let report = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let is_covered = |line: &str| line.starts_with("library.py") && line.ends_with(percent);
        assert!(report.lines().any(is_covered), "{report}\n{}", run.command);
        let files: Vec<_> = fs::read_dir(world.dir()).unwrap().map(|one| one.unwrap().file_name()).collect();
        let left = files.iter().filter(|name| name.to_string_lossy().starts_with(".coverage")).count();
        assert_eq!(left, 1, "{files:?}");
        run.ends.len()
    };
    assert_eq!(covered(&[], " 100%"), 2);
    assert_eq!(covered(&["-E", "test(test_one)"], " 75%"), 1, "the file of the earlier run is replaced");
}

#[test]
fn version_that_is_too_old_is_one_error_that_names_the_oldest() {
    let Some(python) = python() else { return };
    for (module, expected) in [
        ("pytest", "ERROR: Heeler needs pytest 7.4 or newer, but found pytest 7.2.1 ("),
        ("pluggy", "ERROR: Heeler needs pluggy 1.2 or newer, but found pluggy 1.0.0 ("),
    ] {
        let version = if module == "pytest" { "7.2.1" } else { "1.0.0" };
        let world = world(&["test_shared.py", "conftest.py"]);
        // `-p early` makes pytest load this module before Heeler's plugin.
        world.write("early.py", &format!("import {module}\n{module}.__version__ = '{version}'\n"));
        let words = ["run", "--pytest", ".", "--python", python.to_str().unwrap(), "--", "-p", "early"];
        let ran = world.run(&words);
        assert_eq!(ran.code, Some(4), "{ran}");
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("Traceback"), "{ran}");
    }
}
