//! Kills, stops and resumes the test's whole process tree. The guard is a subreaper, so the whole tree is
//! below it.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use heeler_protocol::control::LeakedProcess;
use heeler_sys::{
    io::wait_readable,
    process::{self, ChildExits, Pid, ProcessStat, Signal},
    trace,
};

use super::{
    description::{DescribedProcess, ProcessDescriber},
    tracer::ProcessTracer,
};

/// Maximum number of survivors reported. A fork bomb has thousands, and a few lines are enough.
const LEAKED_LIMIT: usize = 32;
/// Interval between rounds of signals. Exits arrive as events; a round is for processes forked after the
/// previous round.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
/// Number of consecutive rounds without permission to kill any child. The guard then gives up: all children
/// belong to other users. Their descendants that can be killed are killed in the first of these rounds.
const REFUSED_ROUNDS: u32 = 5;
/// Time limit for processes to stop. A process in an uninterruptible call cannot stop, such as one in `vfork`
/// whose child has just been stopped.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Sends SIGKILL once to all descendants.
pub(super) fn kill_tree() {
    let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
}

/// Kills and reaps until no descendant is left or the deadline passes. Returns the processes that had to be
/// killed.
///
/// Each round kills only the guard's own children. That is one cheap call per child, and the children of
/// killed processes become the guard's children for the next round. A full walk through procfs would lose the
/// race against a tree that keeps forking.
pub(super) fn kill_and_reap_tree(
    ends: &ChildExits,
    tracer: &mut ProcessTracer,
    deadline: Instant,
) -> Vec<LeakedProcess> {
    tracer.close();
    let mut survivors = LeakedProcesses::default();
    survivors.record_descendants();
    let mut refused_rounds = 0;
    while process::has_children() && Instant::now() < deadline && refused_rounds < REFUSED_ROUNDS {
        let mut is_refused = true;
        for pid in process::children(Pid::own()) {
            survivors.record(pid, started_ms(pid));
            is_refused &= !process::kill_child(pid);
        }
        refused_rounds = if is_refused { refused_rounds + 1 } else { 0 };
        let round = deadline.min(Instant::now() + KILL_INTERVAL);
        match wait_readable([Some(ends.as_fd())], Some(round)) {
            Ok([true]) => ends.clear(),
            // No child exited. If one hangs in the kernel, its descendants are never reparented to the guard.
            Ok([false]) | Err(_) => kill_tree(),
        }
        // Ignore errors: a failed wait changes nothing.
        drop(tracer.handle_pending_events());
    }
    survivors.mark_running();
    survivors.leaked
}

fn started_ms(pid: Pid) -> Option<u64> {
    u64::try_from(process::start_time_since_boot(pid)?.as_millis()).ok()
}

#[derive(Default)]
struct LeakedProcesses {
    leaked: Vec<LeakedProcess>,
    recorded: HashSet<Pid>,
    describer: ProcessDescriber,
}

impl LeakedProcesses {
    /// Records the descendants while their parents are still known. A test's daemon may have started
    /// processes long after that test, and these belong to the same test.
    fn record_descendants(&mut self) {
        let heads = process::children(Pid::own()).into_iter();
        let mut waiting: VecDeque<(Pid, Option<u64>)> = heads.map(|head| (head, started_ms(head))).collect();
        while let Some((pid, started_ms)) = waiting.pop_front()
            && self.leaked.len() < LEAKED_LIMIT
        {
            self.record(pid, started_ms);
            waiting.extend(process::children(pid).into_iter().map(|child| (child, started_ms)));
        }
    }

    fn record(&mut self, pid: Pid, started_ms: Option<u64>) {
        if self.leaked.len() < LEAKED_LIMIT && self.recorded.insert(pid) && !trace::has_ended(pid) {
            let DescribedProcess { command, facts } = self.describer.describe(pid);
            self.leaked.push(LeakedProcess {
                pid: pid.as_u32(),
                command,
                started_ms,
                facts,
                is_running: false,
            });
        }
    }

    /// Marks the processes that are still running.
    fn mark_running(&mut self) {
        if !process::has_children() {
            return;
        }
        let running: HashSet<u32> = process::descendants(Pid::own()).into_iter().map(Pid::as_u32).collect();
        for leaked in &mut self.leaked {
            leaked.is_running =
                running.contains(&leaked.pid) && !trace::has_ended(Pid(leaked.pid.cast_signed()));
        }
    }
}

/// Processes stopped by a pause. Processes that had stopped themselves stay stopped afterwards.
#[derive(Debug, Default)]
pub(super) struct PausedTree {
    stopped_here: HashSet<Pid>,
    is_paused: bool,
}

impl PausedTree {
    /// Stops all descendants, and waits until they have stopped. Handles events that arrive meanwhile.
    pub(super) fn pause(&mut self, ends: &ChildExits, tracer: &mut ProcessTracer) {
        self.is_paused = true;
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            let stopped = process::signal_descendants(Pid::own(), Signal::STOP, |pid, stat| {
                !is_stopped(pid, stat, tracer)
            });
            let is_still = stopped.is_empty();
            self.stopped_here.extend(stopped);
            if is_still || Instant::now() > deadline {
                return;
            }
            let _ended = wait_readable([Some(ends.as_fd())], Some(Instant::now() + Duration::from_millis(1)));
            ends.clear();
            // Ignore errors: a failed wait changes nothing, and a process that cannot be stopped is not
            // waited for.
            drop(tracer.handle_pending_events());
        }
    }

    /// Resumes the processes stopped by [`Self::pause`].
    pub(super) fn resume(&mut self) {
        self.is_paused = false;
        let ours = std::mem::take(&mut self.stopped_here);
        let _reached = process::signal_descendants(Pid::own(), Signal::CONT, |pid, _| ours.contains(&pid));
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }
}

/// Returns whether a process is stopped. A traced process also counts as stopped while it waits for the
/// tracer.
fn is_stopped(pid: Pid, stat: ProcessStat, tracer: &ProcessTracer) -> bool {
    match stat.state {
        't' => tracer.is_stopped(pid).unwrap_or(true),
        'T' | 'Z' | 'X' => true,
        _ => false,
    }
}
