//! Heeler's worker: runs test programs, one process at a time, and streams their results to the client. It
//! knows the test frameworks, but no client session and no other worker.
//!
//! - `main_loop`: joins the coordinator and handles its jobs and control messages.
//! - `discovery` (with `listing_process`): lists the tests of a program by running it.
//! - `runner`: runs one lease in one test process.
//! - `batch`: decides what events, times and process exits mean for the tests; with `stderr_attribution` (which test
//!   wrote to standard error), `process_leaks` (which test left a process behind), `verdict` (the result of one
//!   test), `unattributed_output` and `exit_reason` (messages for output outside tests and for process exits). Pure.
//! - `output_capture`, `node_writer`, `update_batch`: captured output, test changes as JSON, and the update batches that carry
//!   them. Pure.
//! - `journal`, `uplink`: write update batches to the journal and send them.
//! - [`debuggee`]: a test process that a client's debugger launches.
//! - `guard_spawner`, `guarded_process`, `output_pipe`, `worker_context`, `process_clock`: starting a process, its pipes, environment and
//!   running time.
//! - [`adapter`]: the test frameworks.

mod batch;
pub mod debuggee;
mod discovery;
mod exit_reason;
mod guard_spawner;
mod guarded_process;
mod journal;
mod listing_process;
mod main_loop;
mod node_writer;
mod output_capture;
mod output_pipe;
mod process_clock;
mod process_leaks;
mod runner;
mod stderr_attribution;
#[cfg(test)]
mod test_values;
mod unattributed_output;
mod update_batch;
mod uplink;
mod verdict;
mod worker_context;

use std::{path::Path, process::ExitCode};

use heeler_protocol::control::WorkerId;

/// Runs the worker until the coordinator that listens at `socket` disconnects or orders it to exit.
///
/// Must run on the main thread, because the parent-death signal kills child processes when the thread that
/// started them exits.
pub fn main(socket: &Path, worker: WorkerId) -> ExitCode {
    let place = main_loop::WorkerConfig {
        socket: socket.to_owned(),
        worker,
        executable: heeler_sys::process::own_program_path(),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_error(worker, &format!("start a runtime: {error}")),
    };
    let left = runtime.block_on(main_loop::run_worker(place));
    // A thread that writes test output may be blocked by a terminal that has stopped reading.
    runtime.shutdown_background();
    match left {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit_with_error(worker, &heeler_core::error_chain(&error)),
    }
}

fn exit_with_error(worker: WorkerId, error: &str) -> ExitCode {
    eprintln!("heeler: worker {worker} failed to {error}");
    ExitCode::FAILURE
}
