//! pytest sessions: reused interpreters, and suites, conftest files and interpreters that try to break them.
//! Skipped if `scripts/test` could not install pytest.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
};

use super::pytest::{PytestRun, SETTINGS, python, pythons, run, run_with, world};
use crate::support::{
    has_long_forms,
    world::{TestWorld, run as command_run},
};

/// Counts the lines that tests appended to a file, and removes the file.
fn take_lines(world: &TestWorld, name: &str) -> usize {
    let count = fs::read_to_string(world.path(name)).unwrap_or_default().lines().count();
    fs::remove_file(world.path(name)).ok();
    count
}

#[test]
fn interpreter_runs_one_part_after_the_other_in_one_session() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "conftest.py",
        "import pytest\n\ndef note(name):\n    with open(name, 'a') as file:\n        file.write('x\\n')\n\n\
         @pytest.fixture(scope='session', autouse=True)\ndef of_session():\n    note('sessions')\n    yield\n    \
         note('session-ends')\n\n@pytest.fixture(scope='module', autouse=True)\ndef of_module():\n    \
         note('modules')\n    yield\n    note('module-ends')\n",
    );
    let test = "import time, pytest\n\n@pytest.mark.parametrize('n', range(150))\ndef test(n):\n    time.sleep(0.01)\n";
    world.write("test_one.py", test);
    world.write("test_two.py", test);
    let state = world.path("state").display().to_string();
    // The second run uses the tests' durations; its batches leave room for slower tests.
    for number in 0..2 {
        let run = run(&world, &python, &["--state-dir", &state]);
        assert_eq!(run.ends.len(), 300, "{}", run.command);
        assert_eq!(run.command.code, Some(0), "{}", run.command);
        let [sessions, session_ends, modules, module_ends] =
            ["sessions", "session-ends", "modules", "module-ends"].map(|name| take_lines(&world, name));
        assert!((1..=2).contains(&sessions), "one for each slot: {sessions}");
        assert_eq!((session_ends, module_ends), (sessions, modules), "what begins ends");
        assert!(number == 0 || modules > 2 * sessions, "{modules} parts in {sessions} sessions");
    }
}

#[test]
fn session_whose_tear_down_ends_the_process_is_a_failure_of_the_program() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "test_one.py",
        "import os, pytest\n@pytest.fixture(scope='session')\ndef s():\n    yield\n    os._exit(0)\n\
         def test_one(s): pass\ndef test_two(s): pass\n",
    );
    let run = run(&world, &python, &[]);
    run.assert_outcome("test_one.py::test_one", "passed", "");
    run.assert_outcome("test_one.py::test_two", "passed", "");
    let [failure] = run.program_failures.as_slice() else { panic!("{}", run.command) };
    assert!(failure.to_string().contains("before the end of its session"), "{failure:#}");
}

/// Returns two fixtures of this scope. The tear-down of the second never finishes.
fn hanging_in_tear_down(scope: &str) -> String {
    format!(
        "import threading, pytest\n@pytest.fixture(scope='{scope}')\ndef inner():\n    yield\n\
         @pytest.fixture(scope='{scope}')\ndef server(inner):\n    yield\n    threading.Event().wait()\n\
         class TestOne:\n    def test_one(self, server): pass\n    def test_two(self, server): pass\n\
         def test_three(): pass\n"
    )
}

#[test]
fn tear_down_of_a_shared_fixture_that_hangs_has_a_limit_without_a_time_limit() {
    for python in &pythons() {
        // The checks run in parallel because they mostly wait.
        std::thread::scope(|threads| {
            for scope in ["class", "module", "session"] {
                threads.spawn(move || check_hanging_tear_down(python, scope));
            }
        });
    }
}

fn check_hanging_tear_down(python: &Path, scope: &str) {
    let limit = "(four times startup-timeout) in the tear-down of";
    let tests = ["TestOne::test_one", "TestOne::test_two", "test_three"];
    // The tear-down of a class or module belongs to its last test; a session's tear-down does not belong to a
    // test.
    let late = match scope {
        "class" => Some(tests[1]),
        "module" => Some(tests[2]),
        _ => None,
    };
    let world = world(&[]);
    let settings = "startup-timeout = \"1s\"\ngrace-period = \"200ms\"\ndumps = \"off\"\n";
    world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
    world.write("test_one.py", &hanging_in_tear_down(scope));
    let run = run_with(&world, python, &["-j1"]);
    for name in tests {
        let (outcome, said) = match late {
            Some(late) if late == name => {
                ("timed-out", format!("{limit} the fixture server (test_one.py:5)"))
            }
            _ => ("passed", String::new()),
        };
        run.assert_outcome(&format!("test_one.py::{name}"), outcome, &said);
    }
    let failures: Vec<_> = run.program_failures.iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), usize::from(late.is_none()), "{scope}: {}", run.command);
    for failure in failures {
        assert!(failure.contains("server (test_one.py:5) (tear-down)"), "{failure}");
        assert!(failure.contains(limit), "{failure}");
    }
}

#[test]
fn exit_status_that_a_plugin_sets_is_a_failure_of_the_program() {
    for python in pythons() {
        for hook in [
            "def pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 7\n",
            "def pytest_terminal_summary(terminalreporter):\n    terminalreporter._session.exitstatus = 7\n",
        ] {
            let world = world(&[]);
            world.write("conftest.py", hook);
            world.write("test_one.py", "def test_one(): pass\ndef test_two(): pass\n");
            let run = run(&world, &python, &[]);
            run.assert_outcome("test_one.py::test_one", "passed", "");
            run.assert_outcome("test_one.py::test_two", "passed", "");
            let [failure, ..] = run.program_failures.as_slice() else { panic!("{}", run.command) };
            assert!(failure.to_string().contains("exit status of this pytest session to 7"), "{failure:#}");
            assert_eq!(run.command.code, Some(2), "{}", run.command);
        }
    }
    // The plugin fails a session with a failed test or without tests. Neither is the case here.
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "conftest.py",
        "def pytest_sessionfinish(session, exitstatus):\n    assert exitstatus == 0 and session.testscollected > 0\n",
    );
    world.write("test_one.py", "def test_one(): pass\n");
    let run = run(&world, &python, &[]);
    assert_eq!(run.command.code, Some(0), "{}", run.command);
}

#[test]
fn directories_whose_names_are_not_unicode_run() {
    for python in pythons() {
        let world = world(&[]);
        let directory = world.dir().join(OsStr::from_bytes(b"caf\xe9")).join(OsStr::from_bytes(b"\xff"));
        fs::create_dir_all(&directory).unwrap();
        let conftest = "import pytest\n\n@pytest.fixture\ndef f(): return 1\n";
        fs::write(directory.join("conftest.py"), conftest).unwrap();
        let text =
            "import os\ndef test_a(f): assert os.path.exists(__file__)\ndef test_b(f): assert f == 2\n";
        fs::write(directory.join("test_of_bytes.py"), text).unwrap();
        fs::write(directory.join("test_broken.py"), "import no_such_module\n").unwrap();
        let run = run(&world, &python, &[]);
        assert_eq!(run.ends.len(), 3, "{}", run.command);
        run.assert_outcome("caf\\xe9/\\xff/test_of_bytes.py::test_a", "passed", "");
        run.assert_outcome("caf\\xe9/\\xff/test_of_bytes.py::test_b", "failed", "assert 1 == 2");
        run.assert_outcome("caf\\xe9/\\xff/test_broken.py", "failed", "No module named 'no_such_module'");
        // Run Heeler in this directory.
        let words = ["run", "--pytest", ".", "--python", python.to_str().unwrap(), "--format", "json"];
        let mut command = world.heeler(&words);
        command.current_dir(&directory);
        let ran = command_run(command);
        let ends = ran.stdout.lines().filter(|line| line.contains("\"outcome\":")).count();
        assert_eq!((ran.code, ends), (Some(2), 3), "{ran}");
    }
}

#[test]
fn second_file_of_one_name_has_the_error_of_pytest_and_costs_no_other() {
    for python in pythons() {
        for more in [&["-j2"][..], &["-j1"], &["--isolate"]] {
            let world = world(&[]);
            for directory in ["a", "b", "c"] {
                fs::create_dir(world.path(directory)).unwrap();
                world.write(&format!("{directory}/test_name.py"), "def test(): pass\n");
            }
            world.write("c/test_other.py", "def test(): pass\n");
            let run = run_with(&world, &python, more);
            assert_eq!(run.ends.len(), 4, "{}", run.command);
            run.assert_outcome("a/test_name.py::test", "passed", "");
            run.assert_outcome("b/test_name.py", "failed", "import file mismatch");
            run.assert_outcome("c/test_name.py", "failed", "import file mismatch");
            run.assert_outcome("c/test_other.py::test", "passed", "");
        }
    }
}

/// Writes two passing tests, a failing test and this conftest file, and runs the tests.
fn run_under(python: &Path, conftest: &str) -> PytestRun {
    run_under_with("", python, conftest)
}

/// Like [`run_under`], with additional settings.
fn run_under_with(settings: &str, python: &Path, conftest: &str) -> PytestRun {
    let world = world(&[]);
    world.write("heeler.toml", &format!("{SETTINGS}{settings}"));
    world.write("conftest.py", conftest);
    world.write(
        "test_few.py",
        "def test_a(): print('of a')\ndef test_b(): assert 1 == 2\ndef test_c(): print('of c')\n",
    );
    run(&world, python, &[])
}

fn assert_few(run: &PytestRun) {
    assert_eq!(run.ends.len(), 3, "{}", run.command);
    run.assert_outcome("test_few.py::test_a", "passed", "");
    run.assert_outcome("test_few.py::test_b", "failed", "assert 1 == 2");
    run.assert_outcome("test_few.py::test_c", "passed", "");
    assert_eq!(run.end("test_few.py::test_c")["stdout"], "of c\n", "{}", run.command);
}

#[test]
fn conftest_that_forks_prints_or_exits_late_changes_no_result() {
    let Some(python) = python() else { return };
    for conftest in [
        "import os\nif os.fork() == 0:\n    os._exit(7)\n",
        // The child returns to pytest and runs the tests as well.
        "import os\nos.fork()\n",
        // The child keeps all descriptors open for a while.
        "import os, time\nif os.fork() == 0:\n    time.sleep(2)\n    os.write(1, b'late\\n')\n    os._exit(0)\n",
        "import atexit, os\natexit.register(lambda: os.write(1, b'at exit\\n' * 20_000))\n",
        "import atexit, sys\natexit.register(lambda: print('x' * 100_000))\nsys.stdout.write('no end')\n",
        // Output at the session start that looks like Heeler's markers.
        "import os\ndef pytest_sessionstart():\n    os.write(1, b'\\x1e\\x1ex 1\\n' * 100)\n",
    ] {
        assert_few(&run_under(&python, conftest));
    }
}

#[test]
fn conftest_that_takes_the_channel_away_is_an_error_that_says_so() {
    let Some(python) = python() else { return };
    let run = run_under(&python, "import os\nos.closerange(3, 100)\n");
    assert_eq!(run.ends.len(), 0, "{}", run.command);
    assert!(run.command.stdout.contains("Bad file descriptor"), "{}", run.command);
    assert_ne!(run.command.code, Some(0));
    // Heeler's plugin writes to these descriptors between tests. Without them, Heeler cannot assign output to
    // tests.
    let replaced = "import os\ndef pytest_collection_finish():\n    null = os.open('/dev/null', os.O_WRONLY)\n    \
                    for descriptor in range(4, 9):\n        os.dup2(null, descriptor)\n";
    let run = run_under_with("startup-timeout = \"10s\"\n", &python, replaced);
    assert_eq!(run.ends.len(), 3, "{}", run.command);
    run.assert_outcome("test_few.py::test_a", "passed", "");
    run.assert_outcome("test_few.py::test_b", "failed", "assert 1 == 2");
}

#[test]
fn items_with_long_and_strange_ids_are_run() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    // Together, the ids exceed the 2 MiB limit on a process's arguments.
    let count = if has_long_forms() { 2000 } else { 700 };
    world.write(
        "pytest.ini",
        "[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true\n",
    );
    world.write(
        "test_ids.py",
        &format!(
            "import pytest\n\n@pytest.mark.parametrize('n', range({count}), ids=lambda n: f'{{n}}-' + 'länger☃ \"::[]/' * 200)\n\
             def test(n):\n    assert n != 500\n"
        ),
    );
    let run = run(&world, &python, &[]);
    assert_eq!(run.ends.len(), count, "{}", &run.command.stderr);
    let failed: Vec<&String> =
        run.ends.iter().filter(|(_, end)| end["outcome"] != "passed").map(|(name, _)| name).collect();
    assert!(failed.len() == 1 && failed[0].starts_with("test_ids.py::test[500-länger☃"), "{failed:?}");
}

#[test]
fn interpreter_without_pytest_is_an_error_that_says_so() {
    let Some(python) = python() else { return };
    let world = world(&["test_shared.py", "conftest.py"]);
    // Calls the environment's interpreter through a link outside the environment.
    symlink(fs::canonicalize(python).unwrap(), world.path("python")).unwrap();
    world.env("PYTHONPATH", "/nowhere");
    let ran = world.run(&["run", "--pytest", ".", "--python", "./python"]);
    if ran.stdout.contains("2 passed") {
        eprintln!("the system's interpreter has pytest: not tried");
        return;
    }
    ran.assert_stdout("No module named pytest");
    ran.assert_code(4);
}

#[test]
fn worker_that_is_killed_under_an_interpreter_loses_no_test() {
    let Some(python) = python() else { return };
    for fault in ["worker.lease:1:kill", "worker.journal.after:1:kill", "worker.reported:1:kill"] {
        let world = world(&["test_shared.py", "conftest.py", "test_unittest.py"]);
        world.env("HEELER_FAIL", fault);
        world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
        fs::create_dir(world.path("points")).unwrap();
        let run = run(&world, &python, &[]);
        let is_reached = fs::read_dir(world.path("points")).unwrap().next().is_some();
        assert!(is_reached, "{fault} was not reached\n{}", run.command);
        assert_eq!(run.ends.len(), 5, "{fault}\n{}", run.command);
        for (name, outcome) in [
            ("test_shared.py::test_first", "passed"),
            ("test_shared.py::test_second", "passed"),
            ("test_unittest.py::Case::test_passes", "passed"),
            ("test_unittest.py::Case::test_fails", "failed"),
            ("test_unittest.py::Case::test_has_parts", "failed"),
        ] {
            run.assert_outcome(name, outcome, "");
        }
    }
}
