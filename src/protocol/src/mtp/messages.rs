//! Requests, responses and notifications of the protocol, except the test node.

use std::ops::Range;

use bytes::Bytes;
use heeler_core::{Failure, ProcessFacts, TestResult};
use serde::{Deserialize, Deserializer, Serialize};

use super::{TestNode, nulls::null_as_default};
use crate::control::LeakedProcess;

/// Method names of the protocol and of Heeler's extensions.
pub mod method {
    /// Client → server, first request.
    pub const INITIALIZE: &str = "initialize";
    /// Client → server, a request: lists tests.
    pub const DISCOVER: &str = "testing/discoverTests";
    /// Client → server, a request: runs tests.
    pub const RUN: &str = "testing/runTests";
    /// Server → client: changes of test nodes.
    pub const UPDATES: &str = "testing/testUpdates/tests";
    /// Server → client: files of a run.
    pub const ATTACHMENTS: &str = "testing/testUpdates/attachments";
    /// Server → client: log messages.
    pub const LOG: &str = "client/log";
    /// Server → client: metrics of a discovery or a run.
    pub const TELEMETRY: &str = "telemetry/update";
    /// Server → client, a request: attach a debugger to a process.
    pub const ATTACH_DEBUGGER: &str = "client/attachDebugger";
    /// Server → client, a request: launch a program under a debugger.
    pub const LAUNCH_DEBUGGER: &str = "client/launchDebugger";
    /// Both directions: cancels a request.
    pub const CANCEL: &str = "$/cancelRequest";
    /// Client → server; sent by one editor instead of a cancel request.
    pub const CANCEL_RUN: &str = "testing/cancelTestRun";
    /// Client → server, last message.
    pub const EXIT: &str = "exit";
    /// First message on a callback connection to one of Heeler's own listeners, which require a token.
    pub const HELLO: &str = "$/heeler/hello";
    /// Server → client: a request that no client knows. The client's response only proves that it has handled
    /// everything before.
    pub const BARRIER: &str = "$/heeler/barrier";
    /// Server → client, if requested in `initialize`: files of test programs have changed.
    pub const PROGRAMS_CHANGED: &str = "$/heeler/programsChanged";

    /// Returns whether a method is only sent from server to client.
    #[must_use]
    pub fn is_sent_to_clients(method: &str) -> bool {
        let methods = [
            UPDATES,
            ATTACHMENTS,
            LOG,
            TELEMETRY,
            ATTACH_DEBUGGER,
            LAUNCH_DEBUGGER,
            HELLO,
            BARRIER,
            PROGRAMS_CHANGED,
        ];
        methods.contains(&method)
    }
}

/// Parameters of `testing/discoverTests` and `testing/runTests`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(bound = "N: schemars::JsonSchema + Default"))]
#[serde(rename_all = "camelCase", default)]
pub struct TestsParams<N = TestNode> {
    /// Id of the request's stream of updates. Any string that a GUID parser accepts.
    pub run_id: String,
    /// Selected tests; null or absent means all, `[]` means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<Vec<N>>,
    /// The specification's older name for `tests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_cases: Option<Vec<N>>,
    /// Graph query that selects tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Extension by Heeler: each test runs under a debugger that the client attaches or launches.
    #[serde(rename = "heeler.debug", deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub is_debug: bool,
    /// Extension by Heeler: the build commands of the configuration run again before the tests are listed.
    #[serde(rename = "heeler.build", deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub is_built: bool,
    /// Extension by Heeler: the partition of a larger selection that these tests form; recorded with the run.
    #[serde(rename = "heeler.shard", skip_serializing_if = "Option::is_none")]
    pub shard: Option<RunShard>,
    /// Extension by Heeler: options of this run. Only for `testing/runTests`.
    #[serde(rename = "heeler.options", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::RequestedRunOptions>"))]
    pub options: Option<serde_json::Value>,
}

/// One partition of a selection of tests that is split into several runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunShard {
    /// Partition, such as `hash:1/4`.
    pub partition: String,
    /// Number of this partition, from 1.
    pub index: u32,
    /// Number of partitions.
    pub count: u32,
    /// Digest of all tests of the selection and of how they are split; equal for all its partitions.
    pub digest: String,
    /// Number of tests in the whole selection.
    pub selected: usize,
    /// Number of tests of this run that are not in the partition, but set up or clean up fixtures for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub fixture_tests: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// Run id of parameters that may otherwise be invalid.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunIdMember {
    /// Id of the request's stream of updates.
    pub run_id: String,
}

/// Parameters of `client/attachDebugger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttachDebuggerParams {
    /// Process id of the test process, which is stopped.
    pub process_id: u32,
}

/// Parameters of `client/launchDebugger`. All members are always sent, because some clients require them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LaunchDebuggerParams {
    /// Path of the program.
    pub program: String,
    /// Arguments of the program, quoted for a shell.
    pub args: String,
    /// Working directory of the program.
    pub working_directory: String,
    /// Environment variables to set in addition to the client's own.
    pub environment_variables: std::collections::BTreeMap<String, String>,
}

/// Result of `client/attachDebugger` and of `client/launchDebugger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DebuggerResult {
    /// Whether a debugger is attached or launched. Existing clients omit it or send null, which means
    /// success.
    #[serde(default = "is_true", deserialize_with = "null_as_true")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub success: bool,
}

fn is_true() -> bool {
    true
}

fn null_as_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

/// Parameters of `testing/testUpdates/tests`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UpdateParams {
    /// Run id of the request that the changes belong to.
    pub run_id: String,
    /// Changes of nodes. Null completes the stream: no update follows. The member is always present.
    #[serde(default)]
    pub changes: Option<Vec<NodeChange>>,
}

/// Change of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeChange {
    /// Uid of the parent group; null for a top-level node.
    #[serde(default)]
    pub parent: Option<String>,
    /// The node with all its members.
    pub node: TestNode,
}

/// End of an update frame, after its changes.
const UPDATES_TAIL: &[u8] = b"]}}";

/// Encodes changes that are already JSON as one update frame.
///
/// Each item is the text of one [`NodeChange`], as written by [`encode_change`](super::encode_change) and
/// stored in journals.
#[must_use]
pub fn updates_frame<'a, I>(run_id: &str, changes: I) -> Bytes
where
    I: IntoIterator<Item = &'a [u8], IntoIter: Clone>,
{
    let mut head = br#"{"jsonrpc":"2.0","method":"testing/testUpdates/tests","params":{"runId":"#.to_vec();
    serde_json::to_writer(&mut head, run_id).expect("text is JSON");
    head.extend_from_slice(br#","changes":["#);
    let changes = changes.into_iter();
    // Measure first, so each change is copied once and no memory is moved.
    let (count, bytes) = changes.clone().fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.len()));
    let length = head.len() + bytes + usize::saturating_sub(count, 1) + UPDATES_TAIL.len();
    let mut frame = crate::frame::frame_with_head(length);
    frame.extend_from_slice(&head);
    append_elements(&mut frame, changes);
    frame.extend_from_slice(UPDATES_TAIL);
    Bytes::from(frame)
}

/// Appends encoded elements of a JSON array, without brackets.
pub(crate) fn append_elements<'a>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'a [u8]>) {
    for (index, element) in elements.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(element);
    }
}

/// Returns the range of each change in a frame of [`updates_frame`], given the lengths of all changes.
pub fn change_ranges(
    frame: &[u8],
    lengths: impl Iterator<Item = usize> + Clone,
) -> impl Iterator<Item = Range<usize>> {
    let (count, bytes) = lengths.clone().fold((0, 0), |(count, bytes), one| (count + 1, bytes + one));
    let mut next = frame.len() - UPDATES_TAIL.len() - bytes - usize::saturating_sub(count, 1);
    lengths.map(move |length| {
        let range = next..next + length;
        next = range.end + 1;
        range
    })
}

/// Encodes the completion of a run's updates: `changes` is present and null.
#[must_use]
pub fn completion_frame(run_id: &str) -> Bytes {
    crate::rpc::encode_notification(
        method::UPDATES,
        &UpdateParams { run_id: run_id.to_owned(), changes: None },
    )
}

/// Parameters of `testing/testUpdates/attachments`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttachmentParams {
    /// Run id of the request that the attachments belong to.
    #[serde(default)]
    pub run_id: String,
    /// Files of the run. Null ends the stream. The member is always present.
    #[serde(default)]
    pub attachments: Option<Vec<Attachment>>,
}

/// Encodes attachments of a run; `None` ends the stream of attachments.
#[must_use]
pub fn attachments_frame(run_id: &str, attachments: Option<Vec<Attachment>>) -> Bytes {
    crate::rpc::encode_notification(
        method::ATTACHMENTS,
        &AttachmentParams { run_id: run_id.to_owned(), attachments },
    )
}

/// File that belongs to a result or a run. Clients read the name in either spelling, so both are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Attachment {
    /// URI of the file, `file://…` in the stream.
    pub uri: String,
    /// Name of the program that produced the file.
    pub producer: String,
    /// Attachment type, always `file`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Display name: the name of the file.
    #[serde(rename = "display-name")]
    pub display_name: String,
    /// Display name, in the spelling of the specification's text.
    #[serde(rename = "displayName")]
    pub display_name_camel: String,
    /// Description for users.
    pub description: String,
}

impl Attachment {
    /// Returns the attachment for a diagnostics file of a test or run.
    #[must_use]
    pub fn file(path: &crate::control::OsText, description: &str) -> Self {
        let text = path.to_text();
        let name = text.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            uri: file_uri(path),
            producer: "heeler".to_owned(),
            kind: "file".to_owned(),
            display_name_camel: name.clone(),
            display_name: name,
            description: description.to_owned(),
        }
    }
}

/// Returns an absolute path as `file://` URI, with bytes escaped that are not allowed in URIs.
#[must_use]
pub fn file_uri(path: &crate::control::OsText) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// Returns the path of a `file://` URI if it is valid text; `None` for other URIs.
#[must_use]
pub fn path_of_file_uri(uri: &str) -> Option<String> {
    let mut rest = uri.strip_prefix("file://")?.bytes();
    let mut path = Vec::new();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            path.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            path.push(byte);
        }
    }
    String::from_utf8(path).ok()
}

/// Result of `testing/runTests`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunResult {
    /// Attachments of the whole run.
    pub attachments: Vec<Attachment>,
    /// Extension by Heeler: processes that tests left running. Reported here because a test's own result is
    /// usually sent before its process ends.
    #[serde(rename = "heeler.leaks", skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<RunLeak>,
    /// Extension by Heeler: the few largest processes that several tests shared, largest first. A test with a
    /// process of its own has its usage in its node.
    #[serde(rename = "heeler.largest", skip_serializing_if = "Vec::is_empty")]
    pub largest: Vec<LargeProcess>,
}

/// Resource usage of a test process that several tests shared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LargeProcess {
    /// Suite of the process's program.
    pub suite: String,
    /// Number of tests leased to the process.
    pub tests: u32,
    /// CPU time of the process and its reaped children, in milliseconds.
    #[serde(rename = "cpu-ms")]
    pub cpu_ms: f64,
    /// Peak resident memory in KiB.
    #[serde(rename = "peak-memory-kib")]
    pub peak_memory_kib: u64,
}

/// Processes that outlived a test process and were killed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunLeak {
    /// Suite whose program started the test process.
    pub suite: String,
    /// Uid of the test that started the processes, or of every test that may have; empty if the program
    /// started them outside its tests.
    pub tests: Vec<String>,
    /// Processes that were left running.
    pub processes: Vec<LeakedProcessInfo>,
}

/// Process that outlived its test process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LeakedProcessInfo {
    /// Process id of the process that was left running.
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Process name; absent, like age and memory, if the process was gone before it could be described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time since the process was started, in whole seconds.
    #[serde(rename = "age-s", skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Resident memory in KiB.
    #[serde(rename = "memory-kib", skip_serializing_if = "Option::is_none")]
    pub memory_kib: Option<u64>,
    /// Whether the process could not be killed and is still running, for example because it belongs to
    /// another user.
    #[serde(rename = "is-running", skip_serializing_if = "std::ops::Not::not")]
    pub is_running: bool,
}

impl LeakedProcessInfo {
    /// Returns the facts about the process, if all are known.
    #[must_use]
    pub fn facts(&self) -> Option<ProcessFacts> {
        Some(ProcessFacts { name: self.name.clone()?, age_s: self.age_s?, memory_kib: self.memory_kib? })
    }
}

impl From<&LeakedProcess> for LeakedProcessInfo {
    fn from(leaked: &LeakedProcess) -> Self {
        let facts = leaked.facts.as_ref();
        Self {
            pid: leaked.pid,
            command: leaked.command.clone(),
            name: facts.map(|facts| facts.name.clone()),
            age_s: facts.map(|facts| facts.age_s),
            memory_kib: facts.map(|facts| facts.memory_kib),
            is_running: leaked.is_running,
        }
    }
}

/// Part of a test: subcase, section or data row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TestPartInfo {
    /// Name within the test, including the enclosing parts.
    pub name: String,
    /// `passed`, `failed`, `skipped`, or `in-progress` if the test ended within the part.
    pub state: String,
    /// Failure message, if the framework reports one for the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One of several failures of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureInfo {
    /// Failure message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Source file of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Expected value of a failed comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Actual value of a failed comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
    /// Stack trace at the failure, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacktrace: Option<String>,
}

impl From<&Failure> for FailureInfo {
    fn from(failure: &Failure) -> Self {
        Self {
            message: failure.message.clone(),
            file: failure.file.clone(),
            line: failure.line,
            expected: failure.expected.clone(),
            actual: failure.actual.clone(),
            stacktrace: failure.stack.clone(),
        }
    }
}

impl FailureInfo {
    /// Returns the failures of a result if there are several. A single failure is fully described by the
    /// node's other members.
    #[must_use]
    pub fn of_result(result: &TestResult) -> Vec<Self> {
        if result.failures.len() < 2 { Vec::new() } else { result.failures.iter().map(Self::from).collect() }
    }
}

/// Parameters of `$/cancelRequest`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelParams {
    /// Id of the request to cancel.
    pub id: crate::rpc::RequestId,
}

/// Parameters of `testing/cancelTestRun`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CancelRunParams {
    /// Run to cancel.
    pub run_id: String,
}

/// Parameters of Heeler's own `$/heeler/hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HelloParams {
    /// Secret that the listener required.
    pub token: String,
    /// Name of the sender, such as `worker 3` or `watchdog`.
    pub from: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(frame: &Bytes) -> String {
        String::from_utf8(frame.to_vec()).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[test]
    fn completion_has_null_changes() {
        assert_eq!(
            body(&completion_frame("r")),
            r#"{"jsonrpc":"2.0","method":"testing/testUpdates/tests","params":{"runId":"r","changes":null}}"#
        );
    }

    #[test]
    fn file_path_round_trips_through_uri() {
        let path = "/runs/a b/ü%20#?.dmp";
        assert_eq!(file_uri(&path.into()), "file:///runs/a%20b/%C3%BC%2520%23%3F.dmp");
        assert_eq!(path_of_file_uri(&file_uri(&path.into())).as_deref(), Some(path));
        assert_eq!(path_of_file_uri("https://a"), None);
        assert_eq!(path_of_file_uri("file:///%zz"), None);
    }

    #[test]
    fn encoded_changes_read_like_typed_changes() {
        let node = TestNode::test("s::t", "t", super::super::ExecutionState::Passed);
        let json = super::super::encode_change(&node);
        let frame = updates_frame("r\"", [json.as_slice(), json.as_slice()]);
        let crate::rpc::RpcMessage::Notification { params, .. } =
            crate::rpc::parse(body(&frame).as_bytes()).unwrap()
        else {
            panic!()
        };
        let params: UpdateParams = serde_json::from_str(params.unwrap().get()).unwrap();
        assert_eq!(params.run_id, "r\"");
        assert_eq!(params.changes.unwrap()[1], NodeChange { parent: None, node });
    }
}
