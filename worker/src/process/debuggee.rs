//! Role of a test process that a client's debugger launches. The process fetches its command and outputs from
//! the worker that runs the test, ties its lifetime to that worker, and executes the test program. The
//! debugger therefore sees an `exec`.
//!
//! ```text
//! debugger ──starts──► heeler __debuggee DIRECTORY ──connects──► worker
//!                        │ ◄── standard output, standard error, lifeline ┘
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

use heeler_protocol::control::{OsText, TestCommand};
use heeler_sys::{
    fd_passing, process,
    spawn::{self, ChildStdio, SpawnError, SpawnOptions},
};

use heeler_core::error_chain;

/// Role argument of this process, followed by the launch directory.
pub(crate) const DEBUGGEE_ROLE: &str = "__debuggee";
/// File in the launch directory: the socket of the listening worker.
pub(crate) const SOCKET_FILE: &str = "socket";
/// File in the launch directory: the command to execute.
pub(crate) const COMMAND_FILE: &str = "command";
/// Byte sent by the worker along with the descriptors.
pub(crate) const READY_BYTE: [u8; 1] = *b"h";

/// Time limit for the worker's reply, which normally arrives at once. A live worker that takes longer is
/// stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the test process could not be started.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("read the launch command: the run no longer waits for this process")]
    Command(#[source] io::Error),
    #[error("parse the launch command")]
    Unreadable(#[source] serde_json::Error),
    #[error("connect to the worker")]
    Connect(#[source] io::Error),
    #[error("receive the output descriptors from the worker")]
    Outputs(#[source] io::Error),
    #[error("bind its lifetime to the worker")]
    BindLifeline(#[source] io::Error),
    #[error("{}", error_chain(.0))]
    Program(SpawnError),
}

/// Executes the test process offered by a worker in this directory.
#[must_use]
pub fn main(directory: &Path) -> ExitCode {
    match exec_offered_test(directory) {
        Err(error) => {
            eprintln!("heeler: the test process launched by the debugger failed to {}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn exec_offered_test(directory: &Path) -> Result<Infallible, LaunchError> {
    let command = fs::read(directory.join(COMMAND_FILE)).map_err(LaunchError::Command)?;
    let command: TestCommand = serde_json::from_slice(&command).map_err(LaunchError::Unreadable)?;
    let socket = UnixStream::connect(directory.join(SOCKET_FILE)).map_err(LaunchError::Connect)?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(LaunchError::Connect)?;
    let (_, fds) =
        fd_passing::receive(socket.as_fd(), &mut READY_BYTE.clone()).map_err(LaunchError::Outputs)?;
    let [Some(stdout), Some(stderr), Some(lifeline), channel] = fds else {
        return Err(LaunchError::Outputs(io::ErrorKind::UnexpectedEof.into()));
    };
    process::bind_to(lifeline).map_err(LaunchError::BindLifeline)?;
    let string = |bytes: &OsText| bytes.as_os_str().to_owned();
    let start = SpawnOptions {
        args: command.args.iter().map(string).collect(),
        env: Some(command.env.iter().map(|(name, value)| (string(name), string(value))).collect()),
        cwd: Some(command.cwd.as_path().to_owned()),
        stdout: ChildStdio::Fd(stdout),
        stderr: ChildStdio::Fd(stderr),
        ..SpawnOptions::new(command.program.as_path())
    }
    .with_channel(channel, command.is_channel_standard_input);
    Err(LaunchError::Program(spawn::exec(start)))
}
