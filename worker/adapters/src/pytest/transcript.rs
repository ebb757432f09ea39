//! Parser of the plugin's reports during a run.

use crate::{
    TranscriptEvent, TranscriptParser,
    json_reports::{
        dialogue::ReportDialogue, lines::ReportLineReader, message::ReportLine, outputs::DividedOutputs,
    },
};

/// The parser of one process's reports. All tests of the process are in one request: pytest collects their
/// files together, and fixtures of modules live until its end.
pub(super) struct PytestParser {
    dialogue: ReportDialogue,
    lines: ReportLineReader,
    outputs: DividedOutputs,
    /// The failure of a session's fixture after the last test.
    session_failure: Option<String>,
}

impl PytestParser {
    /// Returns the parser of a process that runs the tests with these selectors.
    pub(super) fn new(selectors: Vec<String>) -> Self {
        Self {
            dialogue: ReportDialogue::new(selectors, usize::MAX),
            lines: ReportLineReader::default(),
            outputs: DividedOutputs::default(),
            session_failure: None,
        }
    }

    /// Handles a report; returns the next request.
    fn on_report(&mut self, report: &ReportLine) -> Vec<u8> {
        match report.kind() {
            "hello" => self.outputs.set_nonce(&report.text("fence").unwrap_or_default()),
            "failure" => {
                let message = report.text("message").unwrap_or_default();
                let text = [Some(message), report.text("stack")].into_iter().flatten().collect::<Vec<_>>();
                self.session_failure.get_or_insert(text.join("\n"));
            }
            kind => {
                let mut events = Vec::new();
                let request = self.dialogue.on_report_line(report, &mut events);
                let fence = report.fence();
                for event in events {
                    self.outputs.push_event(fence, event);
                }
                if kind == "done" {
                    self.outputs.push_done(fence);
                }
                return request;
            }
        }
        Vec::new()
    }
}

impl TranscriptParser for PytestParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.dialogue.request()
    }

    fn on_channel(&mut self, chunk: &[u8], _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        for report in self.lines.read(chunk) {
            match report {
                Ok(report) => request.extend(self.on_report(&report)),
                Err(fault) => self.dialogue.record_fault(fault),
            }
        }
        request
    }

    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        self.outputs.push_outputs(stdout, stderr);
        self.outputs.pass_on(events);
        true
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        self.outputs.finish(events);
    }

    fn is_complete(&self) -> bool {
        self.dialogue.is_complete()
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.outside_failure().is_none()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.dialogue.fault().or(self.session_failure.as_deref())
    }
}
