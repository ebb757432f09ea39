//! Conversations with known results, and reports cut at every byte. The end-to-end tests check real programs.

use proptest::prelude::*;

use super::{
    AdapterCheck, CheckConversation, CheckMoment, CheckReader, CheckRule, CheckStep, ExpectedReply,
    RuleFinding, SeenReport,
};
use crate::json_lines::adapter::JsonLines;

fn seen(line: &str) -> CheckMoment {
    CheckMoment::Reported(SeenReport { line: line.as_bytes().to_vec(), is_too_long: false })
}

/// Plays a check with processes that answer with `answer` and exit with code 0.
fn play(mut answer: impl FnMut(&str) -> Vec<String>) -> AdapterCheck {
    let mut check = AdapterCheck::new("json-lines").unwrap();
    while let Some(scripts) = check.next_scripts() {
        let mut converse = |steps: &[CheckStep]| {
            let mut found =
                CheckConversation { code: Some(0), had_to_wait: true, ..CheckConversation::default() };
            for step in steps {
                let (CheckStep::Send(bytes) | CheckStep::SendInPieces(bytes)) = step else { continue };
                found.moments.push(CheckMoment::Sent(bytes.clone()));
                let text = String::from_utf8(bytes.clone()).unwrap();
                found.moments.extend(text.lines().flat_map(&mut answer).map(|line| seen(&line)));
            }
            found
        };
        let conversations: Vec<_> = scripts.iter().map(|script| converse(&script.steps)).collect();
        check.on_conversations(&conversations);
    }
    check
}

/// Answers like a program with two tests that follows all rules.
fn well(request: &str) -> Vec<String> {
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    let line = |text: &str| text.replace('\'', "\"");
    match request["k"].as_str() {
        Some("list") => ["{'k':'test','id':'a'}", "{'k':'test','id':'b'}", "{'k':'listed'}"].map(line).into(),
        Some("run") => {
            let tests = request["tests"].as_array().unwrap();
            let one = |(index, test): (usize, &serde_json::Value)| {
                let state = if test == "b" { "passed" } else { "failed" };
                [
                    line(&format!("{{'k':'begin','i':{index}}}")),
                    line(&format!("{{'k':'part','i':{index},'name':'p'}}")),
                    line(&format!("{{'k':'end','i':{index},'state':'{state}'}}")),
                ]
            };
            let reports = tests.iter().enumerate().flat_map(one);
            reports.chain([line("{'k':'done'}")]).collect()
        }
        _ => Vec::new(),
    }
}

fn broken(check: &AdapterCheck) -> Vec<CheckRule> {
    let results = check.results().into_iter();
    results.filter(|one| matches!(one.finding, RuleFinding::Broken { .. })).map(|one| one.rule).collect()
}

#[test]
fn program_that_keeps_all_rules_breaks_none() {
    let check = play(well);
    assert_eq!(broken(&check), []);
    let untried: Vec<_> = check
        .results()
        .into_iter()
        .filter(|one| one.finding != RuleFinding::Kept)
        .map(|one| one.rule)
        .collect();
    assert_eq!(untried, [CheckRule::Fence], "it has none");
}

#[test]
fn changed_reports_break_one_rule_each() {
    for (from, to, rule) in [
        ("\"id\":\"b\"", "\"id\":\"a\"", CheckRule::UniqueIds),
        ("\"id\":\"b\"", "\"id\":\"b\",\"line\":0", CheckRule::TestMembers),
        (
            "{\"k\":\"listed\"}",
            "{\"k\":\"listed\"}\n{\"k\":\"test\",\"id\":\"c\"}",
            CheckRule::ReportsOnRequest,
        ),
        ("{\"k\":\"done\"}", "{\"k\":\"done\"}\n{\"k\":\"done\"}", CheckRule::ReportsOnRequest),
        ("\"name\":\"p\"", "\"name\":7", CheckRule::ReportMembers),
        ("\"state\":\"failed\"", "\"state\":\"error\"", CheckRule::ReportMembers),
        ("{\"k\":\"done\"}", "{\"k\":\"hello\"}\n{\"k\":\"done\"}", CheckRule::Hello),
        ("{\"k\":\"listed\"}", "[]\n{\"k\":\"listed\"}", CheckRule::Json),
    ] {
        let check = play(|request| {
            let lines = well(request).join("\n").replace(from, to);
            lines.lines().map(str::to_owned).collect()
        });
        assert_eq!(broken(&check), [rule], "{to}");
    }
}

#[test]
fn death_in_a_test_breaks_no_rule() {
    let mut check = AdapterCheck::new("json-lines-stdio").unwrap();
    let mut runs = 0;
    while let Some(scripts) = check.next_scripts() {
        let mut conversations = Vec::new();
        for script in &scripts {
            let mut found =
                CheckConversation { code: Some(0), had_to_wait: true, ..CheckConversation::default() };
            for step in &script.steps {
                let (CheckStep::Send(bytes) | CheckStep::SendInPieces(bytes)) = step else { continue };
                found.moments.push(CheckMoment::Sent(bytes.clone()));
                let text = String::from_utf8(bytes.clone()).unwrap();
                let is_deadly = text.contains("\"k\":\"run\"") && text.contains("\"a\"");
                if is_deadly {
                    runs += 1;
                    found.moments.push(seen("{\"k\":\"begin\",\"i\":0}"));
                    found.moments.push(CheckMoment::EndedBefore(ExpectedReply::Done));
                    (found.code, found.signal) = (None, Some(9));
                    break;
                }
                found.moments.extend(text.lines().flat_map(well).map(|line| seen(&line)));
            }
            conversations.push(found);
        }
        check.on_conversations(&conversations);
    }
    assert_eq!((broken(&check), runs), (vec![], 1), "it is not run again");
    assert!(
        check.notes()[0].contains("signal 9") && check.notes()[0].contains("\"a\""),
        "{:?}",
        check.notes()
    );
}

#[test]
fn reports_are_the_same_wherever_they_are_cut() {
    for carrier in [JsonLines::Channel, JsonLines::StandardStreams] {
        let start = if carrier == JsonLines::Channel { "" } else { "\u{1e}" };
        let text = format!("{start}{{\"k\":\"a\"}}\n{start}{{\"k\":\"b\"}}\n{start}rest");
        let whole = CheckReader::new(carrier).push(text.as_bytes());
        assert_eq!(whole.iter().map(SeenReport::kind).collect::<Vec<_>>(), ["a", "b"]);
        for cut in 0..=text.len() {
            let mut reader = CheckReader::new(carrier);
            let mut pieces = reader.push(&text.as_bytes()[..cut]);
            pieces.extend(reader.push(&text.as_bytes()[cut..]));
            assert_eq!(pieces, whole, "cut at {cut}");
            assert_eq!(reader.finish().unwrap().line, b"rest");
        }
    }
}

#[test]
fn long_line_is_told_and_not_kept() {
    let mut reader = CheckReader::new(JsonLines::Channel);
    let mut seen = reader.push(&vec![b'x'; 3 << 20]);
    seen.extend(reader.push(b"\nshort\n"));
    assert_eq!(seen.iter().map(|one| one.is_too_long).collect::<Vec<_>>(), [true, false]);
    assert!(seen[0].line.len() <= 1 << 20);
}

proptest! {
    #[test]
    fn any_reports_are_judged(lines in proptest::collection::vec("\\PC{0,30}|\\{\"k\":\"(test|listed|begin|end|part|out|file|done|hello)\",\"i\":[0-3],\"id\":\"[ab]\"\\}", 0..12)) {
        let check = play(|_| lines.clone());
        prop_assert_eq!(check.results().len(), CheckRule::ALL.len());
    }
}
