//! `heeler mutate` on Python: a project with a `src` directory, and a flat project whose modules are next to
//! their tests. Skipped if `scripts/test` could not install pytest.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    frameworks::pytest::python,
    support::{
        process::{ProcessRole, processes_of_role, signal, wait_until},
        world::{FinishedCommand, TestWorld, run_with_separate_outputs},
    },
};

const CALC: &str = include_str!("../../fixtures/mutation/calc.py");
const CALC_TEST: &str = include_str!("../../fixtures/mutation/test_calc.py");
/// A script. Its only test runs it in a separate process.
const MAIN: &str = "from calc import label\n\nprint(label(\"hello\"))\n";
/// A source that this version of Python cannot parse.
const TEMPLATE: &str = "def f(a): return a + 1\n\n\nx = f(**)\n";

pub(super) struct Project {
    pub(super) world: TestWorld,
    python: PathBuf,
}

impl Project {
    /// Returns a project with these files, or `None` if pytest is missing.
    pub(super) fn new(files: &[(&str, &str)]) -> Option<Self> {
        let project = Self { python: python()?, world: TestWorld::new() };
        for (name, text) in files {
            project.write(name, text);
        }
        Some(project)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.world.path("project").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.heeler(&[&["mutate", "-j2"], words].concat());
        // Set the directory of the virtual environment.
        let environment = self.python.parent().and_then(Path::parent).unwrap();
        command.env("VIRTUAL_ENV", environment).current_dir(self.path(""));
        command
    }

    pub(super) fn mutate(&self, words: &[&str]) -> FinishedCommand {
        run_with_separate_outputs(self.command(words))
    }

    /// Starts `heeler mutate` in the background, with its standard error in a pipe.
    pub(super) fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns a source's mutants in a report, by function, original and replacement.
    pub(super) fn mutants(&self, report: &str, source: &str) -> BTreeMap<String, Value> {
        let report: Value = serde_json::from_str(&fs::read_to_string(self.path(report)).unwrap()).unwrap();
        let file = &report["files"][source];
        assert_eq!(file["language"], "python");
        let lines: Vec<&str> = file["source"].as_str().unwrap().lines().collect();
        let line_of = |mutant: &Value, end: &str| {
            usize::try_from(mutant["location"][end]["line"].as_u64().unwrap()).unwrap() - 1
        };
        let name = |mutant: &Value| {
            let line = line_of(mutant, "start");
            let head = lines[..=line].iter().rev().find_map(|line| line.strip_prefix("def "));
            let function = head.map_or("", |head| head.split('(').next().unwrap());
            let replacement = mutant["replacement"].as_str().unwrap();
            if mutant["mutatorName"] == "FunctionValue" {
                return format!("{function}: {replacement}");
            }
            let column =
                |end: &str| usize::try_from(mutant["location"][end]["column"].as_u64().unwrap()).unwrap() - 1;
            format!("{function}: {} → {replacement}", &lines[line][column("start")..column("end")])
        };
        let mutants = file["mutants"].as_array().unwrap();
        mutants.iter().map(|mutant| (name(mutant), mutant.clone())).collect()
    }

    pub(super) fn statuses(&self, report: &str, source: &str) -> BTreeMap<String, String> {
        let status = |mutant: &Value| mutant["status"].as_str().unwrap().to_owned();
        self.mutants(report, source).iter().map(|(name, mutant)| (name.clone(), status(mutant))).collect()
    }
}

/// Returns the content of every file below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Returns a project with a source directory.
fn source_project() -> Option<Project> {
    Project::new(&[
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"-x\"\n"),
        ("src/calc/__init__.py", CALC),
        ("src/calc/__main__.py", MAIN),
        ("src/calc/template.py", TEMPLATE),
        ("tests/test_calc.py", CALC_TEST),
        ("tools/run.py", "print(1 + 2)\n"),
    ])
}

#[test]
fn mutants_end_in_every_possible_way_and_the_project_is_only_read() {
    let Some(project) = source_project() else { return };
    let state = project.world.path("state");
    let words = ["--state-dir", state.to_str().unwrap(), "--json", "../report.json"];
    // `PYTHONPATH` simulates an editable install.
    project.world.env("PYTHONPATH", project.path("src").to_str().unwrap());
    let before = files(&project.path(""));
    let ran = project.mutate(&words).assert_code(0);
    assert_eq!(files(&project.path("")), before, "neither sources nor bytecode");
    let mutants = project.mutants("../report.json", "src/calc/__init__.py");
    let expected: BTreeMap<String, String> = [
        (": 5 + 1 → 5 - 1", "Killed"),
        ("count: n -= 1 → ", "Timeout"),
        ("count: n -= 1 → n += 1", "Timeout"),
        ("count: n > 0 → False", "Killed"),
        ("count: n > 0 → n <= 0", "Killed"),
        ("count: n > 0 → n >= 0", "Killed"),
        ("count: return None", "Killed"),
        ("count: rounds += 1 → ", "Killed"),
        ("count: rounds += 1 → rounds -= 1", "Killed"),
        ("evens: n % 2 → n * 2", "Killed"),
        ("evens: n % 2 == 0 → False", "Killed"),
        ("evens: n % 2 == 0 → True", "Killed"),
        ("evens: n % 2 == 0 → n % 2 != 0", "Killed"),
        ("evens: return", "Killed"),
        ("evens: yield from (n for n in range(limit) if n % 2 == 0) → ", "Killed"),
        ("is_low: a < 2 → a <= 2", "Killed"),
        ("is_low: a < 2 → a >= 2", "Killed"),
        ("is_low: return False", "Killed"),
        ("is_low: return True", "Killed"),
        // Only a process that a test starts calls this function.
        ("label: return \"\"", "Killed"),
        ("leave: code > 5 → False", "Survived"),
        ("leave: code > 5 → True", "Killed"),
        ("leave: code > 5 → code <= 5", "Killed"),
        ("leave: code > 5 → code >= 5", "Killed"),
        ("leave: os._exit(3) → ", "NoCoverage"),
        ("leave: return None", "Survived"),
        ("left_alone: a - 1 → a + 1", "Ignored"),
        ("left_alone: return None", "Ignored"),
        // A fixture computes the value once, and only the second test that uses the value kills this mutant.
        ("table: n + 1 → n - 1", "Killed"),
        ("table: return []", "Killed"),
        ("unused: a * 3 → a / 3", "NoCoverage"),
        ("unused: return None", "NoCoverage"),
        ("wait: is_long → False", "Survived"),
        ("wait: is_long → True", "Timeout"),
        ("wait: return None", "Survived"),
        ("wait: time.sleep(3600 if is_long else 0) → ", "Survived"),
        ("weak: a + 1 → a - 1", "Survived"),
        ("weak: return None", "Survived"),
    ]
    .map(|(name, status)| (name.to_owned(), status.to_owned()))
    .into();
    assert_eq!(project.statuses("../report.json", "src/calc/__init__.py"), expected, "{ran}");
    let reason = |name: &str| mutants[name]["statusReason"].as_str().unwrap().to_owned();
    assert!(reason("is_low: a < 2 → a <= 2").contains("assert True is False"), "{ran}");
    assert!(reason("count: n -= 1 → n += 1").contains("was executed more than"), "{ran}");
    assert!(reason("wait: is_long → True").contains("idle for"), "{ran}");
    assert_eq!(
        mutants["weak: a + 1 → a - 1"]["coveredBy"].as_array().unwrap().len(),
        2,
        "not the skipped one"
    );
    assert_eq!(mutants[": 5 + 1 → 5 - 1"]["static"], true);
    // In a source that Python rejects, every mutant is a compile error.
    let template = project.mutants("../report.json", "src/calc/template.py");
    assert!(!template.is_empty());
    for mutant in template.values() {
        assert_eq!(mutant["status"], "CompileError");
        assert!(mutant["statusReason"].as_str().unwrap().contains("SyntaxError"), "{mutant}");
    }
    ran.assert_stderr(
        "SURVIVED src/calc/__init__.py:17:12  ArithmeticOperator  a + 1 → a - 1   (in `weak`: 2 tests cover it and none failed: ",
    );

    // Verdicts are reused, except timeouts.
    let again = project.mutate(&[&words[..], &["--min-score", "99"]].concat()).assert_code(2);
    again.assert_stderr("verdicts from earlier runs");
    assert_eq!(project.statuses("../report.json", "src/calc/__init__.py"), expected, "{again}");
}

/// Returns a project whose modules are next to their tests. Testing a mutant takes a while.
fn flat_project() -> Option<Project> {
    let functions = (1..10).map(|n| format!("def f{n}(a):\n    return a < {n}\n\n\n"));
    let checks = (1..10).map(|n| format!("    assert low.f{n}({n} - 1) and not low.f{n}({n})\n"));
    let tests = format!(
        "import threading\n\nimport low\n\n\ndef test_all():\n    threading.Event().wait(0.2)\n{}",
        checks.collect::<String>()
    );
    let low = functions.collect::<String>();
    let project =
        Project::new(&[("pytest.ini", "[pytest]\n"), ("low.py", low.trim_end()), ("test_low.py", &tests)])?;
    Some(project)
}

#[test]
fn sources_parts_and_changes_select_mutants() {
    let Some(project) = flat_project() else { return };
    let count = |words: &[&str]| {
        let ran = project.mutate(&[&["--list"], words].concat());
        let last = ran.stdout.lines().last().unwrap_or_default().to_owned();
        last.split(' ').next().unwrap().parse::<usize>().unwrap_or_else(|_| panic!("{ran}"))
    };
    let all = count(&[]);
    assert_eq!(all, 9 * 3);
    assert_eq!((count(&["--pytest"]), count(&["--pytest", ".", "low.py:1-2"])), (all, 3));
    assert!(count(&["test_low.py"]) > 0, "a source of tests is mutated if it is named");
    let parts: Vec<usize> = ["1/2", "2/2"].iter().map(|part| count(&["--shard", part])).collect();
    assert_eq!(parts.iter().sum::<usize>(), all, "{parts:?}");
    let git = |words: &[&str]| {
        let status = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
            .args(words)
            .current_dir(project.path(""))
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    git(&["init"]);
    git(&["add", "."]);
    git(&["commit", "-m", "first"]);
    let low = fs::read_to_string(project.path("low.py")).unwrap();
    project.write("low.py", &low.replace("a < 3", "3 > a"));
    project.write("made.py", "x = 1 + 2\n");
    project.write(".gitignore", "made.py\n");
    let ran = project.mutate(&["--in-diff", "HEAD", "--json", "../report.json"]).assert_code(0);
    let statuses = project.statuses("../report.json", "low.py");
    // Only the changed line is mutated.
    assert_eq!(statuses.len(), 3, "{statuses:?}\n{ran}");
    assert!(statuses.values().all(|status| status == "Killed"), "{statuses:?}\n{ran}");
    project.mutate(&["no.py"]).assert_code(5).assert_stderr("no source of the project matches \"no.py\"");
    project.mutate(&["--pytest", "none"]).assert_code(5).assert_stderr("project/none");
    project.mutate(&["--pytest", ".."]).assert_code(5).assert_stderr("are outside the project");
    project.mutate(&["--pytest", "--build", "make"]).assert_code(5).assert_stderr("cannot be used with");
    project.mutate(&["--pytest", "--python", "no-python"]).assert_code(4).assert_stderr("no-python");
}

#[test]
fn tests_that_fail_or_import_something_else_are_errors() {
    let Some(project) = flat_project() else { return };
    let elsewhere = project.world.path("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let conftest = format!("import sys\n\nsys.path.insert(0, {:?})\n", project.path("").to_str().unwrap());
    project.write("tests/conftest.py", &conftest);
    fs::rename(project.path("test_low.py"), project.path("tests/test_low.py")).unwrap();
    let before = files(&project.path(""));
    let ran = project.mutate(&["--state-dir", "../state"]).assert_code(4);
    ran.assert_stderr("the tests import low from ")
        .assert_stderr("project/low.py, not from the copy of low.py");
    assert_eq!(files(&project.path("")), before, "no bytecode either");
    project.write("tests/conftest.py", "import no_such_module\n");
    project
        .mutate(&[])
        .assert_code(4)
        .assert_stderr("cannot list the tests: ")
        .assert_stderr("no_such_module");
    fs::remove_file(project.path("tests/conftest.py")).unwrap();
    let tests = fs::read_to_string(project.path("tests/test_low.py")).unwrap();
    project.write("tests/test_low.py", &tests.replace("not low.f4(4)", "low.f4(4)"));
    let ran = project.mutate(&[]).assert_code(2);
    ran.assert_stderr("tests fail without a mutant").assert_stderr("test_low.py::test_all: assert ");
}

/// Returns whether a state directory has verdicts for later runs.
fn has_verdicts(state: &Path) -> bool {
    let places = fs::read_dir(state.join("mutate"));
    places.is_ok_and(|mut places| places.any(|place| place.unwrap().path().join("verdicts.json").exists()))
}

#[test]
fn killed_worker_changes_no_verdict_and_a_cancelled_run_goes_on() {
    let Some(project) = flat_project() else { return };
    let mut child = project.start(&["--json", "../partial.json"]);
    wait_until("some verdicts are kept", || has_verdicts(&project.path(".heeler")));
    signal(child.id(), "INT");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{text}");
    let partial = project.statuses("../partial.json", "low.py");
    assert!(partial.values().any(|status| status == "Pending"), "{partial:?}");
    assert!(partial.values().all(|status| status == "Pending" || status == "Killed"), "{partial:?}");

    let mut child = project.start(&["--json", "../report.json"]);
    wait_until("mutants are tested", || !processes_of_role(child.id(), ProcessRole::Worker).is_empty());
    signal(processes_of_role(child.id(), ProcessRole::Worker)[0], "KILL");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    let all = project.statuses("../report.json", "low.py");
    assert_eq!(all.len(), 27);
    assert!(all.values().all(|status| status == "Killed"), "{all:?}\n{text}");
    assert!(text.contains("from earlier runs"), "{text}");
}
