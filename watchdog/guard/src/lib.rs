//! The guard: one small process per test process. It starts the test, serves the worker, and reports the exit
//! when no process of the test's tree is left. Synchronous and on one thread, because it is started for each
//! test process and traces it. Only the processes that it forks to symbolize stacks may use the pool of
//! threads (`heeler_sys::cpu_pool`).
//!
//! It is forked by a fork server ([`fork_server`]), or executed. It gets the test's outputs as its own
//! descriptors 1 and 2, and, when it is executed, the control connection as 0. So it never prints anything.
//!
//! - [`main`]: the supervisor. `adopted_test`: a test process that another process has forked. `control`: the
//!   worker's connection. `live_processes`: the process tree below
//!   the guard. `exit_report`: exit reports.
//! - `tracer`: handles all stops and exits. `tracees`: the traced threads and processes; the only module that
//!   waits for processes. `trace_scope`: the processes that are followed. `trace_conflict`: programs that
//!   behave differently when traced, found in their files (`elf_file`). `root_exit`: the exit of the test
//!   process, with its stack in the middle of the tests. `crash_handler`: handles a process that crashes.
//!   `thread_state`: the state of a stopped thread. `evidence`: files of dumps and stacks. `symbolizer`:
//!   names the functions of stacks, in a process of its own. `rescued_output`: what a crashed process had
//!   printed and not written.
//! - `debug_hold`: a process stopped before its first instruction, to be handed over to a debugger.
//! - `hang_dump`: dumps of live processes. `activity`: their activity. `description`: what they are, for
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
