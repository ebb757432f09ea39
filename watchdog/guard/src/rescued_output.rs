//! Writes for a crashed process, or a hung one that is about to be ended, what it had printed and not
//! written: into its own standard output, where the reader finds it behind the rest.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use heeler_crash::stacks;
use heeler_sys::{
    io,
    process::{Pid, Signal},
    trace::{self, SignalDisposition},
};

/// How long a full pipe is waited for: its reader may be busy.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Rescues the output of a stopped process that will not run again, and returns what prevented it. Nothing is
/// written if its standard output is no pipe.
pub(super) fn rescue_output(process: Pid) -> Option<String> {
    let bytes = stacks::buffered_stdout(process)?;
    let path = format!("/proc/{process}/fd/1");
    let written = io::write_to_pipe(Path::new(&path), &bytes, Instant::now() + WRITE_LIMIT);
    let error = written.err().filter(|error| error.kind() != std::io::ErrorKind::InvalidInput)?;
    Some(format!("write the last output of process {process}: {error}"))
}

/// Rescues the output of a hung process that is ended next, unless it handles SIGTERM: it may then write its
/// output itself.
pub(super) fn rescue_output_of_hung(process: Pid) -> Option<String> {
    let is_caught = trace::signal_disposition(process, Signal::TERM) == SignalDisposition::Caught;
    if is_caught { None } else { rescue_output(process) }
}
