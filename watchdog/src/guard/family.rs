//! The test's whole family: killed, stopped, continued. The guard is a subreaper, so all of it is below the guard.

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

/// So many survivors are named; a fork bomb has thousands, and one line of it is enough.
const LEAKED_LIMIT: usize = 32;
/// Ends come as events; this is for those who were born after the last round of signals.
const ROUND: Duration = Duration::from_millis(10);
/// A process in an uninterruptible call can't be stopped, such as one in `vfork` whose child has just been stopped.
/// Nobody waits longer for it.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Sends KILL to everything below, once.
pub(super) fn strike() {
    let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
}

/// Kills and reaps until nothing is left below or the deadline passes, and returns who had to be killed.
///
/// Each round kills only the guard's own children: that is one cheap call each, and the children of the dead are the
/// guard's in the next round. A whole walk through procfs would lose the race against a family that forks for ever.
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
            // Nobody ended: a child hangs in the kernel, and what is below it would never come up.
            Ok([false]) | Err(_) => strike(),
        }
        // A wait that fails has nothing to tell.
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
    /// Names who is below as long as it can be seen who is below whom: a test's daemon may have started others long
    /// after that test, and they are the same test's.
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

/// The processes that a pause has stopped; those that had stopped themselves stay so after it.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    ours: HashSet<Pid>,
    /// Since when a pause lasts.
    since: Option<Instant>,
    /// How long all pauses before were.
    before: Duration,
}

impl Stopped {
    /// Stops everything below, and waits until it stands still. What happens meanwhile is heard.
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
            // A wait that fails has nothing to tell, and what cannot be stopped is not waited for.
            drop(tracer.pump());
        }
    }

    /// Lets those go on that were stopped.
    pub(super) fn resume(&mut self) {
        self.before = self.time();
        self.since = None;
        let ours = std::mem::take(&mut self.ours);
        let _reached = process::signal_descendants(Pid::own(), Signal::CONT, |pid, _| ours.contains(&pid));
    }

    /// Whether the family is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.since.is_some()
    }

    /// How long the family was paused, all in all.
    pub(super) fn time(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What is traced also stands when it only waits for the tracer.
fn stands(pid: Pid, stat: Stat, tracer: &Tracer) -> bool {
    match stat.state {
        't' => tracer.is_stopped(pid).unwrap_or(true),
        'T' | 'Z' | 'X' => true,
        _ => false,
    }
}
