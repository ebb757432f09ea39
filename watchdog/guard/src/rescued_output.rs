//! Rescues output that a crashed process, or a hung process about to be ended, had printed but not written.
//! Writes it to the process's own standard output, where the reader finds it after the rest.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use heeler_crash::stacks;
use heeler_sys::{
    io, output_socket,
    process::{Pid, Signal},
    trace::{self, SignalDisposition},
};

/// Time to wait for a full pipe, whose reader may be busy.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Rescues the output of a stopped process that will not run again. Returns the reason if that failed. Does
/// nothing if standard output is neither a pipe nor a socket.
pub(super) fn rescue_output(process: Pid) -> Option<String> {
    let bytes = stacks::buffered_stdout(process)?;
    let path = format!("/proc/{process}/fd/1");
    let deadline = Instant::now() + WRITE_LIMIT;
    let written = io::write_to_pipe(Path::new(&path), &bytes, deadline).or_else(|error| {
        // A socket cannot be opened by name.
        let by_descriptor = output_socket::write_to_stdout_of(process, &bytes, deadline);
        by_descriptor.map_err(|other| match other.kind() {
            std::io::ErrorKind::InvalidInput => error,
            _ => other,
        })
    });
    let error = written.err().filter(|error| error.kind() != std::io::ErrorKind::InvalidInput)?;
    Some(format!("cannot write the last output of process {process}: {error}"))
}

/// Rescues the output of a hung process that is about to be ended. Does nothing if the process handles
/// SIGTERM, because it may then write the output itself.
pub(super) fn rescue_output_of_hung(process: Pid) -> Option<String> {
    let is_caught = trace::signal_disposition(process, Signal::TERM) == SignalDisposition::Caught;
    if is_caught { None } else { rescue_output(process) }
}
