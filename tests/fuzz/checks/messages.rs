//! Envelopes and messages: everything read can be written, and reads as the same value again.

use bytes::BytesMut;
use serde::{Serialize, de::DeserializeOwned};
use wire::{
    Decode as _,
    control::{
        FromGuard, FromWatchdog, FromWorker, Join, OsBytes, ToGuard, ToWatchdog, ToWorker, worker_of_journal,
    },
    frame::Frames,
    manifest::{Head, Plan},
    mtp::{
        AskedNode, AttachDebuggerParams, AttachmentParams, CancelParams, CancelRunParams, Change,
        DebuggerResult, DiscoveryMetrics, HelloParams, InitializeParams, InitializeResult,
        LaunchDebuggerParams, LogBatchParams, LogParams, RawChange, RunMetrics, RunResult, TelemetryParams,
        TestNode, TestsParams, UpdateParams, change_json_with, file_uri, group_node, path_of_file_uri,
        read_log,
    },
    rpc::{self, Message},
};

/// Checks JSON-RPC envelopes.
pub fn envelope(bytes: &[u8]) {
    let read = rpc::parse(bytes);
    match (&read, rpc::parse_borrowed(bytes)) {
        (Ok(owned), Ok(borrowed)) => {
            // One prints `Box` of a value where the other prints the value, and both serialize to the same
            // text.
            assert_eq!(format!("{owned:?}"), format!("{borrowed:?}"));
        }
        (Err(one), Err(other)) => assert_eq!(*one, other),
        (one, other) => panic!("{one:?} or {other:?}"),
    }
    let frame = match read {
        Ok(Message::Request { id, method, params }) => rpc::request(&id, &method, &params),
        Ok(Message::Notification { method, params }) => rpc::notification(&method, &params),
        Ok(Message::Response { id, outcome: Ok(result) }) => rpc::result(&id, &result),
        Ok(Message::Response { id, outcome: Err(error) }) => rpc::error(&id, &error),
        Err(invalid) => rpc::error(&invalid.id, &invalid.error),
    };
    let body = Frames::default().decode(&mut BytesMut::from(&frame[..])).expect("a frame").expect("whole");
    let again = rpc::parse(&body).expect("what we write is a message");
    let twice = match &again {
        Message::Request { id, method, params } => rpc::request(id, method, params),
        Message::Notification { method, params } => rpc::notification(method, params),
        Message::Response { id, outcome: Ok(result) } => rpc::result(id, result),
        Message::Response { id, outcome: Err(error) } => rpc::error(id, error),
    };
    assert_eq!(frame, twice, "written again");
}

/// Checks every message of the test protocol and of our own.
pub fn message(bytes: &[u8]) {
    let mtp: [Trip; 22] = [
        trip::<AttachDebuggerParams>,
        trip::<LaunchDebuggerParams>,
        trip::<DebuggerResult>,
        trip::<InitializeParams>,
        trip::<InitializeResult>,
        trip::<TestsParams>,
        trip::<TestsParams<AskedNode>>,
        trip::<AskedNode>,
        trip::<RawChange>,
        trip::<UpdateParams>,
        trip::<TestNode>,
        trip::<AttachmentParams>,
        trip::<RunResult>,
        trip::<CancelParams>,
        trip::<CancelRunParams>,
        trip::<HelloParams>,
        trip::<LogParams>,
        trip::<LogBatchParams>,
        trip::<TelemetryParams<RunMetrics>>,
        trip::<TelemetryParams<DiscoveryMetrics>>,
        trip::<rpc::RpcError>,
        trip::<rpc::RequestId>,
    ];
    let control: [Trip; 10] = [
        trip::<Join>,
        trip::<ToWorker>,
        trip::<FromWorker>,
        trip::<ToWatchdog>,
        trip::<FromWatchdog>,
        trip::<ToGuard>,
        trip::<FromGuard>,
        trip::<Head>,
        trip::<Plan>,
        trip::<OsBytes>,
    ];
    mtp.iter().chain(&control).for_each(|trip| trip(bytes));
    if let Ok(AskedNode { uid, foreign }) = serde_json::from_slice(bytes) {
        let told = change_json_with(Some("group"), &group_node(&uid, "name"), foreign.as_deref());
        let change: Change =
            serde_json::from_slice(&told).expect("a change with a client's members is a change");
        assert_eq!((change.node.uid, change.parent.as_deref()), (uid, Some("group")));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _neither_form = read_log(text);
        let _no_path = path_of_file_uri(text);
        let _no_journal = worker_of_journal(text);
        assert_eq!(path_of_file_uri(&file_uri(&text.into())).as_deref(), Some(text));
    }
}

type Trip = fn(&[u8]);

/// Checks that a value survives a round trip; values are equal if they serialize to the same text.
fn trip<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let name = std::any::type_name::<T>();
    let write = |value: &T| serde_json::to_string(value).expect("what was read can be written");
    let written = write(&read);
    let again =
        serde_json::from_str::<T>(&written).unwrap_or_else(|error| panic!("{name}: {error}: {written}"));
    assert_eq!(write(&again), written, "{name}");
}
