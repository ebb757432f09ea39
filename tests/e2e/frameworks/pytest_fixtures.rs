//! pytest: session fixtures that only one process can use at a time, several test paths, and identical
//! failures. Skipped if `scripts/test` could not install pytest.

use std::fs;

use super::pytest::{python, run, run_with, world};

/// A fixture that only one process can use, like a server with a fixed port. Other processes wait forever,
/// even after the fixture becomes free.
const SERVER: &str = "import os, time, pytest\n\n@pytest.fixture(scope='session', autouse=True)\ndef server():\n    \
    try:\n        os.close(os.open('port', os.O_CREAT | os.O_EXCL))\n    \
    except FileExistsError:\n        open('waiting', 'w').close()\n        open('stood', 'w').close()\n        \
    while True:\n            time.sleep(0.01)\n    yield\n    os.remove('port')\n";

/// Tests that end once another process waits for the fixture.
const TESTS: &str = "import os, time, pytest\n\n@pytest.mark.parametrize('n', range(8))\ndef test(n):\n    \
    while not os.path.exists('waiting'):\n        time.sleep(0.01)\n";

#[test]
fn fixture_that_one_process_has_alone_is_found_and_remembered() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "heeler.toml",
        "[profile.default]\ntimeout = \"240s\"\nstartup-timeout = \"10s\"\ndumps = \"off\"\n",
    );
    world.write("conftest.py", SERVER);
    world.write("test_one.py", TESTS);
    world.write("test_two.py", TESTS);
    let first = run(&world, &python, &[]);
    assert!(first.ends.len() == 16 && first.command.code == Some(0), "{}", first.command);
    let said = &first.command.stdout;
    for words in ["the session fixture \"server (conftest.py:3)\" hung for", "max-processes = 1"] {
        assert!(said.contains(words), "{words:?}: {}", first.command);
    }
    fs::remove_file(world.path("stood")).unwrap();
    let second = run(&world, &python, &[]);
    assert!(second.ends.len() == 16 && second.command.code == Some(0), "{}", second.command);
    assert!(second.command.stdout.contains("its tests run in one process"), "{}", second.command);
    assert!(!world.path("stood").exists(), "no process stood still: {}", second.command);
}

#[test]
fn several_paths_are_one_session() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    for name in ["a", "b", "c"] {
        fs::create_dir(world.path(name)).unwrap();
        world.write(&format!("{name}/test_{name}.py"), "def test(): pass\ndef test_fails(): assert 0\n");
    }
    let python = python.to_str().unwrap();
    let words =
        ["run", "--format", "json", "--pytest", "a", "b/test_b.py", "--pytest", "c", "--python", python];
    let ran = world.run(&words);
    for name in ["a", "b", "c"] {
        let id = format!("\"name\":\"{name}/test_{name}.py::test\"");
        assert!(ran.stdout.lines().any(|line| line.contains(&id) && line.contains("passed")), "{ran}");
    }
    let again = format!("{python} -m pytest b/test_b.py::test_fails)\"");
    assert!(ran.stdout.contains(&again), "{ran}");
    let rerun = world.run(&["run", "--rerun", "failed", "--format", "json"]);
    let ends = rerun.stdout.lines().filter(|line| line.contains("\"outcome\":\"failed\"")).count();
    assert_eq!(ends, 3, "{rerun}");
    world.run(&["run", "--pytest", "a", "none", "--python", python]).assert_stdout("find none");
    let suite =
        format!("[[suite]]\nname = \"s\"\npytest = [\"c\", \"b/test_b.py\"]\npython = \"{python}\"\n");
    world.write("heeler.toml", &suite);
    let listed = world.run(&["list"]).assert_code(0);
    for name in ["c/test_c.py::test", "b/test_b.py::test_fails"] {
        listed.line_with(&[name]);
    }
    assert!(!listed.stdout.contains("a/test_a.py"), "{listed}");
}

#[test]
fn equal_failures_are_shown_in_full_once() {
    let Some(python) = python() else { return };
    let world = world(&[]);
    world.write(
        "test_many.py",
        "import pytest\n@pytest.mark.parametrize('n', range(30))\ndef test_without(n, no_such_fixture): pass\n\
         def test_with(no_such_fixture): pass\ndef test_other(): assert 1 == 2\n",
    );
    let ran = world.run(&["run", "--pytest", ".", "--python", python.to_str().unwrap()]).assert_code(2);
    assert_eq!(ran.stdout.matches("available fixtures").count(), 1, "{ran}");
    assert_eq!(ran.stdout.matches("(same failure as test_many.py::test_with").count(), 30, "{ran}");
    ran.assert_stdout("30 more with the same failure:").assert_stdout("assert 1 == 2");
    // Reports contain the full message of each failure.
    let json = run_with(&world, &python, &[]);
    let whole = json.ends.values().filter(|end| end.to_string().contains("available fixtures")).count();
    assert_eq!(whole, 31, "{}", json.command);
}
