//! `heeler mutate` on a small package whose mutants end in every possible way.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::SystemTime,
};

use serde_json::Value;

use crate::support::{
    process::{ProcessRole, children, processes_of_role, signal, wait_until},
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

const MANIFEST: &str = "[workspace]\n[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ndoctest = false\n";

/// Functions whose mutants are killed, survive, are not covered, run forever, do not compile, end the program
/// before its tests, or are ignored.
const SOURCE: &str = include_str!("../../fixtures/mutation/package.rs");

/// A separate test program that tests the same functions.
const INTEGRATION: &str = "#[test]\nfn greets() {\n    assert_eq!(package::greet(\"a\"), \"hello a\");\n}\n";

struct Package {
    world: TestWorld,
}

impl Package {
    fn new(source: &str) -> Self {
        let package = Self { world: TestWorld::new() };
        fs::create_dir_all(package.path("src")).unwrap();
        fs::create_dir_all(package.path("tests")).unwrap();
        fs::write(package.path("Cargo.toml"), MANIFEST).unwrap();
        fs::write(package.path("tests/it.rs"), INTEGRATION).unwrap();
        fs::write(package.path("src/lib.rs"), source).unwrap();
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("package").join(name)
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        run_with_separate_outputs(self.command(words))
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let jobs: &[&str] = if words.contains(&"-j1") { &[] } else { &["-j2"] };
        let mut command = self.world.heeler(&[&["mutate"], jobs, words].concat());
        command.current_dir(self.path(""));
        command
    }

    /// Starts `heeler mutate` in the background, with its standard error in a pipe.
    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns a report's mutants by `function: replacement`, with the functions of the source.
    fn mutants(&self, report: &str) -> BTreeMap<String, Value> {
        let report: Value = serde_json::from_str(&fs::read_to_string(self.path(report)).unwrap()).unwrap();
        let file = &report["files"]["src/lib.rs"];
        let lines: Vec<&str> = file["source"].as_str().unwrap().lines().collect();
        let function = |mutant: &Value| {
            let line = usize::try_from(mutant["location"]["start"]["line"].as_u64().unwrap()).unwrap();
            let head = lines[..line].iter().rev().find(|line| line.contains("fn ")).unwrap();
            head.split("fn ").nth(1).unwrap().split('(').next().unwrap().to_owned()
        };
        let name = |mutant: &Value| {
            let replacement = mutant["replacement"].as_str().unwrap().split_whitespace().collect::<Vec<_>>();
            format!("{}: {}", function(mutant), replacement.join(" "))
        };
        let mutants = file["mutants"].as_array().unwrap();
        mutants.iter().map(|mutant| (name(mutant), mutant.clone())).collect()
    }
}

fn statuses(mutants: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    mutants
        .iter()
        .map(|(name, mutant)| (name.clone(), mutant["status"].as_str().unwrap().to_owned()))
        .collect()
}

/// Returns the content and modification time of every file below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let changed = entry.metadata().unwrap().modified().unwrap();
                found.insert(path.clone(), (fs::read(&path).unwrap(), changed));
            }
        }
    }
    found
}

#[test]
fn mutants_end_in_every_possible_way_and_the_sources_stay_as_they_are() {
    let package = Package::new(SOURCE);
    let state = package.world.path("state");
    let words =
        ["--state-dir", state.to_str().unwrap(), "--json", "../report.json", "--html", "../page.html"];
    let before = files(&package.path(""));
    // A run leaves the user's files unchanged.
    let ran = package.mutate(&words).assert_code(0);
    assert_eq!(files(&package.path("")), before, "the user's files are only read");
    let mutants = package.mutants("../report.json");
    let expected: BTreeMap<String, String> = [
        ("before_main: ", "NoCoverage"),
        ("before_main: false", "Survived"),
        ("before_main: is_fine()", "RuntimeError"),
        ("before_main: true", "RuntimeError"),
        ("before_main: {}", "Survived"),
        ("count: ", "Killed"),
        ("count: false", "Killed"),
        ("count: n += 1", "Timeout"),
        ("count: n /= 1", "Timeout"),
        ("count: n < 0", "Killed"),
        ("count: n == 0", "Killed"),
        ("count: rounds *= 1", "Killed"),
        ("count: n <= 0", "Killed"),
        ("count: n >= 0", "Killed"),
        ("count: rounds -= 1", "Killed"),
        ("count: { 0 }", "Killed"),
        ("count: { 1 }", "Killed"),
        ("greet: String::from(\"hello \") * name", "CompileError"),
        ("greet: String::from(\"hello \") - name", "CompileError"),
        ("greet: { \"xyzzy\".into() }", "Killed"),
        ("greet: { String::new() }", "Killed"),
        ("is_fine: false", "RuntimeError"),
        ("is_fine: { false }", "RuntimeError"),
        ("is_low: a <= 2", "Killed"),
        ("is_low: a == 2", "Killed"),
        ("is_low: a > 2", "Killed"),
        ("is_low: a >= 2", "Killed"),
        ("is_low: { false }", "Killed"),
        ("is_low: { true }", "Killed"),
        ("left_alone: a + 1", "Ignored"),
        ("left_alone: a / 1", "Ignored"),
        ("left_alone: { 0 }", "Ignored"),
        ("left_alone: { 1 }", "Ignored"),
        ("settle: ", "NoCoverage"),
        ("settle: false", "Survived"),
        ("settle: is_settled", "Timeout"),
        ("settle: true", "Timeout"),
        ("settle: {}", "Survived"),
        ("unused: a + 3", "NoCoverage"),
        ("unused: a / 3", "NoCoverage"),
        ("unused: { 0 }", "NoCoverage"),
        ("unused: { 1 }", "NoCoverage"),
        ("weak: a * 1", "Survived"),
        ("weak: a - 1", "Survived"),
        ("weak: { 0 }", "Survived"),
        ("weak: { 1 }", "Survived"),
    ]
    .map(|(name, status)| (name.to_owned(), status.to_owned()))
    .into();
    assert_eq!(statuses(&mutants), expected, "{ran}");
    // Reports and output name the killing test, the reason and the covering tests.
    assert_killed_by(&mutants["is_low: a <= 2"], "package::tests::low", "is_low(1)");
    assert_killed_by(&mutants["greet: { String::new() }"], "package::it::greets", "hello a");
    let reason = |name: &str| mutants[name]["statusReason"].as_str().unwrap().to_owned();
    assert!(reason("count: n += 1").contains("was executed more than"), "{}", reason("count: n += 1"));
    assert!(reason("settle: true").contains("idle for 2 s"), "{}", reason("settle: true"));
    assert_eq!(mutants["weak: { 0 }"]["coveredBy"].as_array().unwrap().len(), 1);
    assert_eq!(mutants["weak: { 0 }"]["testsCompleted"], 1);
    assert!(mutants["weak: { 0 }"].get("killedBy").is_none());
    ran.assert_stderr("SURVIVED src/lib.rs:9:5  ArithmeticOperator  a + 1 → a - 1   (in `weak`: 1 test covers it and did not fail: package::tests::weakly)");
    ran.assert_stderr("NOT COVERED src/lib.rs:12:28  unused   (no test reaches 4 mutants in lines 12-13)");
    ran.assert_stderr(" survived, 6 not covered").assert_stderr("score ");
    assert!(fs::read_to_string(package.world.path("page.html")).unwrap().contains("is_low"));

    // Known verdicts are not tested again, and the score decides the exit code.
    let again = package.mutate(&[&words[..], &["--min-score", "99"]].concat()).assert_code(2);
    again.assert_stderr("verdicts from earlier runs");
    again
        .assert_stderr("SURVIVED src/lib.rs:9:5  ArithmeticOperator")
        .assert_stderr("NOT COVERED src/lib.rs:12:28");
    let repeated = statuses(&package.mutants("../report.json"));
    assert_eq!(repeated, statuses(&mutants), "{again}");
}

fn assert_killed_by(mutant: &Value, uid: &str, reason: &str) {
    let killers: Vec<&str> =
        mutant["killedBy"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(killers.len(), 1, "{mutant}");
    let text = mutant["statusReason"].as_str().unwrap();
    assert!(text.contains(reason), "{text}");
    // Reports shorten ids as far as they stay unique.
    assert!(!killers[0].is_empty() && uid.contains("::"), "{killers:?}");
}

const SMALL: &str = "pub fn one(a: u8) -> bool {\n    a < 2\n}\n\npub fn two(a: u8) -> bool {\n    a > 7\n}\n\npub fn greet(name: &str) -> String {\n    format!(\"hello {name}\")\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn both() {\n        assert!(super::one(1) && !super::one(2) && super::two(8) && !super::two(7));\n    }\n}\n";

#[test]
fn endless_loop_beside_its_mutant_is_noticed_without_waiting() {
    let package = Package::new(
        "pub fn drain(is_open: bool) -> bool {\n    let mut is_done = false;\n    if is_open { is_done = true; }\n    loop {\n        if is_done { return is_done; }\n    }\n}\n\npub fn greet(name: &str) -> String {\n    format!(\"hello {name}\")\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn drains() {\n        assert!(super::drain(true));\n    }\n}\n",
    );
    let ran = package.mutate(&["src/lib.rs:3", "--json", "../report.json"]).assert_code(0);
    let mutants = package.mutants("../report.json");
    // Two mutants have the replacement `false`; the map contains one of them.
    let expected = [("drain: ", "Timeout"), ("drain: false", "Timeout"), ("drain: true", "Survived")];
    assert_eq!(
        statuses(&mutants),
        expected.map(|(name, status)| (name.into(), status.into())).into(),
        "{ran}"
    );
    let reason = mutants["drain: "]["statusReason"].as_str().unwrap();
    assert!(reason.contains("mutants and loops were executed"), "{reason}");
}

#[test]
fn only_what_a_change_concerns_is_tested_again() {
    let package = Package::new(SMALL);
    let kept = |ran: &FinishedCommand| {
        let line = ran.stderr.lines().find(|line| line.contains("Summary")).unwrap().to_owned();
        let words = line.split(" · ").find(|part| part.contains("from earlier runs")).map(str::to_owned);
        words.map_or(0, |words| words.split(' ').next().unwrap().parse::<u32>().unwrap())
    };
    let first = package.mutate(&[]).assert_code(0);
    assert_eq!(kept(&first), 0, "{first}");
    let all = kept(&package.mutate(&[]).assert_code(0));
    assert!(all > 5, "{all}");
    fs::write(package.path("src/lib.rs"), SMALL.replace("a > 7", "7 < a")).unwrap();
    let changed = package.mutate(&[]).assert_code(0);
    assert!(kept(&changed) > 0 && kept(&changed) < all, "{changed}");
    fs::write(package.path("src/lib.rs"), SMALL.replace("super::one(1) &&", "")).unwrap();
    let other_test = package.mutate(&[]).assert_code(0);
    assert_eq!(kept(&other_test), 0, "{other_test}");
}

#[test]
fn sources_parts_and_changes_select_mutants() {
    let package = Package::new(SMALL);
    let git = |words: &[&str]| {
        let status = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
            .args(words)
            .current_dir(package.path(""))
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    git(&["init"]);
    git(&["add", "."]);
    git(&["commit", "-m", "first"]);
    let count = |words: &[&str]| {
        let ran = package.mutate(&[&["--list"], words].concat());
        let last = ran.stdout.lines().last().unwrap_or_default();
        last.split(' ').next().unwrap().parse::<usize>().unwrap_or_else(|_| panic!("{ran}"))
    };
    let all = count(&[]);
    assert_eq!(count(&["--in-diff", "HEAD"]), 0);
    let parts: Vec<usize> = ["1/3", "2/3", "3/3"].iter().map(|part| count(&["--shard", part])).collect();
    assert_eq!(parts.iter().sum::<usize>(), all, "{parts:?}");
    fs::write(package.path("src/lib.rs"), SMALL.replace("a > 7", "7 < a")).unwrap();
    let ran = package.mutate(&["--in-diff", "HEAD", "--json", "../report.json"]).assert_code(0);
    let mutants = package.mutants("../report.json");
    assert!(
        !mutants.is_empty() && mutants.keys().all(|name| name.starts_with("two: ")),
        "{mutants:?}\n{ran}"
    );
    assert!(statuses(&mutants).values().all(|status| status == "Killed"), "{mutants:?}");
    package
        .mutate(&["--in-diff", "nowhere"])
        .assert_code(5)
        .assert_stderr("failed to test mutants: cannot compare with \"nowhere\"");
    package.mutate(&["--shard", "4/3"]).assert_code(5).assert_stderr("expected K/N");
    package.mutate(&["--min-score", "101"]).assert_code(5).assert_stderr("expected a percentage");
}

#[test]
fn tests_that_fail_without_a_mutant_and_sources_that_do_not_compile_are_errors() {
    let package = Package::new(&SMALL.replace("!super::two(7)", "super::two(7)"));
    let ran = package.mutate(&[]).assert_code(2);
    ran.assert_stderr("failed to test mutants: tests fail without a mutant");
    ran.assert_stderr("package::tests::both: assertion failed");
    fs::write(package.path("src/lib.rs"), SMALL.replace("a < 2", "a < \"2\"")).unwrap();
    let ran = package.mutate(&[]).assert_code(4);
    ran.assert_stderr("the tests do not compile")
        .assert_stderr("error[E0308]: mismatched types (src/lib.rs:");
    fs::write(package.path("src/lib.rs"), SMALL).unwrap();
    let other = package.world.path("other");
    fs::create_dir_all(other.join("src")).unwrap();
    fs::write(other.join("Cargo.toml"), MANIFEST.replace("\"package\"", "\"other\"")).unwrap();
    fs::write(other.join("src/lib.rs"), "").unwrap();
    let manifest = format!("{MANIFEST}[dependencies]\nother = {{ path = \"../other\" }}\n");
    fs::write(package.path("Cargo.toml"), manifest).unwrap();
    package.mutate(&[]).assert_code(4).assert_stderr("depends on other in ");
    // Cargo itself rejects the manifest.
    let broken = format!("{MANIFEST}[dependencies]\nother = \"not a version\"\n");
    fs::write(package.path("Cargo.toml"), broken).unwrap();
    package.mutate(&[]).assert_code(4).assert_stderr("not a version");
}

/// A test that fails in every fifth process. No other test covers `weak` and `kept`.
const FLAKY: &str = "pub fn weak(a: u8) -> bool {\n    a > 2\n}\n\npub fn kept(a: u8) -> bool {\n    a < 2\n}\n\npub fn greet(name: &str) -> String {\n    format!(\"hello {name}\")\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn sometimes() {\n        let path = concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/count\");\n        let count = std::fs::read_to_string(path).map_or(0, |text| text.len());\n        std::fs::write(path, \"x\".repeat(count + 1)).unwrap();\n        super::weak(7);\n        assert!(super::kept(1) && !super::kept(2));\n        assert!(count % 5 != 0, \"now and then\");\n    }\n\n    #[test]\n    fn steady() {}\n}\n";

#[test]
fn flaky_test_kills_only_mutants_under_which_it_fails_again_and_again() {
    let package = Package::new(FLAKY);
    // `-j1` runs one process at a time, so the count is exact.
    let ran = package.mutate(&["-j1", "--json", "m.json"]).assert_code(0);
    ran.assert_stderr("flaky without a mutant").assert_stderr("in a row: package::tests::sometimes");
    let mutants = package.mutants("m.json");
    let of = |function: &str| {
        let of_function = mutants.iter().filter(|(name, _)| name.starts_with(function));
        of_function.map(|(_, mutant)| mutant).collect::<Vec<_>>()
    };
    assert_eq!(of("weak:").len(), 6, "{:?}", statuses(&mutants));
    for mutant in of("weak:") {
        assert_eq!(mutant["status"], "Survived", "{mutant}");
        let reason = "failed once and passed when it ran again: tests::sometimes";
        assert!(mutant["statusReason"].is_null() || mutant["statusReason"] == reason, "{mutant}");
    }
    assert!(of("weak:").iter().any(|mutant| !mutant["statusReason"].is_null()));
    for mutant in of("kept:") {
        assert_eq!(mutant["status"], "Killed", "{mutant}");
        assert_eq!(mutant["killedBy"].as_array().unwrap().len(), 1);
    }
    assert_eq!(of("kept:").len(), 6);
}

#[test]
fn survivors_are_annotated_and_written_for_code_scanning() {
    let package = Package::new(&SMALL.replace(" && super::two(8) && !super::two(7)", ""));
    let weak = package.path("src/lib.rs");
    fs::write(
        &weak,
        fs::read_to_string(&weak).unwrap().replace("!super::one(2)", "super::two(1) == super::two(1)"),
    )
    .unwrap();
    let ran = package.mutate(&["--github", "--sarif", "../survivors.sarif"]).assert_code(0);
    ran.assert_stdout("::warning file=").assert_stdout("src/lib.rs");
    let sarif: Value =
        serde_json::from_str(&fs::read_to_string(package.world.path("survivors.sarif")).unwrap()).unwrap();
    assert!(!sarif["runs"][0]["results"].as_array().unwrap().is_empty());
}

/// Returns a package whose mutants each take a while: its test sleeps before it checks anything.
fn slow_package() -> Package {
    let conditions = (0..12).map(|n| format!("pub fn f{n}(a: u8) -> bool {{\n    a < {n}\n}}\n\n"));
    let checks = (1..12).map(|n| format!("        assert!(super::f{n}(0) && !super::f{n}({n}));\n"));
    let greet = "pub fn greet(name: &str) -> String {\n    format!(\"hello {name}\")\n}\n\n";
    let tests = format!(
        "#[cfg(test)]\nmod tests {{\n    #[test]\n    fn all() {{\n        std::thread::park_timeout(std::time::Duration::from_millis(150));\n{}    }}\n}}\n",
        checks.collect::<String>()
    );
    Package::new(&format!("{}{greet}{tests}", conditions.collect::<String>()))
}

/// Returns whether a state directory has verdicts for later runs.
fn has_verdicts(state: &Path) -> bool {
    let places = fs::read_dir(state.join("mutate"));
    places.is_ok_and(|mut places| places.any(|place| place.unwrap().path().join("verdicts.json").exists()))
}

#[test]
fn cancelled_run_keeps_what_is_known_and_the_next_goes_on() {
    let package = slow_package();
    let mut child = package.start(&["--json", "../partial.json"]);
    wait_until("some verdicts are kept", || has_verdicts(&package.path(".heeler")));
    signal(child.id(), "INT");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{text}");
    assert!(text.contains("Summary cancelled, "), "{text}");
    let found = package.mutants("../partial.json");
    let partial = statuses(&found);
    assert!(partial.values().any(|status| status == "Killed"), "{partial:?}");
    let pending: Vec<_> = found.values().filter(|mutant| mutant["status"] == "Pending").collect();
    assert!(!pending.is_empty(), "{partial:?}");
    for mutant in pending {
        assert_eq!(mutant["statusReason"], "not tested: the run was cancelled");
    }
    let ran = package.mutate(&["--json", "../report.json"]).assert_code(0);
    ran.assert_stderr("from earlier runs");
    let all = statuses(&package.mutants("../report.json"));
    for (name, status) in partial.iter().filter(|(_, status)| *status == "Killed") {
        assert_eq!(all.get(name), Some(status));
    }
    assert!(all.values().all(|status| status != "Pending"), "{all:?}");
}

#[test]
fn run_that_is_cancelled_while_it_builds_has_a_report() {
    let package = Package::new(SMALL);
    let gate = package.world.path("gate");
    let begun = package.world.path("begun");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = format!(
        "fn main() {{\n    std::fs::write({begun:?}, \"\").unwrap();\n    std::fs::read({gate:?}).unwrap();\n}}\n"
    );
    fs::write(package.path("build.rs"), script).unwrap();
    let mut child = package.start(&["--json", "../partial.json"]);
    wait_until("the build has begun", || begun.exists());
    signal(child.id(), "INT");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{text}");
    assert!(text.contains("Summary cancelled, "), "{text}");
    for mutant in package.mutants("../partial.json").values() {
        assert_eq!(mutant["status"], "Pending", "{mutant}");
        assert_eq!(mutant["statusReason"], "not tested: the run was cancelled");
    }
}

#[test]
fn time_limit_ends_a_run_with_what_is_known() {
    let package = slow_package();
    let ran = package.mutate(&["--time-limit", "2s", "--json", "../partial.json"]).assert_code(3);
    ran.assert_stderr("Summary time limit of 2.0s reached, ");
    let found = package.mutants("../partial.json");
    let pending: Vec<_> = found.values().filter(|mutant| mutant["status"] == "Pending").collect();
    assert!(!pending.is_empty(), "{ran}");
    for mutant in pending {
        assert_eq!(mutant["statusReason"], "not tested: the run ended at its time limit of 2.0s");
    }
    let all = package.mutate(&["--time-limit", "1h", "--json", "../report.json"]).assert_code(0);
    all.assert_stderr(" mutants, ").assert_stderr(" if no test fails");
}

#[test]
fn dead_watchdogs_leave_no_mutant_open() {
    let package = slow_package();
    let state = package.world.path("state");
    let mut child =
        package.start(&["--state-dir", state.to_str().unwrap(), "-j1", "--json", "../report.json"]);
    wait_until("some verdicts are kept", || has_verdicts(&state));
    let watchdogs = || processes_of_role(child.id(), ProcessRole::Watchdog);
    for _ in 0..5 {
        wait_until("a watchdog runs", || !watchdogs().is_empty());
        let pid = watchdogs()[0];
        signal(pid, "KILL");
        wait_until("it is gone", || !watchdogs().contains(&pid));
    }
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    let all = statuses(&package.mutants("../report.json"));
    assert!(all.values().all(|status| status != "Pending"), "{all:?}\n{text}");
}

#[test]
fn both_signals_of_timeout_are_one_request() {
    let package = slow_package();
    let mut command = std::process::Command::new("timeout");
    // `timeout` forwards SIGTERM to its child and to its process group, so Heeler receives the signal twice.
    command.args(["3600", env!("CARGO_BIN_EXE_heeler"), "mutate", "-j1", "--json", "../partial.json"]);
    let mut command = package.world.command(command, &[]);
    command.current_dir(package.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until("some verdicts are kept", || has_verdicts(&package.path(".heeler")));
    signal(child.id(), "TERM");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    assert!(text.contains("cancelled"), "{text}");
    let partial = statuses(&package.mutants("../partial.json"));
    assert!(partial.values().any(|status| status == "Killed"), "{partial:?}");
}

#[test]
fn killed_worker_changes_no_verdict() {
    let package = slow_package();
    package.mutate(&["--json", "../expected.json"]).assert_code(0);
    let expected = statuses(&package.mutants("../expected.json"));
    let state = package.world.path("state");
    let mut child = package.start(&["--state-dir", state.to_str().unwrap(), "--json", "../report.json"]);
    wait_until("some verdicts are kept", || has_verdicts(&state));
    let workers = processes_of_role(child.id(), ProcessRole::Worker);
    signal(*workers.first().expect("mutants are tested"), "KILL");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert_eq!(statuses(&package.mutants("../report.json")), expected, "{text}");
}

#[test]
fn killed_coordinator_leaves_nothing_running_and_no_wrong_verdict() {
    let package = slow_package();
    let mut child = package.start(&[]);
    let workers = || processes_of_role(child.id(), ProcessRole::Worker);
    wait_until("tests run", || workers().iter().any(|worker| !children(*worker).is_empty()));
    let of_worker: Vec<u32> = workers();
    let children: Vec<_> = of_worker.iter().flat_map(|worker| children(*worker)).collect();
    signal(child.id(), "KILL");
    child.wait().unwrap();
    wait_until("everything has ended", || {
        let is_gone = |pid: u32| crate::support::process::state(pid).is_none_or(|state| state == 'Z');
        of_worker.iter().all(|worker| is_gone(*worker))
            && children.iter().all(|child| is_gone(u32::try_from(child.0).unwrap()))
    });
    let ran = package.mutate(&["--json", "../report.json"]).assert_code(0);
    let all = statuses(&package.mutants("../report.json"));
    let survivors: Vec<_> = all.iter().filter(|(_, status)| *status == "Survived").collect();
    assert!(all.values().all(|status| status != "Pending"), "{all:?}\n{ran}");
    assert!(survivors.iter().all(|(name, _)| name.starts_with("f")), "{survivors:?}");
}

#[test]
fn features_and_packages_are_those_of_cargo() {
    let world = TestWorld::new();
    let root = world.path("workspace");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    // Two packages with the same features; the tests of a feature kill its mutants.
    write("Cargo.toml", "[workspace]\nmembers = [\"one\", \"two\"]\nresolver = \"2\"\n");
    let test = |name: &str| format!("#[test]\nfn reaches() {{\n    assert!(!{name}(2) && {name}(1));\n}}\n");
    let low = |name: &str, head: &str| format!("{head}pub fn {name}(a: u8) -> bool {{\n    a < 2\n}}\n");
    let features = "[features]\ndefault = [\"usual\"]\nusual = []\nextra = []\n";
    for name in ["one", "two"] {
        let manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{features}");
        write(&format!("{name}/Cargo.toml"), &manifest);
        let parts = ["usual", "extra"].map(|feature| {
            let condition = format!("#[cfg(feature = \"{feature}\")]\n");
            let test = test(feature).replace("fn reaches", &format!("fn reaches_{feature}"));
            format!("{}{condition}{test}", low(feature, &condition))
        });
        write(&format!("{name}/src/lib.rs"), &parts.concat());
    }
    // Returns the status that all mutants of a package and a feature have.
    let statuses = |words: &[&str]| {
        let mut command = world.heeler(&[&["mutate", "-j2", "--json", "../report.json"], words].concat());
        command.current_dir(&root);
        let ran = run_with_separate_outputs(command).assert_code(0);
        let report: Value =
            serde_json::from_str(&fs::read_to_string(world.path("report.json")).unwrap()).unwrap();
        let mut found = BTreeMap::new();
        for (path, file) in report["files"].as_object().unwrap() {
            for mutant in file["mutants"].as_array().unwrap() {
                let line = mutant["location"]["start"]["line"].as_u64().unwrap();
                let feature = if line < 8 { "usual" } else { "extra" };
                let status = mutant["status"].as_str().unwrap().to_owned();
                let package = path.split('/').next().unwrap();
                found.entry(format!("{package} {feature}")).or_insert_with(Vec::new).push(status);
            }
        }
        let only = |statuses: Vec<String>| {
            assert!(statuses.iter().all(|status| *status == statuses[0]), "{statuses:?}\n{ran}");
            statuses[0].clone()
        };
        found.into_iter().map(|(name, statuses)| format!("{name}: {}", only(statuses))).collect::<Vec<_>>()
    };
    // `--package` and `--features` select mutants as in Cargo.
    assert_eq!(
        statuses(&[]),
        ["one extra: Ignored", "one usual: Killed", "two extra: Ignored", "two usual: Killed"]
    );
    assert_eq!(statuses(&["-p", "two"]), ["two extra: Ignored", "two usual: Killed"]);
    assert_eq!(statuses(&["-p", "one", "--features", "extra"]), ["one extra: Killed", "one usual: Killed"]);
    assert_eq!(statuses(&["-p", "one", "--all-features"]), ["one extra: Killed", "one usual: Killed"]);
    assert_eq!(
        statuses(&["--package=one", "--no-default-features", "-Fextra"]),
        ["one extra: Killed", "one usual: Ignored"]
    );
    // Unknown packages and features are errors.
    let unknown = |words: &[&str]| {
        let mut command = world.heeler(&[&["mutate"], words].concat());
        command.current_dir(&root);
        run_with_separate_outputs(command)
    };
    unknown(&["-p", "three"]).assert_code(5).assert_stderr("no package \"three\" in the workspace");
    // Cargo's error names the missing feature.
    unknown(&["--features", "nothing"]).assert_code(4).assert_stderr("nothing");
}

#[test]
fn module_that_the_build_script_includes_has_mutants() {
    let package = Package::new(
        "pub mod table;\npub fn of_build() -> &'static str {\n    env!(\"SIZE\")\n}\n#[test]\nfn sizes() {\n    assert_eq!((table::size(3), of_build()), (6, \"6\"));\n}\n",
    );
    fs::remove_file(package.path("tests/it.rs")).unwrap();
    fs::write(package.path("src/table.rs"), "pub fn size(n: u32) -> u32 {\n    n * 2\n}\n").unwrap();
    let script = "#[path = \"src/table.rs\"]\nmod table;\nfn main() {\n    println!(\"cargo:rustc-env=SIZE={}\", table::size(3));\n}\n";
    fs::write(package.path("build.rs"), script).unwrap();
    package.mutate(&[]).assert_code(0).assert_stderr("Summary 6 mutants: 6 killed · score 100.0 %");
}
