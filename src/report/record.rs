//! One test of a run with the data that a report prints. Of a passed test only its name, duration and
//! resource usage are kept.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use wire::{
    control::Attempt,
    mtp::{ExecutionState, LeftBehind, NodeType, TestNode, key},
};

use super::Outcome;

/// One test, or one program that failed outside any test.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The uid of the node.
    pub uid: String,
    /// Name of the suite, where the node has it; shared between the records of a suite.
    pub suite: Option<Arc<str>>,
    /// The display name, only where it has more information than the name.
    pub display: Option<String>,
    pub outcome: Outcome,
    pub duration: Option<Duration>,
    /// CPU time of its process, in milliseconds, where the test had the process to itself.
    pub cpu_ms: Option<f64>,
    /// Peak memory of the same process, in KiB.
    pub peak_kib: Option<u64>,
    /// Start time, in ISO 8601.
    pub start_utc: Option<String>,
    /// Whether this is a suite or program that died outside any test.
    pub is_group: bool,
    /// All other data; `None` for a test that passed at the first attempt and left nothing behind.
    pub detail: Option<Box<Detail>>,
}

/// The data of a test that did not simply pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Detail {
    /// Name of the signal that killed it.
    pub signal: Option<String>,
    /// Exit code of a process that exited without a result.
    pub exit_code: Option<i64>,
    /// The reason for the failure or the skip.
    pub message: Option<String>,
    pub stacktrace: Option<String>,
    /// The actual value of an assertion.
    pub actual: Option<String>,
    /// The expected value of an assertion.
    pub expected: Option<String>,
    pub file: Option<String>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// A shell command line that runs the test in isolation.
    pub reproduce: Option<String>,
    /// The result of the isolated rerun.
    pub alone: Option<String>,
    /// Number of the deciding attempt, from 1.
    pub attempt: Option<u64>,
    /// Attached files: path and description.
    pub files: Vec<(String, String)>,
    /// The earlier attempts, where they are reported.
    pub attempts: Vec<Attempt>,
    pub worker: Option<u64>,
    /// Processes that the test left behind and that were killed.
    pub leaked: Vec<LeftBehind>,
    /// Whether the test never started because the run ended earlier: by the user, or by a limit that the user
    /// set.
    pub is_called_off: bool,
}

impl Record {
    /// Returns the record of a node, or `None` while the node has not ended.
    #[must_use]
    pub fn new(node: &TestNode) -> Option<Self> {
        let outcome = Outcome::of(node)?;
        let suite = node.text(key::SUITE);
        Some(Self {
            uid: node.uid.clone(),
            suite: suite.map(Arc::from),
            display: telling_display(node, suite).map(str::to_owned),
            outcome,
            duration: node.duration_ms.and_then(milliseconds),
            cpu_ms: node.other.get(key::CPU_MS).and_then(Value::as_f64),
            peak_kib: number(node, key::PEAK_MEMORY_KIB),
            start_utc: node.start_utc.clone(),
            is_group: is_group(node),
            detail: (outcome != Outcome::Passed || node.other.contains_key(key::LEAKED))
                .then(|| Box::new(Detail::new(node))),
        })
    }

    /// Returns the name that the framework uses: the uid without the suite.
    #[must_use]
    pub fn name(&self) -> &str {
        suite_free(&self.uid, self.suite.as_deref())
    }

    /// Returns the name to display.
    #[must_use]
    pub fn people_name(&self) -> &str {
        self.display.as_deref().unwrap_or_else(|| self.name())
    }

    /// Returns the text that `pick` selects from the detail, without trailing white space, unless it is
    /// empty.
    #[must_use]
    pub fn text(&self, pick: impl FnOnce(&Detail) -> Option<&String>) -> Option<&str> {
        self.detail.as_deref().and_then(pick).map(|text| text.trim_end()).filter(|text| !text.is_empty())
    }

    /// Returns whether the test is known to have left processes behind.
    #[must_use]
    pub fn is_leaky(&self) -> bool {
        !self.leaked().is_empty()
    }

    /// Returns the processes that the test is known to have left behind.
    #[must_use]
    pub fn leaked(&self) -> &[LeftBehind] {
        self.detail.as_deref().map_or(&[], |detail| &detail.leaked)
    }

    /// Adds processes that the test left behind.
    pub(super) fn add_leaked(&mut self, processes: &[LeftBehind]) {
        let leaked = &mut self.detail.get_or_insert_default().leaked;
        for process in processes {
            if !leaked.contains(process) {
                leaked.push(process.clone());
            }
        }
    }

    /// Returns the number of attempts, at least 1.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        let told = |detail: &Detail| detail.attempt.unwrap_or(detail.attempts.len() as u64 + 1);
        self.detail.as_deref().map_or(1, told).max(1)
    }
}

impl Detail {
    fn new(node: &TestNode) -> Self {
        let text = |key| node.text(key).map(str::to_owned);
        Self {
            signal: text(key::SIGNAL),
            exit_code: node.other.get(key::EXIT_CODE).and_then(Value::as_i64),
            message: node.error_message.clone(),
            stacktrace: node.error_stacktrace.clone(),
            actual: node.assert_actual.clone(),
            expected: node.assert_expected.clone(),
            file: node.location_file.clone(),
            line: node.location_line_start,
            stdout: node.standard_output.clone(),
            stderr: node.standard_error.clone(),
            reproduce: text(key::REPRODUCE),
            alone: text(key::ALONE),
            attempt: number(node, key::ATTEMPT),
            files: files(node),
            attempts: list(node, key::ATTEMPTS, serde_json::from_value),
            worker: number(node, key::WORKER),
            leaked: list(node, key::LEAKED, serde_json::from_value),
            is_called_off: node.state == Some(ExecutionState::Cancelled)
                && Outcome::of(node) == Some(Outcome::NotRun),
        }
    }
}

/// Returns the files attached to a result, in their order.
fn files(node: &TestNode) -> Vec<(String, String)> {
    let member = |number: usize, member: &str| node.text(&format!("attachments.{number}.{member}"));
    let file = |number| {
        let uri = member(number, "uri")?;
        let path = wire::mtp::path_of_file_uri(uri).unwrap_or_else(|| uri.to_owned());
        Some((path, member(number, "description").unwrap_or_default().to_owned()))
    };
    (0..).map_while(file).collect()
}

/// Returns whether a node is a suite or a program, not a test.
pub(crate) fn is_group(node: &TestNode) -> bool {
    node.node_type == NodeType::Group || node.text(key::SUITE) == Some(node.uid.as_str())
}

/// Returns the suite and name of a node for display.
pub(crate) fn split_name(node: &TestNode) -> (Option<String>, String) {
    let suite = node.text(key::SUITE);
    let name = telling_display(node, suite).unwrap_or_else(|| suite_free(&node.uid, suite));
    (suite.map(str::to_owned), name.to_owned())
}

/// Returns the display name where it has more information than the end of the name.
fn telling_display<'a>(node: &'a TestNode, suite: Option<&str>) -> Option<&'a str> {
    let display = node.display_name.as_str();
    (!display.is_empty() && !suite_free(&node.uid, suite).ends_with(display)).then_some(display)
}

/// Reads a number; another server may have written it as text.
pub(crate) fn number(node: &TestNode, key: &str) -> Option<u64> {
    let value = node.other.get(key)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Reads a list. Another server may use the member for something else; the list is then empty.
fn list<T>(node: &TestNode, key: &str, read: fn(Value) -> serde_json::Result<Vec<T>>) -> Vec<T> {
    node.other.get(key).and_then(|value| read(value.clone()).ok()).unwrap_or_default()
}

fn suite_free<'a>(uid: &'a str, suite: Option<&str>) -> &'a str {
    suite
        .and_then(|suite| uid.strip_prefix(suite)?.strip_prefix("::"))
        .filter(|name| !name.is_empty())
        .unwrap_or(uid)
}

fn milliseconds(milliseconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use wire::mtp::ExecutionState;

    use super::*;

    fn record(uid: &str, display: &str, suite: &str) -> Record {
        let mut node = TestNode::test(uid, display, ExecutionState::Failed);
        node.other.insert(key::SUITE.into(), suite.into());
        Record::new(&node).unwrap()
    }

    #[test]
    fn the_name_is_the_uid_without_the_suite() {
        assert_eq!(record("a::b::c", "c", "a::b").people_name(), "c");
        assert_eq!(record("a::m::c", "c", "a").people_name(), "m::c");
        assert_eq!(record("a::m::c", "c (x = 5)", "a").people_name(), "c (x = 5)");
        assert_eq!(record("x", "", "a").people_name(), "x");
        assert_eq!(record("a::", "", "a").name(), "a::");
    }

    #[test]
    fn a_node_that_is_the_suite_itself_is_a_group() {
        assert!(record("a", "a", "a").is_group);
        assert!(!record("a::a", "a", "a").is_group);
    }

    #[test]
    fn durations_that_are_no_durations_are_left_out() {
        for (milliseconds, expected) in [
            (1500.0, Some(Duration::from_millis(1500))),
            (-1.0, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            let node = TestNode {
                duration_ms: Some(milliseconds),
                ..TestNode::test("u", "u", ExecutionState::Passed)
            };
            assert_eq!(Record::new(&node).unwrap().duration, expected);
        }
    }

    #[test]
    fn earlier_attempts_are_read_where_they_are_told() {
        let mut node = TestNode::test("u", "u", ExecutionState::Passed);
        node.outcome_kind = Some("passed-with-retries".into());
        node.other.insert(
            key::ATTEMPTS.into(),
            serde_json::json!([{"state":"failed","message":"no","duration_us":7}]),
        );
        let record = Record::new(&node).unwrap();
        assert_eq!((record.attempts(), record.detail.unwrap().attempts[0].message.as_str()), (2, "no"));
        node.other.insert(key::ATTEMPTS.into(), "three".into());
        node.other.insert(key::ATTEMPT.into(), "3".into());
        assert_eq!(Record::new(&node).unwrap().attempts(), 3);
    }
}
