//! Unary calls, and code shared by all calls.

use std::time::Duration;

use ::connectrpc::{
    ConnectError, SpecOrigin,
    client::{CallOptions, ClientConfig, call_unary_get},
    error::ErrorDetail,
};
use base64::{Engine as _, engine::general_purpose};
use buffa::Message;
use buffa_types::google::protobuf::Any;
use http::HeaderMap;

use crate::{
    answer::CallResult,
    suite::{
        self, ClientCompatRequest, ConformancePayload, ConformanceServiceClient, IdempotentUnaryResponse,
        UnaryResponse, UnimplementedResponse, oneof::client_compat_request::cancel::CancelTiming,
    },
    transport,
};

/// A call with its client and request.
pub(crate) struct MethodCall {
    pub(crate) client: ConformanceServiceClient<transport::HttpTransport>,
    transport: transport::HttpTransport,
    config: ClientConfig,
    request: ClientCompatRequest,
}

/// When the client cancels a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelPoint {
    BeforeCloseSend,
    AfterCloseSend(Duration),
    AfterResponses(u32),
}

impl MethodCall {
    pub(crate) fn new(request: ClientCompatRequest) -> Result<Self, String> {
        let (transport, config) = transport::client(&request)?;
        let client = ConformanceServiceClient::new(transport.clone(), config.clone());
        Ok(Self { client, transport, config, request })
    }

    /// Returns the call's headers, deadline and limits.
    pub(crate) fn options(&self) -> Result<CallOptions, String> {
        let mut options = CallOptions::default();
        for header in &self.request.request_headers {
            for value in &header.value {
                let added = options.try_with_header(header.name.as_str(), value.as_str());
                options = added.map_err(|error| format!("the header {}: {error}", header.name))?;
            }
        }
        if let Some(timeout) = self.request.timeout_ms {
            options = options.with_timeout(Duration::from_millis(timeout.into()));
        }
        if self.request.message_receive_limit > 0 {
            options = options.with_max_message_size(self.request.message_receive_limit as usize);
        }
        Ok(options)
    }

    /// Decodes the request messages, which must have this type.
    pub(crate) fn messages<M: Message + Default>(&self, name: &str) -> Result<Vec<M>, String> {
        self.request.request_messages.iter().map(|any| message(any, name)).collect()
    }

    pub(crate) fn message<M: Message + Default>(&self, name: &str) -> Result<M, String> {
        let mut messages = self.messages(name)?;
        match (messages.pop(), messages.is_empty()) {
            (Some(message), true) => Ok(message),
            _ => Err(format!("expected one request, found {}", self.request.request_messages.len())),
        }
    }

    pub(crate) fn is_full_duplex(&self) -> bool {
        self.request.stream_type.as_known() == Some(suite::StreamType::STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM)
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.request.request_delay_ms.into())
    }

    pub(crate) fn cancel(&self) -> Option<CancelPoint> {
        let cancel = self.request.cancel.as_option()?;
        Some(match &cancel.cancel_timing {
            Some(CancelTiming::BeforeCloseSend(_)) => CancelPoint::BeforeCloseSend,
            Some(CancelTiming::AfterCloseSendMs(delay)) => {
                CancelPoint::AfterCloseSend(Duration::from_millis((*delay).into()))
            }
            Some(CancelTiming::AfterNumResponses(count)) => CancelPoint::AfterResponses(*count),
            None => CancelPoint::AfterCloseSend(Duration::ZERO),
        })
    }
}

fn message<M: Message + Default>(any: &Any, name: &str) -> Result<M, String> {
    let found = any.type_url.rsplit('/').next().unwrap_or_default();
    if found != format!("connectrpc.conformance.v1.{name}") {
        return Err(format!("expected a {name}, found {found:?}"));
    }
    M::decode_from_slice(&any.value).map_err(|error| format!("the {name}: {error}"))
}

/// Waits for a call, and cancels it at the requested time by dropping it. The result is then the error
/// `canceled`.
pub(crate) async fn cancellable<T>(
    cancel: Option<CancelPoint>,
    call: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let after = match cancel {
        Some(CancelPoint::BeforeCloseSend) => Duration::ZERO,
        Some(CancelPoint::AfterCloseSend(delay)) => delay,
        Some(CancelPoint::AfterResponses(_)) | None => return call.await,
    };
    tokio::select! {
        biased;
        result = call => result,
        () = tokio::time::sleep(after) => Err(ConnectError::canceled("cancelled by the client")),
    }
}

pub(crate) async fn unary(call: MethodCall) -> Result<CallResult, String> {
    let (request, options) = (call.message("UnaryRequest")?, call.options()?);
    let response = cancellable(call.cancel(), call.client.unary_with_options(request, options)).await;
    let response = response.map(|response| {
        let (headers, UnaryResponse { payload, .. }, trailers) = response.into_owned_parts();
        (headers, payload.into_option(), trailers)
    });
    Ok(single_result(response))
}

pub(crate) async fn idempotent_unary(call: MethodCall) -> Result<CallResult, String> {
    let (request, options) = (call.message("IdempotentUnaryRequest")?, call.options()?);
    let response = if call.request.use_get_http_method {
        let spec = suite::CONFORMANCE_SERVICE_IDEMPOTENT_UNARY_SPEC.with_origin(SpecOrigin::Client);
        let called = call_unary_get(&call.transport, &call.config, spec, request, options);
        cancellable(call.cancel(), called).await
    } else {
        cancellable(call.cancel(), call.client.idempotent_unary_with_options(request, options)).await
    };
    let response = response.map(|response| {
        let (headers, IdempotentUnaryResponse { payload, .. }, trailers) = response.into_owned_parts();
        (headers, payload.into_option(), trailers)
    });
    Ok(single_result(response))
}

pub(crate) async fn unimplemented(call: MethodCall) -> Result<CallResult, String> {
    let (request, options) = (call.message("UnimplementedRequest")?, call.options()?);
    let response = cancellable(call.cancel(), call.client.unimplemented_with_options(request, options)).await;
    let response = response.map(|response| {
        let (headers, UnimplementedResponse { .. }, trailers) = response.into_owned_parts();
        (headers, None, trailers)
    });
    Ok(single_result(response))
}

/// Returns the result of a call with one response, which may have no payload.
pub(crate) fn single_result(
    response: Result<(HeaderMap, Option<ConformancePayload>, HeaderMap), ConnectError>,
) -> CallResult {
    match response {
        Ok((headers, payload, trailers)) => {
            let payloads = vec![payload.unwrap_or_default()];
            CallResult { headers, payloads, trailers, ..CallResult::default() }
        }
        Err(error) => CallResult::of_error(error),
    }
}

/// Converts an error detail to the suite's type; `None` if it can't be decoded.
pub(crate) fn detail(detail: &ErrorDetail) -> Option<Any> {
    let value = detail.value.as_deref().unwrap_or_default().trim_end_matches('=');
    let type_url = match detail.type_url.contains('/') {
        true => detail.type_url.clone(),
        false => format!("type.googleapis.com/{}", detail.type_url),
    };
    let value = general_purpose::STANDARD_NO_PAD.decode(value).ok()?.into();
    Some(Any { type_url, value, ..Any::default() })
}
