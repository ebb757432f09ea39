//! The fork server: one small single-threaded process per worker, which forks itself for each test process. A
//! forked guard has nothing to load or set up, so it costs a fraction of an executed one.
//!
//! ```text
//! worker ──control, stdout, stderr──► fork server ──fork──► guard ──► test process
//!        ◄─────── pid, pidfd ────────    │  └── reaps guards, has no other contact with them
//!        ──pid of a lost guard──►        │
//!        ◄─────── its exit ──────────    │
//!                                        └── worker closes: waits for the guards to exit, exits
//! ```
//!
//! The fork server keeps only the exit status of the last failed guard, and does not grow, because every
//! guard would inherit its memory. An executed guard serves its test equally well. If the fork server dies,
//! only the tests of its guards are lost, and a new one is started.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
};

use heeler_protocol::fork_server::{ExitReply, FORK_REQUEST_BYTES, ForkReply, requested_exit};
use heeler_sys::{
    fd_passing,
    io::{replace_outputs, take_standard_input, wait_readable},
    process::{self, ChildExits, ExitStatus, Pid},
    spawn::{ForkResult, ForkedChild, SingleThreaded},
};

use crate::ProcessSource;

/// Serves the worker at the other end of standard input until the worker closes the connection.
#[must_use]
pub fn main() -> ExitCode {
    process::set_name(c"heeler-forksrv");
    process::ignore_terminal_signals();
    warm_up();
    let prepare = || {
        let socket = take_standard_input().ok()?;
        let child_exits = ChildExits::watch().ok()?;
        let single_threaded = SingleThreaded::check()?;
        Some(ForkServer { socket, child_exits, single_threaded, last_failure: None })
    };
    match prepare().map(ForkServer::serve) {
        Some(Ok(ForkedRole::ForkServer)) => ExitCode::SUCCESS,
        Some(Ok(ForkedRole::Guard { control, channel })) => {
            let is_served = crate::serve(control, ProcessSource::Command(channel)).is_ok();
            // Skip the cleanup: the guard needs none, and must not clean up for the fork server.
            process::exit_immediately(if is_served { 0 } else { 1 })
        }
        // The worker sees the exit, and executes its guards instead.
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

/// Does work once that each fork would otherwise repeat.
fn warm_up() {
    // Detects the CPU's search instructions. That query is slow on a virtual CPU.
    std::hint::black_box(memchr::memmem::Finder::new(b"--"));
}

struct ForkServer {
    socket: OwnedFd,
    child_exits: ChildExits,
    single_threaded: SingleThreaded,
    /// The last guard that failed. A worker runs one process at a time, so it asks only about the last guard.
    last_failure: Option<GuardFailure>,
}

/// Exit of a guard that was killed by a signal or exited with an error.
#[derive(Debug, Clone, Copy)]
struct GuardFailure {
    pid: Pid,
    exit: ExitStatus,
}

/// A request from the worker.
enum ForkServerRequest {
    /// Fork a guard, and pass it these descriptors.
    Fork(GuardDescriptors),
    /// Report how this guard ended.
    ReportExit(Pid),
}

/// Role of the process that returns from [`ForkServer::serve`].
enum ForkedRole {
    /// The fork server, which is no longer needed.
    ForkServer,
    /// A guard, with the connection to its worker and its test's report channel.
    Guard { control: OwnedFd, channel: Option<OwnedFd> },
}

struct GuardDescriptors {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    channel: Option<OwnedFd>,
}

impl ForkServer {
    /// Forks guards on request. A forked guard keeps none of the server's descriptors, because they are all
    /// dropped on return.
    fn serve(mut self) -> io::Result<ForkedRole> {
        loop {
            let [has_request, has_child_exit] =
                wait_readable([Some(self.socket.as_fd()), Some(self.child_exits.as_fd())], None)?;
            if has_child_exit {
                self.reap_guards()?;
            }
            if has_request {
                let descriptors = match self.receive_request()? {
                    None => break,
                    Some(ForkServerRequest::ReportExit(pid)) => {
                        self.report_exit(pid)?;
                        continue;
                    }
                    Some(ForkServerRequest::Fork(descriptors)) => descriptors,
                };
                match heeler_sys::fail::at("fork-server.fork").and_then(|()| self.single_threaded.fork()) {
                    Ok(ForkResult::Parent(child)) => {
                        // Close the server's copies first: an output ends with its last writer, and the test
                        // may end before this process runs again.
                        drop(descriptors);
                        self.send_reply(&ForkReply::Pid(child.pid.0), Some(&child))?
                    }
                    Ok(ForkResult::Child) => {
                        replace_outputs(descriptors.stdout, descriptors.stderr)?;
                        return Ok(ForkedRole::Guard {
                            control: descriptors.control,
                            channel: descriptors.channel,
                        });
                    }
                    Err(error) => {
                        self.send_reply(&ForkReply::Errno(error.raw_os_error().unwrap_or(0)), None)?
                    }
                }
            }
        }
        // Without this process, the guards would become children of the watchdog, which kills processes that
        // have lost their worker.
        while process::has_children() {
            wait_readable([Some(self.child_exits.as_fd())], None)?;
            self.reap_guards()?;
        }
        Ok(ForkedRole::ForkServer)
    }

    fn reap_guards(&mut self) -> io::Result<()> {
        self.child_exits.clear();
        while let Some((pid, exit)) = process::reap_any()? {
            if exit.code != Some(0) {
                self.last_failure = Some(GuardFailure { pid, exit });
            }
        }
        Ok(())
    }

    /// Reports how a guard ended. The guard may not have been reaped yet.
    fn report_exit(&mut self, pid: Pid) -> io::Result<()> {
        self.reap_guards()?;
        let exit = self.last_failure.filter(|failure| failure.pid == pid).map(|failure| failure.exit);
        let reply = match exit {
            Some(ExitStatus { signal: Some(signal), .. }) => ExitReply::Killed(signal),
            Some(ExitStatus { code: Some(code), .. }) => ExitReply::Exited(code),
            Some(_) | None => ExitReply::Unknown,
        };
        fd_passing::send(self.socket.as_fd(), &reply.to_bytes(), &[])
    }

    /// Receives the next request. `None` when the worker has closed the connection.
    fn receive_request(&self) -> io::Result<Option<ForkServerRequest>> {
        let mut bytes = [0; FORK_REQUEST_BYTES];
        match fd_passing::receive(self.socket.as_fd(), &mut bytes)? {
            (0, _) => Ok(None),
            (_, [Some(control), Some(stdout), Some(stderr), channel]) => {
                Ok(Some(ForkServerRequest::Fork(GuardDescriptors { control, stdout, stderr, channel })))
            }
            (count, _) if let Some(pid) = requested_exit(&bytes[..count]) => {
                Ok(Some(ForkServerRequest::ReportExit(Pid(pid))))
            }
            (_, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "request without file descriptors")),
        }
    }

    fn send_reply(&self, reply: &ForkReply, child: Option<&ForkedChild>) -> io::Result<()> {
        let pidfd = child.map(|child| child.pidfd.as_fd());
        fd_passing::send(self.socket.as_fd(), &reply.to_bytes(), pidfd.as_slice())
    }
}
