//! Parser of the XML report that GoogleTest writes at the end of a run. The JSON report has the same content,
//! but needs version 1.10 and encodes non-ASCII text twice.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use heeler_core::{Failure, FixturePhase, SuiteFixture};
use heeler_protocol::control::ListedTest;
use quick_xml::events::{BytesStart, Event};

use super::{command::is_selected, failure::failure_of_text};
use crate::{FixtureFailure, FrameworkResult, FrameworkVerdict, RunReport, scan};

/// Parses a report; `None` if it is truncated or does not report a run.
pub(super) fn read(tests: &[&ListedTest], report: &[u8]) -> Option<RunReport> {
    let text = scan::decode_lossy(report);
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut parser = ReportParser::new(tests);
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => parser.open(&tag)?,
            Event::Empty(tag) => {
                parser.open(&tag)?;
                parser.close(tag.name().as_ref());
            }
            Event::End(tag) => parser.close(tag.name().as_ref()),
            Event::CData(text) => parser.text.push_str(&text),
            // GoogleTest splits a failure text at the end mark of a CDATA section.
            Event::Text(text) if parser.is_in_details => parser.text.push_str(&text),
            Event::GeneralRef(name) if parser.is_in_details => {
                parser.text.push_str(quick_xml::escape::resolve_predefined_entity(&name)?);
            }
            Event::Eof => return parser.is_whole.then_some(parser.report),
            _ => {}
        }
    }
}

/// Suite name that GoogleTest invents for failures of environments.
const OUTSIDE_SUITES: &str = "NonTestSuiteFailure";

struct ReportParser<'a> {
    tests: &'a [&'a ListedTest],
    /// Index of the next expected test: reports follow the listing order.
    next: usize,
    /// Indices of the tests by name, filled at the first test that is out of order.
    places: Option<HashMap<&'a str, VecDeque<usize>>>,
    report: RunReport,
    suite: String,
    case: Option<ReportedCase>,
    /// A failure or skip element is open, and `text` is its text so far.
    is_in_details: bool,
    text: String,
    is_whole: bool,
}

/// A test of the report.
struct ReportedCase {
    name: String,
    is_run: bool,
    is_skipped: bool,
    duration: Option<Duration>,
    failures: Vec<Failure>,
    /// Number of all failures, including dropped ones.
    failure_count: usize,
    reason: Option<String>,
}

impl<'a> ReportParser<'a> {
    fn new(tests: &'a [&'a ListedTest]) -> Self {
        Self {
            tests,
            next: 0,
            places: None,
            report: RunReport { verdicts: vec![None; tests.len()], ..RunReport::default() },
            suite: String::new(),
            case: None,
            is_in_details: false,
            text: String::new(),
            is_whole: false,
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Option<()> {
        match tag.name().as_ref() {
            "testsuite" => self.suite = attribute(tag, "name")?,
            "testcase" => self.case = Some(ReportedCase::read(tag)?),
            "failure" | "skipped" => {
                self.is_in_details = true;
                self.text.clear();
            }
            _ => {}
        }
        Some(())
    }

    fn close(&mut self, tag: &str) {
        match tag {
            "failure" => {
                let text = std::mem::take(&mut self.text);
                if let Some(case) = &mut self.case {
                    case.failure_count += 1;
                    if case.failures.len() < crate::MAX_FAILURES {
                        case.failures.push(failure_of_text(&text));
                    }
                }
                self.is_in_details = false;
            }
            "skipped" => {
                let text = std::mem::take(&mut self.text);
                if let Some(case) = &mut self.case {
                    case.is_skipped = true;
                    case.reason = failure_of_text(&text).message;
                }
                self.is_in_details = false;
            }
            "testcase" => {
                if let Some(case) = self.case.take() {
                    self.record(case);
                }
            }
            "testsuites" => self.is_whole = true,
            _ => {}
        }
    }

    fn record(&mut self, case: ReportedCase) {
        if case.name.is_empty() {
            // GoogleTest reports set-up and tear-down failures this way: of environments, and in newer
            // versions of suites.
            let failures = case.failures.iter().filter_map(|failure| failure.message.as_deref());
            let message = failures.collect::<Vec<_>>().join("\n");
            if self.suite == OUTSIDE_SUITES {
                self.report.outside_failure.get_or_insert(message);
            } else if self.report.fixture_failures.len() < crate::MAX_FAILURES {
                let fixture = SuiteFixture { suite: self.suite.clone(), phase: FixturePhase::Either };
                self.report.fixture_failures.push(FixtureFailure { fixture, message });
            }
            return;
        }
        if !case.is_run {
            return;
        }
        match self.find(&case.name) {
            Some(place) => self.report.verdicts[place] = Some(case.into_verdict()),
            None if self.is_listed(&case.name) => {}
            None => {
                let name = format!("{}.{}", self.suite, case.name);
                if !is_selected(self.tests, &name) {
                    self.report.unselected.get_or_insert(name);
                }
            }
        }
    }

    fn is_listed(&self, name: &str) -> bool {
        self.tests.iter().any(|test| is_name(&test.name, &self.suite, name))
    }

    /// Returns the next test with this name that has no verdict.
    fn find(&mut self, name: &str) -> Option<usize> {
        if self.tests.get(self.next).is_some_and(|test| is_name(&test.name, &self.suite, name)) {
            self.next += 1;
            return Some(self.next - 1);
        }
        let places = self.places.get_or_insert_with(|| {
            let mut places: HashMap<&str, VecDeque<usize>> = HashMap::with_capacity(self.tests.len());
            for (place, test) in self.tests.iter().enumerate() {
                places.entry(test.name.as_str()).or_default().push_back(place);
            }
            places
        });
        let waiting = places.get_mut(format!("{}.{name}", self.suite).as_str())?;
        while let Some(place) = waiting.pop_front() {
            if self.report.verdicts[place].is_none() {
                self.next = place + 1;
                return Some(place);
            }
        }
        None
    }
}

fn is_name(listed: &str, suite: &str, name: &str) -> bool {
    listed.strip_prefix(suite).and_then(|rest| rest.strip_prefix('.')) == Some(name)
}

impl ReportedCase {
    fn read(tag: &BytesStart<'_>) -> Option<Self> {
        let mut case = Self {
            name: String::new(),
            is_run: false,
            is_skipped: false,
            duration: None,
            failures: Vec::new(),
            failure_count: 0,
            reason: None,
        };
        for attribute in tag.attributes() {
            let attribute = attribute.ok()?;
            match attribute.key.as_ref() {
                "name" => case.name = quick_xml::escape::unescape(&attribute.value).ok()?.into_owned(),
                "status" => case.is_run = attribute.value.as_ref() == "run",
                "result" => case.is_skipped = attribute.value.as_ref() == "skipped",
                "time" => {
                    let seconds = attribute.value.parse().ok();
                    case.duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                }
                _ => {}
            }
        }
        Some(case)
    }

    fn into_verdict(self) -> FrameworkVerdict {
        let result = match (self.failure_count, self.is_skipped) {
            (1.., _) => FrameworkResult::Failed,
            (0, true) => FrameworkResult::Skipped,
            (0, false) => FrameworkResult::Passed,
        };
        let mut verdict = FrameworkVerdict::new(result, self.duration);
        verdict.failures = self.failures;
        verdict.reason = self.reason.filter(|_| result == FrameworkResult::Skipped);
        verdict
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let value = tag.attributes().flatten().find(|attribute| attribute.key.as_ref() == name)?;
    Some(quick_xml::escape::unescape(&value.value).ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str) -> ListedTest {
        ListedTest { name: name.to_owned(), ..ListedTest::default() }
    }

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" disabled="0" errors="0" time="0.2" timestamp="2026-11-22T20:00:00.000" name="AllTests">
  <testsuite name="A" tests="3" failures="1" disabled="0" skipped="1" errors="0" time="0.2" timestamp="x">
    <testcase name="a" file="t.cc" line="3" status="run" result="completed" time="0.012" timestamp="x" classname="A" />
    <testcase name="b" file="t.cc" line="4" status="run" result="completed" time="0." timestamp="x" classname="A">
      <failure message="t.cc:5&#x0A;Expected equality" type=""><![CDATA[t.cc:5
Expected equality of these values:
  3
  sum
    Which is: 2
ü ]]>]]&gt;<![CDATA[ end]]></failure>
      <failure message="" type=""><![CDATA[unknown file
C++ exception]]></failure>
    </testcase>
    <testcase name="c" file="t.cc" line="9" status="run" result="skipped" time="0" timestamp="x" classname="A">
      <skipped message="t.cc:9&#x0A;no device"><![CDATA[t.cc:9
no device]]></skipped>
    </testcase>
    <testcase name="DISABLED_d" status="notrun" result="suppressed" time="0" timestamp="x" classname="A" />
  </testsuite>
  <testsuite name="P/X.Y" tests="1" failures="0" disabled="0" skipped="0" errors="0" time="0" timestamp="x">
    <testcase name="a/&quot;x&quot;" status="run" result="completed" time="1" timestamp="x" classname="P/X.Y">
      <properties><property name="k" value="v"/></properties>
    </testcase>
  </testsuite>
</testsuites>
"#;

    #[test]
    fn report_has_verdicts_of_all_tests_in_any_order() {
        let tests = ["P/X.Y.a/\"x\"", "A.c", "A.DISABLED_d", "A.b", "A.a", "A.a"].map(test);
        let report = read(&tests.each_ref(), REPORT.as_bytes()).unwrap();
        let results: Vec<_> =
            report.verdicts.iter().map(|verdict| verdict.as_ref().map(|one| one.result.as_str())).collect();
        let expected = [Some("passed"), Some("skipped"), None, Some("failed"), Some("passed"), None];
        assert_eq!(results, expected);
        let [failure, second] = report.verdicts[3].as_ref().unwrap().failures.as_slice() else { panic!() };
        assert_eq!((failure.file.as_deref(), failure.line), (Some("t.cc"), Some(5)));
        assert_eq!((failure.expected.as_deref(), failure.actual.as_deref()), (Some("3"), Some("2")));
        assert!(failure.message.as_deref().unwrap().ends_with("ü ]]> end"), "{failure:?}");
        assert_eq!((second.message.as_deref(), second.file.as_deref()), (Some("C++ exception"), None));
        assert_eq!(report.verdicts[1].as_ref().unwrap().reason.as_deref(), Some("no device"));
        assert_eq!(report.verdicts[4].as_ref().unwrap().duration, Some(Duration::from_millis(12)));
        assert_eq!((report.outside_failure, report.unselected), (None, None));
    }

    #[test]
    fn unselected_test_is_named_unless_a_pattern_of_the_batch_may_have_selected_it() {
        let tests = ["A.a", "A.b", "A.c"].map(test);
        let report = read(&tests.each_ref(), REPORT.as_bytes()).unwrap();
        assert_eq!(report.unselected.as_deref(), Some("P/X.Y.a/\"x\""));
        let tests = ["A.a", "A.b*", "A.c"].map(test);
        let named = read(&tests.each_ref(), REPORT.as_bytes()).unwrap().unselected;
        assert_eq!(named.as_deref(), Some("A.b"), "no pattern matches it");
        let tests = ["A.a", "A.b", "A.c", "P/X.Y.a/*x*"].map(test);
        assert_eq!(read(&tests.each_ref(), REPORT.as_bytes()).unwrap().unselected, None);
    }

    #[test]
    fn failure_outside_tests_has_no_test() {
        let text = REPORT.replace(r#"name="a/&quot;x&quot;""#, r#"name="""#);
        let text = text.replace(
            "<properties>",
            "<failure message=\"\" type=\"\"><![CDATA[e.cc:1\nbad]]></failure><properties>",
        );
        let report = read(&[], text.as_bytes()).unwrap();
        let fixture = SuiteFixture { suite: "P/X.Y".into(), phase: FixturePhase::Either };
        assert_eq!(report.fixture_failures, [FixtureFailure { fixture, message: "bad".into() }]);
        let text = text.replace("name=\"P/X.Y\"", "name=\"NonTestSuiteFailure\"");
        let report = read(&[], text.as_bytes()).unwrap();
        assert_eq!(report.outside_failure.as_deref(), Some("bad"));
        assert_eq!(report.fixture_failures, []);
    }

    #[test]
    fn cut_report_is_no_report() {
        let tests = [test("A.a")];
        for end in 0..REPORT.trim_end().len() {
            assert_eq!(read(&tests.each_ref(), &REPORT.as_bytes()[..end]), None, "{end}");
        }
        assert_eq!(read(&tests.each_ref(), b"<testsuites><testcase status=\"run\"></testsuites>"), None);
    }
}
