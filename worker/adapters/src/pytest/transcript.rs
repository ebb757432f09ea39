//! Parser of the plugin's reports during a run.

use heeler_core::SetUpProgress;
use heeler_protocol::control::ListedTest;

use crate::{
    SuitePhase, TranscriptEvent, TranscriptParser,
    json_reports::{
        dialogue::ReportDialogue,
        lines::ReportLineReader,
        message::{self, ReportLine},
        outputs::DividedOutputs,
    },
};

/// After this many consecutive empty reads, the parser expects no more fences.
const EMPTY_READS: u32 = 2;

/// Parser of one process's reports. All tests of a batch are in one request, because pytest collects their
/// files together and module fixtures live until the end of the request. Later batches are sent as further
/// requests.
pub(super) struct PytestParser {
    dialogue: ReportDialogue,
    lines: ReportLineReader,
    outputs: DividedOutputs,
    set_ups: Vec<(String, SetUpProgress)>,
    /// Fixtures whose tear-down is running. One tear-down may start another.
    tear_downs: Vec<String>,
    /// Failure of a session fixture after the last test.
    session_failure: Option<String>,
    /// The session has ended, including the tear-down of its fixtures.
    is_stopped: bool,
    /// Number of consecutive reads without output since all tests of the process ended.
    empty_reads: u32,
    has_asked_to_stop: bool,
}

impl PytestParser {
    /// Creates the parser for a process that runs these tests.
    pub(super) fn new(tests: &[&ListedTest]) -> Self {
        Self {
            dialogue: ReportDialogue::new(selectors(tests), usize::MAX),
            lines: ReportLineReader::default(),
            outputs: DividedOutputs::default(),
            set_ups: Vec::new(),
            tear_downs: Vec::new(),
            session_failure: None,
            is_stopped: false,
            empty_reads: 0,
            has_asked_to_stop: false,
        }
    }

    /// Handles a report.
    fn on_report(&mut self, report: &ReportLine) {
        match report.kind() {
            "hello" => self.outputs.set_nonce(&report.text("fence").unwrap_or_default()),
            "stopped" => self.is_stopped = true,
            "set-up" => {
                let progress = match report.text("state").as_deref() {
                    Some("begun") => SetUpProgress::Begun,
                    Some("done") => SetUpProgress::Done,
                    _ => SetUpProgress::Failed,
                };
                self.set_ups.extend(report.text("fixture").map(|fixture| (fixture, progress)));
            }
            "tear-down" => {
                let Some(fixture) = report.text("fixture") else { return };
                if report.text("state").as_deref() == Some("begun") {
                    self.tear_downs.push(fixture);
                } else {
                    self.tear_downs.retain(|standing| *standing != fixture);
                }
            }
            "failure" => {
                let message = report.text("message").unwrap_or_default();
                let text = [Some(message), report.text("stack")].into_iter().flatten().collect::<Vec<_>>();
                self.session_failure.get_or_insert(text.join("\n"));
            }
            kind => {
                let mut events = Vec::new();
                // Ignore the next request: all tests were in one request, so it could only be the request to
                // stop, and more tests may still be added. The plugin is silent in forked copies, so reports
                // need no writer.
                self.dialogue.on_report_line(report, None, &mut events);
                let fence = report.fence();
                for event in events {
                    self.outputs.push_event(fence, event);
                }
                if kind == "done" {
                    self.outputs.push_done(fence);
                }
            }
        }
    }
}

/// Returns the tests as named in requests.
fn selectors(tests: &[&ListedTest]) -> Vec<String> {
    tests.iter().map(|test| test.selector.clone().unwrap_or_else(|| test.name.clone())).collect()
}

impl TranscriptParser for PytestParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.dialogue.request()
    }

    fn on_channel(&mut self, chunk: &[u8], _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        for report in self.lines.read(chunk) {
            match report {
                Ok(report) => self.on_report(&report),
                Err(fault) => self.dialogue.record_fault(fault),
            }
        }
        Vec::new()
    }

    fn take_set_ups(&mut self) -> Vec<(String, SetUpProgress)> {
        std::mem::take(&mut self.set_ups)
    }

    fn may_be_in_tear_down(&self) -> bool {
        !self.tear_downs.is_empty()
    }

    fn suite_phase(&self) -> Option<SuitePhase> {
        let fixture = self.tear_downs.last()?.clone();
        Some(match self.dialogue.is_complete() {
            true => SuitePhase::AfterTests { suite: fixture },
            false => SuitePhase::FixtureTearDown { fixture },
        })
    }

    fn takes_more_tests(&self) -> bool {
        self.dialogue.takes_more_tests() && !self.outputs.has_waiting_reports()
    }

    fn add_tests(&mut self, tests: &[&ListedTest], _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.dialogue.add_tests(selectors(tests))
    }

    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        // The plugin writes fences before the reports that follow them, and outputs are read after the
        // reports.
        let is_drained = self.dialogue.is_complete() && stdout.is_empty() && stderr.is_empty();
        self.empty_reads = if is_drained { self.empty_reads + 1 } else { 0 };
        if self.empty_reads >= EMPTY_READS {
            self.outputs.expect_no_fences();
        }
        self.outputs.push_outputs(stdout, stderr);
        self.outputs.pass_on(events);
        true
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        self.outputs.finish(events);
    }

    fn closing_request(&mut self) -> Vec<u8> {
        if std::mem::replace(&mut self.has_asked_to_stop, true) { Vec::new() } else { message::stop() }
    }

    fn on_exit(&mut self, code: i32, _events: &mut Vec<TranscriptEvent>) {
        // A session that exits with code 0 during its tear-down did not end properly.
        if code == 0 && self.is_complete() && !self.is_stopped {
            let text = "the process exited with code 0 before the end of its session, perhaps in the tear-down of a \
                        fixture";
            self.session_failure.get_or_insert(text.to_owned());
        }
    }

    fn is_over(&self) -> bool {
        // Until the last ends are emitted, more tests may still be added.
        self.is_complete() && !self.outputs.has_waiting_reports()
    }

    fn is_complete(&self) -> bool {
        self.dialogue.is_complete()
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.is_stopped && self.outside_failure().is_none()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.dialogue.fault().or(self.session_failure.as_deref())
    }
}
