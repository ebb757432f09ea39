//! The dialogue of a run: sends one request after the other and turns the reports of their tests into events.

use std::{ops::Range, time::Duration};

use heeler_core::Failure;

use super::message::{self, ReportLine};
use crate::{FrameworkResult, FrameworkVerdict, OutputStream, ReportWriter, TestPart, TranscriptEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    Waiting,
    Running,
    Ended,
}

/// The end of a test, reported by a process other than the process that reported its start. There are two
/// such processes: a child that runs one test for its parent, and a forked copy that returns from a test and
/// continues with the next one. The end counts only when a third report shows that the run continues
/// elsewhere.
#[derive(Debug)]
struct ProposedEnd {
    place: usize,
    verdict: FrameworkVerdict,
    by: ReportWriter,
}

/// The tests of one process and their reported state.
#[derive(Debug)]
pub(crate) struct ReportDialogue {
    /// Names of the tests in requests.
    tests: Vec<String>,
    states: Vec<ReportedState>,
    /// Processes that reported the start of each test, if known.
    beginners: Vec<Option<ReportWriter>>,
    /// Ends that are not confirmed.
    proposed: Vec<ProposedEnd>,
    /// Forked copies that continue the run. Their reports are ignored.
    copies: Vec<ReportWriter>,
    /// Tests in the current request.
    requested: Range<usize>,
    /// Maximum number of tests in one request.
    request_size: usize,
    is_complete: bool,
    /// Process that reported the end of the last request.
    done_by: Option<ReportWriter>,
    /// First error in the reports.
    fault: Option<String>,
}

impl ReportDialogue {
    /// Creates the dialogue about these tests, with at most `request_size` tests per request.
    pub(crate) fn new(tests: Vec<String>, request_size: usize) -> Self {
        let requested = 0..tests.len().min(request_size);
        Self {
            states: vec![ReportedState::Waiting; tests.len()],
            beginners: vec![None; tests.len()],
            proposed: Vec::new(),
            copies: Vec::new(),
            tests,
            requested,
            request_size,
            is_complete: false,
            done_by: None,
            fault: None,
        }
    }

    /// Returns whether all tests were requested and the last request is done.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether forked copies have continued the run.
    pub(crate) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Returns the first error in the reports.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub(crate) fn request(&self) -> Vec<u8> {
        message::run(&self.tests[self.requested.clone()], self.tests.len() == 1)
    }

    /// Returns whether all tests have ended, the last request is done, and no report was invalid.
    pub(crate) fn takes_more_tests(&self) -> bool {
        let has_ended = |state: &ReportedState| *state == ReportedState::Ended;
        self.is_complete && self.fault.is_none() && self.states.iter().all(has_ended)
    }

    /// Adds tests after the last request; returns the request for them.
    pub(crate) fn add_tests(&mut self, tests: Vec<String>) -> Vec<u8> {
        let first = self.tests.len();
        self.tests.extend(tests);
        self.states.resize(self.tests.len(), ReportedState::Waiting);
        self.beginners.resize(self.tests.len(), None);
        self.requested = first..self.tests.len().min(first.saturating_add(self.request_size));
        self.is_complete = false;
        self.request()
    }

    /// Handles a report and returns the next request. `writer` is the process that wrote the report, if
    /// known.
    pub(crate) fn on_report_line(
        &mut self,
        report: &ReportLine,
        writer: Option<ReportWriter>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        let kind = report.kind();
        if !matches!(kind, "done" | "begin" | "end" | "part" | "out" | "file") {
            return Vec::new();
        }
        if let Some(writer) = writer
            && self.is_of_copy(report, writer, events)
        {
            // Stop the copy, which would otherwise wait for a request while the process waits for the copy.
            return if kind == "done" { message::stop() } else { Vec::new() };
        }
        if kind == "done" {
            self.done_by = writer;
            return self.on_done();
        }
        self.on_report(report, writer, events);
        Vec::new()
    }

    /// Returns whether a report comes from a forked copy that continues another process's run. Confirms or
    /// drops the proposed ends that the report settles.
    fn is_of_copy(
        &mut self,
        report: &ReportLine,
        writer: ReportWriter,
        events: &mut Vec<TranscriptEvent>,
    ) -> bool {
        if self.copies.contains(&writer) {
            return true;
        }
        let kind = report.kind();
        let place = report.index().and_then(|index| self.requested.start.checked_add(index));
        let place = place.filter(|place| self.requested.contains(place));
        let is_beginner = |place: usize| self.beginners[place].is_none_or(|beginner| beginner == writer);
        let is_foreign_end = kind == "end" && place.is_some_and(|place| !is_beginner(place));
        let has_ended = place.is_some_and(|place| self.states[place] == ReportedState::Ended);
        let has_proposed = self.proposed.iter().any(|end| end.by == writer);
        let is_late = self.is_complete && self.done_by.is_some_and(|by| by != writer);
        if is_late || is_foreign_end && has_ended || has_proposed && matches!(kind, "begin" | "done") {
            self.copies.push(writer);
            return true;
        }
        for end in std::mem::take(&mut self.proposed) {
            if kind == "end" && place == Some(end.place) {
                // The process that began the test decides; the other process was its copy.
                self.copies.push(end.by);
            } else if end.by == writer {
                self.proposed.push(end);
            } else {
                self.states[end.place] = ReportedState::Ended;
                events.push(TranscriptEvent::Ended { place: end.place, verdict: end.verdict });
            }
        }
        false
    }

    fn on_done(&mut self) -> Vec<u8> {
        if self.is_complete {
            return Vec::new();
        }
        if let Some(open) = self.requested.clone().find(|place| self.states[*place] == ReportedState::Running)
        {
            self.record_fault(format!("\"done\" while {:?} was running", self.tests[open]));
        }
        self.requested =
            self.requested.end..self.tests.len().min(self.requested.end.saturating_add(self.request_size));
        if self.requested.is_empty() {
            self.is_complete = true;
            return message::stop();
        }
        self.request()
    }

    fn on_report(
        &mut self,
        report: &ReportLine,
        writer: Option<ReportWriter>,
        events: &mut Vec<TranscriptEvent>,
    ) {
        // The index counts within the current request.
        let place = report.index().and_then(|index| self.requested.start.checked_add(index));
        let Some(place) = place.filter(|place| self.requested.contains(place)) else {
            return self.record_fault(format!("{:?} of a test that was not requested", report.kind()));
        };
        // Each kind of report is valid in only one state of its test.
        let kind = report.kind();
        match (kind, self.states[place]) {
            ("begin", ReportedState::Waiting) => {
                self.states[place] = ReportedState::Running;
                self.beginners[place] = writer;
                events.push(TranscriptEvent::Begun { place });
            }
            ("end", ReportedState::Running) => match verdict(report) {
                Some(verdict) => {
                    if let (Some(by), Some(beginner)) = (writer, self.beginners[place])
                        && by != beginner
                    {
                        return self.proposed.push(ProposedEnd { place, verdict, by });
                    }
                    self.states[place] = ReportedState::Ended;
                    events.push(TranscriptEvent::Ended { place, verdict });
                }
                None => self.record_fault(format!("{:?} ends with an unknown state", self.tests[place])),
            },
            ("part", ReportedState::Running) => {
                let name = report.text("name").unwrap_or_default();
                let part = TestPart { name, result: result(report), message: report.text("message") };
                events.push(TranscriptEvent::Part { place, part });
            }
            ("out", ReportedState::Running) => match report.text("s").as_deref() {
                Some(stream @ ("out" | "err")) => events.push(TranscriptEvent::TestOutput {
                    place,
                    stream: if stream == "out" { OutputStream::Output } else { OutputStream::Error },
                    bytes: report.text("t").unwrap_or_default().into_bytes(),
                }),
                _ => self.record_fault(format!(
                    "\"out\" of {:?} has a stream other than out and err",
                    self.tests[place]
                )),
            },
            ("file", ReportedState::Running) => match report.text("path") {
                // Relative paths are rejected, because the working directory of the process is unknown here.
                Some(path) if path.starts_with('/') => {
                    let description = report.text("what").unwrap_or_else(|| "file of the test".to_owned());
                    events.push(TranscriptEvent::File { place, path, description });
                }
                _ => {
                    self.record_fault(format!("\"file\" of {:?} without an absolute path", self.tests[place]))
                }
            },
            (kind, _) => self.record_fault(format!("{kind:?} of {:?} at the wrong time", self.tests[place])),
        }
    }

    /// Records an error in the reports; only the first is kept.
    pub(crate) fn record_fault(&mut self, fault: String) {
        self.fault.get_or_insert_with(|| format!("invalid report: {fault}"));
    }
}

fn result(report: &ReportLine) -> Option<FrameworkResult> {
    match report.text("state")?.as_str() {
        "passed" => Some(FrameworkResult::Passed),
        "failed" => Some(FrameworkResult::Failed),
        "skipped" => Some(FrameworkResult::Skipped),
        _ => None,
    }
}

fn verdict(report: &ReportLine) -> Option<FrameworkVerdict> {
    let milliseconds = report.number("ms");
    let duration = milliseconds.and_then(|time| Duration::try_from_secs_f64(time / 1000.0).ok());
    let mut verdict = FrameworkVerdict::new(result(report)?, duration);
    if verdict.result == FrameworkResult::Failed {
        verdict.push_failure(failure(report));
        report.objects("failures").iter().map(failure).for_each(|one| verdict.push_failure(one));
    } else {
        verdict.reason = report.text("message");
    }
    Some(verdict)
}

fn failure(report: &ReportLine) -> Failure {
    Failure {
        message: report.text("message"),
        file: report.text("file"),
        line: report.line_number(),
        expected: report.text("expected"),
        actual: report.text("actual"),
        stack: report.text("stack"),
    }
}
