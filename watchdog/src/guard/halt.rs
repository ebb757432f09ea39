//! Stops and resumes all threads of a process, or ends their tracing. Waits here are for single threads and
//! bounded; other events that arrive meanwhile are deferred for the tracer.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use host::{
    process::Pid,
    trace::{self, Options, Stop, Waited},
};

use super::tracer::{Process, Thread, Tracer, release};

/// Limit for waiting until threads stop; a thread that waits for its `vfork` child does not stop at all.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// The threads of a process that were stopped.
#[derive(Default)]
pub(super) struct Halted {
    pub(super) threads: Vec<(Pid, Stop)>,
    pub(super) stuck: Vec<Pid>,
}

impl Tracer {
    /// Stops the threads of a process that this guard traces, except one that is stopped already.
    pub(super) fn halt(&mut self, process: Pid, except: Option<Pid>) -> Halted {
        let deadline = Instant::now() + STOP_PATIENCE;
        let mut halted = Halted::default();
        let mut asked: HashSet<Pid> = except.into_iter().collect();
        loop {
            // All threads are interrupted before any is waited for; threads that are created meanwhile are
            // interrupted in the next round.
            let mut threads = trace::threads(process);
            threads.retain(|tid| asked.insert(*tid) && !trace::has_ended(*tid));
            if threads.is_empty() {
                return halted;
            }
            threads.retain(|tid| self.is_standing(*tid, &mut halted) || trace::interrupt(*tid).is_ok());
            for tid in threads {
                if !halted.threads.iter().any(|(standing, _)| *standing == tid) {
                    self.await_stop(tid, deadline, &mut halted);
                }
            }
        }
    }

    /// Returns whether the stop of the thread was received before, and not handled yet.
    fn is_standing(&mut self, tid: Pid, halted: &mut Halted) -> bool {
        let known = self
            .deferred
            .iter()
            .position(|(one, waited)| *one == tid && matches!(waited, Waited::Stopped(_)));
        if let Some((_, Waited::Stopped(stop))) = known.and_then(|index| self.deferred.remove(index)) {
            halted.threads.push((tid, stop));
        }
        known.is_some()
    }

    fn await_stop(&mut self, tid: Pid, deadline: Instant, halted: &mut Halted) {
        match trace::wait_for(tid, deadline) {
            Ok(Some(Waited::Stopped(stop))) => halted.threads.push((tid, stop)),
            Ok(Some(ended)) => self.deferred.push_back((tid, ended)),
            Ok(None) => halted.stuck.push(tid),
            // Not traced by this guard.
            Err(_) => {}
        }
    }

    /// Resumes stopped threads as if nothing had happened; how is decided when their deferred stops are
    /// handled.
    pub(super) fn resume(&mut self, halted: Halted) {
        self.deferred.extend(halted.threads.into_iter().map(|(tid, stop)| (tid, Waited::Stopped(stop))));
    }

    /// Removes a process that is no longer traced.
    pub(super) fn forget(&mut self, process: Pid) {
        self.threads.retain(|_, thread| thread.process != process);
        self.processes.remove(&process);
    }

    /// Seizes a process again that was released for a while.
    pub(super) fn seize_again(&mut self, process: Pid, options: Options) {
        for tid in trace::threads(process) {
            if trace::seize(tid, options).is_ok() {
                self.threads.insert(tid, Thread::of(process));
            }
        }
        self.processes.insert(process, Process::executed(options));
    }

    pub(super) fn options_of(&self, process: Pid) -> Option<Options> {
        Some(self.processes.get(&process)?.options)
    }

    /// Records threads that could not be released because they do not stop.
    pub(super) fn leave_later(&mut self, stuck: &[Pid]) {
        self.leaving.extend(stuck);
    }

    /// Ends all tracing. Threads that do not stop in time are released as soon as they do.
    pub(super) fn let_go(&mut self) {
        // A process that is forked while its parent is being released is found in the next round.
        while let Some(process) = self.processes.keys().next().copied() {
            let halted = self.halt(process, None);
            for (tid, stop) in &halted.threads {
                if *stop == Stop::Birth
                    && let Ok(child) = trace::event_message(*tid)
                {
                    self.adopt(Pid(i32::try_from(child).expect("a process id fits")));
                }
                release(*tid, *stop);
            }
            self.leave_later(&halted.stuck);
            self.forget(process);
        }
    }
}
