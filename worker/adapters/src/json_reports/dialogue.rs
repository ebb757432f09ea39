//! The dialogue of a run: requests one batch after the other, and turns the reports of their tests into
//! events.

use std::{ops::Range, time::Duration};

use heeler_core::Failure;

use super::message::{self, ReportLine};
use crate::{FrameworkResult, FrameworkVerdict, OutputStream, TestPart, TranscriptEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    Waiting,
    Running,
    Ended,
}

/// The tests of one process, and what it has reported of them.
#[derive(Debug)]
pub(crate) struct ReportDialogue {
    /// As requests name them.
    tests: Vec<String>,
    states: Vec<ReportedState>,
    /// Tests of the current request.
    requested: Range<usize>,
    /// Tests of one request.
    request_size: usize,
    is_complete: bool,
    /// The first error of the program's reports.
    fault: Option<String>,
}

impl ReportDialogue {
    /// Returns the dialogue about these tests, at most `request_size` of them in one request.
    pub(crate) fn new(tests: Vec<String>, request_size: usize) -> Self {
        let requested = 0..tests.len().min(request_size);
        let states = vec![ReportedState::Waiting; tests.len()];
        Self { tests, states, requested, request_size, is_complete: false, fault: None }
    }

    /// Returns whether every test was requested, and the last request is done.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the first error of the program's reports.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the current request.
    pub(crate) fn request(&self) -> Vec<u8> {
        message::run(&self.tests[self.requested.clone()], self.tests.len() == 1)
    }

    /// Returns whether every test has ended, the last request is done, and no report was in error.
    pub(crate) fn takes_more_tests(&self) -> bool {
        let has_ended = |state: &ReportedState| *state == ReportedState::Ended;
        self.is_complete && self.fault.is_none() && self.states.iter().all(has_ended)
    }

    /// Adds tests after the last request; returns the request for them.
    pub(crate) fn add_tests(&mut self, tests: Vec<String>) -> Vec<u8> {
        let first = self.tests.len();
        self.tests.extend(tests);
        self.states.resize(self.tests.len(), ReportedState::Waiting);
        self.requested = first..self.tests.len().min(first.saturating_add(self.request_size));
        self.is_complete = false;
        self.request()
    }

    /// Handles a report; returns the next request.
    pub(crate) fn on_report_line(
        &mut self,
        report: &ReportLine,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        match report.kind() {
            "done" => return self.on_done(),
            "begin" | "end" | "part" | "out" | "file" => self.on_report(report, events),
            _ => {}
        }
        Vec::new()
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

    fn on_report(&mut self, report: &ReportLine, events: &mut Vec<TranscriptEvent>) {
        let place = report.index().and_then(|index| self.requested.start.checked_add(index));
        let Some(place) = place.filter(|place| self.requested.contains(place)) else {
            return self.record_fault(format!("{:?} of a test that was not requested", report.kind()));
        };
        let kind = report.kind();
        match (kind, self.states[place]) {
            ("begin", ReportedState::Waiting) => {
                self.states[place] = ReportedState::Running;
                events.push(TranscriptEvent::Begun { place });
            }
            ("end", ReportedState::Running) => match verdict(report) {
                Some(verdict) => {
                    self.states[place] = ReportedState::Ended;
                    events.push(TranscriptEvent::Ended { place, verdict });
                }
                None => self.record_fault(format!("{:?} ends in an unknown state", self.tests[place])),
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
                _ => {
                    self.record_fault(format!("\"out\" of {:?} names neither out nor err", self.tests[place]))
                }
            },
            ("file", ReportedState::Running) => match report.text("path") {
                // The directory of the process is not known here.
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

    /// Records an error of the program; the first one is kept.
    pub(crate) fn record_fault(&mut self, fault: String) {
        self.fault.get_or_insert_with(|| format!("its reports are in error: {fault}"));
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
