//! Answers a request: calls its method and converts the result.

use ::connectrpc::{ConnectError, error::ErrorCode};
use http::HeaderMap;

use crate::{
    call::{self, MethodCall},
    stream,
    suite::{
        ClientCompatRequest, ClientCompatResponse, ClientErrorResult, ClientResponseResult,
        ConformancePayload, Error, Header, oneof::client_compat_response,
    },
};

/// The service that the suite calls.
const SERVICE: &str = "connectrpc.conformance.v1.ConformanceService";

/// The result of a call.
#[derive(Debug, Default)]
pub(crate) struct CallResult {
    pub(crate) headers: HeaderMap,
    pub(crate) payloads: Vec<ConformancePayload>,
    pub(crate) error: Option<ConnectError>,
    pub(crate) trailers: HeaderMap,
    /// Number of messages not sent because the call had ended.
    pub(crate) unsent: usize,
}

impl CallResult {
    /// Returns the result of a call that ended with this error.
    pub(crate) fn of_error(error: ConnectError) -> Self {
        Self {
            headers: error.response_headers().clone(),
            trailers: error.trailers().clone(),
            error: Some(error),
            ..Self::default()
        }
    }
}

/// Answers a request with the result of its call, or with an error if the call can't be started.
pub(crate) async fn answer(request: ClientCompatRequest) -> ClientCompatResponse {
    let test_name = request.test_name.clone();
    let result = match call(request).await {
        Ok(result) => client_compat_response::Result::Response(Box::new(response(result))),
        Err(message) => {
            let error = ClientErrorResult { message, ..ClientErrorResult::default() };
            client_compat_response::Result::Error(Box::new(error))
        }
    };
    ClientCompatResponse { test_name, result: Some(result), ..ClientCompatResponse::default() }
}

async fn call(request: ClientCompatRequest) -> Result<CallResult, String> {
    let service = request.service.as_deref().unwrap_or_default();
    if service != SERVICE {
        return Err(format!("the service {service:?} is not known"));
    }
    let method = request.method.clone().unwrap_or_default();
    let call = MethodCall::new(request)?;
    match method.as_str() {
        "Unary" => call::unary(call).await,
        "IdempotentUnary" => call::idempotent_unary(call).await,
        "Unimplemented" => call::unimplemented(call).await,
        "ServerStream" => stream::server_stream(call).await,
        "ClientStream" => stream::client_stream(call).await,
        "BidiStream" => stream::bidi_stream(call).await,
        other => Err(format!("the method {other:?} is not known")),
    }
}

fn response(result: CallResult) -> ClientResponseResult {
    ClientResponseResult {
        response_headers: headers(&result.headers),
        payloads: result.payloads,
        error: result.error.map(error).into(),
        response_trailers: headers(&result.trailers),
        num_unsent_requests: i32::try_from(result.unsent).unwrap_or(i32::MAX),
        ..ClientResponseResult::default()
    }
}

/// Returns all values of each header.
fn headers(map: &HeaderMap) -> Vec<Header> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.keys()
        .map(|name| Header {
            name: name.as_str().to_owned(),
            value: map.get_all(name).iter().map(text).collect(),
            ..Header::default()
        })
        .collect()
}

fn error(error: ConnectError) -> Error {
    let details = error.details.iter().filter_map(call::detail).collect();
    Error { code: code(error.code), message: error.message, details, ..Error::default() }
}

/// Returns the suite's error code, which has the same number as in gRPC.
fn code(code: ErrorCode) -> buffa::EnumValue<crate::suite::Code> {
    buffa::EnumValue::from(i32::try_from(code.grpc_code()).unwrap_or(2))
}
