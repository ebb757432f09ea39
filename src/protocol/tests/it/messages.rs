//! Samples of each message in both directions, with every possible member.

use std::fmt::Debug;

use bytes::Bytes;
use heeler_protocol::{
    mtp::*,
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use serde::de::DeserializeOwned;

/// Reads a body back and returns the difference from the sample.
type ReadBackCheck = dyn Fn(&str) -> Result<(), String>;

pub(crate) struct MessageSample {
    /// Name of the golden file, without extension.
    pub(crate) name: &'static str,
    /// Body of the frame.
    pub(crate) body: String,
    /// Reads the body back and returns the difference from the sample.
    pub(crate) read_back: Box<ReadBackCheck>,
}

const RUN: &str = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";

pub(crate) fn samples() -> Vec<MessageSample> {
    let mut all = requests();
    all.extend(responses());
    all.extend(notifications());
    all.extend(updates());
    all.extend(crate::mcp_messages::samples());
    all
}

pub(crate) fn id() -> RequestId {
    RequestId::number(7)
}

pub(crate) fn sample(
    name: &'static str,
    frame: &Bytes,
    read_back: impl Fn(RpcMessage) -> bool + 'static,
) -> MessageSample {
    let frame = String::from_utf8(frame.to_vec()).unwrap();
    let (_, body) = frame.split_once("\r\n\r\n").unwrap();
    let read_back = move |text: &str| {
        let message = rpc::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let described = format!("{message:?}");
        if read_back(message) { Ok(()) } else { Err(described) }
    };
    MessageSample { name, body: body.to_owned(), read_back: Box::new(read_back) }
}

fn is_same<P: DeserializeOwned + PartialEq>(text: Option<&str>, expected: &P) -> bool {
    serde_json::from_str::<P>(text.unwrap_or("null")).is_ok_and(|read| read == *expected)
}

pub(crate) fn request<P>(name: &'static str, method: &'static str, params: P) -> MessageSample
where
    P: serde::Serialize + DeserializeOwned + PartialEq + Debug + 'static,
{
    sample(name, &rpc::encode_request(&id(), method, &params), move |message| match message {
        RpcMessage::Request { id: read, method: called, params: text } => {
            read == id() && called == method && is_same(text.as_deref().map(|raw| raw.get()), &params)
        }
        RpcMessage::Notification { .. } | RpcMessage::Response { .. } => false,
    })
}

pub(crate) fn notification<P>(name: &'static str, method: &'static str, params: P) -> MessageSample
where
    P: serde::Serialize + DeserializeOwned + PartialEq + Debug + 'static,
{
    let frame = rpc::encode_notification(method, &params);
    encoded_notification(name, method, &frame, params)
}

/// Returns the sample of a notification with its own encoder.
fn encoded_notification<P>(
    name: &'static str,
    method: &'static str,
    frame: &Bytes,
    params: P,
) -> MessageSample
where
    P: DeserializeOwned + PartialEq + Debug + 'static,
{
    sample(name, frame, move |message| match message {
        RpcMessage::Notification { method: called, params: text } => {
            called == method && is_same(text.as_deref().map(|raw| raw.get()), &params)
        }
        RpcMessage::Request { .. } | RpcMessage::Response { .. } => false,
    })
}

pub(crate) fn response<R>(name: &'static str, result: R) -> MessageSample
where
    R: serde::Serialize + DeserializeOwned + PartialEq + Debug + 'static,
{
    sample(name, &rpc::encode_result(&id(), &result), move |message| match message {
        RpcMessage::Response { id: read, outcome: Ok(text) } => {
            read == id() && is_same(text.as_deref().map(|raw| raw.get()), &result)
        }
        RpcMessage::Response { .. } | RpcMessage::Request { .. } | RpcMessage::Notification { .. } => false,
    })
}

fn requests() -> Vec<MessageSample> {
    let testing = ClientTestingCapabilities {
        debugger_provider: true,
        batch_logging_support: true,
        attachments_support: true,
        callback_provider: Some(CallbackProvider { port: 4712, token: Some("secret".to_owned()) }),
        extensions: ClientExtensions { program_changes: true },
    };
    let initialize = InitializeParams {
        process_id: Some(31337),
        client_info: Some(PeerInfo { name: "editor".to_owned(), version: "1.2.3".to_owned() }),
        capabilities: ClientCapabilities { testing },
        protocol_versions: Some(vec![PROTOCOL_VERSION.to_owned()]),
    };
    let asked = |uid: &str, foreign: Option<&str>| RequestedNode {
        uid: uid.to_owned(),
        client_members: foreign.map(Into::into),
    };
    let run_id = RUN.to_owned();
    let tests = vec![
        asked("unit::Parser.ReadsNothing", Some(r#""vendor.handle":{"id":12345678901234567890123}"#)),
        asked("unit::Lexer.", None),
    ];
    vec![
        request("initialize", method::INITIALIZE, initialize),
        request(
            "discover",
            method::DISCOVER,
            TestsParams::<RequestedNode> { run_id: run_id.clone(), ..TestsParams::default() },
        ),
        request(
            "discover-after-build",
            method::DISCOVER,
            TestsParams::<RequestedNode> { run_id: run_id.clone(), is_built: true, ..TestsParams::default() },
        ),
        request(
            "run",
            method::RUN,
            TestsParams { run_id: run_id.clone(), tests: Some(tests.clone()), ..TestsParams::default() },
        ),
        request(
            "run-of-test-cases",
            method::RUN,
            TestsParams { run_id: run_id.clone(), test_cases: Some(tests), ..TestsParams::default() },
        ),
        request(
            "run-by-filter",
            method::RUN,
            TestsParams::<RequestedNode> {
                run_id: run_id.clone(),
                filter: Some("/unit/Parser*/**[speed=fast]".to_owned()),
                ..TestsParams::default()
            },
        ),
        request(
            "run-for-debuggers",
            method::RUN,
            TestsParams::<RequestedNode> { run_id: run_id.clone(), is_debug: true, ..TestsParams::default() },
        ),
        request(
            "run-with-options",
            method::RUN,
            TestsParams::<RequestedNode> { run_id, options: Some(run_options()), ..TestsParams::default() },
        ),
        request("attach-debugger", method::ATTACH_DEBUGGER, AttachDebuggerParams { process_id: 4711 }),
        request("launch-debugger", method::LAUNCH_DEBUGGER, launch()),
        request(
            "completion-barrier",
            method::LOG,
            LogParams { level: LogLevel::Trace, message: "m".to_owned() },
        ),
        request(
            "barrier",
            method::UPDATES,
            UpdateParams { run_id: RUN.to_owned(), changes: Some(Vec::new()) },
        ),
        request("unknown-barrier", method::BARRIER, BarrierParams {}),
    ]
}

fn run_options() -> serde_json::Value {
    let variable = |text: &str| RequestedVariable::Value(text.to_owned());
    let env = [("DATA".to_owned(), variable("small")), ("HOME".to_owned(), RequestedVariable::Set(false))];
    let options = RequestedRunOptions {
        jobs: Some(2),
        retries: Some(1),
        repeat: Some(3),
        timeout: Some(RequestedTimeLimit::After("10s".to_owned())),
        isolate: Some(true),
        env: Some(env.into()),
        args: Some(vec!["--verbose".to_owned()]),
        live_output: Some(true),
    };
    serde_json::to_value(options).unwrap()
}

fn launch() -> LaunchDebuggerParams {
    LaunchDebuggerParams {
        program: "/usr/bin/heeler".to_owned(),
        args: "__debuggee /run/user/1000/heeler-1/scratch-1/cf657674036571ed".to_owned(),
        working_directory: "/project".to_owned(),
        environment_variables: [].into(),
    }
}

fn responses() -> Vec<MessageSample> {
    let mut initialized = InitializeResult::of_heeler(40123);
    // Keeps the sample unchanged across releases.
    initialized.server_info.product_version = Some("0.1.0".to_owned());
    let left = LeakedProcessInfo {
        pid: 4711,
        command: "sleep 1000".to_owned(),
        name: Some("sleep".to_owned()),
        age_s: Some(2),
        memory_kib: Some(1800),
        is_running: false,
    };
    let leak =
        RunLeak { suite: "unit".to_owned(), tests: vec!["unit::A.b".to_owned()], processes: vec![left] };
    let shared = LargeProcess { suite: "unit".to_owned(), tests: 100, cpu_ms: 12.5, peak_memory_kib: 65_536 };
    let largest = vec![shared];
    let error = RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled");
    let refused = rpc::encode_error(&id(), &error);
    vec![
        response("initialize-answer", initialized),
        response("discover-answer", serde_json::json!({})),
        response("debugger-answer", DebuggerResult { success: true }),
        response("run-answer", RunResult { attachments: vec![dump()], leaks: vec![leak], largest }),
        sample("error-answer", &refused, move |message| {
            matches!(message, RpcMessage::Response { id: read, outcome: Err(read_error) }
                if read == id() && read_error == error)
        }),
    ]
}

fn dump() -> Attachment {
    Attachment::file(&"/project/.heeler/runs/1/evidence/unit.A.b.dmp".into(), "minidump")
}

fn notifications() -> Vec<MessageSample> {
    let line = LogMessage {
        node_uid: Some("unit::A.b".to_owned()),
        ..LogMessage::new(LogLevel::Warning, "worker 2 died; rerunning its tests that have no result")
    };
    let messages = vec![line, LogMessage::new(LogLevel::Information, "all is well")];
    let batch = LogBatchParams { run_id: Some(RUN.to_owned()), messages: messages.clone() };
    let single = LogParams { level: LogLevel::Information, message: "all is well".to_owned() };
    let ran = RunMetrics {
        selected: 3,
        passed: 1,
        failed: 1,
        error: 1,
        crashed: 1,
        programs: 1,
        workers: 2,
        attachments: 1,
        duration_ms: 12.5,
        tests_ms: 3.25,
        ..RunMetrics::default()
    };
    let listed = DiscoveryMetrics { discovered: 3, programs: 1, broken_programs: 0, duration_ms: 4.5 };
    let event = |name: &str| name.to_owned();
    let hello = HelloParams { token: "secret".to_owned(), from: "worker 3".to_owned() };
    let batch_frame = log_frames(LogForm::Batch, Some(RUN), messages).remove(0);
    vec![
        notification("cancel", method::CANCEL, CancelParams { id: id() }),
        notification("cancel-run", method::CANCEL_RUN, CancelRunParams { run_id: RUN.to_owned() }),
        notification("exit", method::EXIT, serde_json::json!({})),
        notification("hello", method::HELLO, hello),
        notification("programs-changed", method::PROGRAMS_CHANGED, programs_changed()),
        encoded_notification("log", method::LOG, &log_frame(single.level, single.message.clone()), single),
        encoded_notification("log-batch", method::LOG, &batch_frame, batch),
        encoded_notification(
            "telemetry-run",
            method::TELEMETRY,
            &telemetry_frame(event::RUN, &ran),
            TelemetryParams { event_name: event(event::RUN), metrics: ran.clone() },
        ),
        encoded_notification(
            "telemetry-discovery",
            method::TELEMETRY,
            &telemetry_frame(event::DISCOVERY, &listed),
            TelemetryParams { event_name: event(event::DISCOVERY), metrics: listed.clone() },
        ),
    ]
}

fn programs_changed() -> ProgramsChangedParams {
    let change = |path: &str, suite: Option<&str>, change| ProgramChange {
        path: path.to_owned(),
        suite: suite.map(str::to_owned),
        change,
    };
    ProgramsChangedParams {
        programs: vec![
            change("/build/unit", Some("unit"), ProgramChangeKind::Changed),
            change("/build/net", Some("net"), ProgramChangeKind::Removed),
            change("/build/disk", None, ProgramChangeKind::Appeared),
        ],
        is_incomplete: true,
    }
}

fn updates() -> Vec<MessageSample> {
    let group = |parent: Option<&str>, uid: &str, name: &str| NodeChange {
        parent: parent.map(str::to_owned),
        node: TestNode {
            uid: uid.to_owned(),
            display_name: name.to_owned(),
            node_type: NodeType::Group,
            ..TestNode::default()
        },
    };
    let changes = vec![
        group(None, "unit::", "unit"),
        group(Some("unit::"), "unit::Parser.", "Parser"),
        NodeChange { parent: Some("unit::Parser.".to_owned()), node: node() },
    ];
    let json: Vec<_> = changes.iter().map(|change| serde_json::to_vec(change).unwrap()).collect();
    let frame = updates_frame(RUN, json.iter().map(Vec::as_slice));
    let completion = UpdateParams { run_id: RUN.to_owned(), changes: None };
    let attached = |attachments| AttachmentParams { run_id: RUN.to_owned(), attachments };
    vec![
        encoded_notification(
            "updates",
            method::UPDATES,
            &frame,
            UpdateParams { run_id: RUN.to_owned(), changes: Some(changes) },
        ),
        encoded_notification("updates-completion", method::UPDATES, &completion_frame(RUN), completion),
        encoded_notification(
            "attachments",
            method::ATTACHMENTS,
            &attachments_frame(RUN, Some(vec![dump()])),
            attached(Some(vec![dump()])),
        ),
        encoded_notification(
            "attachments-end",
            method::ATTACHMENTS,
            &attachments_frame(RUN, None),
            attached(None),
        ),
    ]
}

/// Returns a node with every possible member.
fn node() -> TestNode {
    let some = |text: &str| Some(text.to_owned());
    let mut node = TestNode {
        location_file: some("tests/parser_test.cc"),
        location_line_start: Some(7),
        location_line_end: Some(7),
        location_type: some("Parser"),
        location_method: some("ReadsNothing"),
        outcome_kind: some("passed-with-retries"),
        duration_ms: Some(1.5),
        start_utc: some("2026-01-01T00:00:01.000Z"),
        stop_utc: some("2026-01-01T00:00:02.000Z"),
        error_message: some("Expected equality of these values"),
        error_stacktrace: some("tests/parser_test.cc:9"),
        assert_actual: some("2"),
        assert_expected: some("3"),
        standard_output: some("out\n"),
        standard_error: some("errors\n"),
        traits: vec![TestTrait { name: "speed".to_owned(), value: "fast".to_owned() }],
        ..TestNode::test("unit::Parser.ReadsNothing", "ReadsNothing", ExecutionState::Passed)
    };
    for (name, value) in [(key::SUITE, "unit"), (key::PROGRAM, "/build/unit"), (key::REPRODUCE, "./unit")] {
        node.members.insert(name.to_owned(), value.into());
    }
    node.members.insert(key::WORKER.to_owned(), 1.into());
    node.members.insert("vendor.handle".to_owned(), serde_json::json!({"id": 7}));
    node
}
