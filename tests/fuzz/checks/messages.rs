//! Envelopes and messages: everything that can be read can be written, and then reads as the same value.

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    control::{
        FromGuard, FromWatchdog, FromWorker, JoinMessage, OsText, ToGuard, ToWatchdog, ToWorker,
        worker_of_journal,
    },
    frame::FrameDecoder,
    manifest::{ManifestHead, ManifestPlan},
    mtp::{
        AttachDebuggerParams, AttachmentParams, CancelParams, CancelRunParams, DebuggerResult,
        DiscoveryMetrics, GroupDescription, HelloParams, InitializeParams, InitializeResult,
        LaunchDebuggerParams, LogBatchParams, LogParams, NodeChange, RequestedNode, RunMetrics, RunResult,
        TelemetryParams, TestNode, TestsParams, UpdateParams, file_uri, path_of_file_uri, read_log,
        render_group,
    },
    rpc::{self, RpcMessage},
};
use serde::{Serialize, de::DeserializeOwned};

/// Checks JSON-RPC envelopes.
pub fn envelope(bytes: &[u8]) {
    let read = rpc::parse(bytes);
    match (&read, rpc::parse_borrowed(bytes)) {
        (Ok(owned), Ok(borrowed)) => {
            // One value owns its text and the other borrows it, but both print and serialize identically.
            assert_eq!(format!("{owned:?}"), format!("{borrowed:?}"));
        }
        (Err(one), Err(other)) => assert_eq!(*one, other),
        (one, other) => panic!("{one:?} or {other:?}"),
    }
    let frame = match read {
        Ok(RpcMessage::Request { id, method, params }) => rpc::encode_request(&id, &method, &params),
        Ok(RpcMessage::Notification { method, params }) => rpc::encode_notification(&method, &params),
        Ok(RpcMessage::Response { id, outcome: Ok(result) }) => rpc::encode_result(&id, &result),
        Ok(RpcMessage::Response { id, outcome: Err(error) }) => rpc::encode_error(&id, &error),
        Err(invalid) => rpc::encode_error(&invalid.id, &invalid.error),
    };
    let body =
        FrameDecoder::default().decode(&mut BytesMut::from(&frame[..])).expect("a frame").expect("whole");
    let again = rpc::parse(&body).expect("what we write is a message");
    let twice = match &again {
        RpcMessage::Request { id, method, params } => rpc::encode_request(id, method, params),
        RpcMessage::Notification { method, params } => rpc::encode_notification(method, params),
        RpcMessage::Response { id, outcome: Ok(result) } => rpc::encode_result(id, result),
        RpcMessage::Response { id, outcome: Err(error) } => rpc::encode_error(id, error),
    };
    assert_eq!(frame, twice, "written again");
}

/// Checks every message of the test protocol and of Heeler's internal protocol.
pub fn message(bytes: &[u8]) {
    let mtp: [RoundTripCheck; 21] = [
        check_round_trip::<AttachDebuggerParams>,
        check_round_trip::<LaunchDebuggerParams>,
        check_round_trip::<DebuggerResult>,
        check_round_trip::<InitializeParams>,
        check_round_trip::<InitializeResult>,
        check_round_trip::<TestsParams>,
        check_round_trip::<TestsParams<RequestedNode>>,
        check_round_trip::<RequestedNode>,
        check_round_trip::<UpdateParams>,
        check_round_trip::<TestNode>,
        check_round_trip::<AttachmentParams>,
        check_round_trip::<RunResult>,
        check_round_trip::<CancelParams>,
        check_round_trip::<CancelRunParams>,
        check_round_trip::<HelloParams>,
        check_round_trip::<LogParams>,
        check_round_trip::<LogBatchParams>,
        check_round_trip::<TelemetryParams<RunMetrics>>,
        check_round_trip::<TelemetryParams<DiscoveryMetrics>>,
        check_round_trip::<rpc::RpcError>,
        check_round_trip::<rpc::RequestId>,
    ];
    let control: [RoundTripCheck; 10] = [
        check_round_trip::<JoinMessage>,
        check_round_trip::<ToWorker>,
        check_round_trip::<FromWorker>,
        check_round_trip::<ToWatchdog>,
        check_round_trip::<FromWatchdog>,
        check_round_trip::<ToGuard>,
        check_round_trip::<FromGuard>,
        check_round_trip::<ManifestHead>,
        check_round_trip::<ManifestPlan>,
        check_round_trip::<OsText>,
    ];
    mtp.iter().chain(&control).for_each(|trip| trip(bytes));
    if let Ok(RequestedNode { uid, client_members }) = serde_json::from_slice(bytes) {
        let group = GroupDescription {
            uid: &uid,
            name: "name",
            parent: Some("group"),
            file: Some("file"),
            line: Some(1),
            client_members: client_members.as_deref(),
        };
        let mut rendered = Vec::new();
        render_group(&mut rendered, &group);
        let change: NodeChange =
            serde_json::from_slice(&rendered).expect("a change with a client's members is a change");
        assert_eq!((change.node.uid, change.parent.as_deref()), (uid, Some("group")));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _neither_form = read_log(text);
        let _no_path = path_of_file_uri(text);
        let _no_journal = worker_of_journal(text);
        assert_eq!(path_of_file_uri(&file_uri(&text.into())).as_deref(), Some(text));
    }
}

/// Returns whether the bytes are a message between Heeler's processes. Other seeds test nothing.
pub fn is_control_message(bytes: &[u8]) -> bool {
    fn parses<T: DeserializeOwned>(bytes: &[u8]) -> bool {
        serde_json::from_slice::<T>(bytes).is_ok()
    }
    let parsers = [
        parses::<JoinMessage>,
        parses::<ToWorker>,
        parses::<FromWorker>,
        parses::<ToWatchdog>,
        parses::<FromWatchdog>,
        parses::<ToGuard>,
        parses::<FromGuard>,
    ];
    parsers.iter().any(|parses| parses(bytes))
}

type RoundTripCheck = fn(&[u8]);

/// Checks that a value survives a round trip. Values are equal if they serialize to the same text.
fn check_round_trip<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let name = std::any::type_name::<T>();
    let write = |value: &T| serde_json::to_string(value).expect("what was read can be written");
    let written = write(&read);
    let again =
        serde_json::from_str::<T>(&written).unwrap_or_else(|error| panic!("{name}: {error}: {written}"));
    assert_eq!(write(&again), written, "{name}");
}
