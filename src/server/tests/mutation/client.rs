//! A client on a stream with `Content-Length`. All received messages are checked against the schema.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::service::DEADLINE;

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../../../../tests/schema/mutation-server.schema.json");
    jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
});

/// Checks a message, or the messages of a batch, against the schema.
#[track_caller]
pub(crate) fn check_schema(message: &Value) {
    let messages = message.as_array().map_or(std::slice::from_ref(message), Vec::as_slice);
    for message in messages {
        let errors: Vec<_> = SCHEMA.iter_errors(message).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}\n{message:#}");
    }
}

pub(crate) struct TestClient<S> {
    stream: BufReader<S>,
    /// Notifications received before a response.
    pub(crate) notifications: Vec<Value>,
}

impl TestClient<TcpStream> {
    pub(crate) async fn connect(port: u16) -> Self {
        Self::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TestClient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), notifications: Vec::new() }
    }

    pub(crate) async fn send_text(&mut self, body: &str) {
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(frame.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
        self.send(message).await;
    }

    pub(crate) async fn cancel(&mut self, id: impl Into<Value>) {
        let params = json!({"id": id.into()});
        self.send(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": params})).await;
    }

    /// Returns the next message; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        timeout(DEADLINE, self.read()).await.expect("a message, or the end of the stream")
    }

    async fn read(&mut self) -> Option<Value> {
        let mut header = String::new();
        if !matches!(self.stream.read_line(&mut header).await, Ok(1..)) {
            return None;
        }
        let length = header.strip_prefix("Content-Length: ").and_then(|rest| rest.strip_suffix("\r\n"));
        let length: usize = length.unwrap_or_else(|| panic!("{header:?}")).parse().unwrap();
        let mut blank = [0; 2];
        self.stream.read_exact(&mut blank).await.unwrap();
        assert_eq!(&blank, b"\r\n");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        let message = serde_json::from_slice(&body).unwrap();
        check_schema(&message);
        Some(message)
    }

    /// Returns the next response; earlier notifications are kept.
    pub(crate) async fn response(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("a response");
            if message.get("method").is_none() {
                return message;
            }
            self.notifications.push(message);
        }
    }

    /// Sends a request and returns its result.
    pub(crate) async fn result(&mut self, method: &str, params: Value) -> Value {
        self.request("r", method, params).await;
        let mut response = self.response().await;
        assert_eq!(response["id"], "r", "{response}");
        response["result"].take()
    }

    /// Sends a request and returns the code of its error.
    pub(crate) async fn error(&mut self, method: &str, params: Value) -> i64 {
        self.request("e", method, params).await;
        let response = self.response().await;
        assert_eq!(response["id"], "e", "{response}");
        response["error"]["code"].as_i64().unwrap_or_else(|| panic!("{response}"))
    }

    pub(crate) async fn initialize(&mut self) {
        let result = self.result("initialize", initialize_params()).await;
        assert_eq!(
            result,
            json!({"serverInfo": {"version": "0.0.1-alpha.1"}, "capabilities": {
                "instrumentationProvider": {"partialResults": false},
                "mutationTestProvider": {"partialResults": true}}})
        );
    }

    /// Closes the writing direction.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }
}

pub(crate) fn initialize_params() -> Value {
    json!({"clientInfo": {"version": "0.0.1-alpha.1"}, "configUri": "file:///project/heeler.toml"})
}
