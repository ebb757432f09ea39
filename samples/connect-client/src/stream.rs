//! Streaming calls.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::connectrpc::{ConnectError, client::ClientRequestStream};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    answer::CallResult,
    call::{CancelPoint, MethodCall, single_result},
    suite::{
        BidiStreamRequest, BidiStreamResponse, ClientStreamRequest, ClientStreamResponse,
        ServerStreamResponse,
    },
};

fn cancelled() -> ConnectError {
    ConnectError::canceled("cancelled by the client")
}

/// Waits until the time to cancel the call; forever if there is none.
async fn cancel_time(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn server_stream(call: MethodCall) -> Result<CallResult, String> {
    let (request, options) = (call.message("ServerStreamRequest")?, call.options()?);
    let cancel = call.cancel();
    let cancel_at = match cancel {
        Some(CancelPoint::BeforeCloseSend) => Some(Instant::now()),
        Some(CancelPoint::AfterCloseSend(delay)) => Some(Instant::now() + delay),
        Some(CancelPoint::AfterResponses(_)) | None => None,
    };
    let opened = tokio::select! {
        biased;
        opened = call.client.server_stream_with_options(request, options) => opened,
        () = cancel_time(cancel_at) => Err(cancelled()),
    };
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(error) => return Ok(CallResult::of_error(error)),
    };
    let mut result = CallResult { headers: stream.headers().clone(), ..CallResult::default() };
    loop {
        if is_enough(cancel, &result) {
            result.error = Some(cancelled());
            break;
        }
        let received = tokio::select! {
            biased;
            received = stream.message::<ServerStreamResponse>() => received,
            () = cancel_time(cancel_at) => Err(cancelled()),
        };
        match received {
            Ok(Some(message)) => {
                result.payloads.push(message.to_owned_message().payload.into_option().unwrap_or_default());
            }
            Ok(None) => break,
            Err(error) => {
                result.error = Some(error);
                break;
            }
        }
    }
    // A cancelled call has no trailers yet.
    result.trailers = trailers(stream.trailers(), result.error.as_ref());
    Ok(result)
}

/// Returns whether enough responses were received to cancel the call.
fn is_enough(cancel: Option<CancelPoint>, result: &CallResult) -> bool {
    matches!(cancel, Some(CancelPoint::AfterResponses(count)) if result.payloads.len() >= count as usize)
}

/// Returns the trailers of an ended call. The trailers of an error exclude the protocol's own, such as
/// `grpc-status`.
fn trailers(received: Option<&http::HeaderMap>, error: Option<&ConnectError>) -> http::HeaderMap {
    match error {
        Some(error) => error.trailers().clone(),
        None => received.cloned().unwrap_or_default(),
    }
}

pub(crate) async fn client_stream(call: MethodCall) -> Result<CallResult, String> {
    let messages: Vec<ClientStreamRequest> = call.messages("ClientStreamRequest")?;
    let options = call.options()?;
    let total = messages.len();
    let sent = Arc::new(AtomicUsize::new(0));
    let (all_sent, is_all_sent) = oneshot::channel();
    let cancel = call.cancel();
    let source = MessageSource {
        messages: messages.into(),
        delay: call.delay(),
        sent: Arc::clone(&sent),
        all_sent: Some(all_sent),
        stays_open: cancel == Some(CancelPoint::BeforeCloseSend),
    };
    let cancel_time = async {
        // Sent by the message source, which the call owns.
        let _sent = is_all_sent.await;
        match cancel {
            Some(CancelPoint::BeforeCloseSend) => {}
            Some(CancelPoint::AfterCloseSend(delay)) => sleep(delay).await,
            Some(CancelPoint::AfterResponses(_)) | None => std::future::pending().await,
        }
    };
    let response = tokio::select! {
        biased;
        response = call.client.client_stream_with_options(source.into_stream(), options) => response,
        () = cancel_time => Err(cancelled()),
    };
    let response = response.map(|response| {
        let (headers, ClientStreamResponse { payload, .. }, trailers) = response.into_owned_parts();
        (headers, payload.into_option(), trailers)
    });
    let unsent = if response.is_err() { total - sent.load(Ordering::Relaxed) } else { 0 };
    Ok(CallResult { unsent, ..single_result(response) })
}

/// The messages of a client stream.
struct MessageSource {
    messages: VecDeque<ClientStreamRequest>,
    delay: Duration,
    sent: Arc<AtomicUsize>,
    all_sent: Option<oneshot::Sender<()>>,
    /// The stream stays open after the last message.
    stays_open: bool,
}

impl MessageSource {
    fn into_stream(self) -> impl ClientRequestStream<ClientStreamRequest> {
        futures::stream::unfold(self, |mut source| async move {
            if let Some(message) = source.messages.pop_front() {
                sleep(source.delay).await;
                source.sent.fetch_add(1, Ordering::Relaxed);
                return Some((message, source));
            }
            if let Some(all_sent) = source.all_sent.take() {
                // Without a cancellation, nothing waits for this.
                let _unused = all_sent.send(());
            }
            if source.stays_open {
                std::future::pending::<()>().await;
            }
            None
        })
    }
}

pub(crate) async fn bidi_stream(call: MethodCall) -> Result<CallResult, String> {
    let messages: Vec<BidiStreamRequest> = call.messages("BidiStreamRequest")?;
    let opened = call.client.bidi_stream_with_options(call.options()?).await;
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(error) => return Ok(CallResult { unsent: messages.len(), ..CallResult::of_error(error) }),
    };
    let cancel = call.cancel();
    let mut result = CallResult::default();
    let total = messages.len();
    let mut end = None;
    for (place, message) in messages.into_iter().enumerate() {
        sleep(call.delay()).await;
        if let Err(refused) = stream.send(message).await {
            result.unsent = total - place;
            // The reason for closing the stream is received as the response.
            let received = stream.message::<BidiStreamResponse>().await;
            end = Some(Err(received.err().unwrap_or(refused)));
            break;
        }
        if call.is_full_duplex() {
            end = receive(stream.message::<BidiStreamResponse>().await, &mut result, cancel);
            if end.is_some() {
                result.unsent = total - place - 1;
                break;
            }
        }
    }
    if end.is_none() && cancel == Some(CancelPoint::BeforeCloseSend) {
        end = Some(Err(cancelled()));
    }
    if end.is_none() {
        stream.close_send();
    }
    let cancel_at = match cancel {
        Some(CancelPoint::AfterCloseSend(delay)) => Some(Instant::now() + delay),
        _ => None,
    };
    while end.is_none() {
        let received = tokio::select! {
            biased;
            received = stream.message::<BidiStreamResponse>() => received,
            () = cancel_time(cancel_at) => Err(cancelled()),
        };
        end = receive(received, &mut result, cancel);
    }
    result.error = end.and_then(Result::err);
    result.headers = match (stream.headers(), &result.error) {
        (Some(headers), _) => headers.clone(),
        (None, Some(error)) => error.response_headers().clone(),
        (None, None) => http::HeaderMap::new(),
    };
    result.trailers = trailers(stream.trailers(), result.error.as_ref());
    Ok(result)
}

/// Adds a received message to the result. Returns how the stream ended, if it did.
fn receive(
    received: Result<Option<::connectrpc::StreamMessage<BidiStreamResponse>>, ConnectError>,
    result: &mut CallResult,
    cancel: Option<CancelPoint>,
) -> Option<Result<(), ConnectError>> {
    match received {
        Ok(Some(message)) => {
            result.payloads.push(message.to_owned_message().payload.into_option().unwrap_or_default());
            is_enough(cancel, result).then(|| Err(cancelled()))
        }
        Ok(None) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    }
}
