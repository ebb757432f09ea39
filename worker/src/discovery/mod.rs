//! Runs one discovery job: finds out which framework a program uses, and which tests it has. The program
//! itself lists its tests; its bytes only suggest which framework to try first. Each error becomes one
//! sentence for the user.

mod discover_error;
mod framework_claims;
mod listing_crash;
mod listing_process;
mod program_check;
mod program_discovery;
mod reply_text;
mod source_files;
mod waiting_process;

pub use framework_claims::{is_test_program, likely_framework};
pub(crate) use program_discovery::discover;
pub(crate) use waiting_process::{AdoptedProcess, ProcessIdentity, WaitingProcess};
