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

/// Number of empty reads after which fences cannot come any more.
const EMPTY_READS: u32 = 2;

/// The parser of one process's reports. All tests of a batch are in one request: pytest collects their files
/// together, and fixtures of modules live until its end. Further batches are further requests.
pub(super) struct PytestParser {
    dialogue: ReportDialogue,
    lines: ReportLineReader,
    outputs: DividedOutputs,
    set_ups: Vec<(String, SetUpProgress)>,
    /// Fixtures whose tear-down has begun; the last one by those before it.
    tear_downs: Vec<String>,
    /// The failure of a session's fixture after the last test.
    session_failure: Option<String>,
    /// The session has ended, after the tear-down of its fixtures.
    is_stopped: bool,
    /// Number of reads, one after the other, that found nothing in the outputs of a process whose tests have
    /// ended.
    empty_reads: u32,
    has_asked_to_stop: bool,
}

impl PytestParser {
    /// Returns the parser of a process that runs these tests.
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
                // All tests were in one request: what follows it would be the last one, to stop. Whether
                // there are further tests is known later.
                // In a forked copy the plugin is silent.
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

/// Returns the tests as requests name them.
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
        // Fences are written before the reports behind them, and outputs are read after the reports.
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
        // A tear-down of the session that exits with success has not ended well.
        if code == 0 && self.is_complete() && !self.is_stopped {
            let text = "the process exited with code 0 before the end of its session: in the tear-down of a fixture?";
            self.session_failure.get_or_insert(text.to_owned());
        }
    }

    fn is_over(&self) -> bool {
        // Before the last ends are passed on, it is not known whether the process takes further tests.
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
