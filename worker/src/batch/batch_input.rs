//! Input of a batch: output of its process, the end of the process, and passed deadlines.

use heeler_adapters::{DeathCause, DeathCulprit, FixtureFailure, SuitePhase, TranscriptEvent};
use heeler_core::{ExitReason, GuardLoss};
use heeler_protocol::control::{ProcessExit, TestDiagnostics};
use heeler_sys::process::Signal;

use super::{exit_reason::exit_reason_of, run_evidence::RunEvidence};
use crate::process::process_clock::ClockReading;

/// An action due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// None: the deadline has not passed.
    Nothing,
    /// Sample the process to see whether the system scheduled it. The answer goes to
    /// [`super::deadlines::Deadlines::on_idle_sample`].
    SampleProcess,
    /// Check whether the held tests can be settled: [`super::RunningBatch::check_held_tests`].
    CheckHeldTests,
    Terminate,
    /// End a server process that has answered its last request.
    EndServer,
}

/// How a process ended, and what its transcript shows about the whole run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ProcessExitSummary {
    pub(crate) exit: ProcessExit,
    /// The framework reported the end of the run.
    pub(crate) is_complete: bool,
    /// The process exited by itself, with a code that the transcript explains.
    pub(crate) is_explained: bool,
    /// The running test printed its end marker, but no later output confirmed it.
    pub(crate) is_after_end_marker: bool,
    /// Failures that the framework reported in set-up and tear-down of suites.
    pub(crate) fixture_failures: Vec<FixtureFailure>,
    /// Failure that the framework reported outside any test and suite.
    pub(crate) outside_failure: Option<String>,
    /// The kernel's out-of-memory killer killed a process while this process ran.
    pub(crate) is_out_of_memory: bool,
    /// Dumps, stack traces and states captured while the process died or hung.
    pub(crate) evidence: Option<Box<TestDiagnostics>>,
    /// Stack trace at the process's own exit, if it may have exited in the middle of its tests.
    pub(crate) exit_stack: Option<String>,
    /// Crash location and signal.
    pub(crate) detail: Option<String>,
    /// Cause that the language's runtime reported.
    pub(crate) death_cause: Option<DeathCause>,
    /// The process died before it was asked to exit. A time limit that expired during crash capture is not
    /// the cause.
    pub(crate) is_own_death: bool,
    /// How the guard was lost, if it was. If so, nothing else is known about the end.
    pub(crate) guard_loss: Option<GuardLoss>,
    /// Files that the framework wrote in addition to its output.
    pub(crate) run_evidence: RunEvidence,
    /// First test with a doubtful result: from this test on, the output contains misplaced markers.
    pub(crate) doubtful_since: Option<usize>,
    /// Test that was not selected but began, according to the output.
    pub(crate) unselected_test: Option<String>,
    /// Test that was running when the process died.
    pub(crate) culprit: DeathCulprit,
    /// The end of the process has already been reported as a failure of a suite's tear-down.
    pub(crate) is_suite_failure_reported: bool,
    /// Suite whose set-up or tear-down was running.
    pub(crate) suite_phase: Option<SuitePhase>,
}

impl ProcessExitSummary {
    /// Returns the exit reason without a detail. A runtime that handles a signal, or ends its process by
    /// itself, exits with a code that says less than its report.
    pub(super) fn exit_reason(&self) -> ExitReason {
        let exit = exit_reason_of(&self.exit);
        let Some(cause) = self.death_cause.as_ref().filter(|_| exit.signal.is_none()) else { return exit };
        let code = exit.code.filter(|_| cause.signal.is_none());
        ExitReason { signal: cause.signal.clone(), code, runtime: cause.runtime, ..exit }
    }

    /// Treats the end of a server that we ended as its own successful exit, unless it crashed.
    pub(super) fn accept_server_end(&mut self) {
        self.guard_loss = None;
        let is_ended = |signal| [Signal::TERM.0, Signal::KILL.0].contains(&signal);
        if self.exit.signal.is_none_or(is_ended) {
            (self.exit.signal, self.exit.code) = (None, Some(0));
            self.is_explained = self.outside_failure.is_none();
            self.is_own_death = false;
        }
    }
}

#[derive(Debug)]
pub(crate) struct OutputChunk<'a> {
    /// Events from standard output; drained by the batch.
    pub(crate) events: &'a mut Vec<TranscriptEvent>,
    /// Output since the last chunk that is not part of any event, read after the events.
    pub(crate) outputs: RawOutputs<'a>,
    pub(crate) now: ClockReading,
}

/// Process output outside the events: standard error, and standard output if the framework reports on its own
/// channel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawOutputs<'a> {
    pub(crate) stdout: &'a [u8],
    pub(crate) stderr: &'a [u8],
}

impl RawOutputs<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}
