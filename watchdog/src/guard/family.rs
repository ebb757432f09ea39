//! The test's whole process tree: killed, stopped, continued. The guard is a subreaper, so all of it is below
//! the guard.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use host::{
    io::wait_readable,
    process::{self, ChildEnds, Pid, Signal, Stat},
};
use wire::control::Leaked;

use super::tracer::Tracer;

/// Maximum number of survivors reported; a fork bomb has thousands, and a few lines of it are enough.
const LEAKED_LIMIT: usize = 32;
/// Interval between rounds of signals. Exits arrive as events; a round is for processes that were forked
/// after the last one.
const ROUND: Duration = Duration::from_millis(10);
/// Limit for waiting until processes stop. A process in an uninterruptible call cannot be stopped, such as
/// one in `vfork` whose child has just been stopped.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Sends KILL to all descendants, once.
pub(super) fn strike() {
    let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
}

/// Kills and reaps until no descendant is left or the deadline passes, and returns the processes that had to
/// be killed.
///
/// Each round kills only the guard's own children: that is one cheap call each, and the children of killed
/// processes are the guard's in the next round. A full walk through procfs would lose the race against a tree
/// that forks forever.
pub(super) fn clear(ends: &ChildEnds, tracer: &mut Tracer, deadline: Instant) -> Vec<Leaked> {
    tracer.close();
    let mut survivors = Survivors::default();
    survivors.name_families();
    while process::has_children() && Instant::now() < deadline {
        for pid in process::children(Pid::own()) {
            survivors.name(pid, started_ms(pid));
            process::kill_child(pid);
        }
        let round = deadline.min(Instant::now() + ROUND);
        match wait_readable([Some(ends.as_fd())], Some(round)) {
            Ok([true]) => ends.clear(),
            // No child exited: one hangs in the kernel, and its descendants would never be reparented to the
            // guard.
            Ok([false]) | Err(_) => strike(),
        }
        // The error of a failed wait changes nothing.
        drop(tracer.pump());
    }
    survivors.leaked
}

fn started_ms(pid: Pid) -> Option<u64> {
    u64::try_from(process::started_after_boot(pid)?.as_millis()).ok()
}

#[derive(Default)]
struct Survivors {
    leaked: Vec<Leaked>,
    known: HashSet<Pid>,
}

impl Survivors {
    /// Records the descendants while parents are still known: a test's daemon may have started processes long
    /// after that test, and they belong to the same test.
    fn name_families(&mut self) {
        let heads = process::children(Pid::own()).into_iter();
        let mut waiting: VecDeque<(Pid, Option<u64>)> = heads.map(|head| (head, started_ms(head))).collect();
        while let Some((pid, started_ms)) = waiting.pop_front()
            && self.leaked.len() < LEAKED_LIMIT
        {
            self.name(pid, started_ms);
            waiting.extend(process::children(pid).into_iter().map(|child| (child, started_ms)));
        }
    }

    fn name(&mut self, pid: Pid, started_ms: Option<u64>) {
        let is_alive = || process::stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'));
        if self.leaked.len() < LEAKED_LIMIT && self.known.insert(pid) && is_alive() {
            self.leaked.push(Leaked { pid: pid.as_u32(), command: process::command_line(pid), started_ms });
        }
    }
}

/// The processes that a pause has stopped. Processes that had stopped themselves stay stopped after it.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    ours: HashSet<Pid>,
    /// The start of the current pause.
    since: Option<Instant>,
    /// The duration of all earlier pauses.
    before: Duration,
}

impl Stopped {
    /// Stops all descendants, and waits until they are stopped. Events that arrive meanwhile are handled.
    pub(super) fn stop(&mut self, ends: &ChildEnds, tracer: &mut Tracer) {
        self.since.get_or_insert_with(Instant::now);
        let deadline = Instant::now() + STOP_PATIENCE;
        loop {
            let stopped =
                process::signal_descendants(Pid::own(), Signal::STOP, |pid, stat| !stands(pid, stat, tracer));
            let is_still = stopped.is_empty();
            self.ours.extend(stopped);
            if is_still || Instant::now() > deadline {
                return;
            }
            let _ended = wait_readable([Some(ends.as_fd())], Some(Instant::now() + Duration::from_millis(1)));
            ends.clear();
            // The error of a failed wait changes nothing, and a process that cannot be stopped is not waited
            // for.
            drop(tracer.pump());
        }
    }

    /// Resumes the processes that were stopped by [`Self::stop`].
    pub(super) fn resume(&mut self) {
        self.before = self.time();
        self.since = None;
        let ours = std::mem::take(&mut self.ours);
        let _reached = process::signal_descendants(Pid::own(), Signal::CONT, |pid, _| ours.contains(&pid));
    }

    /// Returns whether the tree is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the total time for which the tree was paused.
    pub(super) fn time(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Returns whether a process is stopped. A traced process also counts as stopped while it waits for the
/// tracer.
fn stands(pid: Pid, stat: Stat, tracer: &Tracer) -> bool {
    match stat.state {
        't' => tracer.is_stopped(pid).unwrap_or(true),
        'T' | 'Z' | 'X' => true,
        _ => false,
    }
}
