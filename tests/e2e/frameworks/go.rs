//! Go: fixture packages with every way a test can end, parallel tests, and packages as a source. The tests
//! run with the current Go and with 1.19, the last version whose reports have no frames. A missing version is
//! skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    fixtures::{fixtures, go},
    requirement,
    world::{FinishedCommand, TestWorld},
};

const SETTINGS: &str = "[profile.default]\ntimeout = \"10s\"\ngrace-period = \"400ms\"\ndumps = \"off\"\n";
/// Directory of Debian's package of Go 1.19.
const GO_1_19: &str = "/usr/lib/go-1.19/bin";

pub(super) struct Toolchain {
    /// Directory that contains `go`.
    bin: PathBuf,
    /// Whether its reports have frames.
    is_framed: bool,
}

impl Toolchain {
    pub(super) fn current() -> Option<Self> {
        let bin = requirement::directory_of_program("go", "Go 1.20 or newer must be in PATH")?;
        Some(Self { bin, is_framed: true })
    }

    fn all() -> Vec<Self> {
        let old = Path::new(GO_1_19).join("go").is_file();
        if !old {
            requirement::leave_out("Go 1.19", &format!("there is no {GO_1_19}/go; scripts/test installs it"));
        }
        let old = old.then(|| Self { bin: GO_1_19.into(), is_framed: false });
        Self::current().into_iter().chain(old).collect()
    }

    /// Returns a world with the fixture packages.
    pub(super) fn world(&self) -> TestWorld {
        let world = TestWorld::new();
        copy(&fixtures().join("go"), world.dir());
        world.write("heeler.toml", SETTINGS);
        let path = std::env::var("PATH").unwrap();
        world.env("PATH", &format!("{}:{path}", self.bin.display()));
        world.env("GOCACHE", go_cache().to_str().unwrap());
        world.env("GOTOOLCHAIN", "local");
        world.env("GOFLAGS", "");
        world
    }
}

/// Returns a shared build cache. With it, Go compiles its library once for all tests.
pub(super) fn go_cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("go")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

struct GoRun {
    command: FinishedCommand,
    /// Last event of each test, by its name without the package.
    ends: BTreeMap<String, Value>,
    program_failures: Vec<Value>,
}

fn run(world: &TestWorld, words: &[&str]) -> GoRun {
    let command = world.run(&[&["run", "--format", "json", "-j2"], words].concat());
    let (mut ends, mut program_failures, mut uids) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for line in command.stdout.lines().filter(|line| line.starts_with('{')) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if event["type"] == "test" && event["outcome"].is_string() {
            let name = event["name"].as_str().unwrap().to_owned();
            assert!(uids.insert(event["uid"].to_string()), "two ends: {line}");
            ends.insert(name, event);
        } else if event["type"] == "program" {
            program_failures.push(event);
        }
    }
    GoRun { command, ends, program_failures }
}

impl GoRun {
    #[track_caller]
    fn end(&self, name: &str) -> &Value {
        self.ends.get(name).unwrap_or_else(|| panic!("no end of {name}\n{}", self.command))
    }

    /// Panics unless the test's last event has this outcome and contains this text.
    #[track_caller]
    fn assert_outcome(&self, name: &str, outcome: &str, said: &str) {
        let end = self.end(name);
        assert_eq!(end["outcome"], outcome, "{end:#}");
        assert!(end.to_string().contains(said), "{said:?} is not in {end:#}");
    }
}

/// Tests of the package `kinds`, each with its outcome and a text in its last event.
const KINDS: [(&str, &str, &str); 31] = [
    ("TestPasses", "passed", "out of passes"),
    ("TestLogs", "passed", "a note"),
    ("TestFails", "failed", "sum is 3\\nnot 4"),
    ("TestFatal", "failed", "/kinds/kinds_test.go\""),
    ("TestStderr", "passed", "err of stderr"),
    ("TestSkips", "skipped", "no device"),
    ("TestSkipsNow", "skipped", ""),
    ("TestSub", "failed", "x: x is wrong"),
    ("TestSubParallel", "passed", ""),
    ("TestPanics", "crashed", "panic: on purpose: 2, at "),
    ("TestNilPointer", "crashed", "nil pointer dereference, at "),
    ("TestSubPanics", "crashed", "panic: in a subtest, at "),
    ("TestGoroutinePanics", "crashed", "panic: in a goroutine, at "),
    ("TestExits0", "crashed", "unexpected call to os.Exit(0)"),
    ("TestExits3", "exited-early", "code 3"),
    ("TestExitsRaw", "exited-early", "code 0"),
    ("TestForgesEnd", "exited-early", "code 0"),
    ("TestIsKilled", "crashed", "SIGKILL"),
    ("TestSegfaults", "crashed", "crashed with SIGSEGV (segmentation violation"),
    ("TestDeadlocks", "crashed", "all goroutines are asleep"),
    ("TestMapRace", "crashed", "concurrent map writes"),
    ("TestOverflows", "crashed", "stack overflow, at "),
    ("TestHangs", "timed-out", "kinds.TestHangs at "),
    ("TestLast", "passed", ""),
    ("TestOutside", "passed", ""),
    ("FuzzAdd", "failed", "seed#1: seven"),
    ("FuzzPasses", "passed", ""),
    ("ExampleAdd", "passed", ""),
    ("ExampleDeref", "failed", "\"expected\":\"5\""),
    ("Example_panics", "crashed", "panic: in an example, at "),
    // Without frames, a test can forge reports of other tests. The forging test still fails, but the outcome
    // varies.
    ("TestForges", "failed", "forged"),
];

#[test]
fn every_go_test_has_its_outcome_whatever_ends_its_process() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        let run = run(&world, &["--go", "./kinds"]);
        let names: BTreeSet<&str> = run.ends.keys().map(String::as_str).collect();
        assert_eq!(names, KINDS.iter().map(|(name, ..)| *name).collect(), "{}", run.command);
        for (name, outcome, said) in KINDS {
            // Before Go 1.20, standard error is a separate stream. If several tests end within one read, the
            // text goes to the tests that did not pass.
            let is_shared = !toolchain.is_framed && name == "TestStderr";
            let said = if is_shared { "" } else { said };
            if toolchain.is_framed || name != "TestForges" {
                run.assert_outcome(name, outcome, said);
            } else {
                assert_ne!(run.end(name)["outcome"], "passed", "{:#}", run.end(name));
            }
        }
        if toolchain.is_framed {
            assert_eq!(run.program_failures, Vec::<Value>::new(), "{}", run.command);
        }
        // Each stack is there once, begins in the test, and leaves out what the runtime says of itself.
        for (name, others) in [("TestHangs", true), ("TestDeadlocks", true), ("TestPanics", false)] {
            let end = run.end(name);
            let (stack, text) = (end["stacktrace"].as_str().unwrap(), end.to_string());
            assert!(stack.contains(&format!("kinds.{name} at ")), "{end:#}");
            assert_eq!(stack.contains("other goroutine"), others, "{end:#}");
            assert!(!text.contains("goroutine 1 [") && !text.contains("testing.tRunner("), "{end:#}");
        }
        assert_eq!(run.command.code, Some(2), "{}", run.command);
        world.check_tidy();
    }
}

#[test]
fn parallel_test_that_panics_costs_itself_alone() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        let run = run(&world, &["--go", "./parallel"]);
        assert_eq!(run.ends.len(), 5, "{}", run.command);
        for name in ["TestFirst", "TestSleeps", "TestSequential"] {
            run.assert_outcome(name, "passed", "");
        }
        run.assert_outcome("TestFails", "failed", "fails in parallel");
        run.assert_outcome("TestPanics", "crashed", "panic: in parallel, at ");
        run.assert_outcome("TestFirst", "passed", "before the pause");
        assert!(!run.end("TestFirst").to_string().contains("fails in parallel"), "{}", run.command);
        assert_eq!(run.program_failures, Vec::<Value>::new(), "{}", run.command);
    }
}

#[test]
fn test_main_that_runs_no_tests_or_fails_is_a_failure() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        let returns = run(&world, &["--go", "./main_returns"]);
        let end = returns.ends.get("TestNever");
        assert!(end.is_none_or(|end| end["outcome"] != "passed"), "{}", returns.command);
        assert!(!matches!(returns.command.code, Some(0)), "{}", returns.command);
        let fails = run(&world, &["--go", "./main_fails"]);
        let is_blamed = fails.end("TestFine")["outcome"] != "passed";
        assert!(is_blamed || !fails.program_failures.is_empty(), "{}", fails.command);
        assert!(fails.command.stdout.contains("code 5"), "{}", fails.command);
        assert_ne!(fails.command.code, Some(0), "{}", fails.command);
    }
}

#[test]
fn packages_are_built_and_run_in_their_directories() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        let all = run(&world, &["--go", "./same/...", "--go", "./other/unit", "--go", "./untested"]);
        let uids: BTreeSet<String> = all
            .command
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["type"] == "test" && event["outcome"] == "passed")
            .map(|event| event["uid"].as_str().unwrap().to_owned())
            .collect();
        let expected =
            ["same", "other"].map(|name| format!("heeler.test/fixtures/{name}/unit::TestReadsBeside"));
        assert_eq!(uids, expected.into(), "{}", all.command);
        let said = "1 package without tests: heeler.test/fixtures/untested";
        assert!(all.command.stdout.contains(said), "{}", all.command);

        let none = world.run(&["run", "--go", "./untested"]);
        none.assert_stdout("no matching package has tests");
        let missing = world.run(&["run", "--go", "./nowhere"]);
        missing.assert_stdout("nowhere");
        assert_ne!(missing.code, Some(0), "{missing}");
    }
}

/// Returns the build directories of the programs.
fn build_directories(state: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(state.join("go")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn programs_are_built_in_the_state_directory_that_is_named_and_git_ignores_it() {
    let Some(toolchain) = Toolchain::current() else { return };
    let world = toolchain.world();
    let words = ["--go", "./same/unit", "--state-dir", "state"];
    world.run(&[&["list"], &words[..]].concat()).assert_code(0);
    assert!(!world.path(".heeler").exists());
    assert_eq!(world.read("state/.gitignore"), "*\n");
    let listed = build_directories(&world.path("state"));
    assert_eq!(listed.len(), 1);
    let found = run(&world, &words);
    found.assert_outcome("TestReadsBeside", "passed", "");
    assert!(!world.path(".heeler").exists());
    // Listings and runs share build products; a build with coverage has a separate directory.
    assert_eq!(build_directories(&world.path("state")), listed);
    let has_debug_data = |directory: &Path| {
        let program = fs::read(directory.join("0/unit.test")).unwrap();
        program.windows(11).any(|name| name == b".debug_info" || name == b"zdebug_info")
    };
    assert!(!has_debug_data(listed.first().unwrap()));
    run(&world, &[&words[..], &["--go-arg=-cover"]].concat()).assert_outcome("TestReadsBeside", "passed", "");
    let covered = &build_directories(&world.path("state")) - &listed;
    assert!(has_debug_data(covered.first().unwrap()));
}

#[test]
fn programs_are_built_where_nobody_else_could_put_them() {
    let Some(toolchain) = Toolchain::current() else { return };
    let world = toolchain.world();
    let list = || world.run(&["list", "--go", "./same/unit"]).assert_code(0);
    list();
    let own = build_directories(&world.path(".heeler"));
    list();
    assert_eq!(build_directories(&world.path(".heeler")), own);
    // Simulates another user who shares the directory, or the same user on another machine.
    fs::create_dir(world.path("home2")).unwrap();
    world.env("HOME", world.path("home2").to_str().unwrap());
    list();
    assert_eq!((&build_directories(&world.path(".heeler")) - &own).len(), 1);
}

#[test]
fn package_that_does_not_compile_is_one_error_and_the_others_run() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        fs::create_dir(world.path("unreadable")).unwrap();
        world.write("unreadable/unreadable_test.go", "package unreadable\n\nimport \"testing\"\n\nfunc {\n");
        fs::create_dir(world.path("two_names")).unwrap();
        world.write("two_names/one.go", "package one\n");
        world.write("two_names/two.go", "package two\n");
        let packages = ["./same/unit", "./broken", "./other/unit", "./unreadable", "./two_names"];
        let words: Vec<_> = packages.iter().flat_map(|package| ["--go", package]).collect();
        let ran = world.run(&[&["run"], &words[..]].concat()).assert_code(2);
        for name in ["same", "other"] {
            ran.line_with(&["PASS", &format!("heeler.test/fixtures/{name}/unit"), "TestReadsBeside"]);
        }
        for (name, said) in [
            ("broken", "undefined: undefinedFunction"),
            ("unreadable", "unreadable_test.go:5"),
            ("two_names", "found packages one (one.go) and two (two.go)"),
        ] {
            ran.assert_stdout(&format!("heeler.test/fixtures/{name} could not be built"));
            ran.assert_stdout(said);
        }
        ran.assert_stdout("2 passed");
        ran.assert_stdout("FAILED 3 programs in ");
        // No package is left that can be built.
        let alone = world.run(&["run", "--go", "./broken"]).assert_code(4);
        alone.assert_stdout("undefined: undefinedFunction");
        alone.assert_stdout("heeler.test/fixtures/broken could not be built");
    }
}

#[test]
fn suite_names_packages_and_listing_shows_places() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        let suite =
            "[[suite]]\nname = \"unit\"\ngo = \"./kinds ./same/...\"\ngo-args = [\"-trimpath=false\"]\n";
        world.write("heeler.toml", &format!("{SETTINGS}{suite}"));
        let listed = world.run(&["list", "--format", "json"]);
        let source = fs::read_to_string(world.path("kinds/kinds_test.go")).unwrap();
        let line = source.lines().position(|line| line.contains("func ExampleAdd()")).unwrap() + 1;
        assert!(listed.stdout.contains("::ExampleAdd"), "{listed}");
        assert!(listed.stdout.contains("kinds/kinds_test.go"), "{listed}");
        assert!(listed.stdout.contains(&format!("{line}")), "{listed}");
        assert!(!listed.stdout.contains("BenchmarkAdd"), "{listed}");
        let run = run(&world, &["-E", "test(=TestReadsBeside)"]);
        run.assert_outcome("TestReadsBeside", "passed", "");
    }
}

#[test]
fn test_program_is_recognized_by_its_file() {
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        fs::create_dir(world.path("build")).unwrap();
        for package in ["same/unit", "parallel"] {
            let mut command = Command::new(toolchain.bin.join("go"));
            let name = package.replace('/', "_");
            command.current_dir(world.path(package)).args(["test", "-c", "-ldflags=-s -w", "-o"]);
            command.arg(world.path("build").join(format!("{name}.test"))).arg(".");
            command.env("GOCACHE", go_cache());
            command.env("GOFLAGS", "").env("GOTOOLCHAIN", "local");
            let built = command.output().unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        }
        fs::copy(world.path("same/unit/unit_test.go"), world.path("unit_test.go")).unwrap();
        let found = run(&world, &["build", "-E", "not test(Panics)"]);
        found.assert_outcome("TestReadsBeside", "passed", "");
        found.assert_outcome("TestFails", "failed", "fails in parallel");
        assert_eq!(found.ends.len(), 5, "{}", found.command);
        let listed = world.run(&["list", "--format", "json", "build/parallel.test", "--framework", "go"]);
        assert!(
            listed.stdout.contains("parallel/parallel_test.go"),
            "also stripped ones say where: {listed}"
        );
    }
}

#[test]
fn program_given_by_its_path_runs_where_heeler_does() {
    let Some(program) = go("same/unit") else { return };
    let world = TestWorld::new();
    world.write("heeler.toml", SETTINGS);
    std::os::unix::fs::symlink(program, world.path("unit.test")).unwrap();
    let elsewhere = run(&world, &["./unit.test"]);
    elsewhere.assert_outcome("TestReadsBeside", "failed", "stat unit_test.go");
    world.write("unit_test.go", "");
    run(&world, &["./unit.test"]).assert_outcome("TestReadsBeside", "passed", "");
}

/// Returns whether Go can build with cgo.
fn has_c_compiler() -> bool {
    let found = Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        requirement::leave_out("gcc", "cgo needs it");
    }
    found
}

#[test]
fn data_race_fails_its_test_with_both_places() {
    let Some(toolchain) = Toolchain::current().filter(|_| has_c_compiler()) else { return };
    let world = toolchain.world();
    world.env("CGO_ENABLED", "1");
    let run = run(&world, &["--go", "./race", "--go-arg=-race"]);
    run.assert_outcome("TestRaces", "failed", "DATA RACE");
    run.assert_outcome("TestRaces", "failed", "race_test.go");
    run.assert_outcome("TestDoesNotRace", "passed", "");
    assert_eq!(run.program_failures, Vec::<Value>::new(), "{}", run.command);
}

#[test]
fn crash_in_c_names_its_test() {
    if !has_c_compiler() {
        return;
    }
    for toolchain in Toolchain::all() {
        let world = toolchain.world();
        world.env("CGO_ENABLED", "1");
        let run = run(&world, &["--go", "./cgo"]);
        run.assert_outcome("TestSegfaultsInC", "crashed", "crashed with SIGSEGV (segmentation violation");
        run.assert_outcome("TestAborts", "crashed", "crashed with SIGABRT (abort");
        run.assert_outcome("TestFine", "passed", "");
    }
}
