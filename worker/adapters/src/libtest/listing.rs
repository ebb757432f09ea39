//! Parser of libtest's listings: one JSON listing, or two terse ones (all tests and ignored tests).

use std::collections::HashSet;

use heeler_protocol::control::{ListedTest, TraitPair};
use serde_json::Value;

use super::{LibtestFormat, command};
use crate::{AdapterInvocation, ListingError, ListingOutput, scan};

const NAME: &str = "libtest";
const DISCOVERED: &[u8] = br#"{ "type": "test", "event": "discovered", "#;
const DISCOVERY: &[u8] = br#"{ "type": "suite", "event": "discovery" }"#;
const COMPLETED: &[u8] = br#"{ "type": "suite", "event": "completed", "#;

/// Returns the next listing command: JSON, then the terse listings if JSON failed. A program killed by a
/// signal is not listed again.
pub(super) fn next_listing(outputs: &[ListingOutput]) -> Option<AdapterInvocation> {
    let is_needed = match outputs {
        [] => return Some(command::json_listing()),
        [json] => json.signal.is_none() && !is_json(json),
        [_, .., last] => last.code == Some(0),
    };
    if is_needed { command::terse_listings().into_iter().nth(outputs.len() - 1) } else { None }
}

/// Returns whether the output is a listing of JSON events.
pub(crate) fn is_json(output: &ListingOutput) -> bool {
    output.code == Some(0) && memchr::memmem::find(&output.stdout, DISCOVERY).is_some()
}

/// Parses the listing in either format; also returns the output format for runs.
pub(super) fn read(
    outputs: &[ListingOutput],
    is_framework_configured: bool,
) -> Result<(LibtestFormat, Vec<ListedTest>), ListingError> {
    match outputs {
        [json, ..] if is_json(json) => Ok((LibtestFormat::Events, read_json(&json.stdout)?)),
        [json, ..] if json.signal.is_some() => Err(ListingError::of_exit(json)),
        [_, terse @ ..] => Ok((LibtestFormat::Plain, read_terse(terse, is_framework_configured)?)),
        [] => Ok((LibtestFormat::Plain, read_terse(&[], is_framework_configured)?)),
    }
}

fn damaged(reason: impl Into<String>) -> ListingError {
    ListingError::Damaged { framework: NAME, reason: reason.into() }
}

pub(crate) fn read_json(stdout: &[u8]) -> Result<Vec<ListedTest>, ListingError> {
    let start = memchr::memmem::find(stdout, DISCOVERY).unwrap_or(0);
    let end = memchr::memmem::rfind(stdout, COMPLETED)
        .filter(|end| *end > start)
        .ok_or_else(|| damaged("unexpected end"))?;
    let found = &stdout[start + DISCOVERY.len()..end];
    let starts: Vec<usize> = memchr::memmem::find_iter(found, DISCOVERED)
        .filter(|at| *at == 0 || found[*at - 1] == b'\n')
        .collect();
    let ends = starts.iter().skip(1).copied().chain([found.len()]);
    starts.iter().zip(ends).map(|(start, end)| read_test(&found[*start..end])).collect()
}

fn read_test(entry: &[u8]) -> Result<ListedTest, ListingError> {
    let unreadable =
        || damaged(format!("unreadable entry {:?}", scan::truncated(&String::from_utf8_lossy(entry), 200)));
    let (entry, message) = without_message(entry).ok_or_else(unreadable)?;
    let value: Value = serde_json::from_slice(&entry).map_err(|_| unreadable())?;
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let is_ignored = value["ignore"].as_bool().unwrap_or(false);
    let mut test = ListedTest {
        name: value["name"].as_str().ok_or_else(unreadable)?.to_owned(),
        file: text("source_path"),
        line: value["start_line"].as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0),
        ..ListedTest::default()
    };
    if is_ignored {
        mark_ignored(&mut test, message);
    }
    Ok(test)
}

/// Removes the ignore reason from an entry. libtest does not escape its quotes and newlines, so the entry is
/// not valid JSON. The fields around it are escaped and always in this order.
fn without_message(entry: &[u8]) -> Option<(Vec<u8>, String)> {
    const BEFORE: &[u8] = br#", "ignore_message": ""#;
    const BEHIND: &[u8] = br#"", "source_path": ""#;
    let entry = entry.trim_ascii_end();
    let Some(before) = memchr::memmem::find(entry, BEFORE) else {
        return Some((entry.to_vec(), String::new()));
    };
    let behind = memchr::memmem::rfind(entry, BEHIND)?;
    let message = entry.get(before + BEFORE.len()..behind)?;
    Some(([&entry[..before], &entry[behind + 1..]].concat(), scan::decode_lossy(message)))
}

/// Marks a test as ignored. An empty reason means no reason.
pub(crate) fn mark_ignored(test: &mut ListedTest, reason: String) {
    test.skip = Some(ignored(&reason));
    test.traits.push(ignored_trait(reason));
}

fn ignored_trait(message: String) -> TraitPair {
    TraitPair { name: "ignored".to_owned(), value: message }
}

fn ignored(message: &str) -> String {
    if message.is_empty() { "ignored".to_owned() } else { format!("ignored: {message}") }
}

/// Parses the terse listings. An empty listing is accepted only if the user configured the framework, because
/// most programs that ignore their arguments print nothing.
pub(super) fn read_terse(
    outputs: &[ListingOutput],
    is_framework_configured: bool,
) -> Result<Vec<ListedTest>, ListingError> {
    if let Some(dead) = outputs.iter().find(|output| output.code != Some(0)) {
        return Err(ListingError::of_exit(dead));
    }
    let [all, ignored] = outputs else { return Err(damaged("a listing command did not run")) };
    let (all, skipped) = (scan::decode_lossy(&all.stdout), scan::decode_lossy(&ignored.stdout));
    let skipped: HashSet<&str> = names(&skipped)?.into_iter().collect();
    let tests: Vec<ListedTest> = names(&all)?
        .into_iter()
        .map(|name| {
            let mut test = ListedTest { name: name.to_owned(), ..ListedTest::default() };
            if skipped.contains(name) {
                mark_ignored(&mut test, String::new());
            }
            test
        })
        .collect();
    if tests.is_empty() && !is_framework_configured {
        let reason = "it listed no tests".to_owned();
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    }
    Ok(tests)
}

/// Returns the test names. Benchmarks are left out, because they would run as tests with one iteration.
fn names(text: &str) -> Result<Vec<&str>, ListingError> {
    let mut names = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.rsplit_once(": ") {
            Some((name, "test")) => names.push(name),
            Some((_, "benchmark")) => {}
            _ => {
                let reason = format!("expected a list of tests, found {:?}", scan::truncated(line, 200));
                return Err(ListingError::NotThisFramework { framework: NAME, reason });
            }
        }
    }
    Ok(names)
}
