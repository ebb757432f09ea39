//! The result of a command: its exit code and the rules of CTest properties.

use std::time::Duration;

use heeler_core::Failure;
use heeler_protocol::control::CommandRules;

use super::output::{LineMatches, OutputMatches};
use crate::{FrameworkResult, FrameworkVerdict, TranscriptEvent, TranscriptParser};

/// Parser of one command's output. The whole text is test output; the result is decided at the exit.
pub(super) struct CommandParser {
    rules: CommandRules,
    passes: OutputMatches,
    fails: OutputMatches,
    skips: OutputMatches,
    /// Set until the first match.
    timer: Option<(LineMatches, Duration)>,
    state: CommandState,
}

/// Progress of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandState {
    /// The batch has no test.
    Empty,
    Waiting,
    Running,
    Exited,
}

impl CommandParser {
    /// Returns the parser. `tests` is the number of tests in the batch; a process runs at most one.
    pub(super) fn new(tests: usize, rules: CommandRules) -> Self {
        let timer = rules.timeout_after_match.as_ref();
        Self {
            passes: OutputMatches::new(&rules.pass_expressions),
            fails: OutputMatches::new(&rules.fail_expressions),
            skips: OutputMatches::new(&rules.skip_expressions),
            timer: timer
                .map(|rule| (LineMatches::new(&rule.expressions), Duration::from_millis(rule.timeout_ms))),
            rules,
            state: if tests == 0 { CommandState::Empty } else { CommandState::Waiting },
        }
    }

    /// Begins the test when the process starts.
    fn begin(&mut self, events: &mut Vec<TranscriptEvent>) {
        if self.state == CommandState::Waiting {
            self.state = CommandState::Running;
            events.push(TranscriptEvent::Begun { place: 0 });
        }
    }
}

impl TranscriptParser for CommandParser {
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.begin(events);
        Vec::new()
    }

    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        self.begin(events);
        for matches in [&mut self.passes, &mut self.fails, &mut self.skips] {
            matches.push(chunk);
        }
        let mut rest = chunk;
        while let Some((lines, limit)) = self.timer.as_mut().filter(|_| !rest.is_empty()) {
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(end);
            events.push(TranscriptEvent::Output(line.to_vec()));
            rest = after;
            if lines.push(line) {
                events.push(TranscriptEvent::TimeLimit { place: 0, limit: *limit });
                self.timer = None;
            }
        }
        if !rest.is_empty() {
            events.push(TranscriptEvent::Output(rest.to_vec()));
        }
    }

    fn on_output_end(&mut self, _events: &mut Vec<TranscriptEvent>) {
        for matches in [&mut self.passes, &mut self.fails, &mut self.skips] {
            matches.end();
        }
    }

    fn on_exit(&mut self, code: i32, events: &mut Vec<TranscriptEvent>) {
        self.begin(events);
        if self.state != CommandState::Running || self.rules.early_exit_codes.contains(&code) {
            return;
        }
        self.state = CommandState::Exited;
        let matched = MatchedRules {
            passes: self.passes.matched(),
            fails: self.fails.matched(),
            skips: self.skips.matched(),
        };
        events.push(TranscriptEvent::Ended { place: 0, verdict: decide(&self.rules, matched, code) });
    }

    fn is_complete(&self) -> bool {
        self.state == CommandState::Exited
    }

    fn explains_exit(&self, _code: i32) -> bool {
        self.state == CommandState::Exited
    }
}

/// Expressions that matched the output of the command.
#[derive(Debug, Clone, Copy, Default)]
struct MatchedRules<'a> {
    passes: Option<&'a str>,
    fails: Option<&'a str>,
    skips: Option<&'a str>,
}

/// Returns the result of a command, decided like CTest.
fn decide(rules: &CommandRules, matched: MatchedRules<'_>, code: i32) -> FrameworkVerdict {
    let skipped = matched.skips.map(|text| format!("output matches SKIP_REGULAR_EXPRESSION {text:?}"));
    let skipped = skipped.or_else(|| {
        (rules.skip_code == Some(code)).then(|| format!("exited with code {code}, which means skipped"))
    });
    if skipped.is_some() {
        return FrameworkVerdict { reason: skipped, ..FrameworkVerdict::new(FrameworkResult::Skipped, None) };
    }
    let is_judged = !rules.pass_expressions.is_empty();
    let failure = if is_judged && matched.passes.is_none() {
        let texts: Vec<_> = rules.pass_expressions.iter().map(|text| format!("{text:?}")).collect();
        Some(format!("output does not match PASS_REGULAR_EXPRESSION {}", texts.join(" or ")))
    } else if let Some(text) = matched.fails {
        Some(format!("output matches FAIL_REGULAR_EXPRESSION {text:?}"))
    } else if code != 0 && !is_judged {
        Some(format!("exited with code {code}"))
    } else {
        None
    };
    let failure = match (failure, rules.will_fail) {
        (Some(_), true) => None,
        (None, true) => Some(format!("passed (exit code {code}), but WILL_FAIL expects it to fail")),
        (failure, false) => failure,
    };
    match failure {
        None => FrameworkVerdict::new(FrameworkResult::Passed, None),
        Some(message) => {
            let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
            verdict.push_failure(Failure { message: Some(message), ..Failure::default() });
            verdict
        }
    }
}

#[cfg(test)]
mod tests {
    use FrameworkResult::{Failed, Passed, Skipped};
    use heeler_protocol::control::TimeoutAfterMatch;

    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn run(rules: &CommandRules, output: &str, code: i32) -> Vec<TranscriptEvent> {
        let (mut parser, mut events) = (CommandParser::new(1, rules.clone()), Vec::new());
        assert!(parser.opening_request(&mut events).is_empty());
        for chunk in output.as_bytes().chunks(3) {
            parser.on_stdout(chunk, &mut events);
        }
        parser.on_output_end(&mut events);
        assert!(!parser.is_complete() && !parser.explains_exit(code));
        parser.on_exit(code, &mut events);
        assert!(parser.is_complete() && parser.explains_exit(code));
        events
    }

    fn verdict(rules: &CommandRules, output: &str, code: i32) -> (FrameworkResult, String) {
        let events = run(rules, output, code);
        assert_eq!(events[0], TranscriptEvent::Begun { place: 0 });
        let Some(TranscriptEvent::Ended { place: 0, verdict }) = events.last() else { panic!("{events:?}") };
        let message = verdict.failures.first().and_then(|failure| failure.message.clone());
        (verdict.result, message.or(verdict.reason.clone()).unwrap_or_default())
    }

    /// Results of CTest 3.25 for a project with these properties.
    #[test]
    fn rules_decide_as_those_of_ctest() {
        let plain = CommandRules::default();
        let will_fail = CommandRules { will_fail: true, ..plain.clone() };
        let skip_code = CommandRules { skip_code: Some(77), ..plain.clone() };
        let pass = CommandRules { pass_expressions: texts(&["well", "good"]), ..plain.clone() };
        let fail = CommandRules { fail_expressions: texts(&["bad"]), ..plain.clone() };
        let skip = CommandRules { skip_expressions: texts(&["^SKIP"]), ..plain.clone() };
        let both = CommandRules { pass_expressions: texts(&["well"]), ..fail.clone() };
        let will = |rules: &CommandRules| CommandRules { will_fail: true, ..rules.clone() };
        for (rules, output, code, result, message) in [
            (&plain, "", 0, Passed, ""),
            (&plain, "bad", 3, Failed, "exited with code 3"),
            (&will_fail, "", 1, Passed, ""),
            (&will_fail, "", 0, Failed, "WILL_FAIL expects it to fail"),
            (&skip_code, "", 77, Skipped, "exited with code 77, which means skipped"),
            (&skip_code, "", 78, Failed, "code 78"),
            (&will(&skip_code), "", 77, Skipped, "77"),
            (&pass, "all good", 4, Passed, ""),
            (&pass, "nothing", 0, Failed, "PASS_REGULAR_EXPRESSION \"well\" or \"good\""),
            (&will(&pass), "well", 0, Failed, "WILL_FAIL"),
            (&fail, "bad", 0, Failed, "FAIL_REGULAR_EXPRESSION \"bad\""),
            (&fail, "fine", 0, Passed, ""),
            (&fail, "fine", 1, Failed, "code 1"),
            (&will(&fail), "bad", 0, Passed, ""),
            (&both, "well\nbad", 0, Failed, "\"bad\""),
            (&skip, "SKIP: no net", 1, Skipped, "SKIP_REGULAR_EXPRESSION \"^SKIP\""),
            (&skip, "no SKIP", 0, Passed, ""),
        ] {
            let (actual, text) = verdict(rules, output, code);
            assert_eq!(actual, result, "{rules:?} {output:?} {code}: {text}");
            assert!(text.contains(message), "{text}");
        }
    }

    #[test]
    fn time_limit_begins_with_a_line() {
        let timeout_after_match = Some(TimeoutAfterMatch { timeout_ms: 250, expressions: texts(&["ready"]) });
        let rules = CommandRules { timeout_after_match, ..CommandRules::default() };
        let limit = TranscriptEvent::TimeLimit { place: 0, limit: Duration::from_millis(250) };
        let events = run(&rules, "not yet\nready now\nready again\n", 0);
        assert_eq!(events.iter().filter(|event| **event == limit).count(), 1);
        assert!(!run(&rules, "ready without an end", 0).contains(&limit));
    }

    #[test]
    fn exit_before_its_time_is_no_result() {
        let rules = CommandRules { will_fail: true, early_exit_codes: vec![87], ..CommandRules::default() };
        let (mut parser, mut events) = (CommandParser::new(1, rules.clone()), Vec::new());
        parser.opening_request(&mut events);
        parser.on_output_end(&mut events);
        parser.on_exit(87, &mut events);
        assert_eq!(events, [TranscriptEvent::Begun { place: 0 }]);
        assert!(!parser.is_complete() && !parser.explains_exit(87));
        assert_eq!(verdict(&rules, "", 101).0, Passed);
    }

    #[test]
    fn command_that_does_not_exit_by_itself_has_no_result() {
        let (mut parser, mut events) = (CommandParser::new(1, CommandRules::default()), Vec::new());
        parser.opening_request(&mut events);
        parser.on_output_end(&mut events);
        assert_eq!(events, [TranscriptEvent::Begun { place: 0 }]);
        assert!(!parser.is_complete());
        let (mut parser, mut events) = (CommandParser::new(0, CommandRules::default()), Vec::new());
        parser.opening_request(&mut events);
        parser.on_exit(0, &mut events);
        assert_eq!(events, []);
    }
}
