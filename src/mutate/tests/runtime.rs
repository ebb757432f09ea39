//! The runtime of guarded Rust sources, compiled as on users' machines, in a program that calls it from
//! unusual places.
#![expect(clippy::unwrap_used, reason = "a failed step of a test ends it")]
#![expect(clippy::disallowed_methods, reason = "the compiler and its programs run beside the tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use heeler_mutate::{GuardMode, coverage_file_bytes, guard_environment};

/// A program with mutant 1 in its allocator and mutant 2 in its other code.
const PROGRAM: &str = include_str!("../../../tests/fixtures/mutation/allocator.rs");

struct GuardedProgram {
    dir: tempfile::TempDir,
}

impl GuardedProgram {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rustc = |words: &[&str]| {
            let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let status =
                Command::new(rustc).arg("--edition=2021").args(words).current_dir(dir.path()).status();
            assert!(status.unwrap().success(), "{words:?}");
        };
        fs::write(dir.path().join("heeler_guard.rs"), include_str!("../src/runtime/heeler_guard.rs"))
            .unwrap();
        fs::write(dir.path().join("program.rs"), PROGRAM).unwrap();
        rustc(&["--crate-type=rlib", "--crate-name=heeler_guard", "-Copt-level=3", "heeler_guard.rs"]);
        rustc(&["--extern=heeler_guard=libheeler_guard.rlib", "program.rs"]);
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("program")
    }

    fn run(&self, words: &[&str], mode: &GuardMode) -> ExitStatus {
        let mut command = Command::new(self.path());
        command.args(words);
        for (name, value) in guard_environment(mode) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.status().unwrap()
    }

    /// Runs the program in counting mode; returns minimum counts of how often each mutant was reached.
    fn counted(&self, words: &[&str]) -> (u32, u32) {
        let file = self.dir.path().join("counts");
        fs::write(&file, coverage_file_bytes(2)).unwrap();
        assert_eq!(self.run(words, &GuardMode::Counting { file: file.clone() }).code(), Some(40));
        let counts = fs::read(Path::new(&file)).unwrap();
        let count = |number: usize| u32::from_le_bytes(counts[number * 4..][..4].try_into().unwrap());
        (count(1), count(2))
    }
}

fn mutant(number: u32, hit_limit: u64) -> GuardMode {
    GuardMode::Mutant { number, hit_limit, step_limit: 1_000_000 }
}

#[test]
fn allocator_of_a_program_has_mutants() {
    let program = GuardedProgram::new();
    assert_eq!(program.run(&["0"], &GuardMode::Original).code(), Some(40));
    let (of_allocator, of_main) = program.counted(&["100"]);
    assert!((64..10_000).contains(&of_allocator), "{of_allocator}");
    assert_eq!(of_main, 1);
    assert_eq!(program.run(&["0"], &mutant(2, 100)).code(), Some(41));
    assert_eq!(program.run(&["100"], &mutant(1, 50)).code(), Some(87), "its limit");
    let steps = GuardMode::Mutant { number: 2, hit_limit: 100, step_limit: 50 };
    assert_eq!(program.run(&["100"], &steps).code(), Some(88), "the limit of all places");
}

#[test]
fn program_with_an_environment_of_its_own_has_the_mutant_of_the_test_that_starts_it() {
    let program = GuardedProgram::new();
    let path = program.path();
    let words = ["0", path.to_str().unwrap()];
    assert_eq!(program.counted(&words).1, 1);
    assert_eq!(program.run(&words, &mutant(2, 100)).code(), Some(41));
    assert_eq!(program.run(&words, &GuardMode::Original).code(), Some(40));
}
