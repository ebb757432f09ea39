//! The fork server: one small single-threaded process per worker, which forks itself for each test process. A
//! forked guard has nothing to load and nothing to set up, so it costs a small part of an executed one.
//!
//! ```text
//! worker ──control, stdout, stderr──► fork server ──fork──► guard ──► test process
//!        ◄─────── pid, pidfd ────────    │  └── reaps guards, has no other contact with them
//!                                        └── worker closes: waits for the guards to exit, exits
//! ```
//!
//! The fork server reads nothing, keeps nothing, and does not grow: every guard would inherit what it holds.
//! A guard that is executed by itself does the same for its test; so a fork server that dies costs the tests
//! of its guards, and is replaced.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
};

use heeler_protocol::fork_server::{FORK_REQUEST_BYTES, ForkReply};
use heeler_sys::{
    fd_passing,
    io::{replace_outputs, take_standard_input, wait_readable},
    process::{self, ChildExits},
    spawn::{ForkResult, ForkedChild, SingleThreaded},
};

/// Serves the worker at the other end of standard input until the worker closes the connection.
#[must_use]
pub fn main() -> ExitCode {
    process::set_name(c"heeler-nursery");
    process::ignore_terminal_signals();
    warm_up();
    let nursery = || {
        let socket = take_standard_input().ok()?;
        let ends = ChildExits::watch().ok()?;
        Some(ForkServer { socket, child_exits: ends, single_threaded: SingleThreaded::check()? })
    };
    match nursery().map(ForkServer::serve) {
        Some(Ok(ForkedRole::ForkServer)) => ExitCode::SUCCESS,
        Some(Ok(ForkedRole::Guard(control))) => {
            let is_served = crate::serve(control).is_ok();
            // A guard has nothing to clean up, and any cleanup of the fork server belongs to the fork server.
            process::exit_immediately(if is_served { 0 } else { 1 })
        }
        // The worker sees the exit, and executes its guards instead.
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

/// Does work once that each fork would repeat otherwise.
fn warm_up() {
    // Detects the processor's search instructions: the query is slow on a virtual processor.
    std::hint::black_box(memchr::memmem::Finder::new(b"--"));
}

struct ForkServer {
    socket: OwnedFd,
    child_exits: ChildExits,
    single_threaded: SingleThreaded,
}

/// The role of the process that returns from [`ForkServer::serve`].
enum ForkedRole {
    /// The fork server, which is no longer needed.
    ForkServer,
    /// A guard, with the connection to its worker.
    Guard(OwnedFd),
}

/// Descriptors that a forked guard receives.
struct GuardDescriptors {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl ForkServer {
    /// Forks guards on request. A forked guard keeps none of the server's descriptors: all of them are
    /// dropped on return.
    fn serve(self) -> io::Result<ForkedRole> {
        loop {
            let [is_asked, is_ended] =
                wait_readable([Some(self.socket.as_fd()), Some(self.child_exits.as_fd())], None)?;
            if is_ended {
                self.child_exits.clear();
                while process::reap_any()?.is_some() {}
            }
            if is_asked {
                let Some(cradle) = self.receive_request()? else { break };
                match heeler_sys::fail::at("nursery.fork").and_then(|()| self.single_threaded.fork()) {
                    Ok(ForkResult::Parent(twin)) => {
                        self.send_reply(&ForkReply::Pid(twin.pid.0), Some(&twin))?
                    }
                    Ok(ForkResult::Child) => {
                        replace_outputs(cradle.stdout, cradle.stderr)?;
                        return Ok(ForkedRole::Guard(cradle.control));
                    }
                    Err(error) => {
                        self.send_reply(&ForkReply::Errno(error.raw_os_error().unwrap_or(0)), None)?
                    }
                }
            }
        }
        // Without this process the guards become children of the watchdog, which kills processes that have
        // lost their worker.
        while process::has_children() {
            wait_readable([Some(self.child_exits.as_fd())], None)?;
            self.child_exits.clear();
            while process::reap_any()?.is_some() {}
        }
        Ok(ForkedRole::ForkServer)
    }

    /// Receives the next request; `None` when the worker has closed the connection.
    fn receive_request(&self) -> io::Result<Option<GuardDescriptors>> {
        match fd_passing::receive(self.socket.as_fd(), &mut [0; FORK_REQUEST_BYTES])? {
            (0, _) => Ok(None),
            (_, [Some(control), Some(stdout), Some(stderr)]) => {
                Ok(Some(GuardDescriptors { control, stdout, stderr }))
            }
            (_, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "a request without its descriptors")),
        }
    }

    fn send_reply(&self, birth: &ForkReply, twin: Option<&ForkedChild>) -> io::Result<()> {
        let pidfd = twin.map(|twin| twin.pidfd.as_fd());
        fd_passing::send(self.socket.as_fd(), &birth.to_bytes(), pidfd.as_slice())
    }
}
