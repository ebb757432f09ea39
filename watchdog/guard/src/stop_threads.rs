//! Stops and resumes all threads of a process, or ends their tracing. Waits here are for single threads and
//! bounded; other events that arrive meanwhile are deferred for the tracer.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use heeler_sys::{
    process::Pid,
    trace::{self, TraceOptions, TraceStop, WaitEvent},
};

use super::tracer::{ProcessTracer, TracedProcess, TracedThread};

/// Limit for waiting until threads stop; a thread that waits for its `vfork` child does not stop at all.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// The threads of a process that were stopped.
#[derive(Default)]
pub(super) struct StoppedThreads {
    pub(super) threads: Vec<(Pid, TraceStop)>,
    pub(super) stuck: Vec<Pid>,
}

impl ProcessTracer {
    /// Stops the threads of a process that this guard traces, except one that is stopped already.
    pub(super) fn stop_threads(&mut self, process: Pid, except: Option<Pid>) -> StoppedThreads {
        let deadline = Instant::now() + STOP_LIMIT;
        let mut halted = StoppedThreads::default();
        let mut asked: HashSet<Pid> = except.into_iter().collect();
        loop {
            // All threads are interrupted before any is waited for; threads that are created meanwhile are
            // interrupted in the next round.
            let mut threads = trace::threads(process);
            threads.retain(|tid| asked.insert(*tid) && !trace::has_ended(*tid));
            if threads.is_empty() {
                return halted;
            }
            threads
                .retain(|tid| self.take_deferred_stop(*tid, &mut halted) || trace::interrupt(*tid).is_ok());
            for tid in threads {
                if !halted.threads.iter().any(|(standing, _)| *standing == tid) {
                    self.await_stop(tid, deadline, &mut halted);
                }
            }
        }
    }

    /// Returns whether the stop of the thread was received before, and not handled yet.
    fn take_deferred_stop(&mut self, tid: Pid, halted: &mut StoppedThreads) -> bool {
        let known = self
            .deferred
            .iter()
            .position(|(one, waited)| *one == tid && matches!(waited, WaitEvent::Stopped(_)));
        if let Some((_, WaitEvent::Stopped(stop))) = known.and_then(|index| self.deferred.remove(index)) {
            halted.threads.push((tid, stop));
        }
        known.is_some()
    }

    fn await_stop(&mut self, tid: Pid, deadline: Instant, halted: &mut StoppedThreads) {
        match trace::wait_for(tid, deadline) {
            Ok(Some(WaitEvent::Stopped(stop))) => halted.threads.push((tid, stop)),
            Ok(Some(ended)) => self.deferred.push_back((tid, ended)),
            Ok(None) => halted.stuck.push(tid),
            // Not traced by this guard.
            Err(_) => {}
        }
    }

    /// Resumes stopped threads as if nothing had happened; how is decided when their deferred stops are
    /// handled.
    pub(super) fn resume_threads(&mut self, halted: StoppedThreads) {
        self.deferred.extend(halted.threads.into_iter().map(|(tid, stop)| (tid, WaitEvent::Stopped(stop))));
    }

    /// Removes a process that is no longer traced.
    pub(super) fn remove_process(&mut self, process: Pid) {
        self.threads.retain(|_, thread| thread.process != process);
        self.processes.remove(&process);
    }

    /// Seizes a process again that was released for a while.
    pub(super) fn reseize(&mut self, process: Pid, options: TraceOptions) {
        for tid in trace::threads(process) {
            if trace::seize(tid, options).is_ok() {
                self.threads.insert(tid, TracedThread::of_process(process));
            }
        }
        self.processes.insert(process, TracedProcess::executed(options));
    }

    pub(super) fn options_of(&self, process: Pid) -> Option<TraceOptions> {
        Some(self.processes.get(&process)?.options)
    }

    /// Records threads that could not be released because they do not stop.
    pub(super) fn release_later(&mut self, stuck: &[Pid]) {
        self.releasing.extend(stuck);
    }
}
