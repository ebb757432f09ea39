//! Parser of a run: tracks which tests are running, from the markers in the output.
//!
//! ```text
//!            RUN                 end, of a test that runs by itself
//!  waiting ───────► running ────────────────────────────────────────► its end is not confirmed
//!                   │  ▲   ╲                                            │
//!             PAUSE ▼  │ CONT ╲ end, of a test that runs in parallel    ▼ the next marker
//!                   paused     ───────────────────────────────────────► ended
//! ```
//!
//! A test that panics first has the marker of an ordinary failure; then the process dies. After the end of a
//! test that ran alone, the next marker follows at once. With parallel tests, markers of other tests may
//! follow before the process dies; its standard error then names the test.

use std::collections::HashMap;

use heeler_core::Failure;
use heeler_protocol::control::ListedTest;

use super::{
    adapter::Go,
    death,
    log_entries::LogEntries,
    marker::{GoMarker, GoTestName},
    scanner::{Piece, Scanner},
};
use crate::{
    DeathCause, DeathCulprit, DeathEvidence, FrameworkResult, FrameworkVerdict, OutputStream, TestPart,
    TranscriptEvent, TranscriptParser,
};

/// Maximum size of the actual and expected output of an example, which follows its end marker.
const EXAMPLE_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoTestState {
    Waiting,
    Running,
    Paused,
    Ended,
}

#[derive(Debug)]
struct TestState {
    name: String,
    progress: GoTestState,
    is_parallel: bool,
    /// The test runs again after its end, for example because of `-test.cpu`.
    runs_again: bool,
}

/// An end marker that nothing has confirmed yet.
#[derive(Debug)]
struct UnconfirmedGoEnd {
    place: usize,
    verdict: FrameworkVerdict,
    /// Line of the marker; `None` once it was emitted as output.
    line: Option<Vec<u8>>,
    /// Output after the marker.
    rest: Vec<u8>,
    /// The framework has reported that the following output belongs to no test.
    is_left: bool,
}

impl UnconfirmedGoEnd {
    /// Returns whether this is the failure of an example.
    fn is_of_example(&self, tests: &[TestState]) -> bool {
        self.verdict.result == FrameworkResult::Failed && tests[self.place].name.starts_with("Example")
    }
}

/// The test or part that writes the following output.
#[derive(Debug)]
struct OutputWriter {
    place: usize,
    part: String,
}

/// Parser of the standard output of one process.
pub(super) struct GoParser {
    scanner: Scanner,
    run: GoRun,
}

/// State of the tests in one process.
struct GoRun {
    variant: Go,
    tests: Vec<TestState>,
    places: HashMap<String, usize>,
    /// Directory of the test files.
    directory: Option<String>,
    writer: Option<OutputWriter>,
    unconfirmed: Option<UnconfirmedGoEnd>,
    log: LogEntries,
    failed: u64,
    /// Whether the final line reports failed tests; `None` before the final line.
    final_line: Option<bool>,
    outside_failure: Option<String>,
    /// The first test that began without being selected.
    unselected: Option<String>,
    /// Markers appeared in a position where the framework writes none.
    is_doubtful: bool,
    culprit: DeathCulprit,
    death_cause: Option<DeathCause>,
}

impl GoParser {
    pub(super) fn new(variant: Go, tests: &[&ListedTest]) -> Self {
        let state = |test: &&ListedTest| TestState {
            name: test.name.clone(),
            progress: GoTestState::Waiting,
            is_parallel: false,
            runs_again: false,
        };
        let places = tests.iter().enumerate().map(|(place, test)| (test.name.clone(), place)).collect();
        let file = tests.iter().find_map(|test| test.file.as_deref());
        let directory =
            file.and_then(|file| file.rsplit_once('/')).map(|(directory, _)| directory.to_owned());
        Self {
            scanner: Scanner::new(variant),
            run: GoRun {
                variant,
                tests: tests.iter().map(state).collect(),
                places,
                directory,
                writer: None,
                unconfirmed: None,
                log: LogEntries::default(),
                failed: 0,
                final_line: None,
                outside_failure: None,
                unselected: None,
                is_doubtful: false,
                culprit: DeathCulprit::RunningTests,
                death_cause: None,
            },
        }
    }

    /// Returns the number of buffered output bytes.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        let end = self.run.unconfirmed.as_ref();
        let end = end.map_or(0, |end| end.rest.len() + end.line.as_ref().map_or(0, Vec::len));
        self.scanner.buffered_bytes() + self.run.log.kept_bytes() + end
    }
}

impl GoRun {
    /// Handles a piece of output; returns whether a marker is valid here.
    fn on_piece(&mut self, piece: Piece<'_>, events: &mut Vec<TranscriptEvent>) -> bool {
        // Output, and markers in the wrong position.
        let (marker, line, is_indented) = match piece {
            Piece::Output(bytes) => {
                self.on_output(bytes, events);
                return true;
            }
            Piece::Marker { marker, line, is_indented } => (marker, line, is_indented),
        };
        if !self.is_expected(&marker, is_indented) {
            self.on_unexpected(&marker, is_indented, events);
            return false;
        }
        self.log.end_line();
        // Valid markers. The framework continues, so most of them confirm a previous end.
        match marker {
            GoMarker::Run(name) => self.on_run(name, events),
            GoMarker::Pause(name) => {
                self.confirm_end(events);
                if let Some(place) = self.place_of_test(&name)
                    && self.tests[place].progress == GoTestState::Running
                {
                    self.tests[place].progress = GoTestState::Paused;
                    self.tests[place].is_parallel = true;
                    events.push(TranscriptEvent::Paused { place });
                }
                self.writer = None;
            }
            GoMarker::Continue(name) => {
                self.continue_after_end(Some(&name), events);
                if let Some(place) = self.place_of_test(&name)
                    && self.tests[place].progress == GoTestState::Paused
                {
                    self.tests[place].progress = GoTestState::Running;
                    events.push(TranscriptEvent::Resumed { place });
                }
                self.set_writer(&name);
            }
            GoMarker::Name(name) => {
                match &mut self.unconfirmed {
                    // A panicking example writes the marker of a failure and this marker, then dies.
                    Some(end) if name.is_none() && end.is_of_example(&self.tests) => end.is_left = true,
                    _ => self.continue_after_end(name.as_ref(), events),
                }
                self.writer = None;
                if let Some(name) = name {
                    self.set_writer(&name);
                }
            }
            GoMarker::End { name, result, duration } => {
                let verdict = FrameworkVerdict::new(result, duration);
                self.on_end(&name, verdict, line, events);
            }
            GoMarker::Final { has_failed } => {
                self.confirm_end(events);
                self.writer = None;
                self.final_line = Some(self.final_line == Some(true) || has_failed);
            }
            GoMarker::RaceOutside => {
                self.confirm_end(events);
                self.outside_failure.get_or_insert_with(|| "data race outside of any test".to_owned());
            }
        }
        true
    }

    /// Returns whether the framework can write this marker now. Any other marker is output, for example of
    /// another Go program.
    fn is_expected(&self, marker: &GoMarker, is_indented: bool) -> bool {
        let progress = |name: &GoTestName| Some(self.tests[*self.places.get(&name.test)?].progress);
        let is_open =
            |name: &GoTestName| matches!(progress(name), Some(GoTestState::Running | GoTestState::Paused));
        match marker {
            GoMarker::Run(name) if name.is_part() => !is_indented && (is_open(name) || self.runs_again(name)),
            GoMarker::Run(name) => !is_indented && progress(name).is_some(),
            GoMarker::Pause(name) | GoMarker::Continue(name) => !is_indented && progress(name).is_some(),
            GoMarker::Name(name) => name.as_ref().is_none_or(|name| progress(name).is_some()),
            GoMarker::End { name, .. } if name.is_part() => is_open(name) || self.runs_again(name),
            GoMarker::End { name, .. } => !is_indented && progress(name).is_some(),
            // While tests are running, these markers come from another program.
            GoMarker::Final { .. } | GoMarker::RaceOutside => !is_indented && !self.has_open_test(),
        }
    }

    /// Handles a marker in the wrong position: records the start of an unselected test. Without marker bytes,
    /// the marker may come from another program.
    fn on_unexpected(&mut self, marker: &GoMarker, is_indented: bool, events: &mut Vec<TranscriptEvent>) {
        if let GoMarker::Run(name) = marker
            && !name.is_part()
            && !is_indented
            && self.variant == Go::Framed
            && !self.has_open_test()
        {
            self.confirm_end(events);
            self.writer = None;
            self.unselected.get_or_insert_with(|| name.test.clone());
        }
    }

    fn runs_again(&self, name: &GoTestName) -> bool {
        self.places.get(&name.test).is_some_and(|place| self.tests[*place].runs_again)
    }

    /// Returns whether a test is running without an end marker.
    fn has_open_test(&self) -> bool {
        let ending = self.unconfirmed.as_ref().map(|end| end.place);
        let is_open = |(place, test): (usize, &TestState)| {
            matches!(test.progress, GoTestState::Running | GoTestState::Paused) && Some(place) != ending
        };
        self.tests.iter().enumerate().any(is_open)
    }

    /// Returns the index of the named test; `None` for a part.
    fn place_of_test(&self, name: &GoTestName) -> Option<usize> {
        self.places.get(&name.test).copied().filter(|_| !name.is_part())
    }

    fn set_writer(&mut self, name: &GoTestName) {
        let place = self.places.get(&name.test).copied();
        self.writer = place.map(|place| OutputWriter { place, part: name.part.clone() });
    }

    fn on_run(&mut self, name: GoTestName, events: &mut Vec<TranscriptEvent>) {
        self.continue_after_end(Some(&name), events);
        self.set_writer(&name);
        let Some(place) = self.places.get(&name.test).copied() else { return };
        if name.is_part() {
            let part = TestPart { name: name.part, result: None, message: None };
            events.push(TranscriptEvent::Part { place, part });
            return;
        }
        let test = &mut self.tests[place];
        match test.progress {
            GoTestState::Waiting => {
                test.progress = GoTestState::Running;
                events.push(TranscriptEvent::Begun { place });
            }
            // The program called `m.Run` again, or `-test.cpu` has several values.
            GoTestState::Ended => test.runs_again = true,
            GoTestState::Running | GoTestState::Paused => self.is_doubtful = true,
        }
    }

    fn on_end(
        &mut self,
        name: &GoTestName,
        verdict: FrameworkVerdict,
        line: &[u8],
        events: &mut Vec<TranscriptEvent>,
    ) {
        let Some(place) = self.places.get(&name.test).copied() else { return };
        // The result of a subtest is a part of its test's result.
        if name.is_part() {
            let message = if verdict.result == FrameworkResult::Failed {
                self.log.text_of_part(place, name)
            } else {
                self.log.take_part(place, name)
            };
            let message = message.filter(|_| verdict.result != FrameworkResult::Passed);
            let part = TestPart { name: name.part.clone(), result: Some(verdict.result), message };
            events.push(TranscriptEvent::Part { place, part });
            return;
        }
        // The test must be running. A failed repetition counts as a failure outside any test.
        match self.tests[place].progress {
            GoTestState::Running | GoTestState::Paused => {}
            GoTestState::Ended if self.tests[place].runs_again => {
                self.tests[place].runs_again = false;
                if verdict.result == FrameworkResult::Failed {
                    self.failed += 1;
                    let failure = format!("{} failed when repeated", name.test);
                    self.outside_failure.get_or_insert(failure);
                }
                return;
            }
            GoTestState::Ended | GoTestState::Waiting => {
                self.is_doubtful = true;
                return;
            }
        }
        // A second end marker of the same test replaces the first.
        match self.unconfirmed.take() {
            Some(end) if end.place == place => self.reject_end(end, events),
            before => {
                self.unconfirmed = before;
                self.confirm_end(events);
            }
        }
        self.unconfirmed = Some(UnconfirmedGoEnd {
            place,
            verdict,
            line: Some(line.to_vec()),
            rest: Vec::new(),
            is_left: false,
        });
        // The next marker of another test may come much later, so do not wait for it.
        if self.tests[place].is_parallel && self.variant == Go::Framed {
            self.confirm_end(events);
        }
    }

    /// Handles a marker of test `name` after an unconfirmed end: the end is rejected if the same test
    /// continues, and confirmed otherwise.
    fn continue_after_end(&mut self, name: Option<&GoTestName>, events: &mut Vec<TranscriptEvent>) {
        let Some(end) = self.unconfirmed.take() else { return };
        let same = name.and_then(|name| self.places.get(&name.test)).is_some_and(|place| *place == end.place);
        if same {
            self.reject_end(end, events);
        } else {
            self.unconfirmed = Some(end);
            self.confirm_end(events);
        }
    }

    /// Emits the end marker as output of the test.
    fn reject_end(&mut self, end: UnconfirmedGoEnd, events: &mut Vec<TranscriptEvent>) {
        if let Some(line) = end.line {
            events.push(test_output(end.place, line));
        }
    }

    fn confirm_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let Some(UnconfirmedGoEnd { place, mut verdict, rest, .. }) = self.unconfirmed.take() else { return };
        self.tests[place].progress = GoTestState::Ended;
        if self.writer.as_ref().is_some_and(|writer| writer.place == place) {
            self.writer = None;
        }
        let failures = self.log.take_test(place, self.directory.as_deref());
        match verdict.result {
            FrameworkResult::Failed => {
                self.failed += 1;
                failures.into_iter().for_each(|failure| verdict.push_failure(failure));
                if let Some(failure) = example_failure(&self.tests[place].name, &rest) {
                    verdict.push_failure(failure);
                }
            }
            FrameworkResult::Skipped => {
                verdict.reason = failures.into_iter().next_back().and_then(|failure| failure.message);
            }
            FrameworkResult::Passed | FrameworkResult::NotRun => {}
        }
        events.push(TranscriptEvent::Ended { place, verdict });
    }

    fn on_output(&mut self, bytes: &[u8], events: &mut Vec<TranscriptEvent>) {
        if let Some(end) = self.unconfirmed.as_mut().filter(|end| !end.is_left) {
            if end.is_of_example(&self.tests) {
                let room = EXAMPLE_BYTES.saturating_sub(end.rest.len());
                end.rest.extend_from_slice(&bytes[..bytes.len().min(room)]);
            } else if let Some(line) = end.line.take() {
                // The end marker may have been printed by the test.
                events.push(test_output(end.place, line));
            }
            let place = end.place;
            events.push(test_output(place, bytes.to_vec()));
            return;
        }
        if let Some(OutputWriter { place, part }) = &self.writer
            && self.tests[*place].progress != GoTestState::Ended
        {
            self.log.on_output(*place, part, bytes);
            events.push(test_output(*place, bytes.to_vec()));
            return;
        }
        let is_running = |test: &TestState| test.progress == GoTestState::Running;
        let mut running = self.tests.iter().enumerate().filter(|(_, test)| is_running(test));
        match (running.next(), running.next()) {
            (Some((place, _)), None) => {
                self.log.on_output(place, "", bytes);
                events.push(test_output(place, bytes.to_vec()));
            }
            (None | Some(_), _) => events.push(TranscriptEvent::Output(bytes.to_vec())),
        }
    }

    /// Returns the first test on a stack that may have died: it must have begun.
    fn test_on_stack(&self, functions: &[String]) -> Option<usize> {
        let places = functions.iter().filter_map(|function| self.places.get(function).copied());
        places.into_iter().find(|place| self.tests[*place].progress != GoTestState::Waiting)
    }
}

/// Reads the `got:` and `want:` output of an example.
fn example_failure(name: &str, text: &[u8]) -> Option<Failure> {
    let text = String::from_utf8_lossy(text);
    let rest = text.strip_prefix("got:\n").filter(|_| name.starts_with("Example"))?;
    let border = ["\nwant:\n", "\nwant (unordered):\n"];
    let (actual, expected) = border.iter().find_map(|border| rest.split_once(border))?;
    Some(Failure {
        message: Some("output differs".to_owned()),
        actual: Some(actual.to_owned()),
        expected: Some(expected.trim_end_matches('\n').to_owned()),
        ..Failure::default()
    })
}

impl TranscriptParser for GoParser {
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        let run = &mut self.run;
        self.scanner.read(chunk, &mut |piece| run.on_piece(piece, events));
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let rest = self.scanner.finish();
        if !rest.is_empty() {
            self.run.on_output(&rest, events);
        }
    }

    fn on_death(&mut self, evidence: &DeathEvidence<'_>, _events: &mut Vec<TranscriptEvent>) {
        let Some(report) = death::read(evidence.stderr) else { return };
        if let Some(place) = self.run.test_on_stack(&report.functions) {
            self.run.culprit = DeathCulprit::Test(place);
        }
        self.run.death_cause = Some(report.cause);
    }

    fn culprit(&self) -> DeathCulprit {
        self.run.culprit
    }

    fn death_cause(&self) -> Option<&DeathCause> {
        self.run.death_cause.as_ref()
    }

    /// Reports tests that were requested but not run, for example because a `TestMain` changed the selection.
    fn on_exit(&mut self, _code: i32, events: &mut Vec<TranscriptEvent>) {
        if self.run.final_line.is_none() || self.run.has_open_test() {
            return;
        }
        for (place, test) in self.run.tests.iter_mut().enumerate() {
            if test.progress == GoTestState::Waiting {
                test.progress = GoTestState::Ended;
                let reason = "not run by the program: requested, but no result was reported".to_owned();
                let verdict = FrameworkVerdict {
                    reason: Some(reason),
                    ..FrameworkVerdict::new(FrameworkResult::NotRun, None)
                };
                events.push(TranscriptEvent::Begun { place });
                events.push(TranscriptEvent::Ended { place, verdict });
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.run.final_line.is_some() && !self.run.has_open_test()
    }

    /// `TestMain` may use its own exit codes for failures.
    fn explains_exit(&self, code: i32) -> bool {
        let has_failed = self.run.failed > 0;
        let is_explained = match self.run.final_line {
            Some(false) => code == 0 && !has_failed,
            Some(true) => code != 0 && has_failed,
            None => false,
        };
        is_explained && self.run.outside_failure.is_none()
    }

    /// An unconfirmed failure does not count, because a panic also writes the marker of a failure.
    fn is_after_end_marker(&self) -> bool {
        let end = self.run.unconfirmed.as_ref();
        end.is_some_and(|end| end.verdict.result != FrameworkResult::Failed)
    }

    fn doubtful_since(&self) -> Option<usize> {
        self.run.is_doubtful.then_some(0)
    }

    fn unselected_test(&self) -> Option<&str> {
        self.run.unselected.as_deref()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.run.outside_failure.as_deref()
    }
}

/// Returns the event for output of a test. Go programs write both streams to standard output.
fn test_output(place: usize, bytes: Vec<u8>) -> TranscriptEvent {
    TranscriptEvent::TestOutput { place, stream: OutputStream::Output, bytes }
}
