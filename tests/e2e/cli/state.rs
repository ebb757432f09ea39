//! Where Heeler keeps the state of runs, how it names programs, and how a history moves to another machine.

use std::fs;

use crate::support::world::{TestWorld, run};

#[test]
fn state_is_at_the_root_of_the_workspace() {
    let world = TestWorld::with_gtest("kinds");
    fs::create_dir_all(world.path("build/tests")).unwrap();
    world.write("build/CMakeCache.txt", "");
    let below = |dir: &str, words: &[&str]| {
        let mut command = world.heeler(words);
        command.current_dir(world.path(dir));
        run(command)
    };
    let first =
        below("build/tests", &["run", "../../kinds", "-E", "Math.Add", "-E", "Math.Fail"]).assert_code(2);
    first.assert_stdout("1 failed");
    assert!(world.path("build/.heeler/history.sqlite").exists());
    assert!(!world.path("build/tests/.heeler").exists());
    // Another directory of the same workspace shares the runs and tests.
    below("build", &["report"]).assert_code(0).assert_stdout("1 failed");
    let rerun = below("build", &["run", "../kinds", "--rerun", "failed"]).assert_code(2);
    rerun.assert_stdout("FAILED 1 of 1 test");
    // Outside the workspace, these runs do not exist.
    below(".", &["report"]).assert_code(4);
    // In a Git repository, a build directory shares the state of the source directory.
    fs::create_dir(world.path(".git")).unwrap();
    below(".", &["run", "kinds", "-E", "Math.Fail"]).assert_code(2);
    let rerun = below("build/tests", &["run", "../../kinds", "-E", "state(failed)"]).assert_code(2);
    rerun.assert_stdout("FAILED 1 of 1 test");
}

#[test]
fn program_named_by_two_paths_is_one_program() {
    let world = TestWorld::with_gtest("kinds");
    fs::create_dir_all(world.path("sub")).unwrap();
    std::os::unix::fs::symlink(".", world.path("here")).unwrap();
    let absolute = world.path("kinds").display().to_string();
    let words = ["run", "kinds", "./kinds", "sub/../kinds", "here/kinds", &absolute, "-E", "Math.Add"];
    let ran = world.run(&words).assert_code(0);
    ran.assert_stdout("1 passed");
    // With a configuration, programs are named relative to its directory, not to the working directory.
    world.write("heeler.toml", "");
    let list = |dir: &str, program: &str| {
        let mut command = world.heeler(&["list", program, "-E", "Math.Add", "--format", "json"]);
        command.current_dir(world.path(dir));
        run(command).assert_code(0).stdout
    };
    assert_eq!(list(".", "kinds"), list("sub", "../kinds"));
    // A symbolic link with another name is a different program, because a program can read its own name.
    std::os::unix::fs::symlink("kinds", world.path("other")).unwrap();
    world.run(&["run", "kinds", "other", "-E", "Math.Add"]).assert_code(0).assert_stdout("2 passed");
}

#[test]
fn history_goes_to_another_machine_as_a_file() {
    let here = TestWorld::with_gtest("kinds");
    let nothing = here.run(&["history", "export", "h.sqlite"]).assert_code(4);
    nothing.assert_stderr("no run has recorded one");
    here.run(&["run", "kinds", "-E", "Math.Add", "-E", "Math.Fail"]).assert_code(2);
    let ran = here.run(&["history", "export", "h.sqlite"]).assert_code(0);
    ran.assert_stderr("wrote the history of ");
    let there = TestWorld::with_gtest("kinds");
    fs::copy(here.path("h.sqlite"), there.path("h.sqlite")).unwrap();
    let ran = there.run(&["history", "import", "h.sqlite"]).assert_code(0);
    ran.assert_stderr("(only tests that are new or newer there)");
    // A filter that uses the history finds the results from the other machine.
    there.run(&["run", "kinds", "-E", "state(failed)"]).assert_code(2).assert_stdout("FAILED 1 of 1 test");
    there.write("no.sqlite", "this is no database, but it is there");
    there.run(&["history", "import", "no.sqlite"]).assert_code(4).assert_stderr("damaged");
    there.run(&["history", "import", "missing"]).assert_code(4).assert_stderr("missing");
    there.run(&["history", "export", "no/such/directory"]).assert_code(4).assert_stderr("no/such");
    assert!(!there.path("no").exists());
}
