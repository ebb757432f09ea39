//! The environment variables that control a process of a guarded program.

use std::path::{Path, PathBuf};

/// Exit code of a process that reached its mutant too often.
pub(crate) const HIT_LIMIT_EXIT_CODE: i32 = 87;
/// Exit code of a process that reached too many places.
pub(crate) const STEP_LIMIT_EXIT_CODE: i32 = 88;

/// Exit codes of processes that reached a limit.
pub const LIMIT_EXIT_CODES: [i32; 2] = [HIT_LIMIT_EXIT_CODE, STEP_LIMIT_EXIT_CODE];

const MUTANT: &str = "HEELER_MUTANT";
const HITS: &str = "HEELER_MUTANT_HITS";
const STEPS: &str = "HEELER_MUTANT_STEPS";
const COVERAGE: &str = "HEELER_MUTANT_COVERAGE";
const EACH: &str = "HEELER_MUTANT_EACH";

/// How a process of a guarded program behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardMode {
    /// Behaves like the original.
    Original,
    /// Behaves like the original, and counts what it reaches in a file.
    Counting { file: PathBuf },
    /// Like `Counting`, but each test runs in a child process with its own count file: `each`, a hyphen and
    /// the test's index. The test's duration is in the file with `.time` appended.
    CountingEach { file: PathBuf, each: PathBuf },
    /// Turns one mutant on. The process may reach its place `hit_limit` times, and all places together
    /// `step_limit` times.
    Mutant { number: u32, hit_limit: u64, step_limit: u64 },
}

/// Returns the variables for a mode; `None` unsets a variable.
#[must_use]
pub fn guard_environment(mode: &GuardMode) -> Vec<(&'static str, Option<String>)> {
    let path = |path: &Path| Some(path.to_string_lossy().into_owned());
    let (mutant, hits, steps, coverage) = match mode {
        // Without any variable, the process would use its ancestors' variables.
        GuardMode::Original => (Some("0".to_owned()), None, None, None),
        GuardMode::Counting { file } | GuardMode::CountingEach { file, .. } => (None, None, None, path(file)),
        GuardMode::Mutant { number, hit_limit, step_limit } => {
            (Some(number.to_string()), Some(hit_limit.to_string()), Some(step_limit.to_string()), None)
        }
    };
    // Printing a stack trace for each failed test takes far longer than most tests.
    let backtrace = ("RUST_BACKTRACE", Some("0".to_owned()));
    let each = if let GuardMode::CountingEach { each, .. } = mode { path(each) } else { None };
    vec![(MUTANT, mutant), (HITS, hits), (STEPS, steps), (COVERAGE, coverage), (EACH, each), backtrace]
}

/// Returns the initial content of a coverage file: zeros for this many mutants.
#[must_use]
pub fn coverage_file_bytes(mutants: u32) -> Vec<u8> {
    // Mutant numbers begin at 1; count 0 is for all places together.
    vec![0; (mutants as usize + 1) * 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_has_the_same_names_and_exit_code() {
        let text = include_str!("heeler_guard.rs");
        for name in [MUTANT, HITS, STEPS, COVERAGE] {
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
        }
        assert!(text.contains(&format!("pub const EXIT_CODE: i32 = {HIT_LIMIT_EXIT_CODE};")));
        assert!(text.contains(&format!("pub const STEPS_EXIT_CODE: i32 = {STEP_LIMIT_EXIT_CODE};")));
    }

    #[test]
    fn each_mode_unsets_what_belongs_to_the_others() {
        let of = |mode: &GuardMode| {
            let set = guard_environment(mode).into_iter().filter_map(|(name, value)| Some((name, value?)));
            set.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&GuardMode::Original), ["HEELER_MUTANT=0", "RUST_BACKTRACE=0"]);
        let counting = GuardMode::Counting { file: "/c/1".into() };
        assert_eq!(of(&counting), ["HEELER_MUTANT_COVERAGE=/c/1", "RUST_BACKTRACE=0"]);
        let mutant = GuardMode::Mutant { number: 7, hit_limit: 300, step_limit: 4 };
        assert_eq!(
            of(&mutant),
            ["HEELER_MUTANT=7", "HEELER_MUTANT_HITS=300", "HEELER_MUTANT_STEPS=4", "RUST_BACKTRACE=0"]
        );
        assert_eq!(guard_environment(&mutant).len(), 6, "all are set or unset");
        let each = GuardMode::CountingEach { file: "/c/1".into(), each: "/c/2".into() };
        let expected = ["HEELER_MUTANT_COVERAGE=/c/1", "HEELER_MUTANT_EACH=/c/2", "RUST_BACKTRACE=0"];
        assert_eq!(of(&each), expected);
        assert_eq!(coverage_file_bytes(2).len(), 12);
    }
}
