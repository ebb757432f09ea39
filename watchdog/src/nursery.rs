//! Where guards are born: one small process of one thread for each worker, which makes a copy of itself for each test
//! process. Such a guard has nothing to load and nothing to set up, so it costs a small part of an executed one.
//!
//! ```text
//! worker ──control, stdout, stderr──► nursery ──copies itself──► guard ──► test process
//!        ◄─────── pid, pidfd ────────    │  └── reaps guards, and hears nothing else of them
//!                                        └── worker lets go: waits for the guards' ends, leaves
//! ```
//!
//! It reads nothing, keeps nothing, and grows with nothing: what it held, every guard would hold. A guard that was
//! executed alone does the same for its test; so a nursery that dies costs its guards' tests and is replaced.

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

/// Serves the worker at the other end of standard input until it lets go.
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
            // It has nothing to tidy up, and what the nursery would, is the nursery's.
            process::leave_at_once(if is_served { 0 } else { 1 })
        }
        // Whoever waits for it sees its end, and does without.
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

/// Does once what each copy would do anew otherwise.
fn warm_up() {
    // Which instructions there are for searches: the question is slow where the processor is not a real one.
    std::hint::black_box(memchr::memmem::Finder::new(b"--"));
}

struct Nursery {
    socket: OwnedFd,
    ends: ChildEnds,
    one_thread: OneThread,
}

/// What the process is that comes back from [`Nursery::serve`].
enum Role {
    /// The nursery, which is not needed any more.
    Nursery,
    /// A guard, with the connection to its worker.
    Guard(OwnedFd),
}

/// What a guard is born with.
struct Cradle {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Nursery {
    /// Gives birth to guards. A copy takes nothing of the nursery's along: all of it is dropped on the way out.
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
        // Without this process they are the watchdog's, who ends what has lost its worker.
        while process::has_children() {
            wait_readable([Some(self.ends.as_fd())], None)?;
            self.ends.clear();
            while process::reap_any()?.is_some() {}
        }
        Ok(Role::Nursery)
    }

    /// Takes the next request; `None` when the worker has let go.
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
