//! What guarded sources are linked to, and the compiler that links it.
//!
//! - `heeler_guard.rs`: the runtime itself, a crate of its own, which is compiled on the user's machine by
//!   the user's compiler.
//! - `environment`: how a process of a guarded program is told what to do.
//! - `wrapper`: the role in which this program starts the compiler.

mod environment;
mod wrapper;

pub use environment::{GuardMode, LIMIT_EXIT_CODES, coverage_file_bytes, guard_environment};
pub(crate) use environment::{HIT_LIMIT_EXIT_CODE, STEP_LIMIT_EXIT_CODE};
pub use wrapper::{GuardRuntime, is_rustc_wrapper, run_rustc_wrapper};
