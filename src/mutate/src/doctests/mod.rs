//! Turns documentation tests into programs: keeps what rustdoc compiles instead of running it, and matches
//! each program with its test.
//!
//! - `keeper`: the program that rustdoc starts in place of a test.
//! - `report`: parses rustdoc's output.
//! - `kept`: the directory of kept programs.

mod keeper;
mod kept;
mod report;

pub use keeper::{is_doctest_keeper, run_doctest_keeper};
pub use kept::{DoctestDirectory, KeptDoctest, KeptDoctests, UncompiledDoctest};
