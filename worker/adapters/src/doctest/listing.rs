//! Parser of doctest's listing: XML on standard output, possibly surrounded by other output.

use std::{cmp::Ordering, collections::HashMap};

use heeler_protocol::control::{ListedTest, TraitPair};

use super::adapter::NAME;
use crate::{ListingError, ListingOutput, scan, xml_elements as xml};

const START: &[u8] = b"<doctest binary=";
const TEST: &[u8] = b"  <TestCase ";
/// End of an entry. Values contain no raw quotation mark.
const TEST_END: &[u8] = b"\"/>\n";
const SKIPPED: &[u8] = b"\" skipped=\"";
const END: &[u8] = b"\n  <OverallResultsTestCases unskipped=";

/// How a test is selected. As text: its positions, if known, as `12/15`, then `=`, `-` or nothing for its
/// `NameUse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedSelector {
    /// Positions of the test, if the program runs its tests in the requested order.
    pub(super) places: Option<TestPlaces>,
    /// Whether the test can be selected by name.
    pub(super) name: NameUse,
}

/// Positions of a test in its program, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestPlaces {
    /// Position among the tests that are not skipped; 0 if the test is skipped.
    pub(super) of_not_skipped: u32,
    /// Position among all tests.
    pub(super) of_all: u32,
}

/// Whether a test can be selected by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUse {
    /// A filter for the name selects only this test.
    Exact,
    /// No filter can express the name, or another test shares it.
    Inexact,
    /// The test has no name; `UNNAMED` is shown instead.
    Unnamed,
}

/// Name shown for a test without a name, because a uid must not end after the program name.
pub(super) const UNNAMED: &str = "(no name)";

impl PlacedSelector {
    pub(super) fn of(test: &ListedTest) -> Self {
        let text = test.selector.as_deref().unwrap_or_default();
        let (places, name) = match (text.strip_suffix('='), text.strip_suffix('-')) {
            (Some(places), _) => (places, NameUse::Exact),
            (None, Some(places)) => (places, NameUse::Unnamed),
            (None, None) => (text, NameUse::Inexact),
        };
        let places = places.split_once('/').and_then(|(of_not_skipped, of_all)| {
            Some(TestPlaces { of_not_skipped: of_not_skipped.parse().ok()?, of_all: of_all.parse().ok()? })
        });
        Self { places, name }
    }

    fn to_text(self) -> String {
        let suffix = match self.name {
            NameUse::Exact => "=",
            NameUse::Inexact => "",
            NameUse::Unnamed => "-",
        };
        let places = self.places.map(|places| format!("{}/{}", places.of_not_skipped, places.of_all));
        format!("{}{suffix}", places.unwrap_or_default())
    }
}

/// Returns whether the listing lacks the skipped tests, as before version 2.4.7.
pub(super) fn lacks_skips(output: &ListingOutput) -> bool {
    tags(output).is_ok_and(|tags| !tags.iter().all(|tag| memchr::memmem::find(tag, SKIPPED).is_some()))
}

/// Parses a listing. A complete listing is valid, however the program ended afterwards. `not_skipped` is the
/// listing of unskipped tests, if the first listing does not mark skipped tests.
pub(super) fn read(
    output: &ListingOutput,
    not_skipped: Option<&ListingOutput>,
) -> Result<Vec<ListedTest>, ListingError> {
    let all = tags(output)?;
    // Compared regardless of order, because a `main` may set a random order.
    let mut unskipped = not_skipped.map(tags).transpose()?.map(|tags| {
        let mut times: HashMap<&[u8], usize> = HashMap::with_capacity(tags.len());
        tags.into_iter().for_each(|tag| *times.entry(tag).or_default() += 1);
        times
    });
    let mut places = TestPlaces { of_not_skipped: 0, of_all: 0 };
    let mut tests = Vec::with_capacity(all.len());
    for tag in &all {
        let is_skipped = match &mut unskipped {
            Some(times) => times.get_mut(tag).filter(|times| **times > 0).map(|times| *times -= 1).is_none(),
            None => tag.ends_with(b" skipped=\"true\""),
        };
        places.of_all += 1;
        places.of_not_skipped += u32::from(!is_skipped);
        let of_not_skipped = if is_skipped { 0 } else { places.of_not_skipped };
        tests.push(read_test(tag, is_skipped, TestPlaces { of_not_skipped, ..places }));
    }
    if unskipped.is_some_and(|times| times.values().any(|times| *times > 0)) {
        return Err(damaged("two listings differ"));
    }
    mark_exact_names(&mut tests);
    discard_doubtful_places(&mut tests);
    Ok(tests)
}

/// Test order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListedOrder {
    /// The order that our commands request.
    ByFile,
    /// The requested order, but with so few tests that it may be a coincidence.
    PossiblyByFile,
    /// Another order, set by a `main`. The next process may use yet another.
    Other,
}

/// Number of ordered neighbours that rules out chance: the odds are one in millions.
const CERTAIN_NEIGHBOURS: usize = 9;

impl ListedOrder {
    fn of(tests: &[ListedTest]) -> Self {
        let place = |test: &ListedTest| (test.file.clone().unwrap_or_default().into_bytes(), test.line);
        let mut increases = 0;
        for pair in tests.windows(2) {
            match place(&pair[0]).cmp(&place(&pair[1])) {
                Ordering::Less => increases += 1,
                // Instances of a template share a location.
                Ordering::Equal => {}
                Ordering::Greater => return Self::Other,
            }
        }
        if increases < CERTAIN_NEIGHBOURS { Self::PossiblyByFile } else { Self::ByFile }
    }
}

/// Discards positions that would select another test if the order changed. Names work in any order.
fn discard_doubtful_places(tests: &mut [ListedTest]) {
    let order = ListedOrder::of(tests);
    for test in tests {
        let selector = PlacedSelector::of(test);
        let is_doubtful = match order {
            ListedOrder::ByFile => false,
            ListedOrder::PossiblyByFile => selector.name == NameUse::Exact,
            ListedOrder::Other => true,
        };
        if is_doubtful {
            test.selector = Some(PlacedSelector { places: None, ..selector }.to_text());
        }
    }
}

/// Returns the attributes of each test in a listing.
fn tags(output: &ListingOutput) -> Result<Vec<&[u8]>, ListingError> {
    let Some(start) = memchr::memmem::find(&output.stdout, START) else {
        if output.code != Some(0) {
            return Err(ListingError::of_exit(output));
        }
        let line = scan::decode_lossy(&output.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("expected a list of tests, found {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    };
    let listing = &output.stdout[start..];
    let Some(end) = memchr::memmem::rfind(listing, END) else {
        return Err(match output.code {
            Some(0) => damaged("unexpected end"),
            Some(_) | None => ListingError::of_recognized_exit(output),
        });
    };
    let mut rest = &listing[..=end];
    let mut tags = Vec::new();
    while let Some(found) = find_at_line_start(rest, TEST) {
        let after = &rest[found + TEST.len() - 1..];
        let end = memchr::memmem::find(after, TEST_END).ok_or_else(|| damaged("unterminated entry"))?;
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

fn read_test(tag: &[u8], is_skipped: bool, places: TestPlaces) -> ListedTest {
    let name = xml::attribute(tag, "name").filter(|name| !name.is_empty());
    let name_use = if name.is_some() { NameUse::Inexact } else { NameUse::Unnamed };
    let suite = xml::attribute(tag, "testsuite");
    ListedTest {
        report_name: None,
        file: xml::attribute(tag, "filename"),
        line: xml::attribute(tag, "line").and_then(|line| line.parse().ok()).filter(|line| *line > 0),
        skip: is_skipped.then(|| "skipped by its decorator".to_owned()),
        traits: suite.map(|value| TraitPair { name: "testsuite".to_owned(), value }).into_iter().collect(),
        selector: Some(PlacedSelector { places: Some(places), name: name_use }.to_text()),
        broken: None,
        variant: None,
        reported_file: None,
        name: name.unwrap_or_else(|| UNNAMED.to_owned()),
        display: None,
        timeout_ms: None,
    }
}

/// Marks the tests that a name filter selects alone: the name is unique and has no characters that are
/// special in the filter language or the listing.
fn mark_exact_names(tests: &mut [ListedTest]) {
    let mut times: HashMap<&str, u32> = HashMap::with_capacity(tests.len());
    for test in tests.iter() {
        *times.entry(&test.name).or_default() += 1;
    }
    let is_exact: Vec<bool> =
        tests.iter().map(|test| times[test.name.as_str()] == 1 && is_plain(&test.name)).collect();
    for (test, is_exact) in tests.iter_mut().zip(is_exact) {
        let selector = PlacedSelector::of(test);
        if is_exact && selector.name == NameUse::Inexact {
            test.selector = Some(PlacedSelector { name: NameUse::Exact, ..selector }.to_text());
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
        let expected =
            [("one \"/>", false, Some("1/1")), ("two", true, Some("=")), ("three", false, Some("="))];
        assert_eq!(shown, expected);
        let in_other_order = read(&all, Some(&listing(&[THREE, ONE]))).unwrap();
        assert_eq!(in_other_order, tests, "a random order skips no other test");
        let error = read(&listing(&[ONE]), Some(&listing(&[TWO]))).unwrap_err();
        assert!(error.to_string().contains("two listings differ"), "{error}");
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

    #[test]
    fn places_are_kept_in_the_order_of_files_only() {
        let entry = |name: &str, line: usize| {
            format!("  <TestCase name=\"{name}\" filename=\"a.cc\" line=\"{line}\" skipped=\"false\"/>\n")
        };
        let selectors = |lines: &[usize]| {
            let entries: Vec<_> = lines.iter().map(|line| entry(&format!("t{line}"), *line)).collect();
            let odd = entry("odd,name", lines.last().unwrap() + 1);
            let entries: Vec<_> = entries.iter().map(String::as_str).chain([odd.as_str()]).collect();
            let tests = read(&listing(&entries), None).unwrap();
            let selectors: Vec<_> = tests.into_iter().map(|test| test.selector.unwrap()).collect();
            (selectors[0].clone(), selectors[lines.len()].clone())
        };
        let sorted: Vec<_> = (1..=12).collect();
        assert_eq!(selectors(&sorted), ("1/1=".to_owned(), "13/13".to_owned()));
        // With few tests, any order may look like the requested one.
        assert_eq!(selectors(&[1, 2]), ("=".to_owned(), "3/3".to_owned()));
        let mut shuffled = sorted;
        shuffled.swap(3, 7);
        assert_eq!(selectors(&shuffled), ("=".to_owned(), String::new()));
    }
}
