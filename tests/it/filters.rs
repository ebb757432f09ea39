//! Filters of the command line, of `heeler.toml` and of requests, on the real program.

use std::collections::BTreeSet;

use crate::support::world::World;

const CRASHES: [&str; 6] = ["Abort", "Exit0", "ForgesItsEndAndDies", "Killed", "QuickExit0", "Segv"];

/// A world with two programs.
fn two_programs() -> World {
    let world = World::with_gtest("kinds");
    world.gtest("meet");
    world
}

/// The uids that a listing with these filters prints.
#[track_caller]
fn listed(world: &World, filters: &[&str]) -> BTreeSet<String> {
    let mut words = vec!["list", "kinds", "meet", "--format", "names"];
    for filter in filters {
        words.extend(["-E", filter]);
    }
    let ran = world.run(&words).code(0);
    ran.stdout.lines().map(str::to_owned).collect()
}

fn set<S: AsRef<str>>(uids: &[S]) -> BTreeSet<String> {
    uids.iter().map(|uid| uid.as_ref().to_owned()).collect()
}

#[test]
fn an_expression_selects_by_name_suite_and_program() {
    let world = two_programs();
    let crashes = set(&CRASHES.map(|name| format!("kinds::Crash.{name}")));
    let without_segv: BTreeSet<_> = crashes.iter().filter(|uid| !uid.ends_with("Segv")).cloned().collect();
    let meet = set(&[
        "Away.Deaf",
        "Away.Family",
        "N/Meet.Case/0",
        "N/Meet.Case/1",
        "N/Meet.Case/2",
        "N/Meet.Case/3",
    ]
    .map(|name| format!("meet::{name}")));
    let path = world.path("meet");
    for (filter, expected) in [
        ("test(Crash.)", &crashes),
        ("test(#Crash.*)", &crashes),
        ("test(/::Crash\\./)", &crashes),
        ("suite(kinds) & test(Crash.)", &crashes),
        ("suite(kinds) and test(Crash.) - test(=Crash.Segv)", &without_segv),
        ("test(Crash.) & not test(/Seg[vx]$/)", &without_segv),
        ("suite(meet)", &meet),
        ("program(meet)", &meet),
        (&format!("program(={})", path.display()), &meet),
        ("!suite(kinds)", &meet),
        ("none() | (all() & suite(me?t))", &meet),
        ("state(new) & suite(meet)", &meet),
    ] {
        assert_eq!(&listed(&world, &[filter]), expected, "{filter}");
    }
    let both: BTreeSet<_> = crashes.union(&meet).cloned().collect();
    assert_eq!(listed(&world, &["Crash.*", "suite(meet)"]), both, "any one of several filters is enough");
}

#[test]
fn what_failed_last_time_is_run_again_by_its_state() {
    let world = World::with_gtest("kinds");
    let names = |filter: &str| {
        let ran = world.run(&["list", "kinds", "--format", "names", "-E", filter]);
        set(&ran.stdout.lines().collect::<Vec<_>>())
    };
    world.run(&["run", "kinds", "-E", "Math.*", "-E", "Crash.Segv"]).code(2);
    assert_eq!(names("state(failed)"), set(&["kinds::Math.Fail", "kinds::Math.Throws"]));
    assert_eq!(names("state(crashed)"), set(&["kinds::Crash.Segv"]));
    assert_eq!(names("state(passed)"), set(&["kinds::Math.Add"]));
    assert_eq!(names("state(skipped)"), set(&["kinds::Math.DISABLED_Off", "kinds::Math.Skip"]));
    assert_eq!(names("state(new) & test(Math)"), set::<&str>(&[]));
    assert!(names("state(never-run)").contains("kinds::Noise.Errors"));
    let ran = world.run(&["run", "kinds", "-E", "state(failed) | state(crashed)"]).code(2);
    ran.line(&["FAILED", "3 of 3 tests"]);
    let ran = world.run(&["run", "kinds", "--no-history", "-E", "state(failed)"]).code(5);
    ran.complains(
        "answer the filter \"state(failed)\": it asks how tests ended earlier, and the history is off",
    );
}

#[test]
fn a_filter_that_selects_nothing_ends_with_its_own_code() {
    let world = World::with_gtest("kinds");
    for filter in
        ["NoSuchTest", "test(NoSuchTest)", "none()", "all() & !all()", "tag(nobody=has)", "state(failed)"]
    {
        let ran = world.run(&["run", "kinds", "-E", filter]).code(8);
        ran.says("is selected by the filters");
        world.run(&["list", "kinds", "-E", filter]).code(8);
    }
}

#[test]
fn a_wrong_filter_is_told_with_its_place_before_anything_runs() {
    let world = World::with_gtest("kinds");
    world.note_starts();
    let ran = world.run(&["run", "kinds", "-E", "tset(x)"]).code(5);
    ran.complains("there is no function \"tset\"; did you mean \"test\"?\n  tset(x)\n  ^^^^\n");
    let ran = world.run(&["list", "kinds", "-E", "all() & test(/(x/)"]).code(5);
    ran.complains(
        "the regular expression is wrong: unclosed group\n  all() & test(/(x/)\n                ^^\n",
    );
    let ran = world.run(&["run", "kinds", "-E", "test(a) test(b)"]).code(5);
    ran.complains("expected an operator (&, |, -, and, or) or the end, found \"t\"\n");
    let deep = format!("{}all(){}", "(".repeat(5_000), ")".repeat(5_000));
    world.run(&["run", "kinds", "-E", &deep]).code(5).complains("nested deeper than 64 levels");
    world.write("heeler.toml", "[[profile.default.override]]\nfilter = 'test(a) & tset(x)'\nretries = 1\n");
    let ran = world.run(&["run", "kinds"]).code(5);
    ran.complains("heeler.toml:2:21: expected a part of a name, a glob or an expression for \"filter\"");
    ran.complains("there is no function \"tset\"; did you mean \"test\"?");
    assert!(world.starts().is_empty(), "nothing was started");
}

#[test]
fn an_override_takes_an_expression() {
    let world = two_programs();
    let text = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n\
                [[profile.default.override]]\nfilter = 'suite(kinds) & test(#Math.*) - test(=Math.Throws)'\nretries = 2\n";
    world.write("heeler.toml", text);
    let ran = world.run(&["run", "kinds", "-E", "Math.Fail"]).code(2);
    ran.says("attempt 2 (failed)");
    let ran = world.run(&["run", "kinds", "-E", "Math.Throws"]).code(2);
    assert!(!ran.stdout.contains("attempt 1"), "{ran}");
}
