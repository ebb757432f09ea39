//! Documentation tests as programs: what rustdoc compiles is kept instead of run, and which test it is.
//!
//! - `keeper`: the role in which this program takes the place of what rustdoc would run.
//! - `report`: what rustdoc prints about tests.
//! - `kept`: the directory of kept programs, and the tests that they are.

mod keeper;
mod kept;
mod report;

pub use keeper::{is_doctest_keeper, run_doctest_keeper};
pub use kept::{DoctestDirectory, KeptDoctest, KeptDoctests, UncompiledDoctest};
