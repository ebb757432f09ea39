//! A guard's life: one command, one process, one end.
//!
//! ```text
//! waiting ──Exec──► running ──root ends──► lingering ──family gone, or killed──► Ended
//!    │                 │ Terminate: TERM, and KILL after the grace      (100 ms at most)
//!    └──EOF──► leave   └──EOF──► kill all, leave
//! ```

use std::{
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use host::{
    io::{silence_output, standard_input, wait_readable},
    process::{self, ChildEnds, Pid, RawExit, Signal},
    spawn::{Spawn, SpawnError, Stream, spawn},
};
use wire::control::{Command, FromGuard, OsBytes, ToGuard};

use crate::errors::chain;

use super::{
    control::{Control, Gone},
    end::raw_end,
    family::{self, Stopped},
};

/// Helpers of a test often see its end as the end of a pipe, and leave by themselves.
const LINGER: Duration = Duration::from_millis(100);
/// A fork bomb must not hold its guard for ever; what is left then is the watchdog's.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);
/// The same when nobody waits for the answer, and all must be gone within a second.
const LEAVE_LIMIT: Duration = Duration::from_millis(900);

/// Runs as a guard, from the first command to the test's end. Exits with failure when it could not serve.
#[must_use]
pub fn main() -> ExitCode {
    process::set_name(c"heeler-guard");
    process::ignore_terminal_signals();
    let Ok(socket) = standard_input() else { return ExitCode::FAILURE };
    let mut control = Control::new(socket);
    let Some(command) = first_command(&mut control) else { return ExitCode::FAILURE };
    let outcome = match prepare() {
        Ok(ends) => guard(control, ends, &command),
        Err(source) => control.send(&FromGuard::Failed { error: format!("prepare the guard: {source}") }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Gone) => ExitCode::FAILURE,
    }
}

fn prepare() -> std::io::Result<ChildEnds> {
    process::become_subreaper()?;
    ChildEnds::watch()
}

fn first_command(control: &mut Control) -> Option<Command> {
    loop {
        match control.next().ok()? {
            Some(ToGuard::Exec(command)) => return Some(command),
            // Nothing runs yet, so there is nothing to stop or to end.
            Some(ToGuard::Terminate { .. } | ToGuard::Kill | ToGuard::Pause | ToGuard::Resume) => {
                return None;
            }
            None => control.fill().ok()?,
        }
    }
}

fn guard(mut control: Control, ends: ChildEnds, command: &Command) -> Result<(), Gone> {
    let started = Instant::now();
    let root = match start(command) {
        Ok(root) => root,
        Err(error) => return control.send(&FromGuard::Failed { error: chain(&error) }),
    };
    // The test alone holds its outputs now. If the null device is gone, its end-of-file comes with the guard's own end.
    let _silenced = silence_output();
    let mut guard = Guard {
        control,
        ends,
        root,
        is_over: false,
        kill_at: None,
        is_killed: false,
        stopped: Stopped::default(),
    };
    match guard.run() {
        Ok(exit) => guard.leave(exit, started),
        Err(Gone) => {
            let _leaked = family::clear(&guard.ends, Instant::now() + LEAVE_LIMIT);
            Err(Gone)
        }
    }
}

fn start(command: &Command) -> Result<Pid, SpawnError> {
    let string = |bytes: &OsBytes| bytes.as_os_str().to_owned();
    let child = spawn(Spawn {
        args: command.args.iter().map(string).collect(),
        env: Some(command.env.iter().map(|(name, value)| (string(name), string(value))).collect()),
        cwd: Some(command.cwd.as_path().to_owned()),
        stdout: Stream::Inherit,
        stderr: Stream::Inherit,
        ..Spawn::new(command.program.as_path())
    })?;
    // Its end comes with all others', from the one place that reaps.
    Ok(child.pid())
}

struct Guard {
    control: Control,
    ends: ChildEnds,
    root: Pid,
    /// The root is reaped: its number may be another's.
    is_over: bool,
    /// When the grace of a Terminate ends.
    kill_at: Option<Instant>,
    /// The worker wished the whole family dead: survivors are no leak.
    is_killed: bool,
    stopped: Stopped,
}

impl Guard {
    /// Serves commands until the root has ended.
    fn run(&mut self) -> Result<RawExit, Gone> {
        self.control.send(&FromGuard::Started { pid: self.root.as_u32() })?;
        self.obey()?;
        loop {
            if let Some(exit) = self.wait(self.kill_at)? {
                return Ok(exit);
            }
            if self.kill_at.is_some_and(|at| Instant::now() >= at) {
                self.kill();
            }
        }
    }

    /// Waits for the next thing to happen, and handles it; returns the root's end when that is it.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<RawExit>, Gone> {
        let fds = [Some(self.control.as_fd()), Some(self.ends.as_fd())];
        let [is_told, is_ended] = wait_readable(fds, deadline).map_err(|_| Gone)?;
        let mut root_exit = None;
        if is_ended {
            self.ends.clear();
            while let Some((pid, exit)) = process::reap_any().map_err(|_| Gone)? {
                if pid == self.root {
                    root_exit = Some(exit);
                }
            }
        }
        if is_told {
            // A root's end that came together with the worker's is of no use to anyone.
            self.control.fill()?;
            self.obey()?;
        }
        Ok(root_exit)
    }

    fn obey(&mut self) -> Result<(), Gone> {
        while let Some(command) = self.control.next()? {
            match command {
                ToGuard::Terminate { grace_ms } => self.terminate(Duration::from_millis(grace_ms)),
                ToGuard::Kill => self.kill(),
                ToGuard::Pause => {
                    self.stopped.stop();
                    self.control.send(&FromGuard::Paused)?;
                }
                ToGuard::Resume => self.stopped.resume(),
                ToGuard::Exec(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    fn terminate(&mut self, grace: Duration) {
        if !self.is_over {
            // It may be refused by a program of another user; the KILL after the grace is the answer to all.
            let _refused = process::kill_group(self.root, Signal::TERM);
        }
        // A stopped process would hear it only after the grace.
        self.stopped.resume();
        self.kill_at = Some(Instant::now() + grace);
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        family::strike();
    }

    /// Sees the rest of the family off, and tells the end.
    fn leave(&mut self, exit: RawExit, started: Instant) -> Result<(), Gone> {
        let wall = started.elapsed();
        self.is_over = true;
        let linger_until = Instant::now() + LINGER;
        let mut limit = CLEAR_LIMIT;
        while process::has_children() && !self.is_killed {
            let until = self.kill_at.map_or(linger_until, |at| at.min(linger_until));
            if Instant::now() >= until {
                break;
            }
            if self.wait(Some(until)).is_err() {
                limit = LEAVE_LIMIT;
                break;
            }
        }
        let survivors = family::clear(&self.ends, Instant::now() + limit);
        let leaked = if self.is_killed { Vec::new() } else { survivors };
        self.control.send(&FromGuard::Ended(raw_end(exit, wall, leaked)))
    }
}
