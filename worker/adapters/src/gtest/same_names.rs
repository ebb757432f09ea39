//! Tests that share a name. GoogleTest permits them, and a filter selects all of them, so a process that runs
//! one also runs the others. Each is identified by its position among the tests of that name.

use std::collections::HashMap;

use heeler_protocol::control::ListedTest;

use crate::{FixtureFailure, FrameworkResult, RunReport, SuitePhase, TranscriptEvent, TranscriptParser};

/// Gives each test with a repeated name a selector: its position among the tests of that name, and their
/// count.
pub(super) fn number_tests_of_one_name(tests: &mut [ListedTest]) {
    let mut counts: HashMap<&str, (usize, usize)> = HashMap::with_capacity(tests.len());
    for test in tests.iter() {
        counts.entry(test.name.as_str()).or_default().1 += 1;
    }
    if counts.len() == tests.len() {
        return;
    }
    let mut selectors = Vec::with_capacity(tests.len());
    for test in tests.iter() {
        let (seen, count) = counts.entry(test.name.as_str()).or_default();
        *seen += 1;
        selectors.push((*count > 1).then(|| format!("{seen}/{count}")));
    }
    for (test, selector) in tests.iter_mut().zip(selectors) {
        test.selector = selector;
    }
}

/// The tests that a process runs for a batch that contains only some of the tests with the same name.
pub(super) struct TestsOfProcess<'a> {
    /// In batch order; tests with the same name in run order.
    pub(super) tests: Vec<&'a ListedTest>,
    /// Index of each test in the batch; `None` for a test outside the batch.
    places: Vec<Option<usize>>,
}

impl<'a> TestsOfProcess<'a> {
    /// Returns the tests that a process runs; `None` if they are exactly the batch.
    pub(super) fn new(batch: &[&'a ListedTest]) -> Option<Self> {
        let mut missing: HashMap<&str, Vec<usize>> = HashMap::new();
        for &test in batch {
            if let Some((place, count)) = place_and_count(test) {
                let places = missing.entry(test.name.as_str()).or_insert_with(|| (1..=count).collect());
                places.retain(|one| *one != place);
            }
        }
        missing.retain(|_, places| !places.is_empty());
        if missing.is_empty() {
            return None;
        }
        let mut all = Self { tests: Vec::new(), places: Vec::new() };
        let mut last_of_name: HashMap<&str, &'a ListedTest> = HashMap::new();
        for (index, &test) in batch.iter().enumerate() {
            if let (Some((place, _)), Some(places)) =
                (place_and_count(test), missing.get_mut(test.name.as_str()))
            {
                let earlier = places.extract_if(.., |one| *one < place).count();
                all.push_others(test, earlier);
                last_of_name.insert(test.name.as_str(), test);
            }
            all.tests.push(test);
            all.places.push(Some(index));
        }
        for (name, test) in last_of_name {
            all.push_others(test, missing.get(name).map_or(0, Vec::len));
        }
        Some(all)
    }

    /// Adds tests with the same name outside the batch.
    fn push_others(&mut self, test: &'a ListedTest, count: usize) {
        self.tests.extend(std::iter::repeat_n(test, count));
        self.places.extend(std::iter::repeat_n(None, count));
    }

    /// Returns the batch's parser, given the parser for all tests that its process runs.
    pub(super) fn parser_of_batch(
        &self,
        all: Box<dyn TranscriptParser + Send>,
    ) -> Box<dyn TranscriptParser + Send> {
        Box::new(BatchParser { all, places: self.places.clone(), events: Vec::new() })
    }

    /// Returns the batch's report, given the report on all tests that its process ran.
    pub(super) fn report_of_batch(&self, all: RunReport) -> RunReport {
        let mut verdicts = Vec::with_capacity(self.places.len());
        let mut has_other_failure = all.has_other_failure;
        for (place, verdict) in self.places.iter().zip(all.verdicts) {
            match place {
                Some(_) => verdicts.push(verdict),
                None => {
                    has_other_failure |=
                        verdict.is_some_and(|verdict| verdict.result == FrameworkResult::Failed)
                }
            }
        }
        RunReport { verdicts, has_other_failure, ..all }
    }
}

fn place_and_count(test: &ListedTest) -> Option<(usize, usize)> {
    let (place, count) = test.selector.as_deref()?.split_once('/')?;
    let (place, count) = (place.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&place).then_some((place, count))
}

/// Parser that leaves out the tests outside the batch. Their output belongs to no test.
struct BatchParser {
    all: Box<dyn TranscriptParser + Send>,
    places: Vec<Option<usize>>,
    /// Events of all tests of the process.
    events: Vec<TranscriptEvent>,
}

impl BatchParser {
    fn pass_on(&mut self, events: &mut Vec<TranscriptEvent>) {
        let places = &self.places;
        events.extend(self.events.drain(..).filter_map(|event| match event {
            TranscriptEvent::Begun { place } => Some(TranscriptEvent::Begun { place: places[place]? }),
            TranscriptEvent::Part { place, part } => {
                Some(TranscriptEvent::Part { place: places[place]?, part })
            }
            TranscriptEvent::TimeLimit { place, limit } => {
                Some(TranscriptEvent::TimeLimit { place: places[place]?, limit })
            }
            TranscriptEvent::Ended { place, verdict } => {
                Some(TranscriptEvent::Ended { place: places[place]?, verdict })
            }
            TranscriptEvent::File { place, path, description } => {
                Some(TranscriptEvent::File { place: places[place]?, path, description })
            }
            TranscriptEvent::TestOutput { place, stream, bytes } => {
                Some(TranscriptEvent::TestOutput { place: places[place]?, stream, bytes })
            }
            TranscriptEvent::Paused { place } => Some(TranscriptEvent::Paused { place: places[place]? }),
            TranscriptEvent::Resumed { place } => Some(TranscriptEvent::Resumed { place: places[place]? }),
            output @ (TranscriptEvent::Output(_) | TranscriptEvent::ErrorOutput(_)) => Some(output),
            TranscriptEvent::Confirmed => Some(TranscriptEvent::Confirmed),
        }));
    }
}

impl TranscriptParser for BatchParser {
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        self.all.on_stdout(chunk, &mut self.events);
        self.pass_on(events);
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        self.all.on_output_end(&mut self.events);
        self.pass_on(events);
    }

    fn is_complete(&self) -> bool {
        self.all.is_complete()
    }

    fn explains_exit(&self, code: i32) -> bool {
        self.all.explains_exit(code)
    }

    fn is_after_end_marker(&self) -> bool {
        self.all.is_after_end_marker()
    }

    fn doubtful_since(&self) -> Option<usize> {
        let since = self.all.doubtful_since()?;
        // Doubt about a test outside the batch applies to the batch's tests after it.
        let after = self.places.get(since..)?.iter().flatten().min();
        Some(after.copied().unwrap_or(usize::MAX))
    }

    fn unselected_test(&self) -> Option<&str> {
        self.all.unselected_test()
    }

    fn suite_phase(&self) -> Option<SuitePhase> {
        match self.all.suite_phase()? {
            SuitePhase::SetUp { suite, places } => {
                let places = places.into_iter().filter_map(|place| self.places[place]).collect();
                Some(SuitePhase::SetUp { suite, places })
            }
            phase @ (SuitePhase::Dependency { .. }
            | SuitePhase::AfterTests { .. }
            | SuitePhase::TearDown { .. }
            | SuitePhase::FixtureTearDown { .. }) => Some(phase),
        }
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        self.all.fixture_failures()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.all.outside_failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtest::{grammar, report};

    fn listing() -> Vec<ListedTest> {
        let mut tests: Vec<_> = ["A.x", "P/Q.t/0", "P/Q.t/1", "P/Q.t/0", "P/Q.t/0"]
            .map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() })
            .into();
        number_tests_of_one_name(&mut tests);
        tests
    }

    fn run(batch: &[&ListedTest], transcript: &str) -> Vec<(usize, &'static str)> {
        let all = TestsOfProcess::new(batch).unwrap();
        let mut parser = all.parser_of_batch(Box::new(grammar::gtest_parser(&all.tests)));
        let mut events = Vec::new();
        for byte in transcript.as_bytes() {
            parser.on_stdout(&[*byte], &mut events);
        }
        parser.on_output_end(&mut events);
        assert!(parser.is_complete());
        assert_eq!((parser.unselected_test(), parser.doubtful_since()), (None, None));
        let ended = |event: TranscriptEvent| match event {
            TranscriptEvent::Ended { place, verdict } => Some((place, verdict.result.as_str())),
            _ => None,
        };
        events.into_iter().filter_map(ended).collect()
    }

    #[test]
    fn only_tests_of_one_name_are_numbered() {
        let selectors: Vec<_> = listing().into_iter().map(|test| test.selector).collect();
        assert_eq!(
            selectors.iter().map(Option::as_deref).collect::<Vec<_>>(),
            [None, Some("1/3"), None, Some("2/3"), Some("3/3"),]
        );
    }

    #[test]
    fn whole_batch_needs_no_others() {
        let tests = listing();
        assert!(TestsOfProcess::new(&tests.iter().collect::<Vec<_>>()).is_none());
        assert!(TestsOfProcess::new(&[&tests[0], &tests[2]]).is_none());
    }

    #[test]
    fn each_test_of_a_name_has_the_result_at_its_place() {
        let results = ["OK", "FAILED", "SKIPPED"];
        let mut transcript = "[==========] Running 3 tests from 1 test suite.\n".to_owned();
        let mut cases = String::new();
        for result in results {
            let marker = ["[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"]
                .into_iter()
                .find(|marker| marker.contains(result))
                .unwrap();
            transcript.push_str(&format!("[ RUN      ] P/Q.t/0\n{marker} P/Q.t/0 (0 ms)\n"));
            let details = match result {
                "FAILED" => "<failure message=\"\"><![CDATA[bad]]></failure>",
                "SKIPPED" => "<skipped message=\"\"><![CDATA[no]]></skipped>",
                _ => "",
            };
            cases.push_str(&format!("<testcase name=\"t/0\" status=\"run\">{details}</testcase>"));
        }
        transcript.push_str("[----------] 3 tests from P/Q (0 ms total)\n\n");
        transcript
            .push_str("[==========] 3 tests from 1 test suite ran. (0 ms total)\n[  PASSED  ] 1 test.\n");
        let xml = format!("<testsuites><testsuite name=\"P/Q\">{cases}</testsuite></testsuites>");
        let tests = listing();
        let expected = [(1, "passed"), (3, "failed"), (4, "skipped")];
        for chosen in 1..7_u32 {
            let chosen: Vec<_> =
                (0..3).filter(|bit| chosen >> bit & 1 == 1).map(|bit: usize| expected[bit]).collect();
            let batch: Vec<_> = chosen.iter().map(|(index, _)| &tests[*index]).collect();
            let wanted: Vec<_> = chosen.iter().map(|(_, result)| *result).collect();
            let results = run(&batch, &transcript);
            assert_eq!(results, wanted.iter().copied().enumerate().collect::<Vec<_>>());
            let all = TestsOfProcess::new(&batch).unwrap();
            let report = all.report_of_batch(report::read(&all.tests, xml.as_bytes()).unwrap());
            let reported: Vec<_> =
                report.verdicts.iter().map(|verdict| verdict.as_ref().unwrap().result.as_str()).collect();
            assert_eq!((reported, report.unselected), (wanted.clone(), None));
            assert_eq!(report.has_other_failure, !wanted.contains(&"failed"));
        }
    }
}
