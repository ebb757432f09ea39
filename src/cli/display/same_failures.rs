//! Folds repeated failures. One missing fixture fails hundreds of tests with the same message; only the
//! first is shown in full.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use heeler_core::{Outcome, SourcePlace};
use heeler_protocol::mtp::FailureInfo;
use heeler_report::{FailureDetail, TestReport};

/// Maximum number of different failures to remember; more would not be read.
const MAX_FAILURES: usize = 10_000;
/// Minimum length of a test name that is removed from compared texts. A shorter name could be any word.
const MIN_NAME: usize = 5;

/// Failures shown in full: the test's name by failure hash.
#[derive(Debug, Default)]
pub(super) struct ShownFailures(HashMap<u64, String>);

impl ShownFailures {
    /// Returns the name of an earlier test that was shown with the same failure. Remembers a new failure.
    pub(super) fn earlier(&mut self, record: &TestReport) -> Option<String> {
        let key = failure_key(record)?;
        let earlier = self.0.get(&key).cloned();
        if earlier.is_none() && self.0.len() < MAX_FAILURES {
            self.0.insert(key, record.shown_name().to_owned());
        }
        earlier
    }
}

/// Returns the hash of everything that a failure shows, except its test's name and place. Returns `None` for
/// other results: after a crash, hang or leak, each test matters.
fn failure_key(record: &TestReport) -> Option<u64> {
    let detail = record.detail.as_deref().filter(|detail| is_plain_failure(record, detail))?;
    let name = own_name(record);
    let definition = record.definition();
    let mut hasher = DefaultHasher::new();
    record.suite.hash(&mut hasher);
    let mut add = |text: Option<&str>| text.map(|text| without_name(text, name)).hash(&mut hasher);
    for text in [&detail.message, &detail.actual, &detail.expected, &detail.stdout, &detail.stderr] {
        add(text.as_deref());
    }
    for FailureInfo { message, file, line, .. } in &detail.failures {
        add(message.as_deref());
        let place = file.clone().map(|file| SourcePlace { file, line: *line });
        add(place.filter(|place| Some(place) != definition.as_ref()).map(place_text).as_deref());
    }
    if !is_own_place(record, definition.as_ref()) {
        add(record.failed_place().cloned().map(place_text).as_deref());
        add(detail.stacktrace.as_deref());
    }
    Some(hasher.finish())
}

fn is_plain_failure(record: &TestReport, detail: &FailureDetail) -> bool {
    record.outcome == Outcome::Failed
        && !record.is_group
        && detail.message.is_some()
        && detail.files.is_empty()
        && detail.leaked.is_empty()
        && detail.isolated_rerun.is_none()
}

/// Returns whether the failure's place is the test's definition: the test has not started, so its stack is
/// only that place.
fn is_own_place(record: &TestReport, definition: Option<&SourcePlace>) -> bool {
    record.failed_place().is_some_and(|place| Some(place) == definition)
}

fn place_text(SourcePlace { file, line }: SourcePlace) -> String {
    format!("{file}:{}", line.unwrap_or_default())
}

/// Returns the part of a test's name that messages contain.
fn own_name(record: &TestReport) -> &str {
    let name = record.shown_name();
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns a text without the test's name and without memory addresses.
pub(super) fn without_name(text: &str, name: &str) -> String {
    let text = if name.len() < MIN_NAME { text.to_owned() } else { text.replace(name, "") };
    let mut pieces = text.split("0x");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str("0x");
        plain.push_str(piece.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()));
    }
    plain
}

/// Groups failures with equal descriptions, in the order of the first failure of each group.
pub(super) fn grouped<'a>(
    failures: impl Iterator<Item = &'a TestReport>,
    reasons: impl Fn(&TestReport) -> Vec<String>,
) -> Vec<Vec<&'a TestReport>> {
    let mut groups: Vec<Vec<&TestReport>> = Vec::new();
    let mut known: HashMap<(&Option<std::sync::Arc<str>>, Vec<String>), usize> = HashMap::new();
    for record in failures {
        let detail = record.detail.as_deref().filter(|detail| is_plain_failure(record, detail));
        if detail.is_none() {
            groups.push(vec![record]);
            continue;
        }
        let is_own = is_own_place(record, record.definition().as_ref());
        let place = record.definition().map(place_text).unwrap_or_default();
        let plain = |reason: String| {
            let reason = without_name(&reason, own_name(record));
            // The place may be relative to the working directory, so compare it with the end of the
            // definition.
            let own = reason.split_once(": ").filter(|(at, _)| is_own && place.ends_with(at));
            own.map_or(reason.clone(), |(_, rest)| rest.to_owned())
        };
        let key = (&record.suite, reasons(record).into_iter().map(plain).collect());
        let place = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use heeler_report::{StepCounts, TestDefinition};

    use super::*;

    fn failed(name: &str, message: &str, line: u32, stack: &str) -> TestReport {
        let place = |line| SourcePlace { file: "/w/a.py".to_owned(), line: Some(line) };
        let detail = FailureDetail {
            message: Some(message.to_owned()),
            stacktrace: Some(stack.to_owned()),
            failed_at: Some(place(line)),
            ..FailureDetail::default()
        };
        TestReport {
            uid: format!("s::{name}"),
            suite: Some("s".into()),
            display: None,
            report_name: None,
            outcome: Outcome::Failed,
            duration: None,
            cpu_ms: None,
            peak_kib: None,
            start_utc: None,
            is_group: false,
            steps: StepCounts::default(),
            defined_at: Some(TestDefinition { file: "/w/a.py".into(), line: Some(7) }),
            detail: Some(Box::new(detail)),
        }
    }

    #[test]
    fn failures_differ_by_all_that_is_not_their_test() {
        let earlier = |one: TestReport, other: TestReport| {
            let mut shown = ShownFailures::default();
            assert_eq!(shown.earlier(&one), None);
            shown.earlier(&other).is_some()
        };
        let set_up =
            |name: &str| failed(name, &format!("no fixture for {name} at 0x7f{}", name.len()), 7, name);
        assert!(earlier(set_up("test_alpha"), set_up("test_beta")), "neither has begun");
        let call = |name: &str, line, stack: &str| failed(name, "assert 1 == 2", line, stack);
        assert!(earlier(call("test_a[1]", 9, "in f"), call("test_a[2]", 9, "in f")));
        assert!(!earlier(call("test_a[1]", 9, "in f"), call("test_a[2]", 10, "in f")), "elsewhere");
        assert!(!earlier(call("test_a[1]", 9, "in f"), call("test_a[2]", 9, "in g")), "another caller");
        let mut no_place = [failed("test_a", "lost", 9, "in f"), failed("test_b", "lost", 9, "in g")];
        no_place.iter_mut().for_each(|one| one.detail.as_mut().unwrap().failed_at = None);
        let [one, other] = no_place;
        assert!(!earlier(one, other), "another caller, at a place that is not known");
        let crashed = TestReport { outcome: Outcome::Crashed, ..set_up("test_beta") };
        assert!(!earlier(set_up("test_alpha"), crashed));
        let mut loud = set_up("test_beta");
        loud.detail.as_mut().unwrap().stdout = Some("said".to_owned());
        assert!(!earlier(set_up("test_alpha"), loud), "it has written something else");
    }

    #[test]
    fn equal_failures_are_groups_in_the_order_of_their_first() {
        let tests = [("test_one", "a"), ("test_two", "b"), ("test_three", "a"), ("test_four", "a")];
        let records = tests.map(|(name, message)| failed(name, message, 7, ""));
        let reasons = |record: &TestReport| {
            vec![format!("a.py:7: {}", record.detail_text(|detail| detail.message.as_ref()).unwrap())]
        };
        let names = |group: &Vec<&TestReport>| group.iter().map(|one| one.uid.clone()).collect::<Vec<_>>();
        let groups: Vec<_> = grouped(records.iter(), reasons).iter().map(names).collect();
        assert_eq!(groups, [vec!["s::test_one", "s::test_three", "s::test_four"], vec!["s::test_two"]]);
    }
}
