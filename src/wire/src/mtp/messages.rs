//! Requests, responses and notifications beside the test node.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::TestNode;
use crate::control::Leaked;

/// Method names.
pub mod method {
    /// Client → server, first.
    pub const INITIALIZE: &str = "initialize";
    /// Client → server.
    pub const DISCOVER: &str = "testing/discoverTests";
    /// Client → server.
    pub const RUN: &str = "testing/runTests";
    /// Server → client.
    pub const UPDATES: &str = "testing/testUpdates/tests";
    /// Server → client.
    pub const ATTACHMENTS: &str = "testing/testUpdates/attachments";
    /// Server → client.
    pub const LOG: &str = "client/log";
    /// Server → client.
    pub const TELEMETRY: &str = "telemetry/update";
    /// Server → client, a request.
    pub const ATTACH_DEBUGGER: &str = "client/attachDebugger";
    /// Server → client, a request.
    pub const LAUNCH_DEBUGGER: &str = "client/launchDebugger";
    /// Both ways.
    pub const CANCEL: &str = "$/cancelRequest";
    /// Sent by one editor instead of a cancel request.
    pub const CANCEL_RUN: &str = "testing/cancelTestRun";
    /// Client → server, last.
    pub const EXIT: &str = "exit";
    /// The echo barrier: nobody knows it, so everybody answers it with an error, after all that came before.
    pub const BARRIER: &str = "$/drained";
    /// First words on a callback connection to a listener of ours, which asked for a token.
    pub const HELLO: &str = "$/heeler/hello";
}

/// The version of the protocol that we speak.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// Parameters of `initialize`. Everything may be missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InitializeParams {
    /// When this process dies, the server leaves.
    pub process_id: Option<u32>,
    /// Who the client is.
    pub client_info: Option<PeerInfo>,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// The versions that it speaks; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_versions: Option<Vec<String>>,
}

/// Name and version of a peer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeerInfo {
    /// Such as `vscode`.
    pub name: String,
    /// Free text.
    pub version: String,
}

/// What a client can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientCapabilities {
    /// All that concerns tests.
    pub testing: ClientTesting,
}

/// What a client can do with tests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTesting {
    /// It can attach and launch debuggers.
    pub debugger_provider: bool,
    /// It reads several log messages in one notification.
    pub batch_logging_support: bool,
    /// It reads the attachments stream.
    pub attachments_support: bool,
    /// It listens for further connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_provider: Option<CallbackProvider>,
}

/// Where a client listens for the connections of workers and watchdog.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallbackProvider {
    /// TCP port on the client's host.
    pub port: u16,
    /// Ours: a secret that we send first on each connection, so that no other local user can report results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InitializeResult {
    /// The server's.
    pub process_id: u32,
    /// Who the server is.
    pub server_info: PeerInfo,
    /// The version that both speak.
    pub protocol_version: String,
    /// What the server can do.
    pub capabilities: ServerCapabilities,
}

/// What a server can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerCapabilities {
    /// All that concerns tests.
    pub testing: ServerTesting,
}

/// What a server can do with tests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServerTesting {
    /// It answers `testing/discoverTests`.
    pub supports_discovery: bool,
    /// One process serves many requests.
    #[serde(rename = "experimental_multiRequestSupport")]
    pub experimental_multi_request_support: bool,
    /// It speaks VSTest inside.
    pub vstest_provider: bool,
    /// It sends attachments.
    pub attachments_support: bool,
    /// The specification's older name for the same.
    pub attachments_provider: bool,
    /// It opens connections that the client did not offer.
    pub multiple_connection_provider: bool,
    /// It sends coverage.
    pub supports_test_coverage_messages: bool,
}

/// Parameters of `testing/discoverTests` and `testing/runTests`. A server reads the tests as [`super::AskedNode`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(bound = "N: schemars::JsonSchema + Default"))]
#[serde(rename_all = "camelCase", default)]
pub struct TestsParams<N = TestNode> {
    /// Names the request's stream of updates. Any string that a GUID parser takes.
    pub run_id: String,
    /// The tests; null or absent means all, `[]` means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<Vec<N>>,
    /// The specification's older name for `tests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_cases: Option<Vec<N>>,
    /// A graph query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// A member of ours: each test is to run under a debugger that the client attaches or launches.
    #[serde(rename = "heeler.debug", skip_serializing_if = "is_false")]
    pub is_debug: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Parameters of `client/attachDebugger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttachDebuggerParams {
    /// The test process. It stands still.
    pub process_id: u32,
}

/// Parameters of `client/launchDebugger`. All of them are always sent, because some clients want them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LaunchDebuggerParams {
    /// Path of the program.
    pub program: String,
    /// Its arguments, as a shell takes them.
    pub args: String,
    /// Where it runs.
    pub working_directory: String,
    /// To be set beside the client's own.
    pub environment_variables: std::collections::BTreeMap<String, String>,
}

/// Result of `client/attachDebugger` and of `client/launchDebugger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DebuggerResult {
    /// Whether there is a debugger. Clients in the field leave it out, which means that there is.
    #[serde(default = "is_true")]
    pub success: bool,
}

fn is_true() -> bool {
    true
}

/// Parameters of a test update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UpdateParams {
    /// Which request's.
    pub run_id: String,
    /// Null completes the stream: no update follows. The member is always there.
    #[serde(default)]
    pub changes: Option<Vec<Change>>,
}

/// One change of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The group's uid; null at the top.
    #[serde(default)]
    pub parent: Option<String>,
    /// The node, whole.
    pub node: TestNode,
}

/// Encodes changes that are JSON already as one update frame.
///
/// Each item is the text of one [`Change`], as [`super::change_json`] makes it and journals keep it.
#[must_use]
pub fn updates_frame<'a, I>(run_id: &str, changes: I) -> Bytes
where
    I: IntoIterator<Item = &'a [u8], IntoIter: Clone>,
{
    let mut head = br#"{"jsonrpc":"2.0","method":"testing/testUpdates/tests","params":{"runId":"#.to_vec();
    serde_json::to_writer(&mut head, run_id).expect("text is JSON");
    head.extend_from_slice(br#","changes":["#);
    let tail: &[u8] = b"]}}";
    let changes = changes.into_iter();
    // Measured first, so that each change is copied once and no memory is moved.
    let (count, bytes) = changes.clone().fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.len()));
    let length = head.len() + bytes + usize::saturating_sub(count, 1) + tail.len();
    let mut frame = crate::frame::begin(length);
    frame.extend_from_slice(&head);
    for (index, change) in changes.enumerate() {
        if index > 0 {
            frame.push(b',');
        }
        frame.extend_from_slice(change);
    }
    frame.extend_from_slice(tail);
    Bytes::from(frame)
}

/// Encodes the completion of a run's updates: `changes` is there, and null.
#[must_use]
pub fn completion_frame(run_id: &str) -> Bytes {
    crate::rpc::notification(method::UPDATES, &UpdateParams { run_id: run_id.to_owned(), changes: None })
}

/// Parameters of an attachments update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttachmentParams {
    /// Which request's.
    #[serde(default)]
    pub run_id: String,
    /// Null ends the stream. The member is always there.
    #[serde(default)]
    pub attachments: Option<Vec<Attachment>>,
}

/// Encodes attachments of a run, or with `None` the end of their stream.
#[must_use]
pub fn attachments_frame(run_id: &str, attachments: Option<Vec<Attachment>>) -> Bytes {
    crate::rpc::notification(
        method::ATTACHMENTS,
        &AttachmentParams { run_id: run_id.to_owned(), attachments },
    )
}

/// A file beside the results. Clients read the name in either spelling, so both are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Attachment {
    /// `file://…` in the stream.
    pub uri: String,
    /// Who made it.
    pub producer: String,
    /// Always `file`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    #[serde(rename = "display-name")]
    pub display_name: String,
    /// The same again, for clients that follow the specification's text.
    #[serde(rename = "displayName")]
    pub display_name_camel: String,
    /// For people.
    pub description: String,
}

impl Attachment {
    /// Returns the attachment that is a file of a test's or a run's evidence.
    #[must_use]
    pub fn file(path: &crate::control::OsBytes, description: &str) -> Self {
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

/// Returns the `file://` form of an absolute path; bytes that a URI does not take are escaped.
#[must_use]
pub fn file_uri(path: &crate::control::OsBytes) -> String {
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

/// Returns the path of a `file://` URI, where its bytes are text; `None` for other URIs.
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
    /// Those of the whole run.
    pub attachments: Vec<Attachment>,
    /// A member of ours: what tests left behind. It stands here because a test's own result has mostly gone to the
    /// client before its process ends.
    #[serde(rename = "heeler.leaks", skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<Leak>,
    /// A member of ours: the largest processes that several tests shared, largest first, and a few only. Of a test that
    /// has its process to itself its node tells it.
    #[serde(rename = "heeler.largest", skip_serializing_if = "Vec::is_empty")]
    pub largest: Vec<LargeProcess>,
}

/// What a test process took that several tests shared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LargeProcess {
    /// The suite that its program is.
    pub suite: String,
    /// How many tests were to run in it.
    pub tests: u32,
    /// Its CPU time, and its reaped children's, in milliseconds.
    #[serde(rename = "cpu-ms")]
    pub cpu_ms: f64,
    /// Its peak of resident memory, KiB.
    #[serde(rename = "peak-memory-kib")]
    pub peak_memory_kib: u64,
}

/// Processes that outlived a test process, and were killed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Leak {
    /// The suite: its program started the process that left them behind.
    pub suite: String,
    /// The uid of the test that started them; where that can't be told, of each that may have; none where
    /// it was the program outside its tests.
    pub tests: Vec<String>,
    /// The processes.
    pub processes: Vec<LeftBehind>,
}

/// A process that outlived its test process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LeftBehind {
    /// Process id.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
}

impl From<&Leaked> for LeftBehind {
    fn from(leaked: &Leaked) -> Self {
        Self { pid: leaked.pid, command: leaked.command.clone() }
    }
}

/// Parameters of `$/cancelRequest`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelParams {
    /// Which request's.
    pub id: crate::rpc::RequestId,
}

/// Parameters of `testing/cancelTestRun`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CancelRunParams {
    /// Which run.
    pub run_id: String,
}

/// Parameters of our `$/heeler/hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HelloParams {
    /// The listener's secret.
    pub token: String,
    /// `worker 3`, `watchdog`.
    pub from: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(frame: &Bytes) -> String {
        String::from_utf8(frame.to_vec()).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[test]
    fn the_completion_has_its_member_changes_and_it_is_null() {
        assert_eq!(
            body(&completion_frame("r")),
            r#"{"jsonrpc":"2.0","method":"testing/testUpdates/tests","params":{"runId":"r","changes":null}}"#
        );
    }

    #[test]
    fn a_path_survives_its_uri() {
        let path = "/runs/a b/ü%20#?.dmp";
        assert_eq!(file_uri(&path.into()), "file:///runs/a%20b/%C3%BC%2520%23%3F.dmp");
        assert_eq!(path_of_file_uri(&file_uri(&path.into())).as_deref(), Some(path));
        assert_eq!(path_of_file_uri("https://a"), None);
        assert_eq!(path_of_file_uri("file:///%zz"), None);
    }

    #[test]
    fn raw_changes_and_typed_changes_read_the_same() {
        let node = TestNode::test("s::t", "t", super::super::ExecutionState::Passed);
        let json = super::super::change_json(&node);
        let frame = updates_frame("r\"", [json.as_slice(), json.as_slice()]);
        let crate::rpc::Message::Notification { params, .. } =
            crate::rpc::parse(body(&frame).as_bytes()).unwrap()
        else {
            panic!()
        };
        let params: UpdateParams = serde_json::from_str(params.unwrap().get()).unwrap();
        assert_eq!(params.run_id, "r\"");
        assert_eq!(params.changes.unwrap()[1], Change { parent: None, node });
    }

    #[test]
    fn an_initialize_of_a_foreign_client_is_read() {
        let params: InitializeParams = serde_json::from_str(
            r#"{"processId":null,"rootUri":null,"capabilities":{"textDocument":{},"testing":{"callbackProvider":{"port":5}}},"trace":"off"}"#,
        )
        .unwrap();
        assert_eq!(params.capabilities.testing.callback_provider.unwrap().port, 5);
    }
}
