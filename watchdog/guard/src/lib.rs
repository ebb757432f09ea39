//! The guard: one small process per test process. It starts the test, serves the worker, and reports the exit
//! once no process of the test's tree is left. Synchronous and single-threaded, because each test process
//! needs its own guard, which traces the process. Only the processes that it forks for symbolization may use
//! the thread pool (`heeler_sys::cpu_pool`).
//!
//! A guard is forked by a fork server ([`fork_server`]) or executed. The test's outputs are its own
//! descriptors 1 and 2, so it never prints anything. If executed, its descriptor 0 is the control connection.
//!
//! - [`main`]: the supervisor. `adopted_test`: a test process forked by another process. `control`: the
//!   worker's connection. `process_tree`: the process tree below the guard. `exit_report`: exit reports.
//! - `tracer`: handles all stops and exits. `tracees`: the traced threads and processes; the only module that
//!   waits for processes. `trace_scope`: which processes are followed. `trace_conflict`: recognizes programs
//!   that behave differently when traced, by their files (`elf_file`). `root_exit`: the exit of the test
//!   process, with its stack trace if it exits in the middle of the tests. `crash_handler`: handles a
//!   crashing process. `thread_state`: the state of a stopped thread. `evidence`: files of dumps and stack
//!   traces. `symbolizer`: symbolizes stack traces in a separate process. `rescued_output`: output that a
//!   crashed process had printed but not written.
//! - `debug_hold`: a process stopped before its first instruction for a debugger.
//! - `hang_dump`: dumps of live processes. `activity`: their activity. `description`: their descriptions for
//!   people.

mod activity;
mod adopted_test;
mod control;
mod crash_handler;
mod debug_hold;
mod description;
mod elf_file;
mod evidence;
mod exit_report;
pub mod fork_server;
mod hang_dump;
mod process_tree;
mod rescued_output;
mod root_exit;
mod supervisor;
pub mod symbolizer;
mod thread_state;
mod trace_conflict;
mod trace_scope;
mod tracees;
mod tracer;

pub use supervisor::main;
pub(crate) use supervisor::{ProcessSource, serve};
