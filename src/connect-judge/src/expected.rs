//! The result that a call should have, where a template does not give it: the server echoes what it was sent.

use prost::Message as _;

use crate::{
    axes::{Codec, StreamType},
    message::{
        Any, CallResult, CaseRequest, ConformancePayload, ConnectGetInfo, Header, RequestInfo,
        StreamResponseDefinition, UnaryOutcome, UnaryResponseDefinition,
    },
    suite::RequestMessage,
    text::message_types::{ANY_PREFIX, REQUEST_INFO},
};

/// Returns the result that a call should have. The request is that of the case without the headers that a run
/// adds.
///
/// # Errors
/// The request messages are none of the stream type.
pub(crate) fn expected_result(request: &CaseRequest, stream_type: StreamType) -> Result<CallResult, String> {
    let first = request.request_messages.first().map(RequestMessage::of_any).transpose();
    let first = first.map_err(|error| error.to_string())?;
    if stream_type.has_one_response() {
        let definition = match first {
            None => None,
            Some(RequestMessage::Unary(message)) => message.response_definition,
            Some(_) => return Err("a request message that is not one of a unary call".to_owned()),
        };
        return Ok(unary_result(request, definition));
    }
    let definition = match first {
        None => None,
        Some(RequestMessage::ServerStream(message)) => message.response_definition,
        Some(RequestMessage::BidiStream(message)) => message.response_definition,
        Some(_) => return Err("a request message that is not one of a stream".to_owned()),
    };
    definition.map_or_else(
        || Ok(CallResult::default()),
        |definition| stream_result(request, stream_type, definition),
    )
}

fn request_info(request: &CaseRequest) -> RequestInfo {
    RequestInfo {
        request_headers: request.request_headers.clone(),
        timeout_ms: request.timeout_ms.map(i64::from),
        requests: request.request_messages.clone(),
        connect_get_info: None,
    }
}

/// Returns the details of an error that carry what the server has seen.
pub(crate) fn info_as_detail(info: &RequestInfo) -> Any {
    Any { type_url: format!("{ANY_PREFIX}{}", REQUEST_INFO.name), value: info.encode_to_vec() }
}

fn unary_result(request: &CaseRequest, definition: Option<UnaryResponseDefinition>) -> CallResult {
    let mut info = request_info(request);
    if request.use_get_http_method {
        // Without the message and its coding, for which a client has a choice.
        let encoding = if request.codec == Codec::Json.number() { "json" } else { "proto" };
        let query_params = vec![Header::new("encoding", encoding), Header::new("connect", "v1")];
        info.connect_get_info = Some(ConnectGetInfo { query_params });
    }
    let definition = definition.unwrap_or_default();
    let mut result = CallResult {
        response_headers: definition.response_headers,
        response_trailers: definition.response_trailers,
        ..CallResult::default()
    };
    let data = match definition.response {
        Some(UnaryOutcome::Error(mut error)) => {
            error.details.push(info_as_detail(&info));
            result.error = Some(error);
            return result;
        }
        Some(UnaryOutcome::ResponseData(data)) => data,
        None => Vec::new(),
    };
    result.payloads = vec![ConformancePayload { data, request_info: Some(info) }];
    result
}

fn stream_result(
    request: &CaseRequest,
    stream_type: StreamType,
    definition: StreamResponseDefinition,
) -> Result<CallResult, String> {
    let mut error = definition.error;
    if let (true, Some(error)) = (definition.response_data.is_empty(), &mut error) {
        error.details.push(info_as_detail(&request_info(request)));
    }
    let mut payloads = Vec::new();
    for (place, data) in definition.response_data.into_iter().enumerate() {
        let mut info = (place == 0).then(|| request_info(request));
        if stream_type == StreamType::FullDuplexBidi {
            // Each response answers one request.
            let Some(message) = request.request_messages.get(place) else {
                return Err(format!("more responses than {} requests of a full-duplex stream", place));
            };
            info.get_or_insert_default().requests = vec![message.clone()];
        }
        payloads.push(ConformancePayload { data, request_info: info });
    }
    Ok(CallResult {
        response_headers: definition.response_headers,
        response_trailers: definition.response_trailers,
        error,
        payloads,
        ..CallResult::default()
    })
}
