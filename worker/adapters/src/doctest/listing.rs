//! Parser of doctest's listing: XML on standard output, possibly between other output.

use std::collections::HashMap;

use heeler_protocol::control::{ListedTest, TraitPair};

use super::adapter::NAME;
use crate::{ListingError, ListingOutput, scan, xml_elements as xml};

const START: &[u8] = b"<doctest binary=";
const TEST: &[u8] = b"  <TestCase ";
/// Values contain no raw quotation mark.
const TEST_END: &[u8] = b"\"/>\n";
const SKIPPED: &[u8] = b"\" skipped=\"";
const END: &[u8] = b"\n  <OverallResultsTestCases unskipped=";

/// How a test is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestSelector {
    /// Its place among the tests that are not skipped, from 1.
    pub(super) place: u32,
    /// What its name is good for.
    pub(super) name: NameUse,
}

/// What the name of a test is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUse {
    /// A filter by it selects this test and no other.
    Exact,
    /// No filter can express it, or another test has it too.
    Inexact,
    /// It has none; ours stands in its place.
    Unnamed,
}

/// Name of a test without a name: no uid may end where the name of its program does.
const UNNAMED: &str = "(no name)";

impl TestSelector {
    /// Returns the selector of a listed test.
    pub(super) fn of(test: &ListedTest) -> Option<Self> {
        let text = test.selector.as_deref()?;
        let (place, name) = match text.strip_suffix('=') {
            Some(place) => (place, NameUse::Exact),
            None => {
                text.strip_suffix('-').map_or((text, NameUse::Inexact), |place| (place, NameUse::Unnamed))
            }
        };
        Some(Self { place: place.parse().ok().filter(|place| *place > 0)?, name })
    }

    fn to_text(self) -> String {
        let suffix = match self.name {
            NameUse::Exact => "=",
            NameUse::Inexact => "",
            NameUse::Unnamed => "-",
        };
        format!("{}{suffix}", self.place)
    }
}

/// Returns whether a listing does not say which tests are skipped: before version 2.4.7.
pub(super) fn lacks_skips(output: &ListingOutput) -> bool {
    tags(output).is_ok_and(|tags| !tags.iter().all(|tag| memchr::memmem::find(tag, SKIPPED).is_some()))
}

/// Parses a listing. One that is whole is valid, however the program has ended after it. `not_skipped` is
/// that of the tests that are not skipped, if the first does not say which are.
pub(super) fn read(
    output: &ListingOutput,
    not_skipped: Option<&ListingOutput>,
) -> Result<Vec<ListedTest>, ListingError> {
    let not_skipped = not_skipped.map(tags).transpose()?;
    let mut next = not_skipped.as_ref().map(|tags| tags.iter().peekable());
    let mut tests = Vec::new();
    let mut place = 0;
    for tag in tags(output)? {
        // Both are in the same order.
        let is_skipped = match &mut next {
            Some(next) => next.next_if(|one| **one == tag).is_none(),
            None => tag.ends_with(b" skipped=\"true\""),
        };
        tests.push(read_test(tag, is_skipped, &mut place));
    }
    if next.is_some_and(|mut next| next.next().is_some()) {
        return Err(damaged("it lists other tests than the one before it"));
    }
    mark_exact_names(&mut tests);
    Ok(tests)
}

/// Returns the attributes of the tests of a listing.
fn tags(output: &ListingOutput) -> Result<Vec<&[u8]>, ListingError> {
    let Some(start) = memchr::memmem::find(&output.stdout, START) else {
        if output.code != Some(0) {
            return Err(ListingError::of_exit(output));
        }
        let line = scan::decode_lossy(&output.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("instead of a listing it wrote {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    };
    let listing = &output.stdout[start..];
    let Some(end) = memchr::memmem::rfind(listing, END) else {
        return Err(match output.code {
            Some(0) => damaged("it ends in the middle"),
            Some(_) | None => ListingError::of_recognized_exit(output),
        });
    };
    let mut rest = &listing[..=end];
    let mut tags = Vec::new();
    while let Some(found) = find_at_line_start(rest, TEST) {
        let after = &rest[found + TEST.len() - 1..];
        let end = memchr::memmem::find(after, TEST_END).ok_or_else(|| damaged("an entry has no end"))?;
        tags.push(&after[..=end]);
        rest = &after[end + TEST_END.len()..];
    }
    Ok(tags)
}

fn find_at_line_start(bytes: &[u8], text: &[u8]) -> Option<usize> {
    memchr::memmem::find_iter(bytes, text).find(|at| *at == 0 || bytes[*at - 1] == b'\n')
}

fn damaged(reason: &str) -> ListingError {
    ListingError::Damaged { framework: NAME, reason: reason.to_owned() }
}

fn read_test(tag: &[u8], is_skipped: bool, place: &mut u32) -> ListedTest {
    let name = xml::attribute(tag, "name").filter(|name| !name.is_empty());
    let name_use = if name.is_some() { NameUse::Inexact } else { NameUse::Unnamed };
    *place += u32::from(!is_skipped);
    let suite = xml::attribute(tag, "testsuite");
    ListedTest {
        file: xml::attribute(tag, "filename"),
        line: xml::attribute(tag, "line").and_then(|line| line.parse().ok()).filter(|line| *line > 0),
        skip: is_skipped.then(|| "skipped by its decorator".to_owned()),
        traits: suite.map(|value| TraitPair { name: "testsuite".to_owned(), value }).into_iter().collect(),
        selector: (!is_skipped).then(|| TestSelector { place: *place, name: name_use }.to_text()),
        broken: None,
        variant: None,
        reported_file: None,
        name: name.unwrap_or_else(|| UNNAMED.to_owned()),
        display: None,
        timeout_ms: None,
    }
}

/// Marks the tests that a filter by name selects alone: one of its name, without characters that the filter
/// language or the listing treat specially.
fn mark_exact_names(tests: &mut [ListedTest]) {
    let mut times: HashMap<&str, u32> = HashMap::with_capacity(tests.len());
    for test in tests.iter() {
        *times.entry(&test.name).or_default() += 1;
    }
    let is_exact: Vec<bool> =
        tests.iter().map(|test| times[test.name.as_str()] == 1 && is_plain(&test.name)).collect();
    for (test, is_exact) in tests.iter_mut().zip(is_exact) {
        match TestSelector::of(test) {
            Some(selector) if is_exact && selector.name == NameUse::Inexact => {
                test.selector = Some(TestSelector { name: NameUse::Exact, ..selector }.to_text());
            }
            Some(_) | None => {}
        }
    }
}

fn is_plain(name: &str) -> bool {
    let is_special = |character: char| {
        matches!(character, ',' | '*' | '?' | '\\' | '"' | char::REPLACEMENT_CHARACTER)
            || character.is_control()
    };
    !name.trim().is_empty() && name.trim() == name && !name.contains(is_special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(entries: &[&str]) -> ListingOutput {
        let entries = entries.concat();
        let stdout = format!(
            "<doctest binary=\"x\" version=\"2.4.6\">\n{entries}  <OverallResultsTestCases unskipped=\"1\"/>\n</doctest>\n"
        );
        ListingOutput { code: Some(0), stdout: stdout.into_bytes(), ..ListingOutput::default() }
    }

    const ONE: &str = "  <TestCase name=\"one &quot;/&gt;\" filename=\"a.cc\" line=\"1\"/>\n";
    const TWO: &str = "  <TestCase name=\"two\" filename=\"a.cc\" line=\"5\"/>\n";
    const THREE: &str = "  <TestCase name=\"three\" filename=\"a.cc\" line=\"9\"/>\n";

    #[test]
    fn versions_that_do_not_say_what_is_skipped_list_twice() {
        let all = listing(&[ONE, TWO, THREE]);
        assert!(lacks_skips(&all));
        let tests = read(&all, Some(&listing(&[ONE, THREE]))).unwrap();
        let shown: Vec<_> = tests
            .iter()
            .map(|test| (test.name.as_str(), test.skip.is_some(), test.selector.as_deref()))
            .collect();
        let expected = [("one \"/>", false, Some("1")), ("two", true, None), ("three", false, Some("2="))];
        assert_eq!(shown, expected);
        let error = read(&all, Some(&listing(&[THREE, ONE]))).unwrap_err();
        assert!(error.to_string().contains("other tests than the one before it"), "{error}");
        assert!(read(&all, Some(&listing(&[]))).unwrap().iter().all(|test| test.skip.is_some()));
    }

    #[test]
    fn versions_that_say_what_is_skipped_list_once() {
        let says =
            |entry: &str, is_skipped: bool| entry.replace("\"/>", &format!("\" skipped=\"{is_skipped}\"/>"));
        let all = listing(&[&says(TWO, true), &says(THREE, false)]);
        assert!(!lacks_skips(&all) && !lacks_skips(&listing(&[])));
        let tests = read(&all, None).unwrap();
        let shown: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.skip.is_some())).collect();
        assert_eq!(shown, [("two", true), ("three", false)]);
    }
}
