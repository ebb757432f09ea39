//! Heeler's worker: drives test programs, one process at a time, and streams their results to the client. It knows
//! frameworks, but no session and no other worker.
//!
//! - `main_loop`: joins the coordinator and takes its jobs and wishes.
//! - `discovery` (over `listing`): asks a program which tests it has.
//! - `runner`: one lease, one test process.
//! - `batch`: what events, times and ends mean for the tests; with `attribution` (whose errors), `leaks` (whose
//!   processes), `conclusion` (what one
//!   end means), `outside` and `death` (in words). Pure.
//! - `output`, `node`, `parcel`: captured output, changes as JSON, what goes out together. Pure.
//! - `journal`, `uplink`: where parcels go.
//! - [`debuggee`]: a test process that a client's debugger launches.
//! - `guards`, `guard_link`, `pipe`, `setting`, `clock`: how a process is started, and its time.
//! - [`adapter`]: the frameworks.

mod attribution;
mod batch;
mod chain;
mod clock;
mod conclusion;
mod death;
pub mod debuggee;
mod discovery;
mod guard_link;
mod guards;
mod journal;
mod leaks;
mod listing;
mod main_loop;
mod node;
mod output;
mod outside;
mod parcel;
mod pipe;
mod runner;
#[cfg(test)]
mod samples;
mod setting;
mod uplink;

pub mod adapter;

use std::{path::Path, process::ExitCode};

use wire::control::WorkerId;

/// Is a worker until its coordinator, which listens at `socket`, sends it away or is gone.
///
/// Runs on the calling thread, which must be the main one: processes die with the thread that started them.
pub fn main(socket: &Path, worker: WorkerId) -> ExitCode {
    let place = main_loop::Place { socket: socket.to_owned(), worker, image: host::process::own_image() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(worker, &format!("start a runtime: {error}")),
    };
    let left = runtime.block_on(main_loop::run(place));
    // A thread that shows output may wait for a terminal that has stopped.
    runtime.shutdown_background();
    match left {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(worker, &chain::chain(&error)),
    }
}

fn fail(worker: WorkerId, error: &str) -> ExitCode {
    eprintln!("heeler: worker {worker} failed to {error}");
    ExitCode::FAILURE
}
