//! The test node: identity, location and result of a test as clients see it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::Value;

use super::NodeMembers;
use crate::rpc::BorrowedText;

/// Kind of a node: a test or a group of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeType {
    /// A single test.
    #[default]
    Action,
    /// A suite, class or program.
    Group,
}

/// Execution state of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExecutionState {
    /// Known, but not run.
    #[default]
    Discovered,
    /// Started, but not ended.
    InProgress,
    /// Ended without a failure.
    Passed,
    /// Skipped by the framework.
    Skipped,
    /// Reported as failed by the framework.
    Failed,
    /// Ended by a timeout.
    TimedOut,
    /// Crashed, lost, or could not be run.
    Error,
    /// Cancelled by the user.
    Cancelled,
    /// Unknown to this version.
    Unknown,
}

impl ExecutionState {
    /// Returns whether no other state can follow in the same run.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Discovered | Self::InProgress | Self::Unknown)
    }

    /// Returns the state's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Discovered => "discovered",
            Self::InProgress => "in-progress",
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    fn parse(word: &str) -> Self {
        match word {
            "discovered" => Self::Discovered,
            "in-progress" => Self::InProgress,
            "passed" => Self::Passed,
            "skipped" => Self::Skipped,
            "failed" => Self::Failed,
            "timed-out" => Self::TimedOut,
            "error" => Self::Error,
            "cancelled" | "canceled" => Self::Cancelled,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for ExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ExecutionState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ExecutionState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&BorrowedText::deserialize(deserializer)?.0))
    }
}

/// Name and value assigned to a test by its framework; encoded as `{"name":"value"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestTrait {
    /// Name, such as `Category`.
    pub name: String,
    /// Value; empty for a bare tag.
    pub value: String,
}

/// A test or group with its location and result. Times are UTC in ISO 8601, durations are milliseconds.
///
/// Members without a field are kept in `members`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestNode {
    /// Unique id of the test, the same in every run: `<suite>::<name>`.
    pub uid: String,
    /// Display name of the test.
    pub display_name: String,
    /// Kind of the node: test or group.
    pub node_type: NodeType,
    /// Execution state; absent for groups.
    pub state: Option<ExecutionState>,
    /// Outcome kind, more specific than the state, such as `passed-with-retries`, `crashed`, `not-run`.
    pub outcome_kind: Option<String>,
    /// Path of the source file.
    pub location_file: Option<String>,
    /// First line in the source file, from 1.
    pub location_line_start: Option<u32>,
    /// Last line in the source file.
    pub location_line_end: Option<u32>,
    /// Class or suite that contains the test.
    pub location_type: Option<String>,
    /// Function or case of the test.
    pub location_method: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: Option<f64>,
    /// Start time of the test.
    pub start_utc: Option<String>,
    /// End time of the test.
    pub stop_utc: Option<String>,
    /// Failure message, or the reason why the test was skipped.
    pub error_message: Option<String>,
    /// Stack trace or location of the failure.
    pub error_stacktrace: Option<String>,
    /// Actual value of a failed assertion.
    pub assert_actual: Option<String>,
    /// Expected value of a failed assertion.
    pub assert_expected: Option<String>,
    /// Standard output of the test, truncated.
    pub standard_output: Option<String>,
    /// Standard error of the test, truncated.
    pub standard_error: Option<String>,
    /// Traits of the test; omitted if empty.
    pub traits: Vec<TestTrait>,
    /// All other members, such as `heeler.*`, `attachments.N.*` and `retry.*`.
    pub members: NodeMembers,
}

impl TestNode {
    /// Returns a test node with only a state.
    #[must_use]
    pub fn test(uid: impl Into<String>, display_name: impl Into<String>, state: ExecutionState) -> Self {
        Self { uid: uid.into(), display_name: display_name.into(), state: Some(state), ..Self::default() }
    }

    /// Returns the text of a member in `members`.
    #[must_use]
    pub fn text_member(&self, key: &str) -> Option<&str> {
        self.members.get(key)?.as_str()
    }
}

/// Names of Heeler's own members in nodes.
pub mod key {
    /// Prefix of Heeler's own members.
    pub(crate) const OWN_PREFIX: &str = "heeler.";
    /// Shell command that runs this test in isolation.
    pub const REPRODUCE: &str = "heeler.reproduce";
    /// Number of the worker that ran the test, from 1.
    pub const WORKER: &str = "heeler.worker";
    /// Output of a running test since the last update with output: standard output and standard error in
    /// reading order.
    pub const OUTPUT: &str = "heeler.output";
    /// Name of the signal that killed the test, such as `SIGSEGV`.
    pub const SIGNAL: &str = "heeler.signal";
    /// Exit code of a process that ended without a report.
    pub const EXIT_CODE: &str = "heeler.exit-code";
    /// Trait of a test that the framework skips by default. Its value is the reason, if there is one.
    pub const IGNORED_TRAIT: &str = "ignored";
    /// Name of the suite.
    pub const SUITE: &str = "heeler.suite";
    /// Class of the test in JUnit reports, the same as in the framework's reports; absent if equal to the
    /// suite.
    pub const REPORT_CLASS: &str = "heeler.report-class";
    /// Name of the test in JUnit reports.
    pub const REPORT_NAME: &str = "heeler.report-name";
    /// Path of the test program.
    pub const PROGRAM: &str = "heeler.program";
    /// Framework that listed the test.
    pub const FRAMEWORK: &str = "heeler.framework";
    /// Whether tests of the framework may have parts, which are only known after a run. Used in listings of
    /// the command line.
    pub const MAY_HAVE_PARTS: &str = "heeler.may-have-parts";
    /// Result of the isolated rerun after a crash: `crashes`, `passes`, `fails` or `hangs`.
    pub const ISOLATED_RERUN: &str = "heeler.isolated-rerun";
    /// Number of the final attempt, from 1.
    pub const ATTEMPT: &str = "retry.attempt";
    /// Attempts before the final one, in order; read by [`crate::mtp::attempts_of_node`].
    pub const ATTEMPTS: &str = "heeler.attempts";

    /// Processes that the test left running, if it had a process of its own: a list of
    /// [`crate::mtp::LeakedProcessInfo`].
    pub const LEAKED: &str = "heeler.leaked";
    /// Parts of the test (subcases, sections, data rows): a list of [`crate::mtp::TestPartInfo`].
    pub const PARTS: &str = "heeler.parts";
    /// Number of parts dropped beyond the maximum.
    pub const PARTS_LEFT_OUT: &str = "heeler.parts-left-out";
    /// Failures of the test in order, if there are several: a list of [`crate::mtp::FailureInfo`]. Location
    /// and assertion of the node belong to the first failure; message and stack trace name all.
    pub const FAILURES: &str = "heeler.failures";
    /// Number of finished iterations, including the last one, if the test was to run more than once.
    pub(crate) const ITERATIONS: &str = "heeler.iterations";
    /// CPU time of the test's process and its reaped children in milliseconds, if the test had a process of
    /// its own.
    pub const CPU_MS: &str = "heeler.cpu-ms";
    /// Peak resident memory of the same processes in KiB.
    pub const PEAK_MEMORY_KIB: &str = "heeler.peak-memory-kib";

    /// All names, most frequent first.
    pub(in crate::mtp) const ALL: [&str; 20] = [
        SUITE,
        REPORT_CLASS,
        REPORT_NAME,
        PROGRAM,
        WORKER,
        CPU_MS,
        PEAK_MEMORY_KIB,
        REPRODUCE,
        SIGNAL,
        EXIT_CODE,
        ISOLATED_RERUN,
        ATTEMPT,
        ATTEMPTS,
        LEAKED,
        PARTS,
        PARTS_LEFT_OUT,
        FAILURES,
        OUTPUT,
        ITERATIONS,
        FRAMEWORK,
    ];
}

impl Serialize for TestNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Identity and state.
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uid", &self.uid)?;
        map.serialize_entry("display-name", &self.display_name)?;
        map.serialize_entry("node-type", if self.node_type == NodeType::Group { "group" } else { "action" })?;
        if let Some(state) = self.state {
            map.serialize_entry("execution-state", &state)?;
        }
        // Texts, each only if it is present.
        let texts = [
            ("outcome-kind", &self.outcome_kind),
            ("location.file", &self.location_file),
            ("location.type", &self.location_type),
            ("location.method", &self.location_method),
            ("time.start-utc", &self.start_utc),
            ("time.stop-utc", &self.stop_utc),
            ("error.message", &self.error_message),
            ("error.stacktrace", &self.error_stacktrace),
            ("assert.actual", &self.assert_actual),
            ("assert.expected", &self.assert_expected),
            ("standardOutput", &self.standard_output),
            ("standardError", &self.standard_error),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                map.serialize_entry(name, text)?;
            }
        }
        // Numbers and traits.
        if let Some(line) = self.location_line_start {
            map.serialize_entry("location.line-start", &line)?;
        }
        if let Some(line) = self.location_line_end {
            map.serialize_entry("location.line-end", &line)?;
        }
        if let Some(duration) = self.duration_ms {
            map.serialize_entry("time.duration-ms", &duration)?;
        }
        if !self.traits.is_empty() {
            map.serialize_entry("traits", &TraitsSerializer(&self.traits))?;
        }
        // All other members.
        for (name, value) in self.members.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

struct TraitsSerializer<'a>(&'a [TestTrait]);

impl Serialize for TraitsSerializer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|one| RenderedTrait(&one.name, &one.value)))
    }
}

/// A trait as an object with one member.
pub(super) struct RenderedTrait<'a>(pub(super) &'a str, pub(super) &'a str);

impl Serialize for RenderedTrait<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(name, value) = self;
        let mut map = serializer.serialize_map(None)?;
        if *name == "key" {
            // The short form would be read as the long form.
            map.serialize_entry("key", name)?;
            map.serialize_entry("value", value)?;
        } else {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for TestNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = TestNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a test node with a member \"uid\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TestNode, A::Error> {
        let mut node = TestNode::default();
        let mut has_uid = false;
        while let Some(BorrowedText(name)) = map.next_key()? {
            match name.as_ref() {
                "uid" => {
                    node.uid = map.next_value()?;
                    has_uid = true;
                }
                "execution-state" => node.state = map.next_value()?,
                "traits" => node.traits = read_traits(&map.next_value()?),
                "node-type" => {
                    let is_group =
                        map.next_value::<Option<BorrowedText<'de>>>()?.is_some_and(|word| word.0 == "group");
                    node.node_type = if is_group { NodeType::Group } else { NodeType::Action };
                }
                "display-name" => node.display_name = map.next_value::<Option<String>>()?.unwrap_or_default(),
                "time.duration-ms" => node.duration_ms = map.next_value()?,
                "location.line-start" => node.location_line_start = line_number(&map.next_value()?),
                "location.line-end" => node.location_line_end = line_number(&map.next_value()?),
                other => match text_field(&mut node, other) {
                    Some(field) => *field = map.next_value()?,
                    None => {
                        let value = map.next_value()?;
                        node.members.insert_read(&name, value);
                    }
                },
            }
        }
        if !has_uid {
            return Err(serde::de::Error::missing_field("uid"));
        }
        Ok(node)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<TestNode, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Err(serde::de::Error::invalid_type(serde::de::Unexpected::Seq, &self))
    }
}

fn text_field<'a>(node: &'a mut TestNode, name: &str) -> Option<&'a mut Option<String>> {
    Some(match name {
        "outcome-kind" => &mut node.outcome_kind,
        "location.file" => &mut node.location_file,
        "location.type" => &mut node.location_type,
        "location.method" => &mut node.location_method,
        "time.start-utc" => &mut node.start_utc,
        "time.stop-utc" => &mut node.stop_utc,
        "error.message" => &mut node.error_message,
        "error.stacktrace" => &mut node.error_stacktrace,
        "assert.actual" => &mut node.assert_actual,
        "assert.expected" => &mut node.assert_expected,
        "standardOutput" => &mut node.standard_output,
        "standardError" => &mut node.standard_error,
        _ => return None,
    })
}

/// Returns the names of the members that are strings.
#[cfg(feature = "schema")]
pub(super) fn text_names() -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 12] = [
        "outcome-kind",
        "location.file",
        "location.type",
        "location.method",
        "time.start-utc",
        "time.stop-utc",
        "error.message",
        "error.stacktrace",
        "assert.actual",
        "assert.expected",
        "standardOutput",
        "standardError",
    ];
    debug_assert!(NAMES.into_iter().all(is_field), "each has its field");
    NAMES.into_iter()
}

/// Returns whether a node has a field for this member.
pub(super) fn is_field(name: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "uid",
        "execution-state",
        "traits",
        "node-type",
        "display-name",
        "time.duration-ms",
        "location.line-start",
        "location.line-end",
    ];
    OTHERS.contains(&name) || text_field(&mut TestNode::default(), name).is_some()
}

fn line_number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|line| u32::try_from(line).ok())
}

/// Reads both forms: `[{"name":"value"}]` and `[{"key":"name","value":"value"}]`.
fn read_traits(value: &Value) -> Vec<TestTrait> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut out = Vec::new();
    for one in value.as_array().into_iter().flatten().filter_map(Value::as_object) {
        match (one.get("key"), one.get("value")) {
            (Some(Value::String(name)), value) if one.len() <= 2 && (one.len() == 1 || value.is_some()) => {
                out.push(TestTrait { name: name.clone(), value: value.map(text).unwrap_or_default() });
            }
            _ => out
                .extend(one.iter().map(|(name, value)| TestTrait { name: name.clone(), value: text(value) })),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_round_trips_with_unknown_members() {
        let text = r#"{"uid":"a::b","display-name":"b","node-type":"action","execution-state":"passed","outcome-kind":"x","location.file":"t.cc","error.message":"m\n","location.line-start":7,"time.duration-ms":1.5,"traits":[{"Category":"fast"},{"Tag":""}],"vendor.thing":{"a":[1,2]}}"#;
        let node: TestNode = serde_json::from_str(text).unwrap();
        assert_eq!(node.members["vendor.thing"]["a"][1], 2);
        let again = serde_json::to_string(&node).unwrap();
        assert_eq!(serde_json::from_str::<TestNode>(&again).unwrap(), node);
        assert_eq!(
            serde_json::from_str::<Value>(&again).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
    }

    #[test]
    fn node_requires_only_uid() {
        let node: TestNode = serde_json::from_str(r#"{"uid":"u"}"#).unwrap();
        assert_eq!(node, TestNode { uid: "u".into(), ..TestNode::default() });
        assert!(serde_json::from_str::<TestNode>(r#"{"display-name":"u"}"#).is_err());
        assert!(serde_json::from_str::<TestNode>("[1]").is_err());
    }

    #[test]
    fn trait_of_any_name_round_trips() {
        let pair = |(name, value): (&str, &str)| TestTrait { name: name.into(), value: value.into() };
        let traits = [("key", "owner"), ("key", ""), ("value", "b"), ("", "")].map(pair).to_vec();
        let node = TestNode { traits, ..TestNode::test("u", "n", ExecutionState::Passed) };
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(serde_json::from_str::<TestNode>(&text).unwrap(), node, "{text}");
    }

    #[test]
    fn traits_are_read_in_both_spellings() {
        let node: TestNode =
            serde_json::from_str(r#"{"uid":"u","traits":[{"key":"a","value":"b"},{"c":null},{"key":"d"}]}"#)
                .unwrap();
        let pairs: Vec<_> = node.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("c", ""), ("d", "")]);
    }
}
