//! Classifies requests and answers them.
//!
//! In the modern era, each request contains the protocol version and is self-contained. In the legacy era, a
//! request contains the id of an earlier handshake. The id only tells whose calls to cancel on DELETE: all
//! clients share one session, which needs no handshake. In both eras, a call is cancelled when its client
//! closes the connection, because the answer can't be fetched later.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    handshakes::Handshakes,
    relay::{Relay, RelayedAnswer, RelayedCall, SessionGone, SharedSession},
};
use crate::listen::loopback_http::{
    HttpRefusal, accepts, check_json, check_local, empty_response, events_response, json_response,
    read_message_body,
};
use heeler_http::{
    HeaderMap, HeaderName, HeaderValue, HttpBody, HttpService, Incoming, Method, Request, Response,
    StatusCode, header, single_header,
};
use heeler_protocol::{
    mcp::{
        self, CancelledParams, Era,
        http::{
            EVENTS_TYPE, HeaderField, JSON_TYPE, check_message_headers, header as mcp_header,
            is_modern_request,
        },
        method, read_params, request_era,
    },
    rpc::{InvalidMessage, RpcMessage, code},
};

/// Path of the protocol's only endpoint.
pub(super) const PATH: &str = "/mcp";
/// Maximum length of a message. Tool arguments are short.
const BODY_LIMIT_BYTES: usize = 1 << 20;
/// Time limit for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// The server's endpoint.
#[derive(Debug)]
pub(super) struct McpEndpoint {
    relay: Relay,
    session: SharedSession,
    handshakes: Mutex<Handshakes>,
}

/// The kind of a request, according to its head.
#[derive(Debug, PartialEq, Eq)]
enum RequestHead {
    /// The request contains a message.
    Message(MessageHead),
    /// The client ends its handshake.
    EndHandshake(String),
}

#[derive(Debug, PartialEq, Eq)]
struct MessageHead {
    accepts_events: bool,
    handshake: Option<String>,
}

impl HttpService for McpEndpoint {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        let refused = |refusal: HttpRefusal| refusal.into_response("POST, DELETE", mcp::encode_error);
        self.answer(request).await.unwrap_or_else(refused)
    }
}

impl McpEndpoint {
    pub(super) fn new(relay: Relay, session: SharedSession) -> Self {
        Self { relay, session, handshakes: Mutex::default() }
    }

    /// Returns the session shared by all clients.
    pub(super) fn session(&self) -> &SharedSession {
        &self.session
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<HttpBody>, HttpRefusal> {
        let head = read_head(request.method(), request.uri().path(), request.headers())?;
        match head {
            RequestHead::EndHandshake(id) => {
                if !self.lock_handshakes().remove(&id) {
                    return Err(unknown_handshake());
                }
                self.relay.cancel(id, None).await;
                Ok(empty_response(StatusCode::OK))
            }
            RequestHead::Message(head) => {
                let (parts, body) = request.into_parts();
                let body = read_message_body(body, BODY_LIMIT_BYTES, BODY_LIMIT).await?;
                let message = mcp::read_message(&body)
                    .map_err(|InvalidMessage { id, error }| HttpRefusal::of_message(&id, error))?;
                self.on_message(message, head, &parts.headers).await
            }
        }
    }

    async fn on_message(
        &self,
        message: RpcMessage,
        head: MessageHead,
        headers: &HeaderMap,
    ) -> Result<Response<HttpBody>, HttpRefusal> {
        match message {
            RpcMessage::Request { id, method, params } => {
                let refused = |error| HttpRefusal::of_message(&id, error);
                check_message_headers(&method, params.as_deref(), |name| {
                    HeaderField::from(single_header(headers, name))
                })
                .map_err(refused)?;
                let era = request_era(&method, params.as_deref()).map_err(refused)?.era;
                let is_initialize = method == method::INITIALIZE;
                let handshake = match era {
                    Era::Modern => None,
                    Era::Legacy if is_initialize => Some(self.add_handshake().await),
                    Era::Legacy => Some(self.known_handshake(head.handshake)?),
                };
                let new_handshake = handshake.clone().filter(|_| is_initialize);
                // Tool calls may take long; everything else is answered at once.
                let wants_events = head.accepts_events && method == method::TOOLS_CALL;
                let request = RelayedCall { id, method, params, handshake };
                let mut response = match wants_events {
                    true => self.respond_with_events(request).await?,
                    false => self.respond_with_message(request, era).await?,
                };
                if let Some(id) = new_handshake {
                    let id = HeaderValue::try_from(id).expect("a UUID is ASCII");
                    response.headers_mut().insert(HeaderName::from_static(mcp_header::SESSION_ID), id);
                }
                Ok(response)
            }
            RpcMessage::Notification { method, params } => {
                let is_modern = head.handshake.is_none() || is_modern_request(params.as_deref());
                let handshake = (!is_modern).then(|| self.known_handshake(head.handshake)).transpose()?;
                if let Some(handshake) = handshake
                    && method == method::CANCELLED
                    && let Ok(cancelled) = read_params::<CancelledParams>(&method, params.as_deref())
                {
                    self.relay.cancel(handshake, Some(cancelled.request_id)).await;
                }
                Ok(empty_response(StatusCode::ACCEPTED))
            }
            // The server sends no requests, so there is nothing to match.
            RpcMessage::Response { .. } => Ok(empty_response(StatusCode::ACCEPTED)),
        }
    }

    async fn respond_with_events(&self, request: RelayedCall) -> Result<Response<HttpBody>, HttpRefusal> {
        let (open, events) = self.relay.request_events(request).await.map_err(session_gone)?;
        Ok(events_response(events, open))
    }

    async fn respond_with_message(
        &self,
        request: RelayedCall,
        era: Era,
    ) -> Result<Response<HttpBody>, HttpRefusal> {
        let (_open, answer) = self.relay.request(request).await.map_err(session_gone)?;
        let RelayedAnswer { error_code, message } =
            answer.await.map_err(|_cancelled| session_gone(SessionGone))?;
        let status = match error_code {
            Some(code::METHOD_NOT_FOUND) if era == Era::Modern => StatusCode::NOT_FOUND,
            Some(_) | None => StatusCode::OK,
        };
        Ok(json_response(status, message))
    }

    fn lock_handshakes(&self) -> std::sync::MutexGuard<'_, Handshakes> {
        // A panic can't leave the list of handshakes inconsistent.
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new handshake and returns its id.
    async fn add_handshake(&self) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        let forgotten = self.lock_handshakes().add(id.clone());
        if let Some(forgotten) = forgotten {
            self.relay.cancel(forgotten, None).await;
        }
        id
    }

    fn known_handshake(&self, id: Option<String>) -> Result<String, HttpRefusal> {
        let Some(id) = id else {
            let expected = format!(
                "missing header {}: call initialize first and send its value with every request",
                mcp_header::SESSION_ID
            );
            return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, expected));
        };
        if self.lock_handshakes().touch(&id) { Ok(id) } else { Err(unknown_handshake()) }
    }
}

/// Classifies a request by its head.
fn read_head(method: &Method, path: &str, headers: &HeaderMap) -> Result<RequestHead, HttpRefusal> {
    check_local(headers)?;
    if path != PATH {
        return Err(HttpRefusal::new(StatusCode::NOT_FOUND, format!("unknown path: the endpoint is {PATH}")));
    }
    let handshake = match HeaderField::from(single_header(headers, mcp_header::SESSION_ID)) {
        HeaderField::Absent => None,
        HeaderField::One(id) => Some(id.to_owned()),
        HeaderField::Invalid => return Err(unknown_handshake()),
    };
    // A POST may lack a handshake: only its body shows its era.
    match (method, handshake) {
        (&Method::POST, handshake) => {
            check_json(headers)?;
            let accepts_events = accepts(headers, EVENTS_TYPE);
            let accepts_json = ["*/*", "application/*", JSON_TYPE].iter().any(|one| accepts(headers, one));
            if headers.contains_key(header::ACCEPT) && !accepts_json {
                let expected = format!("the Accept header must include {JSON_TYPE}");
                return Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, expected));
            }
            Ok(RequestHead::Message(MessageHead { accepts_events, handshake }))
        }
        (&Method::DELETE, Some(id)) => Ok(RequestHead::EndHandshake(id)),
        (&Method::DELETE, None) => Err(unknown_handshake()),
        // The server never sends anything unasked, so there is nothing to GET.
        _ => Err(HttpRefusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed: use POST, or DELETE to end a session",
        )),
    }
}

fn unknown_handshake() -> HttpRefusal {
    let message =
        format!("unknown or expired {}: call initialize to start a new session", mcp_header::SESSION_ID);
    HttpRefusal::new(StatusCode::NOT_FOUND, message)
}

fn session_gone(_: SessionGone) -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the request was cancelled, or the server is shutting down",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(
        method: Method,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<RequestHead, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in [("host", "127.0.0.1:1")].iter().chain(headers).copied() {
            map.append(name, HeaderValue::from_static(value));
        }
        read_head(&method, path, &map).map_err(|refusal| refusal.status.as_u16())
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    fn message(accepts_events: bool, handshake: Option<&str>) -> Result<RequestHead, u16> {
        Ok(RequestHead::Message(MessageHead { accepts_events, handshake: handshake.map(str::to_owned) }))
    }

    #[test]
    fn message_is_accepted_with_its_headers() {
        assert_eq!(head(Method::POST, "/mcp", &[JSON]), message(false, None));
        let both = ("accept", "application/json, text/event-stream;q=0.5");
        assert_eq!(head(Method::POST, "/mcp", &[JSON, both]), message(true, None));
        let split = [JSON, ("accept", "application/json"), ("accept", "text/event-stream")];
        assert_eq!(head(Method::POST, "/mcp", &split), message(true, None));
        let named = [JSON, ("accept", "*/*"), ("mcp-session-id", "x")];
        assert_eq!(head(Method::POST, "/mcp", &named), message(false, Some("x")));
        let end = head(Method::DELETE, "/mcp", &[("mcp-session-id", "x")]);
        assert_eq!(end, Ok(RequestHead::EndHandshake("x".to_owned())));
    }

    #[test]
    fn other_requests_are_refused_with_a_status() {
        for (method, path, headers, status) in [
            (Method::POST, "/mcp", [JSON, ("origin", "https://example.com")], 403),
            (Method::POST, "/mcp", [JSON, ("host", "example.com")], 403),
            (Method::GET, "/mcp", [("origin", "null"), ("x", "")], 403),
            (Method::POST, "/other", [JSON, ("x", "")], 404),
            (Method::POST, "/", [JSON, ("x", "")], 404),
            (Method::GET, "/mcp", [("accept", "text/event-stream"), ("x", "")], 405),
            (Method::PUT, "/mcp", [JSON, ("x", "")], 405),
            (Method::OPTIONS, "/mcp", [("origin", "http://localhost:1"), ("x", "")], 405),
            (Method::DELETE, "/mcp", [("x", ""), ("y", "")], 404),
            (Method::POST, "/mcp", [("content-type", "text/plain"), ("x", "")], 415),
            (Method::POST, "/mcp", [("x", ""), ("y", "")], 415),
            (Method::POST, "/mcp", [JSON, ("accept", "text/html")], 406),
            (Method::POST, "/mcp", [("mcp-session-id", "a"), ("mcp-session-id", "b")], 404),
        ] {
            assert_eq!(head(method.clone(), path, &headers), Err(status), "{method} {path} {headers:?}");
        }
    }
}
