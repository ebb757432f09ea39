//! Applications of Microsoft Testing Platform: a server with one switch for each quirk of real ones, built
//! applications of MSTest, NUnit and xUnit, and Heeler itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    fixtures::fixtures,
    world::{FinishedCommand, TestWorld},
};

/// A finished run: the last event of each test, by its name without suite.
struct ApplicationRun {
    command: FinishedCommand,
    ends: BTreeMap<String, Value>,
}

impl ApplicationRun {
    fn read(command: FinishedCommand) -> Self {
        let mut ends = BTreeMap::new();
        for line in command.stdout.lines().filter(|line| line.starts_with('{')) {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event["type"] == "test" && event["outcome"].is_string() {
                let name = event["uid"].as_str().unwrap().split_once("::").unwrap().1.to_owned();
                ends.insert(name, event);
            }
        }
        Self { command, ends }
    }

    #[track_caller]
    fn outcome(&self, name: &str) -> &str {
        let end = self.ends.get(name).unwrap_or_else(|| panic!("no end of {name}\n{}", self.command));
        end["outcome"].as_str().unwrap()
    }

    fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for end in self.ends.values() {
            *counts.entry(end["outcome"].as_str().unwrap()).or_default() += 1;
        }
        counts
    }
}

fn run_in(world: &TestWorld, command: &str, more: &[&str]) -> ApplicationRun {
    let words = [&["run", "--format", "json", "--mtp", command], more].concat();
    ApplicationRun::read(world.run(&words))
}

/// A quirk of a server, and the results that differ from those of a server without any.
struct Quirk {
    name: &'static str,
    differences: &'static [(&'static str, &'static str)],
}

const fn quirk(name: &'static str, differences: &'static [(&'static str, &'static str)]) -> Quirk {
    Quirk { name, differences }
}

/// Runs a server with each quirk. Its six tests pass, but for the last one.
fn check(quirks: &[Quirk]) {
    for Quirk { name, differences } in quirks {
        let world = TestWorld::new();
        let program = fixtures().join("mtp/application.py");
        let command = format!("python3 {} {name}", program.display());
        world.write("heeler.toml", "[profile.default]\ngrace-period = \"400ms\"\ndumps = \"off\"\n");
        let run = run_in(&world, &command, &["--timeout", "3s"]);
        for number in 0..6 {
            let test = format!("t{number}");
            let plain = if number == 5 { "failed" } else { "passed" };
            let expected =
                differences.iter().find(|(of, _)| *of == test).map_or(plain, |(_, outcome)| outcome);
            let full = if *name == "no-location" { test.clone() } else { format!("Space.Class.{test}") };
            assert_eq!(run.outcome(&full), expected, "{test} of {name}\n{}", run.command);
        }
        assert_eq!(run.ends.len(), 6, "{name}\n{}", run.command);
        world.check_tidy();
    }
}

#[test]
fn versions_of_the_platform_are_driven_alike() {
    check(&[
        quirk("plain", &[]),
        quirk("no-versions", &[]),
        quirk("both-states", &[]),
        quirk("states-apart", &[]),
        quirk("telemetry-last", &[]),
        quirk("controller", &[]),
        quirk("uid-of-path", &[]),
        quirk("no-location", &[]),
        quirk("file-is-no-path", &[]),
    ]);
}

#[test]
fn several_ends_of_a_test_are_one_result() {
    check(&[
        quirk("second-end", &[("t1", "failed")]),
        quirk("rows-of-one-uid", &[("t1", "failed")]),
        quirk("superseded", &[]),
        quirk("uid-twice", &[]),
        quirk("runs-unasked", &[]),
        quirk("failed-for-timed-out", &[("t2", "failed")]),
        quirk("large-node", &[]),
        quirk("log-repeats-output", &[]),
        quirk("unread-output-blocks", &[]),
        quirk("grandchild", &[]),
    ]);
}

const NONE_RUN: &[(&str, &str)] = &[
    ("t0", "not-run"),
    ("t1", "not-run"),
    ("t2", "not-run"),
    ("t3", "not-run"),
    ("t4", "not-run"),
    ("t5", "not-run"),
];

#[test]
fn test_that_the_framework_leaves_out_is_named() {
    check(&[
        quirk("never-run", &[("t1", "not-run")]),
        quirk("explicit", &[("t1", "not-run")]),
        quirk("random-uid", &[("t1", "not-run")]),
        quirk("refuses-one-name", &[("t2", "not-run")]),
        quirk("error-code-zero", NONE_RUN),
        quirk("no-completion-before-error", NONE_RUN),
    ]);
}

#[test]
fn death_costs_only_the_test_that_causes_it() {
    check(&[
        quirk("dies-in-window", &[("t3", "crashed")]),
        quirk("dies-and-names", &[("t3", "crashed")]),
        quirk("stale-in-progress", &[("t3", "crashed")]),
        quirk("journal", &[("t3", "exited-early")]),
        quirk("exits-before-response", &[("t3", "exited-early")]),
    ]);
}

#[test]
fn hang_costs_only_the_test_that_causes_it() {
    check(&[
        quirk("hangs", &[("t3", "timed-out")]),
        quirk("survives-abort", &[("t3", "timed-out")]),
        quirk("cancel-exits", &[("t3", "timed-out")]),
        quirk("end-of-stream-ignored", &[("t3", "timed-out")]),
    ]);
}

#[test]
fn attachment_is_kept_before_its_framework_removes_it() {
    let world = TestWorld::new();
    let program = fixtures().join("mtp/application.py");
    let run = run_in(&world, &format!("python3 {} attachment-gone", program.display()), &[]);
    assert_eq!(run.outcome("Space.Class.t1"), "passed", "{}", run.command);
    let mut found = Command::new("find");
    found.arg(world.dir()).args(["-name", "*a file.txt"]);
    let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
    let path = found.lines().next().unwrap_or_else(|| panic!("it is gone\n{}", run.command));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "attached");
}

#[test]
fn application_that_dies_before_it_connects_is_an_error() {
    let world = TestWorld::new();
    let program = fixtures().join("mtp/application.py");
    let command = format!("python3 {} dies-before-it-connects", program.display());
    let ran = world.run(&["run", "--mtp", &command]);
    ran.assert_stdout("cannot start");
    ran.assert_code(4);
}

#[test]
fn heeler_below_heeler_gives_the_same_results() {
    let world = TestWorld::with_gtest("kinds");
    // The one below has no time limit for its own hanging test.
    let ending = ["-E", "not test(Hang)"];
    let direct = ApplicationRun::read(world.run(&["run", "--format", "json", "-E", ending[1], "./kinds"]));
    let command = format!("{} ./kinds", crate::support::heeler().display());
    let below = run_in(&world, &command, &ending);
    assert_eq!(below.ends.len(), direct.ends.len(), "{}\n{}", below.command, direct.command);
    // A display name may end with the parameter: `Named/P.FailsForX/x [x ("x")]`, `Typed/0.Default (int)`.
    let outcomes = |run: &ApplicationRun| {
        let of = run.ends.iter().map(|(name, end)| {
            let name = name.split([' ', '[']).next().unwrap();
            (name.to_owned(), matches!(end["outcome"].as_str(), Some("passed" | "skipped")))
        });
        of.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(outcomes(&below), outcomes(&direct), "{}\n{}", below.command, direct.command);
    world.check_tidy();
}

/// Returns the directory of the built applications and their runtime, which `scripts/test` sets.
fn real_applications() -> Option<PathBuf> {
    let found = std::env::var_os("HEELER_MTP_APPLICATIONS").map(PathBuf::from);
    if found.is_none() {
        eprintln!("there are no built applications of Microsoft Testing Platform: not tried");
    }
    found
}

fn run_real(applications: &Path, name: &str, variables: &[(&str, &str)], more: &[&str]) -> ApplicationRun {
    let world = TestWorld::new();
    world.env("DOTNET_ROOT", applications.join("dotnet").to_str().unwrap());
    variables.iter().for_each(|(name, value)| world.env(name, value));
    let (kind, part) = name.split_once('-').unwrap();
    let capitals = |word: &str| word[..1].to_uppercase() + &word[1..];
    let program = format!("{}{}", capitals(kind), capitals(part));
    let path = applications.join("apps").join(name).join(program);
    run_in(&world, path.to_str().unwrap(), more)
}

/// Tests of the suites that their frameworks may not run when they are selected: names with quotation marks
/// or control characters, ids with random numbers, and explicit tests.
const LOST: [&str; 6] = [
    "NuSuite.Rows.FromData(\"with",
    "NuSuite.Rows.NastyRows(\"with",
    "NuSuite.Rows.FromData(\"\\u0001",
    "NuSuite.Rows.NamedRows [row called",
    "NuSuite.Rows.Random(",
    // A row of two that share one id.
    "NuSuite.Rows.NamedRows [twin]",
];

#[test]
fn real_suites_give_what_their_console_runs_give() {
    let Some(applications) = real_applications() else { return };
    // What the console reports: tests that do not fail, and those that do; with all ends of a test as one.
    // Which tests of xUnit's suite a failing clean-up charges depends on how its tests are batched.
    for (suite, others, failed) in [("ms-suite", 122, 18), ("nu-suite", 134, 17)] {
        let run = run_real(&applications, suite, &[], &["--jobs", "1"]);
        let named = |outcome: &str| {
            let of = run.ends.iter().filter(|(_, end)| end["outcome"] == outcome);
            of.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        let not_run = named("not-run");
        let unexpected: Vec<_> =
            not_run.iter().filter(|name| LOST.iter().all(|lost| !name.starts_with(lost))).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}\n{}", run.command);
        let found = [named("passed").len() + named("skipped").len() + not_run.len(), named("failed").len()];
        assert_eq!(found, [others, failed], "{suite} {:?}\n{}", run.counts(), run.command);
    }
}

/// Tests that die or hang, and how they end: `Segfault` is an exception that the runtime throws.
#[test]
fn armed_suite_names_every_death_and_hang() {
    let Some(applications) = real_applications() else { return };
    let run = run_real(
        &applications,
        "ms-suite",
        &[("SUITE_DANGER", "1")],
        &["--timeout", "120s", "-E", "test(Deaths)"],
    );
    for (test, outcome) in [
        ("FailFast", "crashed"),
        ("StackOverflow", "crashed"),
        ("Abort", "crashed"),
        ("SegfaultFar", "crashed"),
        ("SigKill", "crashed"),
        ("SigTerm", "crashed"),
        ("Exit0", "exited-early"),
        ("Exit3", "exited-early"),
        ("RawExit", "exited-early"),
    ] {
        assert_eq!(run.outcome(&format!("MsSuite.Hazards.Deaths.{test}")), outcome, "{}", run.command);
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
