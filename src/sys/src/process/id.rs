//! Process ids and signal numbers.

use std::{fmt, io};

use rustix::{io::Errno, process};

/// A process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(pub i32);

impl Pid {
    /// Returns the id of this process.
    #[must_use]
    pub fn own() -> Self {
        Self(process::getpid().as_raw_pid())
    }

    /// Converts the id for system calls. Fails with `ESRCH` for an id that no process can have.
    pub(crate) fn for_rustix(self) -> io::Result<process::Pid> {
        let pid = if self.0 > 0 { process::Pid::from_raw(self.0) } else { None };
        pid.ok_or_else(|| Errno::SRCH.into())
    }

    /// Converts the id for the control protocol.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        self.0.cast_unsigned()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(pub i32);

impl Signal {
    /// Kills a process; cannot be caught.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// Asks a process to terminate.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// Stops a process; cannot be caught.
    pub const STOP: Self = Self(libc::SIGSTOP);
    /// Continues a stopped process.
    pub const CONT: Self = Self(libc::SIGCONT);
    /// Stop request of the terminal, such as Ctrl-Z.
    pub const TSTP: Self = Self(libc::SIGTSTP);
    /// An invalid memory access.
    pub const SEGV: Self = Self(libc::SIGSEGV);
    /// `abort()`.
    pub const ABRT: Self = Self(libc::SIGABRT);
    /// Quit request of the terminal with a core dump, Ctrl-\.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// Access to memory that its file does not back.
    pub(crate) const BUS: Self = Self(libc::SIGBUS);
    /// An illegal instruction.
    pub(crate) const ILL: Self = Self(libc::SIGILL);
    /// A division by zero or similar arithmetic error.
    pub(crate) const FPE: Self = Self(libc::SIGFPE);
    /// A breakpoint.
    pub const TRAP: Self = Self(libc::SIGTRAP);
    /// A forbidden system call.
    pub const SYS: Self = Self(libc::SIGSYS);

    /// Signals raised by a crash of the program itself.
    pub const CRASHES: [Self; 7] =
        [Self::SEGV, Self::BUS, Self::ILL, Self::FPE, Self::ABRT, Self::TRAP, Self::SYS];

    /// Converts the signal for system calls.
    ///
    /// # Errors
    /// The signal has no name (`EINVAL`). Heeler never sends such signals.
    pub(crate) fn for_rustix(self) -> io::Result<process::Signal> {
        process::Signal::from_named_raw(self.0).ok_or_else(|| Errno::INVAL.into())
    }

    /// Returns the name, such as `SIGSEGV`, or `signal 77` for a number without a name.
    #[must_use]
    pub fn name(self) -> String {
        if let Some((_, name)) = NAMES.iter().find(|(number, _)| *number == self.0) {
            return (*name).to_owned();
        }
        let first = libc::SIGRTMIN();
        if (first..=libc::SIGRTMAX()).contains(&self.0) {
            return format!("SIGRTMIN+{}", self.0 - first);
        }
        format!("signal {}", self.0)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

const NAMES: [(i32, &str); 31] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGCHLD, "SIGCHLD"),
    (libc::SIGCONT, "SIGCONT"),
    (libc::SIGSTOP, "SIGSTOP"),
    (libc::SIGTSTP, "SIGTSTP"),
    (libc::SIGTTIN, "SIGTTIN"),
    (libc::SIGTTOU, "SIGTTOU"),
    (libc::SIGURG, "SIGURG"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGWINCH, "SIGWINCH"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGSYS, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_number_has_its_usual_name() {
        assert_eq!(Signal::SEGV.name(), "SIGSEGV");
        assert_eq!(Signal(libc::SIGRTMIN() + 2).name(), "SIGRTMIN+2");
        assert_eq!(Signal(0).name(), "signal 0");
        assert_eq!(Signal(200).name(), "signal 200");
    }
}
