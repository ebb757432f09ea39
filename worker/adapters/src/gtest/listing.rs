//! Parser of GoogleTest's listing: the XML file, or text output from versions before 1.10, which write no
//! file.

use heeler_protocol::control::{ListedTest, ReportName, TraitPair};
use quick_xml::events::{BytesStart, Event};

use super::{adapter::NAME, same_names::number_tests_of_one_name};
use crate::{AdapterListing, ListingError, ListingOutput, scan};

pub(super) fn read(framework: &'static str, output: &ListingOutput) -> Result<AdapterListing, ListingError> {
    let (mut tests, failure) = match output.code {
        Some(0) => (read_tests(output)?, None),
        _ => {
            let file = output.file.as_deref();
            let listed = file.and_then(|file| read_xml(file).ok());
            let is_recognized = listed.is_some() || read_text(&output.stdout).is_ok();
            let of_exit =
                if is_recognized { ListingError::of_recognized_exit } else { ListingError::of_exit };
            let failure = of_exit(output);
            // Writing the file is the last step of a listing, so the failure came after it.
            match listed.filter(|_| !file.is_some_and(is_report_of_run)) {
                Some(tests) => (tests, Some(failure)),
                None => return Err(failure),
            }
        }
    };
    number_tests_of_one_name(&mut tests);
    Ok(AdapterListing { framework, tests, failure, warnings: Vec::new(), depends_on: Vec::new() })
}

fn read_tests(output: &ListingOutput) -> Result<Vec<ListedTest>, ListingError> {
    match &output.file {
        Some(file) => read_xml(file),
        None => read_text(&output.stdout),
    }
}

/// Returns whether a program may have listed its tests on standard output, regardless of how it ended and
/// what else it printed.
pub(super) fn is_text_listing(output: &ListingOutput) -> bool {
    let text = scan::decode_lossy(&output.stdout);
    let is_suite = |line: &str| line.ends_with('.') && !line.starts_with(' ');
    let mut pairs = text.lines().zip(text.lines().skip(1));
    output.code == Some(0) || pairs.any(|(line, next)| is_suite(line) && next.starts_with("  "))
}

/// Returns whether the file is a report of a run: the program ran its tests instead of listing them.
fn is_report_of_run(file: &[u8]) -> bool {
    memchr::memmem::find(file, b" status=\"").is_some()
}

fn damaged(reason: impl std::fmt::Display) -> ListingError {
    ListingError::Damaged { framework: NAME, reason: reason.to_string() }
}

fn read_xml(file: &[u8]) -> Result<Vec<ListedTest>, ListingError> {
    // Names may contain invalid UTF-8, which becomes U+FFFD from here on.
    let text = scan::decode_lossy(file);
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut tests = Vec::new();
    let mut suite = String::new();
    let mut is_listing = false;
    let mut is_whole = false;
    loop {
        let event = reader.read_event().map_err(|error| damaged(format!("invalid XML: {error}")))?;
        match event {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == "testsuites" => is_listing = true,
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == "testsuite" => {
                suite = ListedCase::read(&tag)?.name;
            }
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == "testcase" => {
                tests.push(ListedCase::read(&tag)?.into_test(&suite));
            }
            Event::End(tag) if tag.name().as_ref() == "testsuites" => is_whole = true,
            Event::Eof if !is_listing => return Err(damaged("the XML file is not a list of tests")),
            Event::Eof if !is_whole => return Err(damaged("the XML file is truncated")),
            Event::Eof => return Ok(tests),
            _ => {}
        }
    }
}

/// A test or a suite of the listing.
#[derive(Default)]
struct ListedCase {
    name: String,
    value: Option<String>,
    kind: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

impl ListedCase {
    fn read(tag: &BytesStart<'_>) -> Result<Self, ListingError> {
        let mut case = Self::default();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| damaged(format!("invalid XML: {error}")))?;
            let value = quick_xml::escape::unescape(&attribute.value)
                .map_err(|error| damaged(format!("invalid XML: {error}")))?
                .into_owned();
            match attribute.key.as_ref() {
                "name" => case.name = value,
                "value_param" => case.value = Some(value),
                "type_param" => case.kind = Some(value),
                "file" => case.file = Some(value),
                "line" => case.line = value.parse().ok().filter(|line| *line > 0),
                _ => {}
            }
        }
        Ok(case)
    }

    fn into_test(self, suite: &str) -> ListedTest {
        let name = format!("{suite}.{}", self.name);
        let skip = (is_disabled(suite) || is_disabled(&self.name)).then(|| "disabled".to_owned());
        // Same names as in GoogleTest's own listing.
        let mut traits: Vec<_> = [("type_param", self.kind), ("value_param", self.value)]
            .into_iter()
            .filter_map(|(name, value)| Some(TraitPair { name: name.to_owned(), value: value? }))
            .collect();
        let parameters: Vec<&str> = traits.iter().map(|one| one.value.as_str()).collect();
        let display = (!parameters.is_empty()).then(|| format!("{name} ({})", parameters.join(", ")));
        traits
            .extend(skip.is_some().then(|| TraitPair { name: "disabled".to_owned(), value: String::new() }));
        ListedTest {
            // As in `--gtest_output=xml`; suite names may contain full stops.
            report_name: Some(ReportName { class: suite.to_owned(), name: self.name }),
            name,
            display,
            file: self.file,
            line: self.line,
            skip,
            traits,
            selector: None,
            timeout_ms: None,
            broken: None,
            variant: None,
            reported_file: None,
        }
    }
}

/// Returns whether GoogleTest treats the name as disabled. GoogleTest's pattern for suites and tests is
/// `DISABLED_*:*/DISABLED_*`.
fn is_disabled(name: &str) -> bool {
    name.starts_with("DISABLED_") || name.contains("/DISABLED_")
}

/// Parses `Suite.` lines with indented names below them. Any other line is rejected: a program that ignores
/// its arguments must not look like a listing.
fn read_text(stdout: &[u8]) -> Result<Vec<ListedTest>, ListingError> {
    let text = scan::decode_lossy(stdout);
    let mut tests = Vec::new();
    let mut suite: Option<(&str, Option<&str>)> = None;
    for line in text.lines().skip_while(|line| line.starts_with("Running main() from ")) {
        if let Some(line) = line.strip_prefix("  ") {
            let Some((suite, kind)) = suite else { return Err(no_listing(line)) };
            let (name, value) = split_comment(line, "  # GetParam() = ");
            let case = ListedCase {
                name: name.to_owned(),
                value: value.map(str::to_owned),
                kind: kind.map(str::to_owned),
                ..ListedCase::default()
            };
            tests.push(case.into_test(suite));
        } else {
            let (name, kind) = split_comment(line, "  # TypeParam = ");
            suite = Some((name.strip_suffix('.').ok_or_else(|| no_listing(line))?, kind));
        }
    }
    if tests.is_empty() {
        return Err(no_listing(text.lines().next().unwrap_or_default()));
    }
    Ok(tests)
}

fn split_comment<'a>(line: &'a str, mark: &str) -> (&'a str, Option<&'a str>) {
    line.split_once(mark).map_or((line, None), |(name, comment)| (name, Some(comment)))
}

fn no_listing(line: &str) -> ListingError {
    let reason = if line.is_empty() {
        "it listed no tests, neither in its file nor on standard output".to_owned()
    } else {
        format!("expected a list of tests, found {:?}", scan::truncated(line, 200))
    };
    ListingError::NotThisFramework { framework: NAME, reason }
}
