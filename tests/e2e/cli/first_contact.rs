//! Commands of a user's first minutes, and the output of a first crash.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
};

use crate::support::world::{TestWorld, copy_program, run};

#[test]
fn output_in_the_buffer_of_a_crashed_process_is_shown() {
    let world = TestWorld::with_gtest("last_words");
    let ran = world.run(&["run", "last_words", "-E", "LastWords.Crashes"]).assert_code(2);
    ran.line_with(&["SIGSEGV", "LastWords.Crashes"]);
    ran.assert_stdout("not flushed before the crash");
    ran.line_with(&["files", "last_words.LastWords.Crashes.*", "(minidump, stacks of all threads"]);
}

#[test]
fn output_in_the_buffer_of_a_hung_process_is_shown() {
    let world = TestWorld::with_gtest("last_words");
    let ran = world.run(&["run", "last_words", "--timeout", "500ms", "-E", "LastWords.Hangs"]).assert_code(2);
    ran.line_with(&["TIMEOUT", "LastWords.Hangs"]);
    ran.assert_stdout("not flushed before the hang");
}

#[test]
fn output_of_a_rust_test_that_dies_or_hangs_is_shown() {
    let world = TestWorld::with_libtest();
    let ran = world.run(&["run", "libtest", "-E", "test(=h_aborts)", "-E", "test(=a_adds)"]).assert_code(2);
    ran.line_with(&["SIGABRT", "h_aborts"]);
    ran.assert_stdout("said before it aborts");
    let ran = world.run(&["run", "libtest", "--timeout", "1s", "-E", "test(=l_hangs)"]).assert_code(2);
    ran.line_with(&["TIMEOUT", "l_hangs"]);
    ran.assert_stdout("said before it hangs");
    // The stack trace shows the test's thread, not the thread that waits for it.
    ran.line_with(&["l_hangs at ", "lib.rs"]);
    let ran = world.run(&["run", "libtest", "-E", "test(=k_overflows_its_stack)"]).assert_code(2);
    ran.line_with(&["more times …"]);
}

#[test]
fn crash_among_registered_tests_costs_two_processes() {
    let world = TestWorld::with_gtest("last_words");
    world.note_starts();
    let ran = world.run(&["run", "last_words", "-j", "1", "-E", "Registered.*"]).assert_code(2);
    ran.assert_stdout("199 passed, 1 crashed");
    assert!(!ran.stdout.contains("contradicts"), "{}", ran.stdout);
    // Three processes are needed: the batch, the remaining tests, and the isolated rerun that confirms the
    // crash. More are allowed because a slow first process on a busy machine splits the remaining tests into
    // several batches.
    assert!((3..=6).contains(&world.starts().len()), "{:#?}", world.starts());
}

#[test]
fn ignored_and_disabled_tests_run_on_request() {
    let world = TestWorld::with_gtest("last_words");
    let filter = ["-E", "LastWords.DISABLED*"];
    let run = |more: &[&str]| world.run(&[&["run", "last_words"], more, &filter[..]].concat());
    run(&[]).assert_code(0).assert_stdout("1 skipped");
    for which in ["only", "all"] {
        let ran = run(&["--run-ignored", which]).assert_code(0);
        ran.assert_stdout("1 passed");
    }
    let world = TestWorld::with_libtest();
    let ran = world.run(&["run", "libtest", "--run-ignored", "only"]).assert_code(2);
    ran.line_with(&["FAIL", "d_is_ignored"]);
    ran.assert_stdout("1 failed");
    ran.line_with(&["--include-ignored --exact d_is_ignored"]);
}

#[test]
fn debugger_that_is_missing_or_does_not_attach_is_an_error() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run(&["run", "kinds", "--debugger", "no-such-debugger"]).assert_code(4);
    ran.assert_stderr("debugger not found in PATH: no-such-debugger");
    let words = ["run", "kinds", "-E", "test(=Math.Add)", "--debugger", "/bin/true"];
    let ran = world.run(&words).assert_code(4);
    ran.assert_stdout("the debugger exited before it attached to the test");
}

#[test]
fn directory_is_searched_for_test_programs_and_starts_no_other() {
    let world = TestWorld::with_gtest("kinds");
    fs::create_dir_all(world.path("build/deep/.hidden")).unwrap();
    for place in ["build/deep/unit", "build/deep/.hidden/unit"] {
        fs::copy(world.path("kinds"), world.path(place)).unwrap();
    }
    fs::copy("/bin/true", world.path("build/tool")).unwrap();
    world.write_program("build/script", "touch executed");
    fs::copy(world.path("kinds"), world.path("build/library.so.1")).unwrap();
    let ran = world.run(&["list", "build", "--format", "names"]).assert_code(0);
    assert!(ran.stdout.lines().all(|uid| uid.starts_with("unit::")), "{}", ran.stdout);
    // Heeler does not start a script to find out whether it is a test program.
    let ran = world.run(&["list", "build/script"]).assert_code(4);
    ran.assert_stderr("is a script and is not run to detect its framework");
    assert!(!world.path("executed").exists());
    fs::create_dir(world.path("empty")).unwrap();
    let ran = world.run(&["run", "empty"]).assert_code(4);
    ran.assert_stderr("no executable there contains a known test framework");
    assert!(fs::metadata(world.path("build/script")).unwrap().permissions().mode() & 0o111 != 0);
}

#[test]
fn words_behind_two_dashes_reach_the_programs_and_their_reruns() {
    let world = TestWorld::with_gtest("last_words");
    let words = ["run", "last_words", "--no-capture", "-E", "test(=Registered.Case100)", "--", "--say=hello"];
    world.run(&words).assert_code(2).assert_stdout("hello");
    world.run(&["run", "--rerun", "failed", "--no-capture"]).assert_code(2).assert_stdout("hello");
}

#[test]
fn glob_in_quotes_names_the_test_programs_that_match() {
    let world = TestWorld::with_gtest("kinds");
    fs::create_dir(world.path("build")).unwrap();
    for name in ["one_test", "two_test"] {
        fs::copy(world.path("kinds"), world.path(&format!("build/{name}"))).unwrap();
    }
    fs::copy("/bin/true", world.path("build/tool_test")).unwrap();
    world.write_program("build/script_test", "touch executed");
    let ran = world.run(&["run", "build/*_test", "-E", "test(=Math.Add)"]).assert_code(0);
    ran.assert_stdout("2 tests of 2 programs");
    assert!(!world.path("executed").exists());
    let ran = world.run(&["run", "build/*_check"]).assert_code(4);
    ran.assert_stderr("no matching executable contains a known test framework");
}

#[test]
fn word_that_names_no_program_runs_nothing_and_gets_a_hint() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run(&["run", "kinds", "Math.Add"]).assert_code(4);
    ran.assert_stderr("error: Math.Add: no such file; to select tests by name, use -E");
    let ran = world.run(&["run", "./kind"]).assert_code(4);
    ran.assert_stderr("did you mean ./kinds?");
    let ran = world.run(&["run", "./build/kinds"]).assert_code(4);
    ran.assert_stderr("error: ./build/kinds: no such file; is it built?");
    // The other program still runs, and each part of the log reports the missing program once.
    let ran = world.run(&["run", "kinds", "./build/kinds", "-E", "test(=Math.Add)"]);
    ran.line_with(&["NOT RUN", "does not exist"]);
    let errors = ran.stdout.lines().filter(|line| line.contains("does not exist")).count();
    assert_eq!(errors, 2, "{}", ran.stdout);
}

#[test]
fn option_of_another_tool_is_answered_with_the_own_one() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "--gtest_filter=Math.Add"]).assert_code(0).assert_stdout("1 passed");
    let ran = world.run(&["run", "kinds", "--gtest_list_tests"]).assert_code(5);
    ran.assert_stderr("tip: use heeler list");
    let ran = world.run(&["./kinds"]).assert_code(5);
    ran.assert_stderr("tip: to run its tests: heeler run ./kinds");
}

#[test]
fn error_of_undefined_behavior_sanitizer_is_the_message() {
    let world = TestWorld::with_gtest("last_words");
    let ran = world.run(&["run", "last_words", "-E", "LastWords.BehavesUndefined"]).assert_code(2);
    ran.line_with(&["UBSAN", "LastWords.BehavesUndefined"]);
    ran.line_with(&[
        "UndefinedBehaviorSanitizer: signed integer overflow: 1 + 2147483647 at lib/sum.cc:4:35",
    ]);
    let is_place = |line: &str| line.trim() == "at lib/sum.cc:4";
    assert!(ran.stdout.lines().any(is_place), "{}", ran.stdout);
}

#[test]
fn repeated_run_says_how_often() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run(&["run", "kinds", "-E", "test(=Math.Add)", "--repeat", "3"]).assert_code(0);
    ran.line_with(&["Running", "1 test of 1 program", "each test 3 times"]);
}

#[test]
fn place_of_a_test_is_not_told_as_the_place_of_its_failure() {
    // The program has no debug information, so the location of the crash is unknown.
    let world = TestWorld::with_gtest("last_words");
    let ran = world.run(&["run", "last_words", "-E", "LastWords.Crashes"]).assert_code(2);
    ran.line_with(&["SIGSEGV", "LastWords.Crashes", "last_words.cc:4"]);
    assert!(!ran.stdout.lines().any(|line| line.trim().starts_with("at ")), "{}", ran.stdout);
    assert!(!ran.stdout.contains("last_words.cc:4: crashed"), "{}", ran.stdout);
}

#[test]
fn each_of_several_failures_has_its_place_and_its_reason() {
    let world = TestWorld::with_gtest("last_words");
    let ran = world.run(&["run", "last_words", "-E", "LastWords.FailsTwice"]).assert_code(2);
    let lines: Vec<_> = ran.stdout.lines().map(str::trim).collect();
    let count = |start: &str, end: &str| {
        lines.iter().filter(|line| line.starts_with(start) && line.ends_with(end)).count()
    };
    assert_eq!((count("at ", "last_words.cc:13"), count("at ", "last_words.cc:14")), (1, 1), "{lines:#?}");
    assert_eq!(count("stack", "────────"), 0, "{lines:#?}");
    // Check the summary.
    ran.line_with(&["last_words.cc:13: Expected equality of these values: · 1 · 2"]);
    ran.line_with(&["last_words.cc:14: Expected equality of these values: · 3 · 4"]);
}

#[test]
fn flaky_failure_says_once_what_failed() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let words = ["run", "deaths", "-E", "Third.Flaky", "--retries", "2", "--flaky-result", "fail"];
    let ran = world.run(&words).assert_code(2);
    ran.line_with(&["flaky, failed by flaky-result: passed on attempt 2"]);
    // The details contain the first attempt; the summary does not repeat it.
    assert_eq!(ran.stdout.matches("attempt 1").count(), 1, "{}", ran.stdout);
}

#[test]
fn functions_of_nextest_filtersets_are_answered_with_own_forms() {
    let world = TestWorld::with_gtest("kinds");
    for (filter, form) in [
        ("package(herd) & test(x)", "use suite(herd) | suite(herd::*)"),
        ("binary(whole)", "use suite(*::whole), or suite(whole) for a library"),
        ("kind(test)", "use options such as --lib, --bins and --test"),
    ] {
        world.run(&["run", "kinds", "-E", filter]).assert_code(5).assert_stderr(form);
    }
}

#[test]
fn crash_below_a_path_that_is_not_utf_8_has_its_stack() {
    let world = TestWorld::with_gtest("last_words");
    let dir = world.dir().join(OsStr::from_bytes(b"not \xff text"));
    fs::create_dir(&dir).unwrap();
    copy_program(&fs::canonicalize(world.path("last_words")).unwrap(), &dir.join("last_words"));
    let mut command = world.heeler(&["run", "./last_words", "-E", "LastWords.Crashes"]);
    command.current_dir(&dir);
    let ran = run(command).assert_code(2);
    ran.line_with(&["SIGSEGV", "LastWords.Crashes"]);
    ran.line_with(&["#", "LastWords_Crashes_Test::TestBody"]);
    ran.assert_stdout("not flushed before the crash");
    ran.assert_stdout("it has mapped a file whose path is not UTF-8; its stacks are kept");
    let evidence = dir.join(".heeler/runs");
    let run = fs::read_dir(evidence)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("evidence").exists());
    let files = fs::read_dir(run.unwrap().join("evidence")).unwrap();
    assert!(
        files
            .map(|entry| entry.unwrap().file_name())
            .any(|name| name.to_string_lossy().ends_with(".stacks.txt"))
    );
}

/// Writes a repository with a project of each kind. Each has one test that passes and one that fails.
fn write_mixed_repository(world: &TestWorld) {
    for (name, text) in [
        ("Cargo.toml", "[workspace]\nmembers = [\"crates/a\"]\nresolver = \"2\"\n"),
        ("crates/a/Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        ("crates/a/src/lib.rs", "#[test]\nfn one() {}\n#[test]\nfn two() {\n    panic!(\"no\");\n}\n"),
        ("py/pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("py/tests/test_a.py", "def test_good():\n    pass\n\ndef test_bad():\n    assert 1 == 2\n"),
        (
            "native/CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.10)\nproject(n NONE)\nenable_testing()\n\
             add_test(NAME yes COMMAND true)\nadd_test(NAME no COMMAND false)\n",
        ),
        ("web/package.json", "{}"),
    ] {
        let path = world.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let configured = std::process::Command::new("cmake")
        .args(["-S", "native", "-B", "native/build"])
        .current_dir(world.dir())
        .output()
        .unwrap();
    assert!(configured.status.success(), "{configured:?}");
}

#[test]
fn projects_of_a_mixed_repository_are_found_run_and_written_down() {
    let Some(python) = crate::frameworks::pytest::python() else { return };
    let world = TestWorld::new();
    write_mixed_repository(&world);
    // The virtual environment of pytest lies beside the project.
    std::os::unix::fs::symlink(python.ancestors().nth(2).unwrap(), world.path("py/.venv")).unwrap();
    let expect_all = |args: &[&str]| {
        let ran = world.run(args).assert_code(2);
        ran.assert_stdout("3 passed, 3 failed");
        ran
    };
    let ran = expect_all(&["run"]);
    ran.line_with(&["Found", "Cargo workspace (Cargo.toml)"]);
    ran.line_with(&["Found", "CTest tests in native/build"]);
    ran.line_with(&["Found", "pytest in py (py/pyproject.toml)"]);
    ran.line_with(&["Skipping", "web/package.json"]);
    // The same tests, named on the command line.
    expect_all(&["run", "crates/a", "native/build", "py/tests/test_a.py"]);
    let one = world.run(&["run", "py/tests/test_a.py::test_good"]).assert_code(0);
    one.assert_stdout("1 passed");
    let one = world.run(&["run", "py", "-k", "good and not bad"]).assert_code(0);
    one.assert_stdout("1 passed");
    let one = world.run(&["run", "-p", "a", "--lib", "--", "one", "--exact"]).assert_code(0);
    one.assert_stdout("1 passed");
    // The same tests, from the configuration.
    world.run(&["init"]).assert_code(0);
    expect_all(&["run"]);
    world.run(&["init"]).assert_code(4);
}
