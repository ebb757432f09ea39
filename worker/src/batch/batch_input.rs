//! Input of a batch from its process: output, the end of the process, and what is due at a deadline.

use heeler_adapters::{DeathCulprit, FixtureFailure, SuitePhase, TranscriptEvent};
use heeler_core::GuardLoss;
use heeler_protocol::control::{ProcessExit, TestDiagnostics};
use heeler_sys::process::Signal;

use super::run_evidence::RunEvidence;
use crate::process::process_clock::ClockReading;

/// An action due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// None: the deadline has not passed.
    Nothing,
    /// Sample the process to see whether the system scheduled it;
    /// [`super::deadlines::Deadlines::on_idle_sample`] takes the answer.
    SampleProcess,
    /// Find out whether the held tests may be settled: [`super::RunningBatch::check_held_tests`].
    CheckHeldTests,
    /// Terminate the process.
    Terminate,
    /// End the process, a server that has answered its last request.
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
    /// The running test wrote its end marker, but no later output confirmed it.
    pub(crate) is_after_end_marker: bool,
    /// The failures that the framework reported in set-up and tear-down of suites.
    pub(crate) fixture_failures: Vec<FixtureFailure>,
    /// The failure that the framework reported outside any test and suite.
    pub(crate) outside_failure: Option<String>,
    /// The kernel's out-of-memory killer has killed a process while this one ran.
    pub(crate) is_out_of_memory: bool,
    /// Dumps, stacks and states captured while it died or hung.
    pub(crate) evidence: Option<Box<TestDiagnostics>>,
    /// Stack of its own exit, if that may have been in the middle of its tests.
    pub(crate) exit_stack: Option<String>,
    /// Where and by which signal it crashed.
    pub(crate) detail: Option<String>,
    /// It died before it was ordered to end: a limit that passed during the capture of the crash did not
    /// cause the end.
    pub(crate) is_own_death: bool,
    /// How its guard was lost, if it was: nothing else is known of its end then.
    pub(crate) guard_loss: Option<GuardLoss>,
    /// What the framework left behind beside its output.
    pub(crate) run_evidence: RunEvidence,
    /// The first test since which the output contains markers at a wrong place.
    pub(crate) doubtful_since: Option<usize>,
    /// A test that began, by the output, though it was not selected.
    pub(crate) unselected_test: Option<String>,
    /// In which test it died.
    pub(crate) culprit: DeathCulprit,
    /// The end of the process is reported as the tear-down of a suite.
    pub(crate) is_told_of_suite: bool,
    /// The suite whose set-up or tear-down was running.
    pub(crate) suite_phase: Option<SuitePhase>,
}

impl ProcessExitSummary {
    /// Lets the end of a server that was ended count as its own good end, unless it crashed.
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

/// Output from one read.
#[derive(Debug)]
pub(crate) struct OutputChunk<'a> {
    /// Events from the standard output; drained by the batch.
    pub(crate) events: &'a mut Vec<TranscriptEvent>,
    /// Output since the last chunk that is in no event, read after the events.
    pub(crate) outputs: RawOutputs<'a>,
    pub(crate) now: ClockReading,
}

/// Output of a process that no event carries: its standard error and, where it reports on a channel of its
/// own, its standard output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawOutputs<'a> {
    pub(crate) stdout: &'a [u8],
    pub(crate) stderr: &'a [u8],
}

impl RawOutputs<'_> {
    /// Returns whether there is no output.
    pub(crate) fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}
