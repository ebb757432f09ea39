//! How a listed test is selected: by the bytes of its name in the program, and whether a pattern for this
//! name matches only this test.

use std::collections::HashSet;

use heeler_protocol::control::{ListedTest, ReportName, TraitPair};

use super::shards::ShardPlace;

/// How a test is selected. As text: `=` for an exact or `~` for an inexact pattern, then the name in
/// hexadecimal if it differs from the listed name, then `@INDEX/COUNT` if the test has a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestSelector {
    /// Name in the program, in any encoding.
    pub(super) name: Vec<u8>,
    /// A pattern for this name selects only this test.
    pub(super) is_exact: bool,
    /// Position of the test in a large program with shards.
    pub(super) place: Option<ShardPlace>,
}

impl TestSelector {
    pub(super) fn of(test: &ListedTest) -> Self {
        let text = test.selector.as_deref().unwrap_or("=");
        let (how, place) = text.split_once('@').unwrap_or((text, ""));
        let name = decode_hex(how.get(1..).unwrap_or_default());
        Self {
            name: name.unwrap_or_else(|| test.name.clone().into_bytes()),
            is_exact: how.starts_with('='),
            place: place.split_once('/').and_then(|(index, count)| {
                Some(ShardPlace { index: index.parse().ok()?, count: count.parse().ok()? })
            }),
        }
    }

    pub(super) fn place_of(test: &ListedTest) -> Option<ShardPlace> {
        test.selector.as_ref().filter(|text| text.contains('@')).and_then(|_| Self::of(test).place)
    }

    fn to_text(&self, shown_name: &str) -> String {
        let mut text = String::from(if self.is_exact { "=" } else { "~" });
        if self.name != shown_name.as_bytes() {
            self.name.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        }
        if let Some(ShardPlace { index, count }) = self.place {
            text.push_str(&format!("@{index}/{count}"));
        }
        text
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok());
    pairs.collect()
}

/// A test as listed by the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SelectableCase {
    pub(super) name: Vec<u8>,
    pub(super) file: Vec<u8>,
    pub(super) line: u32,
    pub(super) tags: Vec<Vec<u8>>,
    /// Class of a test that is a method; empty for a function.
    pub(super) class: Vec<u8>,
}

/// Tags of tests that run only when selected explicitly.
const HIDING_TAGS: [&[u8]; 2] = [b".", b"!hide"];

/// Whether a program can run a range of its tests by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardSupport {
    Has,
    None,
}

/// Larger programs select tests by position and run in one process at a time. Catch2 compares each test with
/// each name, at 75 to 110 ns per pair. Selecting all tests of a larger program in parts would take longer
/// than running most of them.
pub(super) const MAX_SELECTED: usize = 2000;

/// Returns whether a tag hides its test.
pub(super) fn is_hiding(tag: &[u8]) -> bool {
    HIDING_TAGS.contains(&tag)
}

fn is_hidden(case: &SelectableCase) -> bool {
    case.tags.iter().any(|tag| is_hiding(tag))
}

/// Returns the tests of a listing, with their selectors.
pub(super) fn listed_tests(cases: Vec<SelectableCase>, shards: ShardSupport) -> Vec<ListedTest> {
    let count = cases.iter().filter(|case| !is_hidden(case)).count();
    let has_places = shards == ShardSupport::Has && count > MAX_SELECTED;
    let mut places = (0..count).map(|index| ShardPlace { index, count });
    let mut times = std::collections::HashMap::<Vec<u8>, u32>::with_capacity(cases.len());
    for case in &cases {
        *times.entry(compared_name(&case.name)).or_default() += 1;
    }
    let is_exact = |name: &[u8]| times[&compared_name(name)] == 1 && !is_wildcard(name);
    cases
        .iter()
        .map(|case| {
            let name = shown_name(&case.name);
            let is_hidden = is_hidden(case);
            let selector = TestSelector {
                name: case.name.clone(),
                is_exact: is_exact(&case.name),
                place: if has_places && !is_hidden { places.next() } else { None },
            };
            let tags = case.tags.iter().filter(|tag| !is_hiding(tag));
            ListedTest {
                file: Some(shown_name(&case.file)).filter(|file| !file.is_empty()),
                line: Some(case.line).filter(|line| *line > 0),
                skip: is_hidden.then(|| "hidden by its tag".to_owned()),
                traits: tags
                    .map(|tag| TraitPair { name: "tag".to_owned(), value: shown_name(tag) })
                    .collect(),
                selector: Some(selector.to_text(&name)),
                report_name: Some(report_name(case)),
                name,
                display: None,
                timeout_ms: None,
                broken: None,
                variant: None,
                reported_file: None,
            }
        })
        .collect()
}

/// Returns class and name in Catch2's JUnit reports, without the program name.
fn report_name(case: &SelectableCase) -> ReportName {
    let of_file = case.tags.iter().find_map(|tag| tag.strip_prefix(b"#"));
    let class = Some(&case.class[..]).filter(|class| !class.is_empty()).or(of_file).unwrap_or(b"global");
    ReportName { class: shown_name(class), name: shown_name(trimmed(&case.name)) }
}

/// Returns the form that Catch2 compares: trimmed and lower case.
fn compared_name(name: &[u8]) -> Vec<u8> {
    trimmed(name).to_ascii_lowercase()
}

/// Returns a name without the surrounding spaces that Catch2 removes.
pub(super) fn trimmed(name: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| b" \t\n\r".contains(byte);
    let Some(start) = name.iter().position(|byte| !is_space(byte)) else { return b"" };
    let end = name.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &name[start..end]
}

/// Returns whether Catch2 reads a pattern with this name as a wildcard or an exclusion, which cannot be
/// escaped.
fn is_wildcard(name: &[u8]) -> bool {
    let name = trimmed(name);
    name.starts_with(b"*") || name.ends_with(b"*") || name.starts_with(EXCLUSION)
}

/// Prefix of a pattern that excludes tests.
const EXCLUSION: &[u8] = b"exclude:";

/// Returns the quoted pattern that selects the tests with this name.
pub(super) fn pattern(name: &[u8]) -> Vec<u8> {
    let name = trimmed(name);
    let mut pattern = b"\"".to_vec();
    // After a leading wildcard added here, the rest is literal.
    if name.starts_with(b"*") || name.starts_with(EXCLUSION) {
        pattern.push(b'*');
    }
    for byte in name {
        if b"\\,[\"".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    if name.ends_with(b"*") {
        pattern.push(b'*');
    }
    pattern.push(b'"');
    pattern
}

/// Tests that the patterns of a batch select, by the names used in reports.
#[derive(Debug, Default)]
pub(super) struct SelectedNames {
    /// Names in the form that Catch2 compares.
    names: HashSet<String>,
    /// Names of patterns with wildcards, with flags for a wildcard before and after the name.
    wildcards: Vec<(bool, String, bool)>,
}

impl SelectedNames {
    pub(super) fn of(tests: &[&ListedTest]) -> Self {
        let mut selected = Self::default();
        for test in tests {
            let TestSelector { name, is_exact, .. } = TestSelector::of(test);
            let reported = reported_name(&name).to_lowercase();
            if !is_exact && is_wildcard(&name) {
                let name = trimmed(&name);
                let is_open_before = name.starts_with(b"*") || name.starts_with(EXCLUSION);
                selected.wildcards.push((is_open_before, reported.clone(), name.ends_with(b"*")));
            }
            selected.names.insert(reported);
        }
        selected
    }

    /// Returns whether a test with this name may have been selected.
    pub(super) fn may_have(&self, reported: &str) -> bool {
        let reported = reported.trim().to_lowercase();
        self.names.contains(&reported)
            || self.wildcards.iter().any(|(is_open_before, name, is_open_after)| {
                match (is_open_before, is_open_after) {
                    (true, true) => reported.contains(name.as_str()),
                    (true, false) => reported.ends_with(name.as_str()),
                    (false, _) => reported.starts_with(name.as_str()),
                }
            })
    }
}

/// Returns a name as text, with `\xFF` for each byte that is not UTF-8, as Catch2's reporters print it.
pub(super) fn shown_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02X}")));
    }
    text
}

/// Returns a name as in an XML report before escaping: trimmed, with control characters as `\x07`.
pub(super) fn reported_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for character in shown_name(trimmed(name)).chars() {
        match character {
            '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' => text.push(character),
            _ if character.is_ascii_control() => {
                text.push_str(&format!("\\x{:02X}", u32::from(character)));
            }
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &[u8]) -> SelectableCase {
        SelectableCase { name: name.to_vec(), ..SelectableCase::default() }
    }

    #[test]
    fn selector_keeps_the_bytes_of_a_name() {
        let tests =
            listed_tests([&b"plain"[..], b"bytes \xff\x07", b"\\xFF"].map(case).to_vec(), ShardSupport::Has);
        let selectors: Vec<_> = tests.iter().map(|test| test.selector.as_deref().unwrap()).collect();
        assert_eq!(selectors, ["=", "=6279746573 20ff07".replace(' ', "").as_str(), "="]);
        let names: Vec<_> = tests.iter().map(|test| TestSelector::of(test).name).collect();
        assert_eq!(names, [&b"plain"[..], b"bytes \xff\x07", b"\\xFF"]);
        assert_eq!(tests[1].name, "bytes \\xFF\u{7}");
        assert_eq!(reported_name(b" bytes \xff\x07\n"), "bytes \\xFF\\x07");
    }

    #[test]
    fn tests_of_a_large_program_that_are_not_hidden_have_places() {
        let mut cases: Vec<_> =
            (0..=MAX_SELECTED).map(|number| case(format!("{number}").as_bytes())).collect();
        cases.insert(1, SelectableCase { tags: vec![b".".to_vec()], ..case(b"hidden \xff") });
        let tests = listed_tests(cases.clone(), ShardSupport::Has);
        let place = |index| ShardPlace { index, count: MAX_SELECTED + 1 };
        assert_eq!(tests[2].selector.as_deref(), Some("=@1/2001"));
        let places: Vec<_> = tests.iter().take(3).map(TestSelector::place_of).collect();
        assert_eq!(places, [Some(place(0)), None, Some(place(1))]);
        assert_eq!(TestSelector::of(&tests[2]).name, b"1");
        assert_eq!(TestSelector::of(&tests[1]).name, b"hidden \xff");
        assert!(
            listed_tests(cases, ShardSupport::None).iter().all(|test| TestSelector::place_of(test).is_none())
        );
    }

    #[test]
    fn pattern_is_exact_unless_another_name_compares_equal_or_a_wildcard_is_needed() {
        let names = ["a", "A", " b", "b", "c", "*c", "c*", "exclude:c", "c*d"];
        let tests = listed_tests(names.map(|name| case(name.as_bytes())).to_vec(), ShardSupport::None);
        let exact: Vec<_> = tests.iter().map(|test| TestSelector::of(test).is_exact).collect();
        assert_eq!(exact, [false, false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn special_characters_are_escaped() {
        for (name, text) in [
            ("a,b", r#""a\,b""#),
            ("a\\", r#""a\\""#),
            ("[t] \"q\"", r#""\[t] \"q\"""#),
            ("*", r#""***""#),
            ("*a", r#""**a""#),
            ("a*", r#""a**""#),
            ("exclude:x", r#""*exclude:x""#),
            (" a ", r#""a""#),
        ] {
            assert_eq!(String::from_utf8(pattern(name.as_bytes())).unwrap(), text);
        }
    }
}
