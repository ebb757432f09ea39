//! Tracing for crash capture does not change results: tests end the same with and without it, started
//! directly and through scripts, by root and by an unprivileged user.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    process::Command,
};

use super::diagnostics_unavailable::diagnostic_file_names;
use crate::support::{
    fixtures,
    other_user::UNPRIVILEGED_UID,
    world::{FinishedCommand, TestWorld, copy_program, run},
};

const PROGRAMS: [&str; 3] = ["traced", "tracer", "tracer_reader"];

/// Ways to start a program, each with its name and its script.
const SCRIPTS: [(&str, &str); 7] = [
    ("in-place", "#!/bin/sh\nexec ./PROGRAM \"$@\"\n"),
    ("as-child", "#!/bin/sh\n./PROGRAM \"$@\"\nexit $?\n"),
    ("by-search", "#!/usr/bin/env bash\nexec ./PROGRAM \"$@\"\n"),
    ("by-shell-of-shell", "#!/bin/sh\nexec sh -c 'exec ./PROGRAM \"$@\"' sh \"$@\"\n"),
    (PRIVILEGED_WAY, "#!/bin/sh\nexec ./privileged 'a b' ./PROGRAM \"$@\"\n"),
    (
        "privileged-first",
        "#!/bin/sh\n./privileged 'a b'; test $? = $HEELER_FIXTURE_PRIVILEGED || exit 44\nexec ./PROGRAM \"$@\"\n",
    ),
    ("beside-others", "#!/bin/sh\n(sleep 0; :) & ./PROGRAM \"$@\" & wait $!\n"),
];

/// Starts the test program through a program that gains privileges from its file.
const PRIVILEGED_WAY: &str = "by-privileged";

/// Returns a user's world with all programs, including a program whose file grants privileges.
fn world_of(user: Option<u32>) -> TestWorld {
    let mut world = TestWorld::new();
    PROGRAMS.iter().for_each(|program| world.gtest(program));
    for program in PROGRAMS {
        for (way, script) in SCRIPTS {
            world.write_program(&format!("{program}-{way}"), &script.replace("PROGRAM", program));
        }
    }
    world.write_program("privileged-script", "#!/bin/sh\nexec ./privileged \"$@\"\n");
    if let Some(user) = user {
        world.change_owner(user);
    }
    let privileged = world.path("privileged");
    copy_program(&fixtures::gtest("privileged"), &privileged);
    if user.is_some() {
        chown(&privileged, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).unwrap();
    // On a file system mounted with `nosuid`, the program does not gain privileges.
    let end = run(world.command(Command::new(&privileged), &["a b"])).code.unwrap();
    world.env("HEELER_FIXTURE_PRIVILEGED", &end.to_string());
    world
}

/// Returns whether a word is a test's position in a run, such as `3/14`.
fn is_place(word: &str) -> bool {
    word.split_once('/')
        .is_some_and(|(place, count)| place.parse::<u32>().is_ok() && count.parse::<u32>().is_ok())
}

/// Returns each test's status, by the names of its program and the test.
fn statuses(ran: &FinishedCommand) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in ran.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The words are status, duration, position in the run and name. A status may have two words.
        if let Some(place) = words.iter().position(|word| is_place(word))
            && let [before @ .., _duration] = &words[..place]
        {
            // The name is program and test. The test's source location may follow.
            let name: Vec<&str> = words[place + 1..].iter().take(2).copied().collect();
            found.insert(name.join(" "), before.join(" "));
        }
    }
    found
}

/// Compares all results of a user with and without tracing.
fn compare(user: Option<u32>) {
    let world = world_of(user);
    let ways = PROGRAMS.iter().flat_map(|program| {
        // For the other programs, it is enough to show that they are recognised through a script.
        let count = if *program == "traced" { SCRIPTS.len() } else { 2 };
        SCRIPTS.iter().take(count).map(move |(way, _)| format!("{program}-{way}"))
    });
    let programs: Vec<String> = PROGRAMS.iter().map(|program| (*program).to_owned()).chain(ways).collect();
    let run = |mode: &str| {
        let settings = format!("[profile.default]\ntimeout = \"60s\"\ncrash-capture = \"{mode}\"\n");
        world.write("heeler.toml", &settings);
        // A script is not started to detect its framework, so the framework is given.
        let options = ["--no-history", "--status-level", "all", "--framework", "gtest"];
        let words: Vec<&str> =
            ["run"].into_iter().chain(programs.iter().map(String::as_str)).chain(options).collect();
        world.run(&words).assert_code(2)
    };
    let bare = run("off");
    let expected = statuses(&bare);
    assert!(expected.len() >= 8 * 14 + 6 * 3, "{bare}");
    let is_bad =
        |(name, status): &(&String, &String)| *status != "PASS" && !name.ends_with("Crash.OfTheProcess");
    assert_eq!(expected.iter().find(is_bad), None, "{bare}");
    let traced = run("root");
    assert_eq!(statuses(&traced), expected, "{user:?}\n{traced}");
    // Crashes still have stack traces if the user may trace the program.
    let has_stack = |program: &&String| {
        let begins = format!("{program}.Crash.OfTheProcess");
        let mut files = diagnostic_file_names(&world, ".stacks.txt").into_iter();
        files.any(|name| name.starts_with(&begins))
    };
    let missing: Vec<_> = programs.iter().filter(|program| !has_stack(program)).collect();
    let untraceable = format!("traced-{PRIVILEGED_WAY}");
    assert_eq!(missing, user.map(|_| &untraceable).into_iter().collect::<Vec<_>>(), "{traced}");
}

#[test]
fn tracing_changes_no_result() {
    compare(None);
}

#[test]
fn tracing_changes_no_result_of_an_ordinary_user() {
    if heeler_sys::process::effective_uid() != 0 {
        // The other test already covers an unprivileged user.
        return;
    }
    compare(Some(UNPRIVILEGED_UID));
}

#[test]
fn crash_of_a_program_that_is_not_traced_says_why_there_is_no_stack() {
    let world = TestWorld::with_gtest("tracer");
    world.gtest("tracer_reader");
    world.write("heeler.toml", "[profile.default]\nisolate = true\n");
    for (program, reason) in
        [("tracer", "uses ptrace itself"), ("tracer_reader", "checks whether it is traced")]
    {
        let ran = world.run(&["run", program, "-E", "Crash.OfTheProcess"]).assert_code(2);
        ran.line_with(&["crashed with SIGABRT", "(no stack trace: it", reason, "crash-capture = \"tree\""]);
        world.write("heeler.toml", "[profile.default]\nisolate = true\ncrash-capture = \"tree\"\n");
        let ran = world.run(&["run", program, "-E", "Crash.OfTheProcess"]).assert_code(2);
        ran.line_with(&["#", "crash_here"]);
        world.write("heeler.toml", "[profile.default]\nisolate = true\n");
    }
}

#[test]
fn crash_in_a_batch_that_is_not_traced_has_the_stack_of_its_isolated_rerun() {
    let world = TestWorld::with_gtest("tracer");
    let ran = world.run(&["run", "tracer"]).assert_code(2);
    ran.line_with(&["crashed with SIGABRT", "also crashes in isolation"]);
    ran.line_with(&["#", "crash_here"]);
    assert!(!ran.stdout.contains("no stack"), "{ran}");
}
