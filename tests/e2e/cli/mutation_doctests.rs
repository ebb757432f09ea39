//! `heeler mutate` runs the doctests of libraries: every kind of doctest, including those that can't run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

/// Functions that only doctests call.
const SOURCE: &str = include_str!("../../fixtures/mutation/doctests.rs");
const README: &str = "# Documented\n\n```\nassert_eq!(documented::greet(\"a\"), \"hello a\");\n```\n";

struct Package {
    world: TestWorld,
}

impl Package {
    fn new(edition: &str, source: &str) -> Self {
        let package = Self { world: TestWorld::new() };
        fs::create_dir_all(package.path("src")).unwrap();
        let manifest = format!(
            "[workspace]\n[package]\nname = \"documented\"\nversion = \"0.1.0\"\nedition = \"{edition}\"\n"
        );
        fs::write(package.path("Cargo.toml"), manifest).unwrap();
        fs::write(package.path("README.md"), README).unwrap();
        fs::write(package.path("src/lib.rs"), source).unwrap();
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("package").join(name)
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        let report = self.world.path("report.json");
        let own = ["mutate", "-j2", "--json", report.to_str().unwrap()];
        let mut command = self.world.heeler(&[&own, words].concat());
        command.current_dir(self.path(""));
        run_with_separate_outputs(command)
    }

    fn report(&self) -> MutantReport {
        let text = fs::read_to_string(self.world.path("report.json")).unwrap();
        MutantReport(serde_json::from_str(&text).unwrap())
    }

    /// Returns Cargo's names of the doctests, with the lines of the user's sources.
    fn names_of_cargo(&self) -> BTreeSet<String> {
        let mut command = Command::new("cargo");
        command.args(["test", "--doc", "--quiet", "--target-dir"]).arg(self.world.path("target"));
        let output = command.args(["--", "--list", "--format", "terse"]).current_dir(self.path("")).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    }
}

struct MutantReport(Value);

impl MutantReport {
    /// Returns the mutants by `function: replacement`.
    fn mutants(&self) -> BTreeMap<String, &Value> {
        let file = &self.0["files"]["src/lib.rs"];
        let lines: Vec<&str> = file["source"].as_str().unwrap().lines().collect();
        let name = |mutant: &Value| {
            let line = usize::try_from(mutant["location"]["start"]["line"].as_u64().unwrap()).unwrap();
            let head = lines[..line].iter().rev().find(|line| line.contains("fn ")).unwrap();
            let function = head.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            let words: Vec<&str> = mutant["replacement"].as_str().unwrap().split_whitespace().collect();
            format!("{function}: {}", words.join(" "))
        };
        file["mutants"].as_array().unwrap().iter().map(|mutant| (name(mutant), mutant)).collect()
    }

    fn statuses(&self) -> BTreeMap<String, String> {
        let mutants = self.mutants().into_iter();
        mutants.map(|(name, mutant)| (name, mutant["status"].as_str().unwrap().to_owned())).collect()
    }

    /// Returns the name and line of each test, by id.
    fn tests(&self) -> BTreeMap<&str, (&str, u64)> {
        let files = self.0["testFiles"].as_object().into_iter().flatten();
        let tests = files.flat_map(|(_, file)| file["tests"].as_array().into_iter().flatten());
        let place = |test: &Value| test["location"]["start"]["line"].as_u64().unwrap_or_default();
        tests
            .map(|test| (test["id"].as_str().unwrap(), (test["name"].as_str().unwrap(), place(test))))
            .collect()
    }

    fn killer(&self, mutant: &str) -> &str {
        let mutants = self.mutants();
        let killers = mutants[mutant]["killedBy"].as_array().unwrap_or_else(|| panic!("{mutant}"));
        self.tests()[killers[0].as_str().unwrap()].0
    }
}

fn assert_every_kind(edition: &str) {
    let package = Package::new(edition, SOURCE);
    let known = package.names_of_cargo();
    let ran = package.mutate(&[]).assert_code(0);
    let report = package.report();
    let statuses = report.statuses();
    // Mutants end in every possible way.
    for (mutant, status) in [
        ("is_low: a <= limit()", "Killed"),
        ("is_low: { true }", "Killed"),
        ("weak: a - 1", "Survived"),
        ("count: n += 1", "Timeout"),
        ("count: rounds -= 1", "Killed"),
        ("check: false", "Killed"),
        ("check: a >= 7", "Survived"),
        ("drain: n += 1", "Timeout"),
        ("drain: {}", "Killed"),
        ("sum: a.parse::<u8>()? - b.parse::<u8>()?", "Killed"),
        ("answer: a != 2", "Killed"),
        ("greet: { String::new() }", "Killed"),
        ("alone: { false }", "Killed"),
        ("unused: { 0 }", "NoCoverage"),
    ] {
        assert_eq!(statuses.get(mutant).map(String::as_str), Some(status), "{mutant}: {statuses:#?}\n{ran}");
    }
    // Names and lines refer to the user's sources.
    let names: BTreeSet<String> = report
        .tests()
        .values()
        .map(|(name, line)| {
            let name = name.strip_prefix("documented::doc/documented::").unwrap();
            assert!(name.ends_with(&format!("(line {line})")), "{name}: {line}");
            name.to_owned()
        })
        .collect();
    assert!(names.is_subset(&known), "{names:#?}\n{known:#?}");
    // Three doctests never run: one is `compile_fail`, one `no_run` and one `ignore`.
    assert_eq!(names.len(), known.len() - 3, "{names:#?}\n{known:#?}");
    // The test that kills a mutant belongs to the mutated function.
    for (mutant, function) in [
        ("is_low: { true }", "is_low"),
        ("check: false", "check"),
        ("drain: {}", "drain"),
        ("alone: { false }", "alone"),
    ] {
        let killer = report.killer(mutant);
        assert!(killer.contains(&format!(" - {function} (line ")), "{mutant}: {killer}");
    }
    assert!(!report.killer("greet: { String::new() }").contains("greet"), "the README has no function");
    let reason = report.mutants()["is_low: { true }"]["statusReason"].as_str().unwrap().to_owned();
    assert!(reason.contains("assertion failed: !documented::is_low(LIMIT)"), "{reason}");
    assert_eq!(report.mutants()["weak: a - 1"]["coveredBy"].as_array().unwrap().len(), 1);

    // The next run reuses the verdicts.
    let again = package.mutate(&[]).assert_code(0);
    assert!(again.stderr.contains("verdicts from earlier runs"), "{again}");
    assert_eq!(package.report().statuses(), statuses, "{again}");

    // Doctests below a changed line have new line numbers, but their verdicts are reused.
    let changed = SOURCE.replace("    a < limit()", "    let limit = limit();\n    a < limit");
    fs::write(package.path("src/lib.rs"), changed).unwrap();
    let changed = package.mutate(&[]).assert_code(0);
    let kept = changed.stderr.split(" · ").find(|part| part.contains("verdicts from earlier runs"));
    let kept: usize = kept.unwrap().split(' ').next().unwrap().parse().unwrap();
    let timeouts = statuses.values().filter(|status| *status == "Timeout").count();
    let open = statuses
        .values()
        .filter(|status| matches!(status.as_str(), "Ignored" | "CompileError" | "NoCoverage"))
        .count();
    assert!(kept + timeouts + open >= statuses.len() - 8, "{kept} of {}: {changed}", statuses.len());
    let killer = package.report().killer("answer: a != 2").to_owned();
    assert!(package.report().tests().values().any(|(name, _)| *name == killer), "{killer}");
}

#[test]
fn documentation_tests_of_every_kind_decide_about_mutants() {
    assert_every_kind("2021");
}

#[test]
fn documentation_tests_in_one_program_decide_about_mutants() {
    assert_every_kind("2024");
}

#[test]
fn state_directory_behind_a_link_changes_nothing() {
    let package = Package::new("2021", SOURCE);
    fs::create_dir(package.world.path("real")).unwrap();
    std::os::unix::fs::symlink(package.world.path("real"), package.world.path("link")).unwrap();
    let state = package.world.path("link").join("state");
    let ran = package.mutate(&["src/lib.rs:14-16", "--state-dir", state.to_str().unwrap()]).assert_code(0);
    let killer = package.report().killer("is_low: { true }").to_owned();
    let line = 1 + SOURCE.lines().position(|line| line == "/// ```").unwrap();
    assert!(killer.ends_with(&format!("src/lib.rs - is_low (line {line})")), "{killer}\n{ran}");
    let report = package.report();
    assert_eq!(report.0["testFiles"].as_object().unwrap().keys().collect::<Vec<_>>(), ["src/lib.rs"]);
}

#[test]
fn option_leaves_out_documentation_tests() {
    let package = Package::new("2021", SOURCE);
    let ran = package.mutate(&["--no-doc"]).assert_code(0);
    ran.assert_stderr("documentation tests were not run (--no-doc)");
    let mut statuses = package.report().statuses();
    statuses.retain(|_, status| status != "NoCoverage" && status != "Ignored");
    assert_eq!(statuses, BTreeMap::new(), "{ran}");
}

#[test]
fn documentation_tests_that_fail_or_do_not_compile_are_left_out() {
    let source = "/// ```\n/// assert_eq!(documented::one(1), 3);\n/// ```\n///\n/// ```\n\
                  /// documented::nothing();\n/// ```\n///\n/// ```\n/// assert_eq!(documented::one(1), 2);\n\
                  /// ```\npub fn one(a: u8) -> u8 {\n    a + 1\n}\n";
    let package = Package::new("2021", source);
    let ran = package.mutate(&[]).assert_code(0);
    ran.assert_stderr(
        "skipping a documentation test that fails without a mutant: documented::doc/documented::src/lib.rs - one (line 1)",
    );
    ran.assert_stderr(
        "skipping documentation tests that do not compile against the mutated library: src/lib.rs - one (line 5) (error",
    );
    let report = package.report();
    assert_eq!(report.statuses()["one: a - 1"], "Killed", "{ran}");
    assert!(report.killer("one: a - 1").ends_with("one (line 9)"), "{ran}");
    assert_eq!(report.mutants()["one: a - 1"]["coveredBy"].as_array().unwrap().len(), 1, "{ran}");
}

#[test]
fn rustdoc_that_keeps_no_tests_is_named_and_the_other_tests_run() {
    let source = format!("{SOURCE}\n#[test]\nfn answers() {{\n    assert!(answer(2));\n}}\n");
    let package = Package::new("2021", &source);
    let rustdoc = package.world.path("rustdoc");
    // This fake rustdoc does not support the option.
    fs::write(&rustdoc, "#!/bin/sh\necho \"error: Unrecognized option: 'test-runtool'\" >&2\nexit 1\n")
        .unwrap();
    fs::set_permissions(&rustdoc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = package.world.heeler(&["mutate", "-j2", "--json", "../report.json"]);
    command.current_dir(package.path("")).env("RUSTDOC", &rustdoc);
    let ran = run_with_separate_outputs(command).assert_code(0);
    ran.assert_stderr(
        "skipping documentation tests: rustdoc failed: error: Unrecognized option: 'test-runtool'",
    );
    let statuses = package.report().statuses();
    assert_eq!(
        (statuses["answer: a != 2"].as_str(), statuses["weak: a - 1"].as_str()),
        ("Killed", "NoCoverage")
    );
}
