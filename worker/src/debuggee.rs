//! The role of a test process that a client's debugger launches: it fetches what it is to be from the worker that runs
//! its test, ties its life to that worker's, and becomes the test program, so that its debugger sees an `exec`.
//!
//! ```text
//! debugger ──starts──► heeler __debuggee DIRECTORY ──connects──► worker
//!                        │ ◄── standard output, standard error, tether ──┘
//!                        └──exec──► test program
//! ```

use std::{
    convert::Infallible,
    fs, io,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use host::{
    pass, process,
    spawn::{self, Spawn, SpawnError, Stream},
};
use wire::control::{Command, OsBytes};

use crate::chain::chain;

/// How a process of ours becomes a test's, with the directory of its launch behind it.
pub(crate) const ROLE: &str = "__debuggee";
/// In that directory: where its worker listens.
pub(crate) const SOCKET: &str = "socket";
/// And what the process is to be.
pub(crate) const COMMAND: &str = "command";
/// What the worker sends beside the descriptors.
pub(crate) const WELCOME: [u8; 1] = *b"h";

/// A worker answers within a moment; one that lives and does not is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a process did not become its test.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("read what it is to be: nobody waits for it any more")]
    Command(#[source] io::Error),
    #[error("understand what it is to be")]
    Unreadable(#[source] serde_json::Error),
    #[error("reach its worker")]
    Connect(#[source] io::Error),
    #[error("get its outputs from its worker")]
    Welcome(#[source] io::Error),
    #[error("tie its life to its worker's")]
    Tie(#[source] io::Error),
    #[error("{}", chain(.0))]
    Program(SpawnError),
}

/// Becomes the test process that a worker offers in this directory.
#[must_use]
pub fn main(directory: &Path) -> ExitCode {
    match launch(directory) {
        Err(error) => {
            eprintln!("heeler: a test process that was launched by a debugger failed to {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn launch(directory: &Path) -> Result<Infallible, LaunchError> {
    let command = fs::read(directory.join(COMMAND)).map_err(LaunchError::Command)?;
    let command: Command = serde_json::from_slice(&command).map_err(LaunchError::Unreadable)?;
    let socket = UnixStream::connect(directory.join(SOCKET)).map_err(LaunchError::Connect)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(LaunchError::Connect)?;
    let (_, fds) = pass::receive(socket.as_fd(), &mut WELCOME.clone()).map_err(LaunchError::Welcome)?;
    let [Some(stdout), Some(stderr), Some(tether)] = fds else {
        return Err(LaunchError::Welcome(io::ErrorKind::UnexpectedEof.into()));
    };
    process::tie(tether).map_err(LaunchError::Tie)?;
    let string = |bytes: &OsBytes| bytes.as_os_str().to_owned();
    let start = Spawn {
        args: command.args.iter().map(string).collect(),
        env: Some(command.env.iter().map(|(name, value)| (string(name), string(value))).collect()),
        cwd: Some(command.cwd.as_path().to_owned()),
        stdin: Stream::Null,
        stdout: Stream::Fd(stdout),
        stderr: Stream::Fd(stderr),
        ..Spawn::new(command.program.as_path())
    };
    Err(LaunchError::Program(spawn::become_program_of(start)))
}
