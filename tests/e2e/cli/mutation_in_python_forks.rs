//! Python mutants that run in forks of a process that has already collected the tests. Skipped if
//! `scripts/test` could not install pytest.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    process::{Child, Stdio},
};

use super::mutation_in_python::Project;
use crate::support::process::{signal, signal_if_there, state, wait_until};

/// Mutants of three functions: tests notice the return value of one, no test notices another, and the third
/// ends its process or runs forever.
const LOW: &str = "\
import os
import signal


def is_low(a):
    return a < 3


def weak(a):
    return a + 1


def leave(code):
    if code > 5:
        os._exit(3)
    if code > 6:
        os.kill(os.getpid(), signal.SIGSEGV)


def count(n):
    while n > 0:
        n -= 1
    return n
";

/// Module-level code, which also has a mutant.
const STATIC: &str = "SIZE = 5 + 1\n";

/// Tests that record which processes import them and which processes run a test.
const TESTS: &str = r#"
import os
import threading

import low

IMPORTED = os.getpid()
SEEN = []


def note(name, *words):
    with open(os.path.join("@NOTES@", name), "a") as file:
        file.write(" ".join(str(word) for word in words) + "\n")


with open("/proc/%d/cmdline" % os.getppid(), "rb") as words:
    note("imports", IMPORTED, int(b"--adopt" in words.read()))


def test_weak():
    assert SEEN == [], "another test process has left this"
    SEEN.append(1)
    assert low.weak(1) != 1
    note("runs", IMPORTED, os.getpid())
    if "HEELER_MUTANT" in os.environ:
        threading.Event().wait(@SECONDS@)


def test_low():
    assert low.is_low(2) and not low.is_low(3)


def test_leave():
    low.leave(5)


def test_count():
    assert low.count(3) == 0
"#;

/// A project whose tests write notes: which processes imported them and which ran a test.
struct ForkedProject {
    project: Project,
}

impl ForkedProject {
    /// Returns a project whose first test takes `seconds` under a mutant, or `None` if pytest is missing.
    fn new(low: &str, seconds: &str, more: &[(&str, &str)]) -> Option<Self> {
        let project = Project::new(&[("pytest.ini", "[pytest]\n"), ("low.py", low)])?;
        let notes = project.world.path("notes");
        fs::create_dir_all(&notes).unwrap();
        let tests = TESTS.replace("@NOTES@", notes.to_str().unwrap()).replace("@SECONDS@", seconds);
        fs::write(project.path("test_low.py"), tests).unwrap();
        for (name, text) in more {
            fs::write(project.path(name), text).unwrap();
        }
        Some(Self { project })
    }

    /// Returns the numbers on each line of a notes file.
    fn notes(&self, name: &str) -> Vec<Vec<u32>> {
        let text = fs::read_to_string(self.project.world.path("notes").join(name)).unwrap_or_default();
        let numbers = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect();
        text.lines().map(numbers).collect()
    }

    /// Returns the processes that have imported the tests.
    fn imports(&self) -> BTreeSet<u32> {
        self.notes("imports").into_iter().map(|words| words[0]).collect()
    }

    /// Counts the processes that ran the first test without importing it themselves.
    fn forks(&self) -> usize {
        let runs: BTreeSet<Vec<u32>> = self.notes("runs").into_iter().collect();
        runs.iter().filter(|run| run[0] != run[1]).count()
    }

    fn assert_statuses(&self, report: &str, text: &str) {
        let expected = [
            ("count: n -= 1 → ", "Timeout"),
            ("count: n -= 1 → n += 1", "Timeout"),
            ("count: n > 0 → False", "Killed"),
            ("count: n > 0 → n <= 0", "Killed"),
            ("count: n > 0 → n >= 0", "Killed"),
            ("count: return None", "Killed"),
            ("is_low: a < 3 → a <= 3", "Killed"),
            ("is_low: a < 3 → a >= 3", "Killed"),
            ("is_low: return None", "Killed"),
            ("leave: code > 5 → False", "Survived"),
            ("leave: code > 5 → True", "Killed"),
            ("leave: code > 5 → code <= 5", "Killed"),
            ("leave: code > 5 → code >= 5", "Killed"),
            ("leave: code > 6 → False", "Survived"),
            ("leave: code > 6 → True", "Killed"),
            ("leave: code > 6 → code <= 6", "Killed"),
            ("leave: code > 6 → code >= 6", "Survived"),
            ("leave: os._exit(3) → ", "NoCoverage"),
            ("leave: os.kill(os.getpid(), signal.SIGSEGV) → ", "NoCoverage"),
            ("leave: return None", "Survived"),
            ("weak: a + 1 → a - 1", "Survived"),
            ("weak: return None", "Survived"),
        ];
        let mut statuses = self.project.statuses(report, "low.py");
        statuses.retain(|name, _| !name.starts_with(": "));
        let expected = expected.map(|(name, status)| (name.to_owned(), status.to_owned()));
        assert_eq!(statuses, expected.into(), "{text}");
    }
}

/// Processes that import the tests before the first mutant: one for the listing, and one per slot (two slots)
/// to measure coverage.
const BEFORE: usize = 3;
/// Mutants that run forever; each timeout is confirmed in a separate process.
const CONFIRMED: usize = 2;

#[test]
fn mutants_of_a_module_run_in_forks_of_one_process_in_each_slot() {
    let Some(forked) = ForkedProject::new(&format!("{STATIC}{LOW}"), "0", &[]) else { return };
    let ran = forked.project.mutate(&["--json", "../report.json"]).assert_code(0);
    forked.assert_statuses("../report.json", &ran.to_string());
    let mutants = forked.project.mutants("../report.json", "low.py");
    let of_module = &mutants[": 5 + 1 → 5 - 1"];
    assert_eq!((&of_module["static"], &of_module["status"]), (&true.into(), &"Survived".into()), "{ran}");
    // The fork for the static mutant imports the module again.
    let of_forks = forked.notes("imports").iter().filter(|note| note[1] == 1).count();
    assert_eq!(of_forks, 1, "{:?}\n{ran}", forked.notes("imports"));
    let imports = forked.imports().len();
    assert!(imports <= BEFORE + 2 + CONFIRMED + 1, "{imports} processes imported the tests\n{ran}");
    // The first test runs once without a mutant and once for each mutant that it covers. Other tests cover
    // the remaining mutants.
    assert!(forked.forks() >= 3, "{:?}\n{ran}", forked.notes("runs"));
}

#[test]
fn failure_that_kills_a_mutant_has_no_traceback() {
    // Formatting a traceback parses each file in it, which takes longer than most tests.
    let conftest = r#"
import os


def pytest_runtest_logreport(report):
    if report.failed:
        with open(os.path.join("@NOTES@", "sources"), "a") as file:
            file.write("%d\n" % ("def test_" in report.longreprtext))
"#;
    let Some(forked) = ForkedProject::new(LOW, "0", &[]) else { return };
    let notes = forked.project.world.path("notes");
    let conftest = conftest.replace("@NOTES@", notes.to_str().unwrap());
    fs::write(forked.project.path("conftest.py"), conftest).unwrap();
    let ran = forked.project.mutate(&["--json", "../report.json"]).assert_code(0);
    forked.assert_statuses("../report.json", &ran.to_string());
    let with_source = forked.notes("sources");
    assert!(!with_source.is_empty() && with_source.iter().all(|note| note[0] == 0), "{with_source:?}\n{ran}");
    let reason = &forked.project.mutants("../report.json", "low.py")["is_low: return None"]["statusReason"];
    assert!(reason.as_str().unwrap().contains("assert"), "the message is kept: {reason}");
}

#[test]
fn process_with_a_thread_is_not_forked() {
    let conftest =
        "import threading\n\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n";
    let Some(forked) = ForkedProject::new(LOW, "0", &[("conftest.py", conftest)]) else { return };
    let ran = forked.project.mutate(&["--json", "../report.json"]).assert_code(0);
    forked.assert_statuses("../report.json", &ran.to_string());
    let imports = forked.imports().len();
    assert!(imports > 20, "{imports} processes imported the tests\n{ran}");
}

#[test]
fn tests_that_fail_in_a_fork_only_have_processes_of_their_own() {
    let Some(forked) = ForkedProject::new(LOW, "0", &[]) else { return };
    let tests = fs::read_to_string(forked.project.path("test_low.py")).unwrap();
    let tests = tests.replace("    low.leave(5)", "    assert IMPORTED == os.getpid()\n    low.leave(5)");
    fs::write(forked.project.path("test_low.py"), tests).unwrap();
    let ran = forked.project.mutate(&["--json", "../report.json"]).assert_code(0);
    forked.assert_statuses("../report.json", &ran.to_string());
    let imports = forked.imports().len();
    assert!(imports > 20, "{imports} processes imported the tests\n{ran}");
}

/// Starts the command and waits until a fork runs the slow test. Returns the forked process and the fork.
fn start_until_forked(forked: &ForkedProject) -> (Child, [u32; 2]) {
    let mut command = forked.project.command(&["--json", "../report.json"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let mut running = None;
    wait_until("a fork runs a test", || {
        let runs = forked.notes("runs");
        // While no mutant runs, a fork has no guard: its parent is the process that forked it.
        let is_guarded = |run: &&Vec<u32>| {
            run[0] != run[1] && state(run[1]).is_some() && parent(run[1]).is_some_and(|guard| guard != run[0])
        };
        running = runs.iter().find(is_guarded).map(|run| [run[0], run[1]]);
        running.is_some()
    });
    (child, running.unwrap())
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[test]
fn killed_process_that_is_forked_changes_no_verdict() {
    let Some(forked) = ForkedProject::new(LOW, "0.4", &[]) else { return };
    let (mut child, [warm, _]) = start_until_forked(&forked);
    signal_if_there(warm, "KILL");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    forked.assert_statuses("../report.json", &text);
}

#[test]
fn killed_command_leaves_no_fork() {
    let Some(forked) = ForkedProject::new(LOW, "3", &[]) else { return };
    let (mut child, [warm, fork]) = start_until_forked(&forked);
    signal(child.id(), "KILL");
    child.wait().unwrap();
    let is_over = |pid: u32| state(pid).is_none_or(|state| state == 'Z');
    wait_until("all of it is gone", || is_over(warm) && is_over(fork));
}
