//! Runs one discovery job: determines the framework and the tests of a program. The program itself lists its
//! tests; its contents only suggest which framework to try first. Each error becomes one sentence for the
//! user.

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
