//! Messages of the Runtime Server Protocol: accepted input is a request, a notification or a response, and
//! everything that can be read can be written and then reads as the same value.

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    frame::FrameDecoder,
    rpc::{self, RequestId, RpcMessage, code},
    rsp::{
        self, Attributes, ClientCapabilities, JobEnd, JobProgress, LaunchAttributesParams, LaunchParams,
        NamedById, ProcessOutput, Registration, ServerProcess, ServerState, ServerUpdate, StartResult,
        StopParams, UpdateParams, Workflow, WorkflowParams,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Checks a body as an envelope and as parameters.
pub fn rsp_message(bytes: &[u8]) {
    check_envelope(bytes);
    let round_trips: [fn(&[u8]); 16] = [
        check_round_trip::<ClientCapabilities>,
        check_round_trip::<LaunchAttributesParams>,
        check_round_trip::<LaunchParams>,
        check_round_trip::<StopParams>,
        check_round_trip::<NamedById>,
        check_round_trip::<WorkflowParams>,
        check_round_trip::<UpdateParams>,
        check_round_trip::<Registration>,
        check_round_trip::<Attributes>,
        check_round_trip::<ServerState>,
        check_round_trip::<StartResult>,
        check_round_trip::<ServerUpdate>,
        check_round_trip::<Workflow>,
        check_round_trip::<JobEnd>,
        check_round_trip::<JobProgress>,
        check_round_trip::<ProcessOutput>,
    ];
    round_trips.iter().for_each(|check| check(bytes));
    check_round_trip::<ServerProcess>(bytes);
}

fn check_envelope(bytes: &[u8]) {
    let message = match rsp::read_message(bytes) {
        Ok(message) => message,
        Err(invalid) => {
            let code = invalid.error.code;
            assert!([code::PARSE_ERROR, code::INVALID_REQUEST].contains(&code), "{invalid:?}");
            let frame = rpc::encode_error(&invalid.id, &invalid.error);
            assert!(matches!(read_frame(&frame), RpcMessage::Response { outcome: Err(_), .. }));
            return;
        }
    };
    let RpcMessage::Request { id, method, params } = &message else { return };
    assert_ne!(*id, RequestId::Null, "such a request can't be answered");
    if let Some(params) = params {
        assert!(params.get().starts_with(['{', '[']), "{params}");
    }
    let RpcMessage::Request { id: again, method: called, .. } =
        read_frame(&rpc::encode_request(id, method, params))
    else {
        panic!("a request is a request again: {message:?}");
    };
    assert_eq!((id, method), (&again, &called));
}

/// Reads a frame written by Heeler.
fn read_frame(frame: &[u8]) -> RpcMessage {
    let mut buffer = BytesMut::from(frame);
    let body = FrameDecoder::default().decode(&mut buffer).expect("a frame").expect("whole");
    // An error response may lack an id; a request must have one.
    rpc::parse(&body).expect("what we write is a message")
}

/// Checks that a value survives a round trip. Values are equal if they serialize to the same text.
fn check_round_trip<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let name = std::any::type_name::<T>();
    let written = serde_json::to_string(&read).expect("what was read can be written");
    let again: T =
        serde_json::from_str(&written).unwrap_or_else(|error| panic!("{name}: {error}: {written}"));
    assert_eq!(serde_json::to_string(&again).expect("as before"), written, "{name}");
}
