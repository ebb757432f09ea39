//! The example adapters, run as a user runs them: with a test that kills its process, and one that exits.

use crate::support::world::TestWorld;

fn example(name: &str) -> String {
    format!("{}/examples/json-lines/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn example_adapters_run_and_name_the_test_that_kills_its_process() {
    for (adapter, tests, prefix) in
        [("adapter.py", "python_tests.py", "python_tests."), ("adapter.sh", "shell_tests.sh", "")]
    {
        let (adapter, tests) = (example(adapter), example(tests));
        let world = TestWorld::new();
        let ran = world.run(&["run", &adapter, "--framework", "json-lines", "--", &tests]).assert_code(2);
        let named = |test: &str| format!("{prefix}test_{test}");
        ran.line_with(&["SIGKILL", &named("kills_its_process")]);
        ran.line_with(&["FAIL", &named("fails")]);
        ran.assert_stdout("1 skipped");
        ran.assert_stdout("last words");
        for test in ["adds", "runs_after_them"] {
            ran.line_with(&["PASS", &named(test)]);
        }
        assert!(!ran.stdout.contains("its reports are in error"), "{ran}");
    }
}

#[test]
fn example_adapter_lists_its_tests_with_their_places() {
    for (adapter, tests, name) in [
        ("adapter.py", "python_tests.py", "python_tests.test_fails"),
        ("adapter.sh", "shell_tests.sh", "test_fails"),
    ] {
        let (adapter, tests) = (example(adapter), example(tests));
        let line = std::fs::read_to_string(&tests)
            .unwrap()
            .lines()
            .position(|line| line.contains("test_fails"))
            .unwrap();
        let world = TestWorld::new();
        let ran = world.run(&["list", &adapter, "--framework", "json-lines", "--", &tests]).assert_code(0);
        ran.line_with(&[name, &format!("{tests}:{}", line + 1)]);
    }
}

#[test]
fn program_that_is_no_adapter_is_reported_with_what_it_did_instead() {
    let world = TestWorld::new();
    world.write_program("silent", "#!/bin/sh\nexit 0\n");
    let ran = world.run(&["list", "./silent", "--framework", "json-lines"]).assert_code(4);
    ran.assert_stderr("it wrote nothing to its report channel, descriptor 3");
    world.write_program(
        "later",
        "#!/bin/sh\necho '{\"k\":\"hello\",\"v\":7}' >&3; echo '{\"k\":\"listed\"}' >&3",
    );
    let ran = world.run(&["list", "./later", "--framework", "json-lines"]).assert_code(4);
    ran.assert_stderr("\"hello\" of version 7; this heeler reads version 1");
}
