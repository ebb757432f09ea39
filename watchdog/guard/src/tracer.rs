//! A guard's tracer. Receives all exits and stops of its test, resumes harmless ones, and passes crashes to
//! `crash_handler`.
//!
//! ```text
//! signal ──harmless, or ignored──► resumed with it
//!        ──handled──► kept as first chance, resumed ──the handler ends the process──► crash
//!        ──fatal──► crash: stack traces, dump; the process dies of its own signal
//! exec   ──conflict, such as a leak sanitizer──► released for good
//! exit   ──of the root, in the middle of the tests──► its stack trace is kept
//! ```

use std::{io, time::Instant};

use heeler_protocol::control::{CrashReport, HangReport, TracePlan};
use heeler_sys::{
    process::{ExitStatus, Pid, Signal},
    trace::{self, SignalDisposition, SignalInfo, TraceStop, WaitEvent},
};

use super::{
    crash_handler::{CrashSite, TestCrashes},
    evidence::EvidenceFiles,
    hang_dump::HangDump,
    root_exit::RootExit,
    thread_state::{self, FirstChance},
    trace_scope::{ProgramTracing, TracePolicy, TraceScope},
    tracees::{Tracees, detach, resume, traced_by},
};

/// Maximum number of stops handled before the guard reads from its worker again.
const MAX_EVENTS_PER_CALL: u32 = 256;

pub(super) struct ProcessTracer {
    root: Pid,
    tracees: Tracees,
    policy: TracePolicy,
    stage: TracerStage,
    /// The last call stopped at [`MAX_EVENTS_PER_CALL`]; more events may be pending.
    has_more: bool,
    untraced: UntracedNotice,
    root_exit: RootExit,
    crashes: TestCrashes,
    evidence: EvidenceFiles,
}

/// How stopped threads are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TracerStage {
    /// Release the root in a stopped state at the first instruction of its program.
    StopsAtExec,
    /// Examine stops.
    Following,
    /// All processes are about to exit, so stops are no longer examined.
    Closing,
    /// All processes were released for good, because one of them traces others.
    Released,
}

/// Report that a process runs untraced. Only the first reason is reported.
enum UntracedNotice {
    None,
    Pending(String),
    Reported,
}

impl ProcessTracer {
    /// Creates a tracer that waits for processes without tracing them.
    pub(super) fn untraced(root: Pid, plan: TracePlan) -> Self {
        Self {
            root,
            tracees: Tracees::new(root, plan.run_mark.is_some()),
            policy: TracePolicy::new(root, &plan),
            stage: TracerStage::Following,
            has_more: false,
            untraced: UntracedNotice::None,
            root_exit: RootExit::new(root, plan.run_mark.clone()),
            crashes: TestCrashes::default(),
            evidence: EvidenceFiles::new(plan),
        }
    }

    /// Creates an untraced tracer for a root that existed before exits were watched. Checks at once for an
    /// exit that would otherwise be missed.
    pub(super) fn adopted(root: Pid) -> Self {
        Self { has_more: true, ..Self::untraced(root, TracePlan::default()) }
    }

    /// Seizes a process that has not executed its program yet. If the system refuses, the process runs
    /// untraced.
    pub(super) fn seize(root: Pid, plan: TracePlan, scope: TraceScope) -> Self {
        let mut tracer = Self::untraced(root, plan);
        tracer.policy.begin(scope);
        let seized = heeler_sys::fail::at("guard.seize").and_then(|()| tracer.tracees.seize_root(scope));
        if let Err(error) = seized {
            tracer.record_untraced(format!("ptrace failed: {error}{}", traced_by(root)));
        }
        tracer
    }

    /// Seizes a process that has not executed its program yet, to stop it right after `exec`.
    pub(super) fn seize_until_exec(root: Pid, plan: TracePlan) -> io::Result<Self> {
        let mut tracer = Self { stage: TracerStage::StopsAtExec, ..Self::untraced(root, plan) };
        tracer.tracees.seize_root_until_exec()?;
        Ok(tracer)
    }

    /// Returns whether the root has not reached its program yet.
    pub(super) fn stops_at_exec(&self) -> bool {
        self.stage == TracerStage::StopsAtExec
    }

    /// Traces a stopped root, and unblocks SIGCONT.
    pub(super) fn seize_stopped(&mut self, scope: TraceScope, deadline: Instant) -> io::Result<()> {
        self.policy.begin_in_program(scope);
        self.tracees.seize_stopped_root(scope, deadline)
    }

    pub(super) fn root(&self) -> Pid {
        self.root
    }

    /// Records why a process runs untraced.
    pub(super) fn record_untraced(&mut self, reason: String) {
        if matches!(self.untraced, UntracedNotice::None) {
            self.untraced = UntracedNotice::Pending(reason);
        }
    }

    pub(super) fn take_untraced(&mut self) -> Option<String> {
        let UntracedNotice::Pending(reason) = &mut self.untraced else { return None };
        let reason = std::mem::take(reason);
        self.untraced = UntracedNotice::Reported;
        Some(reason)
    }

    pub(super) fn root_exit(&self) -> Option<ExitStatus> {
        self.root_exit.status()
    }

    /// Records that the root was ordered to exit, so its exit is not its own decision.
    pub(super) fn request_root_exit(&mut self) {
        self.root_exit.request();
    }

    /// Symbolizes the stack of the root's exit. `None` if there is none, or if nothing could be read.
    pub(super) fn take_exit_stack(&mut self) -> Option<String> {
        self.root_exit.take_stack()
    }

    /// Symbolizes the stack traces of all crashes that belong to the root's failure, and writes them to
    /// files.
    pub(super) fn take_crash_reports(&mut self) -> Vec<CrashReport> {
        let has_succeeded = self.root_exit().is_some_and(|exit| exit.code == Some(0));
        self.crashes.take_reports(has_succeeded, &self.evidence)
    }

    /// Dumps and unwinds all descendants of the guard. `round`: number of the request.
    pub(super) fn dump_tree(&mut self, round: u32) -> HangReport {
        HangDump::new(&mut self.tracees, &mut self.root_exit, &self.evidence, round).dump_tree(self.root)
    }

    /// Returns whether [`Self::handle_pending_events`] has work even though no child has changed state.
    pub(super) fn has_more(&self) -> bool {
        self.has_more || self.tracees.has_deferred()
    }

    /// Stops examining events, because all processes are about to exit.
    pub(super) fn close(&mut self) {
        if self.stage != TracerStage::Released {
            self.stage = TracerStage::Closing;
        }
    }

    /// Returns whether a traced process is stopped by a stop signal, or `None` if this guard does not trace
    /// it.
    pub(super) fn is_stopped(&self, process: Pid) -> Option<bool> {
        self.tracees.is_stopped(process)
    }

    /// Handles pending events. Handling a crash may take a while.
    pub(super) fn handle_pending_events(&mut self) -> io::Result<()> {
        self.has_more = false;
        for _ in 0..MAX_EVENTS_PER_CALL {
            match self.tracees.next_event()? {
                None => return Ok(()),
                Some((tid, WaitEvent::Exited(exit))) => {
                    self.tracees.remove_thread(tid);
                    self.root_exit.record(tid, exit);
                }
                Some((tid, WaitEvent::Stopped(stop))) => self.on_stop(tid, stop),
            }
        }
        self.has_more = true;
        Ok(())
    }

    fn on_stop(&mut self, tid: Pid, stop: TraceStop) {
        if self.tracees.take_late_release(tid) || self.stage == TracerStage::Released {
            return detach(tid, stop);
        }
        if self.stage == TracerStage::Closing {
            // Processes that the worker wants killed die anyway, and any other process receiving a signal
            // must not be delayed.
            return if stop == TraceStop::Exit { resume(tid, None) } else { detach(tid, stop) };
        }
        if !self.tracees.track_thread(tid, self.policy.scope()) {
            return detach(tid, stop);
        }
        match stop {
            TraceStop::Signal(signal) => self.on_signal(tid, signal),
            TraceStop::Group(_) => {
                self.tracees.set_stopped(tid, true);
                // Ignore errors: if the thread was killed meanwhile, its exit is received later.
                drop(trace::listen(tid));
            }
            TraceStop::Interrupt => {
                self.tracees.set_stopped(tid, false);
                self.tracees.ignore_exit(tid);
                resume(tid, None);
            }
            TraceStop::Clone => {
                if let Ok(child) = trace::event_message(tid) {
                    let child = Pid(i32::try_from(child).expect("a process id fits"));
                    // If the child is not followed, it is released at its first stop.
                    let _is_followed = self.tracees.track_thread(child, self.policy.scope());
                }
                resume(tid, None);
            }
            TraceStop::Exec => self.on_exec(tid),
            TraceStop::Exit => {
                self.on_thread_exiting(tid);
                resume(tid, None);
            }
            TraceStop::Other(_) => resume(tid, None),
        }
    }

    fn on_exec(&mut self, process: Pid) {
        self.tracees.on_exec(process);
        if self.stops_at_exec() && process == self.root {
            return self.release_stopped();
        }
        match self.policy.on_program(process) {
            ProgramTracing::Followed { is_narrowed, is_crash_expected } => {
                self.tracees.record_program(process, is_crash_expected);
                if is_narrowed {
                    self.tracees.narrow(process);
                }
                resume(process, None);
            }
            ProgramTracing::Privileged => {
                let repeated = self.tracees.release_privileged(process);
                self.record_untraced(self.policy.privileged_reason(process, repeated));
            }
            ProgramTracing::Untraced(reason) => {
                self.record_untraced(reason);
                self.tracees.release_at_exec(process);
            }
            ProgramTracing::AllUntraced(reason) => {
                self.record_untraced(reason);
                self.stage = TracerStage::Released;
                self.tracees.release_all(process);
            }
        }
    }

    /// Releases the root, stopped at the first instruction of its program and untraced.
    fn release_stopped(&mut self) {
        self.stage = TracerStage::Following;
        // Otherwise a later tracer would receive the SIGCONT that resumes the process.
        drop(trace::block_signal(self.root, Signal::CONT));
        // The stop takes effect at the release, before the program runs. Ignore errors: if the process was
        // killed meanwhile, its exit is received.
        drop(trace::signal_thread(self.root, self.root, Signal::STOP));
        self.tracees.release_at_exec(self.root);
    }

    fn on_signal(&mut self, tid: Pid, signal: Signal) {
        let process = self.tracees.process_of(tid);
        // A second crashing thread adds no information while the process dies.
        let has_crashed = process.is_none_or(|process| self.tracees.has_crashed(process));
        if !Signal::CRASHES.contains(&signal) || has_crashed {
            return resume(tid, Some(signal));
        }
        let Ok(info) = trace::signal_info(tid) else { return resume(tid, Some(signal)) };
        match trace::signal_disposition(tid, signal) {
            SignalDisposition::Ignored => resume(tid, Some(signal)),
            SignalDisposition::Caught => {
                self.tracees.record_first_chance(tid, info);
                resume(tid, Some(signal));
            }
            SignalDisposition::Default => self.on_fatal(tid, info),
        }
    }

    fn on_fatal(&mut self, tid: Pid, info: SignalInfo) {
        let Some(site) = self.reported_crash_site(tid) else { return resume(tid, Some(info.signal)) };
        self.tracees.mark_crashed(site.process);
        let Ok(registers) = thread_state::read_registers(tid) else { return resume(tid, Some(info.signal)) };
        // If a handler raises its signal again, that signal may stay pending until the handler returns, and
        // then arrives at the same place.
        let chance = self.tracees.take_first_chance(tid).filter(|chance| {
            chance.is_at_same_place(&registers)
                || chance.is_being_handled(tid, registers.general.stack_pointer())
        });
        let now = FirstChance { info, registers };
        if self.crashes.on_crash(site, now, chance, &mut self.tracees, &self.evidence) {
            self.root_exit.record_missed(site.process);
        }
    }

    /// Handles a thread that is about to exit: the root's first thread, or a thread whose process has handled
    /// a signal.
    fn on_thread_exiting(&mut self, tid: Pid) {
        let status = trace::event_message(tid).unwrap_or(0);
        // Killed by a signal.
        if status & 0x7f != 0 {
            return;
        }
        if tid == self.root {
            self.root_exit.record_stack();
        }
        let Some(site) = self.reported_crash_site(tid) else { return };
        // A child that exits successfully has not failed. The test process itself has left its tests.
        if status >> 8 == 0 && !site.is_root {
            return;
        }
        let Some(chance) = self.tracees.take_first_chance(tid) else { return };
        let Ok(registers) = thread_state::read_registers(tid) else { return };
        // The signal was handled long ago and did not cause this exit.
        if !chance.is_being_handled(tid, registers.general.stack_pointer()) {
            return;
        }
        if !self.tracees.has_crashed(site.process) {
            self.tracees.mark_crashed(site.process);
            self.crashes.on_handler_exit(site, &chance);
        }
    }

    /// Returns the crash site if the crash must be reported. Forks of a test process may die on purpose, as
    /// in death tests, and so may programs with crash markers on their command line.
    fn reported_crash_site(&self, tid: Pid) -> Option<CrashSite> {
        let process = self.tracees.process_of(tid)?;
        let is_root = process == self.root;
        let is_reported = is_root || (self.tracees.is_crash_unexpected(process) && !self.crashes.is_full());
        let is_termination_requested = self.root_exit.is_requested();
        is_reported.then_some(CrashSite { process, tid, is_root, is_termination_requested })
    }
}
