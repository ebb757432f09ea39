//! Adopts a test process that was not started by its guard. A warm process forked a child, which forked the
//! test process and then executed the guard. The test process is therefore the guard's own child, as if the
//! guard had started it. The test process waits for a byte in a pipe before it runs anything.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
};

use heeler_protocol::{control::TestCommand, fork_server::ADOPT_ARGUMENT};
use heeler_sys::{
    io::take_report_channel,
    process::{self, Pid},
};

use super::tracer::ProcessTracer;

/// A waiting test process. If this is dropped, the process exits without running a test.
pub(crate) struct AdoptedTest {
    pid: Pid,
    /// Write end of the pipe that the process waits on.
    gate: OwnedFd,
}

/// Why a forked test process cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    #[error("the forked test process {0} is not a child of its guard")]
    NoChild(Pid),
    #[error(
        "the forked test process {0} cannot get a memory limit, tracing or a stop at start; these need a new process"
    )]
    NeedsNewProcess(Pid),
    #[error("cannot start the forked test process {pid}")]
    Gate { pid: Pid, source: io::Error },
}

impl AdoptedTest {
    /// Returns the process named by the arguments, if any.
    pub(crate) fn from_arguments() -> io::Result<Option<Self>> {
        let mut arguments = std::env::args().skip_while(|argument| argument != ADOPT_ARGUMENT);
        if arguments.next().is_none() {
            return Ok(None);
        }
        let pid = arguments.next().and_then(|pid| pid.parse().ok());
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "expected a process id");
        Ok(Some(Self { pid: Pid(pid.ok_or_else(invalid)?), gate: take_report_channel()? }))
    }

    /// Lets the process run, and returns its tracer. The process keeps its environment, working directory and
    /// outputs from the fork.
    pub(crate) fn release(self, command: &TestCommand) -> Result<ProcessTracer, AdoptError> {
        let Self { pid, gate } = self;
        if process::stat(pid).is_none_or(|stat| stat.parent != Pid::own()) {
            return Err(AdoptError::NoChild(pid));
        }
        if command.memory_bytes.is_some() || command.is_stopped_at_start || command.trace.is_some() {
            return Err(AdoptError::NeedsNewProcess(pid));
        }
        File::from(gate).write_all(&[1]).map_err(|source| AdoptError::Gate { pid, source })?;
        Ok(ProcessTracer::adopted(pid))
    }
}
