//! Several tests that run in one process: what each of them has written, those that wait for others, and the
//! one in which the process has died.

use std::time::Duration;

use heeler_adapters::{DeathCulprit, OutputStream};
use heeler_protocol::control::LeasedTest;

use super::{
    RawOutputs, RunningBatch, RunningTest,
    held_tests::{EndedTest, HeldTest},
    verdict::TestOutputs,
};

impl RunningBatch {
    /// Returns whether a test is running that waits for no others.
    pub(super) fn has_active_test(&self) -> bool {
        self.running_tests.iter().any(|flight| !flight.is_paused())
    }

    /// Returns the running test and what it has written; of several, the one at its limit.
    pub(crate) fn running_test(&self) -> Option<(&LeasedTest, TestOutputs)> {
        let rank = |flight: &&RunningTest| (!flight.is_timed_out, flight.is_paused());
        let flight = self.running_tests.iter().min_by_key(rank)?;
        Some((&self.order.tests()[flight.place], flight.outputs()))
    }

    /// Returns the test in which the process has died, and what it has written.
    pub(crate) fn test_of_death(&self, culprit: DeathCulprit) -> Option<(&LeasedTest, TestOutputs)> {
        let DeathCulprit::Test(place) = culprit else { return self.running_test() };
        let running = self.running_tests.iter().find(|flight| flight.place == place);
        let outputs = running.map(RunningTest::outputs).or_else(|| self.held_tests.outputs_of(place));
        Some((&self.order.tests()[place], outputs.unwrap_or_default()))
    }

    /// Handles standard output. If several tests are running, any of them may have written it.
    pub(super) fn on_stdout(&mut self, bytes: &[u8]) {
        let is_shared = self.running_tests.iter().filter(|flight| !flight.is_paused()).count() > 1;
        let mut active = self.running_tests.iter_mut().filter(|flight| !flight.is_paused()).peekable();
        if active.peek().is_none() {
            return self.unattributed_output.push_stdout(bytes);
        }
        active.for_each(|flight| flight.push_outputs(RawOutputs { stdout: bytes, stderr: &[] }, is_shared));
    }

    /// Handles standard output of one of the running tests.
    pub(super) fn on_test_output(&mut self, place: usize, stream: OutputStream, bytes: &[u8]) {
        match (self.running_tests.iter_mut().find(|flight| flight.place == place), stream) {
            (Some(flight), stream) => flight.push_output(stream, bytes),
            (None, OutputStream::Output) => self.unattributed_output.push_stdout(bytes),
            (None, OutputStream::Error) => self.unattributed_output.push_stderr(bytes),
        }
    }

    /// Handles that a test waits until others have ended.
    pub(super) fn on_test_paused(&mut self, place: usize) {
        let now = self.now.running;
        if let Some(flight) = self.running_tests.iter_mut().find(|flight| flight.place == place) {
            flight.paused_since.get_or_insert(now);
            self.order.pause(place);
            self.idle_since = now;
        }
    }

    /// Handles that a test goes on that has waited: that time does not count.
    pub(super) fn on_test_resumed(&mut self, place: usize) {
        let now = self.now.running;
        if let Some(flight) = self.running_tests.iter_mut().find(|flight| flight.place == place)
            && let Some(since) = flight.paused_since.take()
        {
            let waited: Duration = now.saturating_sub(since);
            flight.started_at.running = flight.started_at.running.saturating_add(waited);
            flight.last_activity = now;
            self.order.resume(place);
        }
    }

    /// Returns the tests that wait for others to those that wait for a process: it did not end in them.
    pub(super) fn withdraw_paused_tests(&mut self) {
        let paused = self.running_tests.extract_if(.., |flight| flight.is_paused());
        for flight in paused {
            self.order.withdraw(flight.place);
        }
    }

    /// Takes back the end of a held test in which the process has died.
    pub(super) fn recall_culprit(&mut self, place: usize) {
        let Some(HeldTest { ended, .. }) = self.held_tests.take_test(place) else { return };
        let mut flight = RunningTest::with_limit(self.limits.output_bytes);
        let EndedTest { outputs, started_at, .. } = ended;
        (flight.place, flight.started_at) = (place, started_at);
        flight.stdout.push(outputs.stdout.as_bytes());
        flight.stderr.push(outputs.stderr.as_bytes());
        flight.parts = outputs.parts;
        self.order.reopen(place);
        self.running_tests.push(flight);
    }
}
