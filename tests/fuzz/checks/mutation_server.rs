//! Messages of the Mutation Server Protocol: accepted input is a message or a batch, rejections have JSON-RPC
//! error codes, and everything that can be read can be written and then reads as the same value.

use heeler_protocol::{
    mutation::{
        ClientBody, MAX_BATCH_MESSAGES,
        alpha::{
            CancelParams, InitializeParams, InitializeResult, InstrumentParams, MutantInFile, MutateParams,
            ProgressParams,
        },
        check_client_version, code as mutation_code, error_body, read_body, read_params,
        v0_4::{
            ConfigureParams, ConfigureResult, DiscoverParams, DiscoverResult, MutationTestParams,
            MutationTestResult,
        },
    },
    rpc::{self, InvalidMessage, RequestId, RpcMessage, code},
};
use serde::{Serialize, de::DeserializeOwned};

/// Checks a body as an envelope, as parameters and as a protocol version.
pub fn mutation_message(bytes: &[u8]) {
    match read_body(bytes) {
        ClientBody::Message(message) => check_message(&message),
        ClientBody::Batch(messages) => {
            assert!((1..=MAX_BATCH_MESSAGES).contains(&messages.len()));
            messages.iter().for_each(check_message);
        }
    }
    if let Ok(version) = std::str::from_utf8(bytes)
        && let Err(error) = check_client_version(version)
    {
        assert_eq!(error.code, mutation_code::UNKNOWN_PROTOCOL_VERSION);
    }
    let round_trips: [fn(&[u8]); 13] = [
        check_round_trip::<CancelParams>,
        check_round_trip::<InitializeParams>,
        check_round_trip::<InitializeResult>,
        check_round_trip::<InstrumentParams>,
        check_round_trip::<MutateParams>,
        check_round_trip::<ProgressParams>,
        check_round_trip::<Vec<MutantInFile>>,
        check_round_trip::<ConfigureParams>,
        check_round_trip::<ConfigureResult>,
        check_round_trip::<DiscoverParams>,
        check_round_trip::<DiscoverResult>,
        check_round_trip::<MutationTestParams>,
        check_round_trip::<MutationTestResult>,
    ];
    round_trips.iter().for_each(|check| check(bytes));
}

fn check_message(message: &Result<RpcMessage, InvalidMessage>) {
    match message {
        Err(invalid) => {
            let code = invalid.error.code;
            assert!([code::PARSE_ERROR, code::INVALID_REQUEST].contains(&code), "{invalid:?}");
            let body = error_body(&invalid.id, &invalid.error);
            let read = rpc::parse(&body).expect("what we write is a message");
            assert!(matches!(read, RpcMessage::Response { outcome: Err(_), .. }), "{read:?}");
        }
        Ok(RpcMessage::Request { id, method, params }) => {
            assert_ne!(*id, RequestId::Null, "such a request can't be answered");
            if let Err(error) = read_params::<MutationTestParams>(method, params.as_deref()) {
                assert_eq!(error.code, code::INVALID_PARAMS);
            }
        }
        Ok(RpcMessage::Notification { .. } | RpcMessage::Response { .. }) => {}
    }
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
