//! Finds the test that killed a process, from the evidence: stacks in standard error, the runtime's crash
//! report, and the platform's journal.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::names::Selector;
use crate::{DeathEvidence, scan};

/// Maximum number of threads shown, and of frames for each.
const SHOWN_THREADS: usize = 64;
const SHOWN_FRAMES: usize = 200;

/// Text in the journal before and after the uid of a test.
const JOURNAL_UID: &str = "TestNodeUid { Value = ";
const JOURNAL_UID_END: &str = " }";

/// Tests named by the evidence.
pub(super) struct Suspects {
    /// Indices of the tests.
    pub(super) places: Vec<usize>,
    /// The tests were on a stack of the process when it died.
    pub(super) is_on_stack: bool,
}

/// Returns the open tests named by the best evidence. `is_running` returns whether a test has begun.
pub(super) fn suspects(
    tests: &[Selector],
    open: &[usize],
    is_running: impl Fn(usize) -> bool,
    evidence: &DeathEvidence<'_>,
) -> Suspects {
    let mut places = on_stack(tests, open, |function| names_frame(evidence.stderr, function));
    if places.is_empty() {
        let frames = frames(evidence.crash_report);
        places = on_stack(tests, open, |function| frames.iter().any(|frame| is_call_of(frame, function)));
    }
    if places.is_empty() {
        return Suspects { places: in_journal(tests, open, evidence.journal), is_on_stack: false };
    }
    // All rows of a method have the same frames.
    if places.len() > 1 {
        let in_journal = in_journal(tests, &places, evidence.journal);
        let running: Vec<usize> = places.iter().copied().filter(|place| is_running(*place)).collect();
        let narrower = [in_journal, running].into_iter().find(|narrower| !narrower.is_empty());
        places = narrower.unwrap_or(places);
    }
    Suspects { places, is_on_stack: true }
}

fn on_stack(tests: &[Selector], open: &[usize], is_there: impl Fn(&str) -> bool) -> Vec<usize> {
    let functions: HashSet<&str> =
        open.iter().filter_map(|place| tests[*place].function.as_deref()).collect();
    let named: HashSet<&str> = functions.into_iter().filter(|function| is_there(function)).collect();
    let is_named = |place: &usize| tests[*place].function.as_deref().is_some_and(|one| named.contains(one));
    open.iter().copied().filter(is_named).collect()
}

/// Returns whether a stack in the text has a frame of this function, such as `   at Ns.Class.Method(...)`.
fn names_frame(text: &str, function: &str) -> bool {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("at "))
        .any(|frame| is_call_of(frame, function))
}

/// Returns whether a frame is in a function, or in the state machine of an async function:
/// `Ns.Class.<Method>d__3.MoveNext()`, `Ns.Class+<Method>d__3.MoveNext()`.
fn is_call_of(frame: &str, function: &str) -> bool {
    if let Some(rest) = frame.strip_prefix(function) {
        return rest.starts_with(['(', '[', '<', '`']);
    }
    let Some((kind, method)) = function.rsplit_once('.') else { return false };
    let Some(rest) = frame.strip_prefix(kind) else { return false };
    let inner = rest.strip_prefix(['.', '+']).unwrap_or_default();
    let inner = inner.strip_prefix("<>c.").or_else(|| inner.strip_prefix("<>c+")).unwrap_or(inner);
    inner
        .strip_prefix('<')
        .and_then(|inner| inner.strip_prefix(method))
        .is_some_and(|rest| rest.starts_with('>'))
}

/// Returns the functions on all stacks of a crash report.
fn frames(report: &[u8]) -> Vec<String> {
    let report: Value = serde_json::from_slice(report).unwrap_or_default();
    let threads = report["payload"]["threads"].as_array().into_iter().flatten();
    let frames = threads.flat_map(|thread| thread["stack_frames"].as_array().into_iter().flatten());
    frames.filter_map(|frame| frame["method_name"].as_str().map(str::to_owned)).collect()
}

/// Returns the readable stacks of a crash report: managed frames of all threads that have some, with the
/// crashed thread first.
pub(super) fn stacks_text(report: &[u8]) -> Option<String> {
    let report: Value = serde_json::from_slice(report).ok()?;
    let mut threads: Vec<&Value> = report["payload"]["threads"].as_array()?.iter().collect();
    let is_crashed = |thread: &Value| thread["crashed"] == "true" || thread["crashed"] == true;
    threads.sort_by_key(|thread| !is_crashed(thread));
    let mut text = String::new();
    for thread in threads.into_iter().take(SHOWN_THREADS) {
        let frames = thread["stack_frames"].as_array().into_iter().flatten();
        let managed: Vec<&str> =
            frames.filter_map(|frame| frame["method_name"].as_str()).take(SHOWN_FRAMES).collect();
        if managed.is_empty() {
            continue;
        }
        let id = thread["native_thread_id"].as_str().unwrap_or("?");
        let mark = if is_crashed(thread) { ", crashed" } else { "" };
        text.push_str(&format!("thread {id}{mark}:\n"));
        for frame in managed {
            text.push_str(&format!("  {}\n", scan::truncated(frame, 500)));
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Returns the tests that have begun but not ended according to the journal.
fn in_journal(tests: &[Selector], open: &[usize], journal: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(journal);
    if text.is_empty() {
        return Vec::new();
    }
    let by_uid: HashMap<&str, usize> =
        open.iter().map(|place| (tests[*place].uid.as_str(), *place)).collect();
    let mut last: HashMap<usize, bool> = HashMap::new();
    for line in text.lines() {
        let Some(at) = line.find(JOURNAL_UID) else { continue };
        let rest = &line[at + JOURNAL_UID.len()..];
        // Journal texts are not escaped, so the longest known uid counts.
        let ends = rest.match_indices(JOURNAL_UID_END).map(|(end, _)| end);
        let found = ends.filter_map(|end| by_uid.get(&rest[..end]).map(|place| (*place, end))).last();
        let Some((place, end)) = found else { continue };
        let behind = &rest[end..];
        if behind.contains("InProgressTestNodeStateProperty") {
            last.insert(place, true);
        } else if behind.contains("TestNodeStateProperty")
            && !behind.contains("DiscoveredTestNodeStateProperty")
        {
            last.insert(place, false);
        }
    }
    open.iter().copied().filter(|place| last.get(place) == Some(&true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(uid: &str, function: &str) -> Selector {
        Selector { uid: uid.into(), display_name: uid.into(), function: Some(function.into()) }
    }

    fn named(evidence: DeathEvidence<'_>) -> Vec<usize> {
        let tests = [selector("a", "N.T.One"), selector("b", "N.T.OneMore"), selector("c", "N.T.OneMore")];
        suspects(&tests, &[0, 1, 2], |place| place == 2, &evidence).places
    }

    #[test]
    fn stack_in_standard_error_names_the_test() {
        let of = |stderr: &str| named(DeathEvidence { stderr, ..DeathEvidence::default() });
        assert_eq!(of("Process terminated.\n   at System.X.Y()\n   at N.T.One()\n"), [0]);
        assert_eq!(of("   at N.T.<One>d__3.MoveNext()\n"), [0]);
        assert_eq!(of("   at N.T.<>c.<One>b__0()\n"), [0]);
        assert_eq!(of("   at N.T.OneMore(Int32)\n"), [2], "the row that has begun");
        assert_eq!(of("N.T.One()\n   at N.T.Ones()\n"), [0; 0]);
    }

    #[test]
    fn report_of_the_runtime_names_the_test() {
        let report =
            br#"{"payload":{"threads":[{"native_thread_id":"0x1","stack_frames":[{"native_address":"0x2"}]},
            {"native_thread_id":"0x3","crashed":"true","stack_frames":[{"method_name":"N.T.One()"}]}]}}"#;
        assert_eq!(named(DeathEvidence { crash_report: report, ..DeathEvidence::default() }), [0]);
        assert_eq!(stacks_text(report).unwrap(), "thread 0x3, crashed:\n  N.T.One()\n");
        assert_eq!(stacks_text(b"{"), None);
    }

    #[test]
    fn journal_names_the_test_without_an_end() {
        let line = |uid: &str, state: &str| {
            format!(
                "x TestNode {{ Uid = TestNodeUid {{ Value = {uid} }}, Properties = {state}TestNodeStateProperty\n"
            )
        };
        let journal = line("a", "InProgress") + &line("a", "Passed") + &line("b", "InProgress");
        assert_eq!(named(DeathEvidence { journal: journal.as_bytes(), ..DeathEvidence::default() }), [1]);
    }
}
