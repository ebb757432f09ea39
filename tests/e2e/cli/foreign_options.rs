//! Options that users bring from other tools: each selects the tests that it selects there, or is an error
//! with Heeler's own command. No argument is without an effect.

use std::os::unix::fs::symlink;

use crate::support::{
    fixtures::{self, Catch2Version},
    world::TestWorld,
};

fn world_with(name: &str, program: &std::path::Path) -> TestWorld {
    let world = TestWorld::new();
    symlink(program, world.path(name)).unwrap();
    world
}

/// Returns the names of the tests that a command line selects, without the suite.
#[track_caller]
fn selected(world: &TestWorld, words: &[&str]) -> Vec<String> {
    let ran = world.run_with_separate_outputs(&[&["list", "--format", "names"], words].concat());
    let name = |line: &str| line.split_once("::").unwrap_or_else(|| panic!("{ran}")).1.to_owned();
    ran.stdout.lines().map(name).collect()
}

#[test]
fn selections_of_other_tools_select_the_same_tests() {
    let world = TestWorld::with_gtest("kinds");
    assert_eq!(
        selected(&world, &["kinds", "--gtest_filter=Math.*:Crash.Segv-*.DISABLED_*:Math.S*"]),
        ["Math.Add", "Math.Fail", "Math.Throws", "Crash.Segv"]
    );
    assert_eq!(selected(&world, &["kinds", "--gtest_filter", "Math.Add"]), ["Math.Add"]);
    assert_eq!(
        selected(&world, &["kinds", "-k", "math and not (fail or off)", "-k", "segv"]),
        ["Crash.Segv"]
    );
    let world = world_with("kinds", &fixtures::boost("kinds"));
    assert_eq!(selected(&world, &["kinds", "--run_test=rows"]), ["rows/_0", "rows/_1", "rows/_2"]);
    assert_eq!(selected(&world, &["kinds", "--run_test=math/fails,throws"]), ["math/fails", "math/throws"]);
    assert_eq!(
        selected(&world, &["kinds", "--run_test=@quick", "-k", "base"]),
        ["math/base"],
        "different options restrict each other"
    );
    let world = world_with("names", &fixtures::doctest("names"));
    assert_eq!(selected(&world, &["names", "-tc=two*"]), ["two words", "two  spaces"]);
    assert_eq!(selected(&world, &["names", "-tc=plain"]), ["plain", "PLAIN"]);
    let Some(program) = fixtures::catch2("names", Catch2Version::Three) else { return };
    let world = world_with("names", &program);
    assert_eq!(selected(&world, &["names", "[one],[two]"]), ["twice", "twice#2"]);
    assert_eq!(selected(&world, &["names", "[two]"]), ["twice#2"]);
}

#[test]
fn report_of_pytest_is_written_for_every_framework() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.Add", "--junitxml", "report.xml"]).assert_code(0);
    assert!(world.read("report.xml").contains("Math"));
}

#[test]
fn arguments_without_an_effect_are_errors() {
    let world = TestWorld::with_gtest("kinds");
    for (words, error) in [
        (&["run", "kinds", "--", "-test.run", "TestA"][..], "use -E 'test(/TestA/)'"),
        (&["run", "kinds", "--", "--junitxml=a.xml"], "use --junit a.xml"),
        (&["run", "--framework", "gtest"], "--framework gtest has no effect"),
        (&["list", "--framework", "gtest"], "--framework gtest has no effect"),
        (&["run", "--cargo", ".", "--framework", "libtest"], "--framework libtest has no effect"),
        (&["run", "./...", "-bench", "Add"], "use go test -run '^$' -bench 'Add' ./..."),
        (&["run", "test_a.py", "--ff"], "use --rerun failed"),
        (&["run", "--durations", "3"], "heeler report latest --status-level all"),
    ] {
        let ran = world.run(words).assert_code(5);
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(error), "{words:?}: {ran}");
    }
    std::fs::create_dir(world.path("src")).unwrap();
    world.write(
        "Cargo.toml",
        "[workspace]\n[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    world.write("src/lib.rs", "//! ```\n//! assert!(true);\n//! ```\n");
    let ran = world.run(&["run", "--doc", "--", "--data=x"]).assert_code(5);
    ran.assert_stdout("the arguments after -- reach no test program (--data=x)");
    // Names after -- select documentation tests, too.
    world.run(&["run", "--doc", "--", "line 1"]).assert_code(0).assert_stdout("1 passed");
    world.run(&["run", "--doc", "--", "line 7"]).assert_code(8);
}
