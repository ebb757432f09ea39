//! The command printed for each failed test (`again $ …`): executed by `/bin/sh` in the directory of the
//! run, it runs only this test, and the test ends in the same way.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::symlink, process::ExitStatusExt as _},
    path::Path,
    process::Command,
};

use serde_json::Value;

use super::{go::Toolchain, json_lines_examples::example, pytest};
use crate::support::{
    fixtures::{self, Catch2Version},
    world::TestWorld,
};

const SETTINGS: &str = "[profile.default]\ntimeout = \"10s\"\ngrace-period = \"200ms\"\ndumps = \"off\"\n";

const SIGNALS: [(&str, i32); 3] = [("SIGABRT", 6), ("SIGKILL", 9), ("SIGSEGV", 11)];

/// A failed test of a run.
struct FailedTest {
    /// Last event of the test.
    end: Value,
    /// Command as printed for it.
    command: String,
}

/// A command that has run a test again.
struct Repetition {
    output: String,
    /// Exit code; of a process killed by a signal, 128 plus the signal, as in a shell.
    code: i32,
}

/// Returns a world whose commands find `heeler`.
fn prepared(world: TestWorld) -> TestWorld {
    let heeler = Path::new(env!("CARGO_BIN_EXE_heeler")).parent().unwrap().display();
    world.env("PATH", &format!("{heeler}:{}", std::env::var("PATH").unwrap()));
    world
}

fn world_with(program: &Path, name: &str) -> TestWorld {
    let world = prepared(TestWorld::new());
    symlink(program, world.path(name)).unwrap();
    world.write("heeler.toml", SETTINGS);
    world
}

/// Runs tests; returns those that failed, each with its command, which the run must have printed.
#[track_caller]
fn failed_tests(world: &TestWorld, words: &[&str]) -> Vec<FailedTest> {
    let ran = world.run(&[&["run", "--no-history"], words].concat()).assert_code(2);
    let printed: BTreeSet<&str> =
        ran.stdout.lines().filter_map(|line| line.trim_start().strip_prefix("again $ ")).collect();
    let events = world.run_with_separate_outputs(&["report", "latest", "--format", "json"]).stdout;
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let failed = events.filter_map(|end| {
        let command = from_directory_of(world, end["reproduce"].as_str()?);
        assert!(printed.contains(command.as_str()), "{command} is not printed\n{ran}");
        Some(FailedTest { end, command })
    });
    let failed: Vec<FailedTest> = failed.collect();
    let commands: BTreeSet<&str> = failed.iter().map(|failed| failed.command.as_str()).collect();
    assert_eq!(commands, printed, "{ran}");
    assert!(!failed.is_empty(), "{ran}");
    failed
}

/// Returns a recorded command as printed for a user whose current directory is the world's.
fn from_directory_of(world: &TestWorld, command: &str) -> String {
    let here = format!("(cd {} && ", world.dir().display());
    match command.strip_prefix(&here) {
        Some(inner) => inner.strip_suffix(')').unwrap().to_owned(),
        None => command.replace(&format!("(cd {}/", world.dir().display()), "(cd "),
    }
}

impl FailedTest {
    #[track_caller]
    fn repeat(&self, world: &TestWorld) -> Repetition {
        let mut shell = world.command(Command::new("/bin/sh"), &["-c", &self.command]);
        let ended = shell.stdin(std::process::Stdio::null()).output().unwrap();
        let code = ended.status.code().or_else(|| Some(128 + ended.status.signal()?)).unwrap();
        let outputs = [ended.stdout, ended.stderr].concat();
        Repetition { output: String::from_utf8_lossy(&outputs).into_owned(), code }
    }

    /// Panics unless the test has ended in the same way as in the run.
    #[track_caller]
    fn assert_same_end(&self, repetition: &Repetition) {
        let Repetition { output, code } = repetition;
        let is_same = if self.is_of_heeler() {
            *code == 2 && output.contains(" of 1 test in ")
        } else {
            match self.end["outcome"].as_str().unwrap() {
                "failed" => *code != 0,
                "crashed" | "exited-early" => {
                    let signal = self.end["signal"].as_str();
                    let known = SIGNALS.iter().find(|(name, _)| Some(*name) == signal);
                    let by_signal = known.map(|(_, number)| i64::from(128 + number));
                    // Go prints the signal, and ends with an exit code of its own.
                    let is_printed = signal.is_some_and(|name| output.contains(name));
                    is_printed || by_signal.or(self.end["exit_code"].as_i64()) == Some(i64::from(*code))
                }
                other => panic!("{other}: {}", self.command),
            }
        };
        assert!(is_same, "$ {}\nended with {code}, and was: {:#}\n{output}", self.command, self.end);
    }

    /// Returns whether the command runs Heeler.
    fn is_of_heeler(&self) -> bool {
        self.command.contains("heeler run ")
    }
}

/// Returns the numbers that tests have printed after this text.
fn numbers_after(text: &str, output: &str) -> BTreeSet<u32> {
    let number = |rest: &str| {
        let digits = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    output.split(text).skip(1).filter_map(number).collect()
}

/// Checks tests that each print their number after `text`.
#[track_caller]
fn check_numbers(world: &TestWorld, words: &[&str], text: &str, count: usize) {
    let failed = failed_tests(world, words);
    let mut seen = BTreeSet::new();
    for test in &failed {
        let number = numbers_after(text, test.end["stdout"].as_str().unwrap_or_default());
        assert_eq!(number.len(), 1, "{:#}", test.end);
        let repetition = test.repeat(world);
        assert_eq!(
            numbers_after(text, &repetition.output),
            number,
            "$ {}\n{}",
            test.command,
            repetition.output
        );
        test.assert_same_end(&repetition);
        seen.extend(number);
    }
    assert_eq!((failed.len(), seen.len()), (count, count));
}

/// Checks tests of a framework that prints `only` if it runs one test.
#[track_caller]
fn check_counts(world: &TestWorld, words: &[&str], only: impl Fn(&str) -> bool) {
    for test in failed_tests(world, words) {
        let repetition = test.repeat(world);
        test.assert_same_end(&repetition);
        let output = &repetition.output;
        assert!(
            test.is_of_heeler() || only(output),
            "$ {} runs another number of tests\n{output}",
            test.command
        );
    }
}

#[test]
fn commands_of_gtest_run_one_test() {
    let world = world_with(&fixtures::gtest("kinds"), "kinds");
    let filter = "not test(/^kinds::(Hang|BadSetUp)/)";
    check_counts(&world, &["./kinds", "-E", filter], |output| {
        output.contains("Running 1 test from 1 test suite")
    });
    let world = world_with(&fixtures::gtest("odd_names"), "odd names");
    world.env("FAILS", "1");
    check_numbers(&world, &["./odd names", "-E", "not test(/mmm/)"], "number ", 20);
}

#[test]
fn commands_of_catch2_run_one_test() {
    for (version, count) in [(Catch2Version::Two, 46), (Catch2Version::Three, 48)] {
        let Some(program) = fixtures::catch2("names", version) else { continue };
        let world = world_with(&program, "names");
        world.env("FAILS", "1");
        check_numbers(&world, &["./names"], "I am ", count);
    }
}

#[test]
fn commands_of_doctest_run_one_test() {
    let world = world_with(&fixtures::doctest("names"), "names");
    world.env("FAILS", "1");
    check_numbers(&world, &["./names"], "I am ", 37);
}

#[test]
fn commands_of_boost_run_one_test() {
    let world = world_with(&fixtures::boost("kinds"), "kinds");
    // A process that dies at once loses what Boost.Test has not flushed.
    check_counts(&world, &["./kinds", "-E", "not test(/hangs|is_killed|leaves/)"], |output| {
        output.contains("Running 1 test case...")
    });
}

#[test]
fn commands_of_rust_tests_run_one_test() {
    let one = |output: &str| output.contains("running 1 test\n");
    let world = world_with(&fixtures::libtest(), "libtest");
    check_counts(&world, &["./libtest", "-E", "not test(l_hangs)"], one);
    // The tests of a procedural macro load the compiler's libraries.
    let world = prepared(TestWorld::new());
    write_package(
        &world,
        "macros",
        "[lib]\nproc-macro = true\n",
        "#[test]\nfn fails() { panic!(\"macro\") }\n",
    );
    check_counts(&world, &["--cargo", "macros", "--lib"], one);
}

fn write_package(world: &TestWorld, name: &str, keys: &str, source: &str) {
    fs::create_dir_all(world.path(&format!("{name}/src"))).unwrap();
    let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    world.write(&format!("{name}/Cargo.toml"), &format!("{head}{keys}"));
    world.write(&format!("{name}/src/lib.rs"), source);
}

/// Documentation tests with long names, one of them behind a feature.
const DOCUMENTED: &str = "
/// ```
/// panic!(\"I am 1.\");
/// ```
///
/// ```
/// panic!(\"I am 2.\");
/// ```
pub fn plain() {}
#[cfg(feature = \"net\")]
pub mod a_module_with_a_long_name_that_goes_on_for_more_than_the_eighty_columns_of_a_terminal {
    pub struct Generic<A>(A);
    /// ```
    /// panic!(\"I am 3.\");
    /// ```
    impl<A> Generic<Vec<A>> where A: Clone {
        /// ```
        /// panic!(\"I am 4.\");
        /// ```
        pub fn of(&self, _: &str) {}
    }
}
";

#[test]
fn commands_of_documentation_tests_run_one_test() {
    let world = prepared(TestWorld::new());
    let keys = "[features]\nnet = []\n";
    write_package(&world, "documented", keys, DOCUMENTED);
    write_package(&world, "other", keys, DOCUMENTED);
    world.write("Cargo.toml", "[workspace]\nmembers = [\"documented\", \"other\"]\nresolver = \"2\"\n");
    for words in [&["--workspace", "--doc", "--features", "net"][..], &["-p", "other", "--all-features"]] {
        for test in failed_tests(&world, &[words, &["--cargo-profile=dev"]].concat()) {
            let repetition = test.repeat(&world);
            test.assert_same_end(&repetition);
            let printed = |output: &str| numbers_after("I am ", output);
            let before = printed(test.end["message"].as_str().unwrap());
            assert_eq!((before.len(), &printed(&repetition.output)), (1, &before), "$ {}", test.command);
            assert!(repetition.output.contains(test.end["name"].as_str().unwrap()), "{}", repetition.output);
        }
    }
}

#[test]
fn commands_of_go_run_one_test() {
    let Some(toolchain) = Toolchain::current() else { return };
    let world = prepared_path(toolchain.world());
    // Tests that forge markers print those of other tests.
    let filter = "not test(/Hangs|Forges/)";
    check_counts(&world, &["--go", "./kinds", "-E", filter], |output| {
        let begun = output.lines().filter(|line| line.starts_with("=== RUN ") && !line.contains('/'));
        begun.count() == 1
    });
}

/// Adds the directory of `heeler` to the path of a world that has a path of its own.
fn prepared_path(world: TestWorld) -> TestWorld {
    let heeler = Path::new(env!("CARGO_BIN_EXE_heeler")).parent().unwrap();
    let path = world.command(Command::new("true"), &[]);
    let path = path.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap();
    let path = format!("{}:{}", heeler.display(), path.to_str().unwrap());
    world.env("PATH", &path);
    world
}

const PYTEST: &str = "
import pytest

NAMES = ['a b', \"it's\", '\"q\"', '$HOME', '(x)', '`id`', 'a/b', 'x::y', '*', '[z]', 'ünï', 'a\\nb', '\\\\']

@pytest.mark.parametrize('number', range(len(NAMES)), ids=NAMES)
def test_named(number):
    print(f'I am {number}.')
    assert number == 100

class TestClass:
    def test_method(self):
        print('I am 50.')
        assert False
";

#[test]
fn commands_of_pytest_run_one_test() {
    let Some(python) = pytest::python() else { return };
    let world = prepared(TestWorld::new());
    world.env("PYTHONDONTWRITEBYTECODE", "1");
    world.write("heeler.toml", SETTINGS);
    fs::create_dir(world.path("the tests")).unwrap();
    world.write("the tests/test_names.py", PYTEST);
    let python = python.to_str().unwrap();
    let words = ["--pytest", "the tests", "--python", python, "--", "-p", "no:xdist"];
    check_numbers(&world, &words, "I am ", 14);
}

#[test]
fn commands_of_ctest_run_one_test() {
    let project = fixtures::ctest_project();
    let world = world_with(&project, "build");
    // Hidden in the command, as a variable of the project.
    world.env("UNIT", "project");
    // CTest's own rules decide other results; the programs alone do not know them.
    let failed = failed_tests(&world, &["build", "-E", "test(/fails$|dies$|Fails$|Dies$/)"]);
    for test in &failed {
        let repetition = test.repeat(&world);
        test.assert_same_end(&repetition);
    }
    assert!(failed.len() >= 6, "{}", failed.len());
}

#[test]
fn commands_of_scripts_run_one_test() {
    let world = prepared(TestWorld::new());
    fs::create_dir(world.path("t")).unwrap();
    let names = ["b c.sh", "it's.sh", "$HOME (x).sh", "\"q\".sh", "new\nline.sh"];
    for (number, name) in names.iter().enumerate() {
        let script = format!("#!/bin/sh\necho \"I am {number}.\"; echo \"[$A] [$1]\"; exit {}\n", number + 3);
        world.write_program(&format!("t/{name}"), &script);
    }
    let suite = "[[suite]]\nname = \"s\"\npattern = [\"t/*.sh\"]\nargs = [\"an argument\"]\n\
                 env = { A = \"the secret\" }\n";
    world.write("heeler.toml", &format!("{SETTINGS}{suite}"));
    let failed = failed_tests(&world, &[]);
    assert_eq!(failed.len(), names.len());
    let missing = failed[0].repeat(&world);
    assert!(missing.code != 0 && missing.output.contains("A: hidden, see --show-env"), "{}", missing.output);
    world.env("A", "the secret");
    for test in failed {
        let repetition = test.repeat(&world);
        test.assert_same_end(&repetition);
        assert_eq!(repetition.output, test.end["stdout"].as_str().unwrap(), "$ {}", test.command);
        assert!(repetition.output.contains("[the secret] [an argument]"), "{}", repetition.output);
        let code = format!("exited with code {}", repetition.code);
        assert_eq!(test.end["message"], code.as_str(), "$ {}", test.command);
    }
}

#[test]
fn commands_of_applications_run_one_test() {
    let world = prepared(TestWorld::new());
    world.write("heeler.toml", SETTINGS);
    let application = format!("python3 {} plain", fixtures::fixtures().join("mtp/application.py").display());
    check_counts(&world, &["--mtp", &application], |_| false);
}

#[test]
fn commands_of_adapters_run_one_test_with_their_variables_and_arguments() {
    for (adapter, tests) in [("adapter.py", "python_tests.py"), ("adapter.sh", "shell_tests.sh")] {
        let world = prepared(TestWorld::new());
        world.write("heeler.toml", SETTINGS);
        let words = [&example(adapter), "--framework", "json-lines", "--", &example(tests)];
        check_counts(&world, &words, |_| false);
    }
    // An adapter that needs a variable and an argument with a blank.
    let world = prepared(TestWorld::new());
    let adapter = fs::read_to_string(example("adapter.py")).unwrap();
    let check = "import os, sys\nassert os.environ['NEEDED'] == 'a value', os.environ\n";
    let adapter = adapter.replacen("import json", &format!("{check}import json"), 1);
    world.write_program("adapter", &adapter);
    world.write("the tests.py", "def test_fails():\n    print('I am 1.')\n    assert False\n");
    let suite = "[[suite]]\nname = \"s\"\nprograms = [\"adapter\"]\nframework = \"json-lines\"\n\
                 args = [\"the tests.py\"]\nenv = { NEEDED = \"a value\" }\n";
    world.write("heeler.toml", &format!("{SETTINGS}{suite}"));
    let failed = failed_tests(&world, &[]);
    assert!(failed[0].command.starts_with("NEEDED=\"${NEEDED?"), "{}", failed[0].command);
    world.env("NEEDED", "a value");
    check_numbers(&world, &[], "I am ", 1);
    check_numbers(&world, &["--show-env"], "I am ", 1);
}
