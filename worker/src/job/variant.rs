//! Reports the tests of a variant as one test. A variant passes if all its tests pass, and the first failure
//! decides it. Its only part is the failed test, or the test that was running when the process ended.

use std::sync::Arc;

use heeler_adapters::{
    Adapter, ConnectionInput, DeathCause, DeathEvidence, FixtureFailure, FrameworkResult, FrameworkVerdict,
    OutputStream, TestPart, TranscriptEvent, TranscriptParser,
};
use heeler_protocol::control::{ListedTest, TestVariant, WorkerLease};

/// Place of the variant, which is alone in its process.
const PLACE: usize = 0;

/// Returns the variant that a lease runs, if any.
pub(super) fn variant_of(lease: &WorkerLease) -> Option<Arc<TestVariant>> {
    match lease.tests.as_slice() {
        [only] => only.listed.variant.clone(),
        _ => None,
    }
}

pub(super) fn tests_of(variant: &TestVariant) -> Vec<&ListedTest> {
    variant.tests.iter().map(|test| &**test).collect()
}

/// Returns the parser of a process's reports: for the variant if there is one, otherwise for these tests.
pub(super) fn parser_of(
    adapter: &dyn Adapter,
    variant: Option<&TestVariant>,
    tests: &[&ListedTest],
) -> Box<dyn TranscriptParser + Send> {
    match variant {
        Some(variant) => {
            Box::new(VariantTranscript::new(adapter.transcript_parser(&tests_of(variant)), variant))
        }
        None => adapter.transcript_parser(tests),
    }
}

/// Converts a framework's reports about the tests of a variant into reports about the variant.
struct VariantTranscript {
    inner: Box<dyn TranscriptParser + Send>,
    /// Names of the tests in the framework.
    names: Vec<String>,
    /// Tests that have not ended.
    open: Vec<bool>,
    running: Option<usize>,
    is_decided: bool,
    /// Framework events not passed on yet.
    own: Vec<TranscriptEvent>,
}

impl VariantTranscript {
    fn new(inner: Box<dyn TranscriptParser + Send>, variant: &TestVariant) -> Self {
        let names: Vec<String> = variant.tests.iter().map(|test| test.name.clone()).collect();
        Self {
            inner,
            open: vec![true; names.len()],
            names,
            running: None,
            is_decided: false,
            own: Vec::new(),
        }
    }

    /// Passes on the events of the framework.
    fn pass_on(&mut self, events: &mut Vec<TranscriptEvent>) {
        for event in std::mem::take(&mut self.own) {
            if self.is_decided {
                return;
            }
            match event {
                TranscriptEvent::Begun { place } => self.running = Some(place),
                TranscriptEvent::Ended { place, verdict } => self.on_ended(place, verdict, events),
                TranscriptEvent::TestOutput { stream, bytes, .. } => {
                    events.push(TranscriptEvent::TestOutput { place: PLACE, stream, bytes });
                }
                TranscriptEvent::Output(_) | TranscriptEvent::ErrorOutput(_) | TranscriptEvent::Confirmed => {
                    events.push(event)
                }
                // The variant has its own limits, and parts and files of its tests are not needed.
                TranscriptEvent::Paused { .. }
                | TranscriptEvent::Resumed { .. }
                | TranscriptEvent::Part { .. }
                | TranscriptEvent::TimeLimit { .. }
                | TranscriptEvent::File { .. } => {}
            }
        }
    }

    fn on_ended(&mut self, place: usize, verdict: FrameworkVerdict, events: &mut Vec<TranscriptEvent>) {
        self.running = None;
        if let Some(open) = self.open.get_mut(place) {
            *open = false;
        }
        let is_failed = verdict.result == FrameworkResult::Failed;
        if is_failed {
            let message = verdict.failures.iter().find_map(|failure| failure.message.clone());
            self.report_part(place, Some(verdict.result), message, events);
        }
        if is_failed || self.open.iter().all(|is_open| !is_open) {
            self.is_decided = is_failed;
            let result = if is_failed { verdict.result } else { FrameworkResult::Passed };
            // The framework's duration covers one test only, but the variant runs several.
            let verdict = FrameworkVerdict { result, duration: None, ..verdict };
            events.push(TranscriptEvent::Ended { place: PLACE, verdict });
        } else {
            // Counts as output, so that a process of quiet tests does not become idle.
            let stream = OutputStream::Output;
            events.push(TranscriptEvent::TestOutput { place: PLACE, stream, bytes: Vec::new() });
        }
    }

    /// Reports the test that was still running when the output ended.
    fn report_running(&mut self, events: &mut Vec<TranscriptEvent>) {
        if let Some(place) = self.running.take().filter(|_| !self.is_decided) {
            self.report_part(place, None, None, events);
        }
    }

    fn report_part(
        &self,
        place: usize,
        result: Option<FrameworkResult>,
        message: Option<String>,
        events: &mut Vec<TranscriptEvent>,
    ) {
        if let Some(name) = self.names.get(place) {
            let part = TestPart { name: name.clone(), result, message };
            events.push(TranscriptEvent::Part { place: PLACE, part });
        }
    }
}

impl TranscriptParser for VariantTranscript {
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        self.inner.on_stdout(chunk, &mut self.own);
        self.pass_on(events);
    }

    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        // The process runs only the variant, so everything from its start belongs to the variant.
        events.push(TranscriptEvent::Begun { place: PLACE });
        let request = self.inner.opening_request(&mut self.own);
        self.pass_on(events);
        request
    }

    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let request = self.inner.on_channel(chunk, &mut self.own);
        self.pass_on(events);
        request
    }

    fn on_connection(
        &mut self,
        connection: usize,
        input: ConnectionInput<'_>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        let request = self.inner.on_connection(connection, input, &mut self.own);
        self.pass_on(events);
        request
    }

    fn on_death(&mut self, evidence: &DeathEvidence<'_>, events: &mut Vec<TranscriptEvent>) {
        self.inner.on_death(evidence, &mut self.own);
        self.pass_on(events);
        self.report_running(events);
    }

    fn death_cause(&self) -> Option<&DeathCause> {
        self.inner.death_cause()
    }

    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        let is_divided = self.inner.on_outputs(stdout, stderr, &mut self.own);
        self.pass_on(events);
        is_divided
    }

    fn cancel_request(&mut self, reason: &str) -> Vec<u8> {
        self.inner.cancel_request(reason)
    }

    fn closing_request(&mut self) -> Vec<u8> {
        self.inner.closing_request()
    }

    fn begin_no_more(&mut self) {
        // The variant has already begun, and may end.
    }

    fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        self.inner.on_output_end(&mut self.own);
        self.pass_on(events);
        self.report_running(events);
    }

    fn on_exit(&mut self, code: i32, events: &mut Vec<TranscriptEvent>) {
        self.inner.on_exit(code, &mut self.own);
        self.pass_on(events);
    }

    fn is_complete(&self) -> bool {
        self.is_decided || self.inner.is_complete()
    }

    fn explains_exit(&self, code: i32) -> bool {
        self.is_decided || self.inner.explains_exit(code)
    }

    fn is_decided(&self) -> bool {
        self.is_decided
    }

    fn is_after_end_marker(&self) -> bool {
        self.inner.is_after_end_marker()
    }

    fn doubtful_since(&self) -> Option<usize> {
        self.inner.doubtful_since().map(|_| PLACE)
    }

    fn unselected_test(&self) -> Option<&str> {
        self.inner.unselected_test()
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        self.inner.fixture_failures()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.inner.outside_failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A framework whose output has one event per line: `+0` begins a test, `.0` passes it, `!0` fails it.
    #[derive(Default)]
    struct Lines {
        is_ended: bool,
    }

    impl TranscriptParser for Lines {
        fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
            for line in std::str::from_utf8(chunk).unwrap().split_whitespace() {
                let place = line[1..].parse().unwrap();
                let end = |result| TranscriptEvent::Ended {
                    place,
                    verdict: FrameworkVerdict::new(result, Some(std::time::Duration::from_millis(3))),
                };
                events.push(match &line[..1] {
                    "+" => TranscriptEvent::Begun { place },
                    "." => end(FrameworkResult::Passed),
                    "-" => end(FrameworkResult::Skipped),
                    _ => end(FrameworkResult::Failed),
                });
            }
        }

        fn on_output_end(&mut self, _events: &mut Vec<TranscriptEvent>) {
            self.is_ended = true;
        }

        fn is_complete(&self) -> bool {
            false
        }

        fn explains_exit(&self, code: i32) -> bool {
            code == 0
        }
    }

    /// Returns the events of a variant of two tests in short form, and whether it is decided at the end.
    fn events_of(chunks: &[&str]) -> (Vec<String>, bool) {
        let test = |name: &str| Arc::new(ListedTest { name: name.to_owned(), ..ListedTest::default() });
        let variant = TestVariant { tests: vec![test("a"), test("b")], ..TestVariant::default() };
        let mut transcript = VariantTranscript::new(Box::new(Lines::default()), &variant);
        let mut events = Vec::new();
        transcript.opening_request(&mut events);
        for chunk in chunks {
            transcript.on_stdout(chunk.as_bytes(), &mut events);
        }
        transcript.on_output_end(&mut events);
        let word = |event: TranscriptEvent| match event {
            TranscriptEvent::TestOutput { place, bytes, .. } if bytes.is_empty() => {
                format!("sign of {place}")
            }
            TranscriptEvent::Begun { place } => format!("begun {place}"),
            TranscriptEvent::Ended { place, verdict } => {
                assert_eq!(verdict.duration, None);
                format!("{} {place}", verdict.result.as_str())
            }
            TranscriptEvent::Part { place, part } => {
                format!("part {} of {place}: {:?}", part.name, part.result)
            }
            other => format!("{other:?}"),
        };
        (events.into_iter().map(word).collect(), transcript.is_decided())
    }

    #[test]
    fn variant_passes_when_all_of_its_tests_have_ended_and_none_has_failed() {
        assert_eq!(
            events_of(&["+0 .0 +1", ".1"]),
            (vec!["begun 0".into(), "sign of 0".into(), "passed 0".into()], false)
        );
        assert_eq!(events_of(&["+0 .0 +1 -1"]).0, ["begun 0", "sign of 0", "passed 0"], "one was skipped");
        assert_eq!(events_of(&["+0 .0"]).0, ["begun 0", "sign of 0"], "one never began");
    }

    #[test]
    fn first_failure_decides_and_is_the_part() {
        let expected = ["begun 0", "part a of 0: Some(Failed)", "failed 0"];
        assert_eq!(events_of(&["+0 !0 +1 .1"]), (expected.map(str::to_owned).to_vec(), true));
        assert_eq!(events_of(&["+0 !0", "+1 !1"]).0, expected, "what follows is not asked for");
    }

    #[test]
    fn test_that_runs_at_the_end_of_the_output_is_the_part() {
        assert_eq!(
            events_of(&["+0 .0 +1"]),
            (vec!["begun 0".into(), "sign of 0".into(), "part b of 0: None".into()], false)
        );
        assert_eq!(events_of(&[]).0, ["begun 0"], "the process has ended before any test");
    }
}
