//! Writes for a crashed process, or a hung one that is about to be ended, what it had printed and not
//! written: into its own standard output, where the reader finds it behind the rest.

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

/// How long a full pipe is waited for: its reader may be busy.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Rescues the output of a stopped process that will not run again, and returns what prevented it. Nothing is
/// written if its standard output is neither a pipe nor a socket.
pub(super) fn rescue_output(process: Pid) -> Option<String> {
    let bytes = stacks::buffered_stdout(process)?;
    let path = format!("/proc/{process}/fd/1");
    let deadline = Instant::now() + WRITE_LIMIT;
    let written = io::write_to_pipe(Path::new(&path), &bytes, deadline).or_else(|error| {
        // A socket cannot be opened by a name.
        let by_descriptor = output_socket::write_to_stdout_of(process, &bytes, deadline);
        by_descriptor.map_err(|other| match other.kind() {
            std::io::ErrorKind::InvalidInput => error,
            _ => other,
        })
    });
    let error = written.err().filter(|error| error.kind() != std::io::ErrorKind::InvalidInput)?;
    Some(format!("write the last output of process {process}: {error}"))
}

/// Rescues the output of a hung process that is ended next, unless it handles SIGTERM: it may then write its
/// output itself.
pub(super) fn rescue_output_of_hung(process: Pid) -> Option<String> {
    let is_caught = trace::signal_disposition(process, Signal::TERM) == SignalDisposition::Caught;
    if is_caught { None } else { rescue_output(process) }
}
