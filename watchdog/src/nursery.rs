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

use host::{
    io::{set_outputs, take_standard_input, wait_readable},
    pass,
    process::{self, ChildEnds},
    spawn::{OneThread, Side, Twin},
};
use wire::nursery::{Birth, REQUEST_BYTES};

use crate::guard;

/// Serves the worker at the other end of standard input until the worker closes the connection.
#[must_use]
pub fn main() -> ExitCode {
    process::set_name(c"heeler-nursery");
    process::ignore_terminal_signals();
    warm_up();
    let nursery = || {
        let socket = take_standard_input().ok()?;
        let ends = ChildEnds::watch().ok()?;
        Some(Nursery { socket, ends, one_thread: OneThread::proven()? })
    };
    match nursery().map(Nursery::serve) {
        Some(Ok(Role::Nursery)) => ExitCode::SUCCESS,
        Some(Ok(Role::Guard(control))) => {
            let is_served = guard::serve(control).is_ok();
            // A guard has nothing to clean up, and any cleanup of the fork server belongs to the fork server.
            process::leave_at_once(if is_served { 0 } else { 1 })
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

struct Nursery {
    socket: OwnedFd,
    ends: ChildEnds,
    one_thread: OneThread,
}

/// The role of the process that returns from [`Nursery::serve`].
enum Role {
    /// The fork server, which is no longer needed.
    Nursery,
    /// A guard, with the connection to its worker.
    Guard(OwnedFd),
}

/// Descriptors that a forked guard receives.
struct Cradle {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Nursery {
    /// Forks guards on request. A forked guard keeps none of the server's descriptors: all of them are
    /// dropped on return.
    fn serve(self) -> io::Result<Role> {
        loop {
            let [is_asked, is_ended] =
                wait_readable([Some(self.socket.as_fd()), Some(self.ends.as_fd())], None)?;
            if is_ended {
                self.ends.clear();
                while process::reap_any()?.is_some() {}
            }
            if is_asked {
                let Some(cradle) = self.receive()? else { break };
                match host::fail::at("nursery.fork").and_then(|()| self.one_thread.copy()) {
                    Ok(Side::Original(twin)) => self.answer(&Birth::Pid(twin.pid.0), Some(&twin))?,
                    Ok(Side::Copy) => {
                        set_outputs(cradle.stdout, cradle.stderr)?;
                        return Ok(Role::Guard(cradle.control));
                    }
                    Err(error) => self.answer(&Birth::Errno(error.raw_os_error().unwrap_or(0)), None)?,
                }
            }
        }
        // Without this process the guards become children of the watchdog, which kills processes that have
        // lost their worker.
        while process::has_children() {
            wait_readable([Some(self.ends.as_fd())], None)?;
            self.ends.clear();
            while process::reap_any()?.is_some() {}
        }
        Ok(Role::Nursery)
    }

    /// Receives the next request; `None` when the worker has closed the connection.
    fn receive(&self) -> io::Result<Option<Cradle>> {
        match pass::receive(self.socket.as_fd(), &mut [0; REQUEST_BYTES])? {
            (0, _) => Ok(None),
            (_, [Some(control), Some(stdout), Some(stderr)]) => Ok(Some(Cradle { control, stdout, stderr })),
            (_, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "a request without its descriptors")),
        }
    }

    fn answer(&self, birth: &Birth, twin: Option<&Twin>) -> io::Result<()> {
        let pidfd = twin.map(|twin| twin.pidfd.as_fd());
        pass::send(self.socket.as_fd(), &birth.to_bytes(), pidfd.as_slice())
    }
}
