//! The runtime that guarded Rust sources are linked to, and the rustc wrapper that links it.
//!
//! - `heeler_guard.rs`: the runtime, a separate crate that the user's compiler compiles on the user's
//!   machine.
//! - `environment`: variables that control a process of a guarded program.
//! - `wrapper`: the rustc wrapper.

mod environment;
mod wrapper;

pub use environment::{GuardMode, LIMIT_EXIT_CODES, coverage_file_bytes, guard_environment};
pub(crate) use environment::{HIT_LIMIT_EXIT_CODE, STEP_LIMIT_EXIT_CODE};
pub use wrapper::{GuardRuntime, is_rustc_wrapper, run_rustc_wrapper};
