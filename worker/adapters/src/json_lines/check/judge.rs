//! Finds the rules that a conversation breaks. Only the first break in an answer to a run counts, because
//! later ones are often consequences.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use super::{
    super::adapter::JsonLines,
    conversation::{CheckConversation, CheckMoment, ExpectedReply, shown},
    reader::SeenReport,
    rules::{BrokenRule, CheckRule},
};
use crate::json_reports::message::{RECORD_START, ReportLine};

/// Name of a member, and the check of a value that is not null.
type MemberRule = (&'static str, fn(&Value) -> bool);

/// Progress of a requested test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JudgedTest {
    Waiting,
    Running,
    /// The test ended with this state.
    Ended(String),
}

/// A request to run tests, and their progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JudgedRunRequest {
    pub(super) tests: Vec<String>,
    pub(super) progress: Vec<JudgedTest>,
    is_faulty: bool,
}

/// Findings of a conversation.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) broken: Vec<BrokenRule>,
    /// Ids of a completed listing.
    pub(super) listed: Option<Vec<String>>,
    /// Listed tests that may run.
    pub(super) runnable: Vec<String>,
    pub(super) runs: Vec<JudgedRunRequest>,
    /// A part, an output or a file was reported.
    pub(super) has_details: bool,
    pub(super) fence: Option<String>,
    /// An expected reply did not arrive.
    pub(super) is_unanswered: bool,
    pub(super) has_no_exit: bool,
}

impl Judgement {
    /// Returns the tests that were still running at the end of the conversation.
    pub(super) fn left_running(&self) -> Vec<&str> {
        let left = self.runs.iter().flat_map(|run| run.tests.iter().zip(&run.progress));
        left.filter(|(_, progress)| **progress == JudgedTest::Running).map(|(id, _)| id.as_str()).collect()
    }
}

enum OpenRequest {
    List,
    /// Index in `Judgement::runs`.
    Run(usize),
}

struct ConversationJudge<'a> {
    conversation: &'a CheckConversation,
    carrier: JsonLines,
    found: Judgement,
    /// Bytes of an incomplete request line.
    unsent: Vec<u8>,
    open: VecDeque<OpenRequest>,
    last_sent: String,
    offered_version: u64,
    has_reported: bool,
    has_stopped: bool,
    ids: Vec<String>,
    last_fence: u64,
}

/// Returns the findings of a conversation.
pub(super) fn judge(conversation: &CheckConversation, carrier: JsonLines) -> Judgement {
    let mut judge = ConversationJudge {
        conversation,
        carrier,
        found: Judgement::default(),
        unsent: Vec::new(),
        open: VecDeque::new(),
        last_sent: "nothing".to_owned(),
        offered_version: 1,
        has_reported: false,
        has_stopped: false,
        ids: Vec::new(),
        last_fence: 0,
    };
    for (place, moment) in conversation.moments.iter().enumerate() {
        match moment {
            CheckMoment::Sent(bytes) => judge.on_sent(bytes),
            CheckMoment::Reported(report) => judge.on_report(report),
            CheckMoment::NoReply(reply) => judge.on_no_reply(*reply, place),
            CheckMoment::EndedBefore(reply) => judge.on_ended_before(*reply),
            CheckMoment::RequestsEnded => judge.last_sent = "the end of input".to_owned(),
            CheckMoment::NoExit => judge.on_no_exit(),
        }
        if judge.found.is_unanswered {
            break;
        }
    }
    judge.on_end();
    judge.found
}

impl ConversationJudge<'_> {
    fn broken(&mut self, rule: CheckRule, came: impl Into<String>, expected: impl Into<String>) {
        let sent = self.last_sent.clone();
        self.found.broken.push(BrokenRule { rule, sent, came: came.into(), expected: expected.into() });
    }

    fn on_sent(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        while let Some(end) = self.unsent.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unsent.drain(..=end).collect();
            let request: Value = serde_json::from_slice(&line).unwrap_or_default();
            self.last_sent = shown(&line);
            self.offered_version = request["v"].as_u64().unwrap_or(self.offered_version);
            match request["k"].as_str() {
                Some("list") => self.open.push_back(OpenRequest::List),
                Some("run") => {
                    let tests: Vec<String> =
                        ReportLine::parse(&line).map(|run| run.texts("tests")).unwrap_or_default();
                    let progress = vec![JudgedTest::Waiting; tests.len()];
                    self.open.push_back(OpenRequest::Run(self.found.runs.len()));
                    self.found.runs.push(JudgedRunRequest { tests, progress, is_faulty: false });
                }
                Some("stop") => self.has_stopped = true,
                _ => {}
            }
        }
    }

    fn on_report(&mut self, seen: &SeenReport) {
        let is_first = !std::mem::replace(&mut self.has_reported, true);
        if seen.is_too_long {
            let came = format!(
                "a line longer than 1 MiB, starting with {}",
                shown(&seen.line[..seen.line.len().min(80)])
            );
            return self.broken(CheckRule::LineLength, came, "lines of at most 1 MiB");
        }
        let Some(report) = seen.parse() else {
            // On standard output, a test may write any byte.
            let is_output = self.carrier == JsonLines::StandardStreams
                && matches!(self.open.front(), Some(OpenRequest::Run(_)));
            if is_output {
                return;
            }
            return self.broken(CheckRule::Json, shown(&seen.line), "one JSON object per line");
        };
        self.last_fence = self.last_fence.max(report.fence().unwrap_or_default());
        let line = shown(&seen.line);
        match report.kind() {
            "hello" => self.on_hello(&report, is_first, &line),
            "test" | "listed" => self.on_listing_report(&report, &line),
            "begin" | "end" | "part" | "out" | "file" | "done" => self.on_run_report(&report, &line),
            // Unknown kinds are ignored.
            _ => {}
        }
    }

    fn on_hello(&mut self, report: &ReportLine, is_first: bool, line: &str) {
        let expected =
            format!("\"hello\" as the first report, with a version from 1 to {}", self.offered_version);
        let version = report.member("v");
        let is_known = version.is_null()
            || version.as_u64().is_some_and(|version| (1..=self.offered_version).contains(&version));
        if !is_first || !is_known || !has_members(report, &[("name", is_text), ("fence", is_text)]) {
            return self.broken(CheckRule::Hello, line, expected);
        }
        let is_fenced = self.carrier == JsonLines::Channel;
        self.found.fence = report.text("fence").filter(|fence| is_fenced && !fence.is_empty());
    }

    fn on_listing_report(&mut self, report: &ReportLine, line: &str) {
        if !matches!(self.open.front(), Some(OpenRequest::List)) {
            let expected = "tests only after \"list\", and nothing after \"listed\"";
            return self.broken(CheckRule::ReportsOnRequest, line, expected);
        }
        if report.kind() == "listed" {
            self.open.pop_front();
            self.found.listed = Some(std::mem::take(&mut self.ids));
            return;
        }
        const MEMBERS: [MemberRule; 6] = [
            ("name", is_text),
            ("file", is_text),
            ("line", is_line_number),
            ("skip", is_text),
            ("broken", is_text),
            ("tags", is_text_list),
        ];
        match report.text("id").filter(|id| !id.is_empty()) {
            Some(id) if has_members(report, &MEMBERS) => {
                if self.ids.contains(&id) {
                    self.broken(CheckRule::UniqueIds, line, "a unique id");
                }
                if report.text("skip").is_none() && report.text("broken").is_none() && !self.ids.contains(&id)
                {
                    self.found.runnable.push(id.clone());
                }
                self.ids.push(id);
            }
            _ => {
                let expected = "\"id\" a string; if present, \"name\", \"file\", \"skip\" and \"broken\" strings, \
                                \"line\" a number from 1, \"tags\" a list of strings";
                self.broken(CheckRule::TestMembers, line, expected);
            }
        }
    }

    fn on_run_report(&mut self, report: &ReportLine, line: &str) {
        let Some(OpenRequest::Run(run)) = self.open.front() else {
            let expected =
                "\"begin\", \"end\" and \"done\" only during a \"run\", and nothing after \"done\"";
            return self.broken(CheckRule::ReportsOnRequest, line, expected);
        };
        let run = *run;
        if report.kind() == "done" {
            self.open.pop_front();
        }
        if self.found.runs[run].is_faulty {
            return;
        }
        let answer = &mut self.found.runs[run];
        let broken = if report.kind() == "done" { end_run(answer) } else { step_run(answer, report) };
        if let Some((rule, expected)) = broken {
            answer.is_faulty = true;
            return self.broken(rule, line, expected);
        }
        self.found.has_details |= matches!(report.kind(), "part" | "out" | "file");
    }

    /// Handles a missing reply. A running test may hang, which breaks no rule.
    fn on_no_reply(&mut self, reply: ExpectedReply, place: usize) {
        self.found.is_unanswered = true;
        let later = &self.conversation.moments[place..];
        let late = later.iter().find_map(|moment| match moment {
            CheckMoment::Reported(report) => Some(report),
            _ => None,
        });
        let limit = &self.conversation.limit;
        let none = format!("no further report within {limit}");
        match late {
            Some(report) => {
                let came =
                    format!("nothing within {limit}, then {} after the end of input", shown(&report.line));
                self.broken(CheckRule::AtOnce, came, "each report is flushed when it is written");
            }
            None => self.on_missing(reply, none),
        }
    }

    fn on_ended_before(&mut self, reply: ExpectedReply) {
        self.found.is_unanswered = true;
        let end = self.conversation.describe_end();
        self.on_missing(reply, end);
    }

    fn on_missing(&mut self, reply: ExpectedReply, came: String) {
        if reply == ExpectedReply::Listed {
            let misplaced = self.misplaced_report().filter(|_| !self.has_reported);
            return match misplaced {
                Some(line) => {
                    let came = format!("{line} on another stream, and no report on the channel");
                    let expected = "with HEELER_CHANNEL=3, reports on descriptor 3; with HEELER_CHANNEL=stdio, reports \
                                    on standard output, each after the byte 0x1E";
                    self.broken(CheckRule::Carrier, came, expected);
                }
                None if self.has_reported => self.broken(CheckRule::Listed, came, "{\"k\":\"listed\"}"),
                None => self.broken(CheckRule::Start, came, "an answer to the first request"),
            };
        }
        if !self.found.left_running().is_empty() || self.found.runs.last().is_some_and(|run| run.is_faulty) {
            return;
        }
        let is_waiting = |run: &JudgedRunRequest| {
            run.progress.contains(&JudgedTest::Waiting)
                && run.progress.iter().any(|one| *one != JudgedTest::Waiting)
        };
        let rule = if self.found.runs.last().is_some_and(is_waiting) {
            CheckRule::AllTests
        } else {
            CheckRule::Done
        };
        self.broken(rule, came, "an \"end\" for each requested test, and {\"k\":\"done\"}");
    }

    /// Returns a report on the wrong stream, where Heeler does not read it.
    fn misplaced_report(&self) -> Option<String> {
        let outputs = [&self.conversation.stdout, &self.conversation.stderr];
        let lines = outputs.into_iter().flat_map(|output| output.split(|byte| *byte == b'\n'));
        let mut lines = lines.map(|line| line.strip_prefix(&[RECORD_START]).unwrap_or(line));
        let is_report = |line: &&[u8]| {
            let kinds = ["hello", "test", "listed"];
            ReportLine::parse(line).is_some_and(|report| kinds.contains(&report.kind()))
        };
        lines.find(is_report).map(shown)
    }

    fn on_no_exit(&mut self) {
        self.found.has_no_exit = true;
        let came = format!("the process did not exit within {}", self.conversation.limit);
        if self.has_stopped {
            self.broken(CheckRule::Stop, came, "it exits with code 0");
        } else {
            self.broken(CheckRule::EndOfInput, came, "it exits");
        }
    }

    fn on_end(&mut self) {
        if self.found.is_unanswered || self.found.has_no_exit {
            return;
        }
        // Without waiting for the exit, the exit code is unknown.
        let has_exited = self.conversation.code.is_some() || self.conversation.signal.is_some();
        if self.has_stopped && has_exited && self.conversation.code != Some(0) {
            self.broken(CheckRule::Stop, self.conversation.describe_end(), "it exits with code 0");
        }
        let Some(fence) = self.found.fence.clone().filter(|_| self.last_fence > 0) else { return };
        for (name, output) in
            [("standard output", &self.conversation.stdout), ("standard error", &self.conversation.stderr)]
        {
            let numbers = fence_numbers(output, &fence);
            let expected: Vec<u64> = (1..=self.last_fence).collect();
            if !numbers.starts_with(&expected) {
                let came =
                    format!("fences {numbers:?} on {name}, but reports after fence {}", self.last_fence);
                let expected =
                    format!("the lines \"\\u001e{fence} 1\" to \"\\u001e{fence} {}\"", self.last_fence);
                return self.broken(CheckRule::Fence, came, expected);
            }
        }
    }
}

/// Handles the end of a run; returns the broken rule and the expectation.
fn end_run(answer: &JudgedRunRequest) -> Option<(CheckRule, String)> {
    for (id, progress) in answer.tests.iter().zip(&answer.progress) {
        match progress {
            JudgedTest::Running => {
                return Some((CheckRule::Done, format!("\"end\" of {id:?} before \"done\"")));
            }
            JudgedTest::Waiting => {
                return Some((
                    CheckRule::AllTests,
                    format!("\"begin\" and \"end\" of {id:?} before \"done\""),
                ));
            }
            JudgedTest::Ended(_) => {}
        }
    }
    None
}

/// Handles a report about a test; returns the broken rule and the expectation.
fn step_run(answer: &mut JudgedRunRequest, report: &ReportLine) -> Option<(CheckRule, String)> {
    // The report must name a test of the request.
    let index = report.index().filter(|index| *index < answer.tests.len());
    let Some(index) = index else {
        let expected = match answer.tests.len() {
            0 => "no report other than \"done\"".to_owned(),
            count => format!("\"i\" from 0 to {}", count - 1),
        };
        return Some((CheckRule::Selection, expected));
    };
    let id = &answer.tests[index];
    let progress = &mut answer.progress[index];
    let members_of_failure: &[MemberRule] = &[
        ("message", is_text),
        ("stack", is_text),
        ("actual", is_text),
        ("expected", is_text),
        ("file", is_text),
        ("line", is_line_number),
        ("ms", is_duration),
        ("failures", is_object_list),
    ];
    let wrong = |expected: &str| Some((CheckRule::ReportMembers, expected.to_owned()));
    // Begin and end come once each, in this order, with valid members.
    match (report.kind(), &progress) {
        ("begin", JudgedTest::Waiting) => {
            *progress = JudgedTest::Running;
            None
        }
        ("begin", _) => Some((CheckRule::BeginEnd, format!("one \"begin\" of {id:?}"))),
        ("end", JudgedTest::Running) => {
            let state = report.text("state").filter(|state| is_state(&Value::from(state.as_str())));
            let are_well = has_members(report, members_of_failure);
            let Some(state) = state.filter(|_| are_well) else {
                return wrong(
                    "\"state\" passed, failed or skipped; \"ms\" a number, \"line\" a number from 1, \"failures\" a \
                     list of objects, other members strings",
                );
            };
            *progress = JudgedTest::Ended(state);
            None
        }
        ("end", JudgedTest::Waiting) => {
            Some((CheckRule::BeginEnd, format!("\"begin\" of {id:?} before its \"end\"")))
        }
        ("end", _) => Some((CheckRule::BeginEnd, format!("one \"end\" of {id:?}"))),
        // Parts, outputs and files come between them.
        (kind, JudgedTest::Running) => {
            let are_well = match kind {
                "part" => {
                    !report.member("name").is_null()
                        && has_members(
                            report,
                            &[("name", is_text), ("state", is_state), ("message", is_text)],
                        )
                }
                "out" => {
                    matches!(report.text("s").as_deref(), Some("out" | "err"))
                        && report.member("t").is_string()
                }
                _ => {
                    report.text("path").is_some_and(|path| path.starts_with('/'))
                        && has_members(report, &[("what", is_text)])
                }
            };
            (!are_well).then(|| {
                wrong(match kind {
                    "part" => "\"name\" a string; \"state\", if present, passed, failed or skipped",
                    "out" => "\"s\" out or err, and \"t\" a string",
                    _ => "\"path\" an absolute path",
                })
            })?
        }
        (kind, _) => {
            Some((CheckRule::PartInTest, format!("\"{kind}\" of {id:?} between its \"begin\" and \"end\"")))
        }
    }
}

fn fence_numbers(output: &[u8], fence: &str) -> Vec<u64> {
    let text = String::from_utf8_lossy(output);
    let start = format!("{}{fence} ", char::from(RECORD_START));
    let behind = text.split(start.as_str()).skip(1);
    behind.filter_map(|rest| rest.split_once('\n')?.0.parse().ok()).collect()
}

fn has_members(report: &ReportLine, members: &[MemberRule]) -> bool {
    members.iter().all(|(name, is_right)| {
        let value = report.member(name);
        value.is_null() || is_right(value)
    })
}

fn is_text(value: &Value) -> bool {
    value.is_string()
}

fn is_state(value: &Value) -> bool {
    matches!(value.as_str(), Some("passed" | "failed" | "skipped"))
}

fn is_line_number(value: &Value) -> bool {
    value.as_u64().is_some_and(|line| line > 0 && u32::try_from(line).is_ok())
}

fn is_duration(value: &Value) -> bool {
    value.as_f64().is_some_and(|ms| ms >= 0.0)
}

fn is_text_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

fn is_object_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_object))
}

pub(super) fn without_repetitions(ids: &[String]) -> Vec<String> {
    let mut known = BTreeSet::new();
    ids.iter().filter(|id| known.insert(id.as_str())).cloned().collect()
}
