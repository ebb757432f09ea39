//! Heeler's worker: runs test programs, one process at a time, and streams their results to the client. Knows
//! the test frameworks, but no client sessions and no other workers.
//!
//! - `job`: the main loop, which joins the coordinator and handles jobs and control messages, and the
//!   execution of one lease in one test process.
//! - `discovery`: lists the tests of a program by running it.
//! - `process`: one process below a guard: its start, pipes, report channel, environment, running time and
//!   memory; [`debuggee`], a test process launched by a client's debugger.
//! - `batch`: decides what events, times and process exits mean for the tests. Pure.
//! - `adapter_check`: checks a program that reports as JSON lines against the specification.
//! - `results`: captured output, update batches, journal, and the sender to the client.

mod adapter_check;
mod batch;
mod discovery;
mod job;
mod process;
mod results;
#[cfg(test)]
mod test_values;

pub use adapter_check::{AdapterCheckError, CheckedProgram, check_adapter};
pub use discovery::{is_test_program, likely_framework};
pub use process::debuggee;

use std::{path::Path, process::ExitCode};

use heeler_protocol::control::WorkerId;

/// Runs the worker until the coordinator listening at `socket` disconnects or orders it to exit.
///
/// Must run on the main thread: the parent-death signal kills child processes when the thread that started
/// them exits.
pub fn main(socket: &Path, worker: WorkerId) -> ExitCode {
    let place = job::main_loop::WorkerConfig {
        socket: socket.to_owned(),
        worker,
        executable: heeler_sys::process::own_program_path(),
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match heeler_transport::runtime::build(&mut builder) {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_error(worker, &format!("start a runtime: {error}")),
    };
    let left = runtime.block_on(job::main_loop::run_worker(place));
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
