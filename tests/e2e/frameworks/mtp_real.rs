//! Built applications of MSTest, NUnit and xUnit v3. Skipped if `scripts/test` has neither found nor built
//! them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use super::mtp::{ApplicationRun, run_in};
use crate::support::{
    has_long_forms, requirement,
    world::{TestWorld, run_with_separate_outputs},
};

/// Returns the directory of the built applications and their runtime. `scripts/test` sets the variable.
fn real_applications() -> Option<PathBuf> {
    requirement::directory_of("HEELER_MTP_APPLICATIONS", "applications of Microsoft Testing Platform")
}

/// Returns an application's program: `apps/ms-suite/MsSuite` for `ms-suite`.
fn program(applications: &Path, name: &str) -> PathBuf {
    let (kind, part) = name.split_once('-').unwrap();
    let capitals = |word: &str| word[..1].to_uppercase() + &word[1..];
    let program = format!("{}{}", capitals(kind), capitals(part));
    applications.join("apps").join(name).join(program)
}

fn world(applications: &Path, variables: &[(&str, &str)]) -> TestWorld {
    let world = TestWorld::new();
    world.env("DOTNET_ROOT", applications.join("dotnet").to_str().unwrap());
    variables.iter().for_each(|(name, value)| world.env(name, value));
    world
}

fn run_real(applications: &Path, name: &str, variables: &[(&str, &str)], more: &[&str]) -> ApplicationRun {
    let world = world(applications, variables);
    run_in(&world, program(applications, name).to_str().unwrap(), more)
}

/// Outcomes of tests, by the [`key`] of their display names.
type Outcomes = BTreeMap<String, Vec<String>>;

/// Returns the letters and digits of a display name, without the type and without the number that
/// distinguishes equal names.
fn key(name: &str) -> String {
    let name = match name.rsplit_once(" #") {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    let shown = name.split_once(" [").and_then(|(_, shown)| shown.strip_suffix(']')).unwrap_or(name);
    // Type names may have arguments: `NuSuite.FixtureRows(1).One`.
    let shown = shown.rsplit_once(").").map_or(shown, |(_, method)| method);
    let shown = shown.rsplit_once(">.").map_or(shown, |(_, method)| method);
    let head = shown.find(['(', ' ', '<']).unwrap_or(shown.len());
    let from = shown[..head].rfind('.').map_or(0, |dot| dot + 1);
    let shown = &shown[from..];
    if shown.starts_with("Overloaded") {
        return "Overloaded".to_owned();
    }
    shown.chars().filter(|one| one.is_alphanumeric()).collect()
}

/// Runs an application on the console; returns the printed outcome of each test's last try, and all lines. A
/// failing clean-up turns a passed test into a failed one.
fn console_run(applications: &Path, name: &str) -> (Outcomes, String) {
    let world = world(applications, &[]);
    let command = world.command(
        Command::new(program(applications, name)),
        &["--no-banner", "--no-ansi", "--no-progress", "--output", "Detailed"],
    );
    let printed = run_with_separate_outputs(command).stdout;
    let mut outcomes = Outcomes::new();
    let mut cleaned = Vec::new();
    for line in printed.lines() {
        // A test that writes directly to the descriptor may leave an unfinished line before the outcome.
        let begins = ["passed", "failed", "skipped"].map(|outcome| line.find(&format!("{outcome} XuSuite.")));
        let line = &line[begins.into_iter().flatten().min().unwrap_or(0)..];
        let Some((outcome, rest)) = line.split_once(' ') else { continue };
        if !["passed", "failed", "skipped"].contains(&outcome) || !rest.ends_with(')') {
            continue;
        }
        let Some((test, _)) = rest.rsplit_once(" (") else { continue };
        let test = test.trim_start_matches("(canceled) ");
        if let Some(of) = test.strip_prefix("[Test Class Cleanup Failure (") {
            cleaned.push(key(of.trim_end_matches([')', ']'])));
        } else if test.ends_with(" ClassCleanup]") {
            // The failing clean-up belongs to the last test of the class.
            cleaned.push("Two".to_owned());
        } else if let Some(test) = test.strip_prefix("(try ") {
            outcomes.insert(key(test.split_once(' ').unwrap().1), vec![outcome.to_owned()]);
        } else {
            outcomes.entry(key(test)).or_default().push(outcome.to_owned());
        }
    }
    for of in cleaned {
        let ends = outcomes.get_mut(&of).unwrap_or_else(|| panic!("no {of}\n{printed}"));
        let passed = ends.iter().position(|end| end == "passed").unwrap_or_else(|| panic!("{of}: {ends:?}"));
        ends[passed] = "failed".to_owned();
    }
    (outcomes, printed)
}

/// Returns the combined outcome of several data rows that Heeler reports as one test.
fn fold(ends: &[String]) -> Vec<String> {
    let worst = ["failed", "passed", "skipped"].into_iter().find(|one| ends.iter().any(|end| end == one));
    worst.map(str::to_owned).into_iter().collect()
}

/// Tests that their frameworks do not run when selected together with others: names with quotation marks or
/// control characters, random ids, duplicate row ids, and explicit tests.
const LOST: [&str; 8] = [
    "NuSuite.Rows.FromData(\"with",
    "NuSuite.Rows.NastyRows(\"with",
    "NuSuite.Rows.FromData(\"\\u0001",
    "NuSuite.Rows.NamedRows [row called",
    "NuSuite.Rows.Random(",
    "NuSuite.Rows.NamedRows [twin]",
    "NuSuite.Rows.FromData(\"line",
    "XuSuite.Outcomes.ExplicitOne",
];

/// Compares each test's result with its outcome on the console.
fn assert_equal_to_console(applications: &Path, name: &str) {
    let (mut console, printed) = console_run(applications, name);
    assert!(console.len() > 80, "{console:?}");
    let run = run_real(applications, name, &[], &["--jobs", "1"]);
    let mut own = Outcomes::new();
    for (test, end) in &run.ends {
        let outcome = end["outcome"].as_str().unwrap();
        let is_lost = LOST.iter().any(|lost| test.starts_with(lost));
        assert!(outcome != "not-run" || is_lost, "{test} was not run\n{}", run.command);
        let of = key(test);
        // These tests have a different name in each run.
        if of.starts_with("Random") {
            continue;
        }
        // Rows that exist only at run time are one test.
        if !console.contains_key(&of) {
            let rows: Vec<String> = console.keys().filter(|row| row.starts_with(&of)).cloned().collect();
            let ends: Vec<String> = rows.iter().filter_map(|row| console.remove(row)).flatten().collect();
            console.insert(of.clone(), ends);
        }
        let expected = console.get_mut(&of).unwrap();
        if outcome == "not-run" {
            // The platform drops this test from a selection. The console runs all tests, so it has an outcome
            // there.
            assert!(expected.pop().is_some(), "{test}");
            continue;
        }
        own.entry(of).or_default().push(outcome.to_owned());
    }
    console.retain(|_, ends| !ends.is_empty());
    // A failing class clean-up fails the test that ended last, and MSTest's order is arbitrary.
    if name == "ms-suite" {
        for outcomes in [&mut console, &mut own] {
            let ends = outcomes.remove("Two").unwrap_or_default();
            outcomes.entry("One".to_owned()).or_default().extend(ends);
        }
    }
    for (of, ends) in &mut own {
        let Some(expected) = console.remove(of) else {
            // Output written directly to the descriptor may split another test's line.
            let is_split = printed.lines().any(|line| line.contains(of.as_str()));
            assert!(
                name == "xu-suite" && (of.starts_with("Writes") || is_split),
                "the console has no {of}: {ends:?}\n{printed}"
            );
            continue;
        };
        let mut expected = if expected.len() > ends.len() { fold(&expected) } else { expected };
        ends.sort();
        expected.sort();
        // MSTest's console shows a test as passed if its line is printed before the clean-up fails.
        let failed = |ends: &[String]| ends.iter().filter(|end| *end == "failed").count();
        if name == "ms-suite" && of == "One" && failed(ends) == failed(&expected) + 1 {
            expected.pop();
            expected.insert(0, "failed".to_owned());
        }
        assert_eq!(*ends, expected, "{of} of {name}\n{}", run.command);
    }
    // Rows with the same id are one test. If a clean-up fails after its test timed out, the console prints a
    // separate line, unless the process ends first.
    let is_row_of_console =
        |of: &str| of == "twin" || of.starts_with("Random") || of.starts_with("TestCleanupFailure");
    console.retain(|of, _| !is_row_of_console(of));
    assert_eq!(console, Outcomes::new(), "only on the console\n{}", run.command);
}

#[test]
fn mstest_suite_gives_what_its_console_run_gives() {
    let Some(applications) = real_applications() else { return };
    assert_equal_to_console(&applications, "ms-suite");
}

#[test]
fn nunit_suite_gives_what_its_console_run_gives() {
    let Some(applications) = real_applications() else { return };
    assert_equal_to_console(&applications, "nu-suite");
}

#[test]
fn xunit_suite_gives_what_its_console_run_gives() {
    let Some(applications) = real_applications() else { return };
    assert_equal_to_console(&applications, "xu-suite");
}

/// Tests that kill their process, with their outcomes. The .NET runtime turns `Segfault` into an exception.
const DEATHS: [(&str, &str); 11] = [
    ("FailFast", "crashed"),
    ("StackOverflow", "crashed"),
    ("Abort", "crashed"),
    ("OnThread", "crashed"),
    ("SegfaultFar", "crashed"),
    ("SigKill", "crashed"),
    ("SigTerm", "crashed"),
    ("Exit0", "exited-early"),
    ("Exit3", "exited-early"),
    ("RawExit", "exited-early"),
    ("Segfault", "failed"),
];

/// Tests that hang, and one that leaves a child process with the outputs open.
const HANGS: [(&str, &str); 5] = [
    ("Sleeps", "timed-out"),
    ("Spins", "timed-out"),
    ("Deadlocks", "timed-out"),
    ("WaitsForCancel", "timed-out"),
    ("LeavesChild", "passed"),
];

/// Returns an application's dangerous tests. The gate runs one MSTest test for each way to end and fewer
/// tests of the other frameworks, because all three report through the same platform.
fn armed(name: &str, all: &'static [(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let is_there = |(test, _): &&(&str, &str)| match name {
        _ if has_long_forms() => true,
        "ms-suite" => !["Abort", "OnThread", "SigTerm", "Exit3"].contains(test),
        _ => ["SigKill", "Exit0", "Sleeps"].contains(test),
    };
    all.iter().filter(is_there).copied().collect()
}

/// Runs the dangerous tests of a class together with ten harmless tests.
fn run_armed(name: &str, class: &str, outcomes: &[(&str, &str)], limit: &str) -> Option<ApplicationRun> {
    let applications = real_applications()?;
    // `HugeOutput` takes too long on a busy machine.
    let tests = outcomes.iter().map(|(test, _)| format!(" | test(Hazards.{class}.{test})"));
    let filter = format!("(test(Batches.T0){}) & not test(HugeOutput)", tests.collect::<String>());
    let run = run_real(&applications, name, &[("SUITE_DANGER", "1")], &["--timeout", limit, "-E", &filter]);
    let space = format!("{}{}Suite", name[..1].to_uppercase(), &name[1..2]);
    for (test, outcome) in outcomes {
        let full = format!("{space}.Hazards.{class}.{test}");
        assert_eq!(run.outcome(&full), *outcome, "{full}\n{}", run.command);
    }
    for number in 0..10 {
        let test = format!("{space}.Hazards.Batches.T0{number}");
        assert_eq!(run.outcome(&test), "passed", "{test}\n{}", run.command);
    }
    Some(run)
}

fn assert_hangs(name: &str) {
    let armed = armed(name, &HANGS);
    let Some(run) = run_armed(name, "Hangs", &armed, "10s") else { return };
    for hang in ["Sleeps", "Deadlocks"].into_iter().filter(|hang| armed.iter().any(|(test, _)| test == hang))
    {
        let (_, end) = run.ends.iter().find(|(test, _)| test.ends_with(hang)).unwrap();
        let text = end.to_string();
        // On an overloaded machine, the runtime begins its report but does not finish in time.
        let is_cut_off = text.contains("Gathering state") && !text.contains("Crash report");
        let has_stacks = text.contains(&format!("Hangs.{hang}("));
        assert!(has_stacks || is_cut_off, "no stacks of {hang}: {end:#}");
    }
}

#[test]
fn armed_mstest_suite_names_every_death() {
    run_armed("ms-suite", "Deaths", &armed("ms-suite", &DEATHS), "120s");
}

#[test]
fn armed_nunit_suite_names_every_death() {
    run_armed("nu-suite", "Deaths", &armed("nu-suite", &DEATHS), "120s");
}

#[test]
fn armed_xunit_suite_names_every_death() {
    run_armed("xu-suite", "Deaths", &armed("xu-suite", &DEATHS), "120s");
}

#[test]
fn armed_mstest_suite_names_every_hang() {
    assert_hangs("ms-suite");
}

#[test]
fn armed_nunit_suite_names_every_hang() {
    assert_hangs("nu-suite");
}

#[test]
fn armed_xunit_suite_names_every_hang() {
    assert_hangs("xu-suite");
}

#[test]
fn application_is_found_by_itself() {
    let Some(applications) = real_applications() else { return };
    let world = world(&applications, &[]);
    for name in ["ms-setup", "nu-setup", "xu-setup"] {
        let path = program(&applications, name);
        let listed = world.run(&["list", "--format", "names", path.to_str().unwrap()]);
        assert!(listed.stdout.contains("Setup."), "{listed}");
        listed.assert_code(0);
    }
}

#[test]
fn assembly_whose_set_up_fails_has_no_passed_test() {
    let Some(applications) = real_applications() else { return };
    for suite in ["ms-setup", "nu-setup", "xu-setup"] {
        let run = run_real(&applications, suite, &[], &[]);
        assert!(!run.ends.is_empty(), "{}", run.command);
        assert_eq!(run.counts().get("passed"), None, "{suite}\n{}", run.command);
    }
}

#[test]
fn processes_run_one_batch_after_the_other() {
    let Some(applications) = real_applications() else { return };
    for name in ["ms-bulk", "nu-bulk", "xu-bulk"] {
        let world = world(&applications, &[]);
        let starts = world.path("starts");
        let script = world.path("start.sh");
        let text = format!(
            "#!/bin/sh\necho >> {}\nexec {} \"$@\"\n",
            starts.display(),
            program(&applications, name).display()
        );
        world.write("start.sh", &text);
        let run = run_in(&world, &format!("sh {}", script.display()), &["-j2"]);
        assert_eq!(run.counts().get("passed"), Some(&2000), "{name}\n{}", run.command);
        // Each slot has one process. The first process also lists the tests; the second starts only if the
        // first results are late.
        let starts = std::fs::read_to_string(starts).unwrap().lines().count();
        assert!((1..=2).contains(&starts), "{name}: {starts} processes\n{}", run.command);
    }
}
