//! Tests the server with the client, and with bytes that are not requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use heeler_protocol::mcp::http::LocalUrl;
use heeler_transport::accept::TrustedListener;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use crate::*;

/// Time limit for events that are certain to happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// Answers with the request body. `/stream` answers with an endless stream.
struct Echo {
    dropped: mpsc::Sender<()>,
}

/// Reports that it was dropped.
struct DropNotice(mpsc::Sender<()>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        self.0.try_send(()).unwrap();
    }
}

impl HttpService for Echo {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        if request.uri().path() == "/stream" {
            let (sender, queue) = mpsc::channel(1);
            sender.try_send(Bytes::from_static(b"first")).unwrap();
            let keep_alive = KeepAlive { interval: Duration::from_millis(1), bytes: b"." };
            return Response::new(queue_body(queue, keep_alive, (sender, DropNotice(self.dropped.clone()))));
        }
        match read_body(request.into_body(), 10, Instant::now() + DEADLINE).await {
            Ok(bytes) => Response::new(bytes_body(bytes)),
            Err(error) => {
                let mut response = Response::new(bytes_body(error.to_string()));
                *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                response
            }
        }
    }
}

struct Server {
    url: String,
    _stop: oneshot::Sender<()>,
    _tasks: JoinSet<()>,
    dropped: mpsc::Receiver<()>,
}

async fn server() -> Server {
    let listener = TrustedListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (notices, dropped) = mpsc::channel(16);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, Arc::new(Echo { dropped: notices }), async { drop(stopped.await) }));
    Server { url, _stop: stop, _tasks: tasks, dropped }
}

impl Server {
    async fn send(&self, path: &str, body: &'static str) -> Result<HttpExchange, HttpClientError> {
        let url = LocalUrl::parse(&format!("{}{path}", self.url)).unwrap();
        let request = Request::post(url.path()).body(bytes_body(body)).unwrap();
        send_request(&url, request, Instant::now() + DEADLINE).await
    }

    /// Returns the server's answer to these bytes, up to the end of the connection.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).await.unwrap();
        // The server may close the connection before it has read everything.
        drop(stream.write_all(bytes).await);
        let mut answer = Vec::new();
        let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer));
        drop(read.await.expect("the server closes the connection"));
        String::from_utf8(answer).unwrap()
    }
}

#[tokio::test]
async fn body_comes_back_and_a_long_one_is_refused() {
    let server = server().await;
    let exchange = server.send("/", "0123456789").await.unwrap();
    assert_eq!(exchange.response().status(), StatusCode::OK);
    assert_eq!(exchange.read(10, Instant::now() + DEADLINE).await.unwrap(), "0123456789");
    let exchange = server.send("/", "0123456789a").await.unwrap();
    assert_eq!(exchange.response().status(), StatusCode::PAYLOAD_TOO_LARGE);
    let error = exchange.read(10, Instant::now() + DEADLINE).await.unwrap_err();
    assert_eq!(error.to_string(), "read a body: it exceeds 10 bytes");
}

#[tokio::test]
async fn closed_connection_drops_the_response() {
    let mut server = server().await;
    let mut exchange = server.send("/stream", "").await.unwrap();
    assert_eq!(exchange.next_bytes().await.unwrap().unwrap(), "first");
    assert_eq!(exchange.next_bytes().await.unwrap().unwrap(), ".", "the connection is kept alive");
    drop(exchange);
    tokio::time::timeout(DEADLINE, server.dropped.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_request_cost_their_connection_only() {
    let server = server().await;
    assert!(server.answer(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100 << 10));
    assert!(server.answer(long.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    assert!(server.answer(many.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let exchange = server.send("/", "x").await.unwrap();
    assert_eq!(exchange.read(10, Instant::now() + DEADLINE).await.unwrap(), "x");
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = LocalUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let request = Request::get("/").body(bytes_body("")).unwrap();
    let error = send_request(&url, request, Instant::now() + DEADLINE).await.unwrap_err();
    let text = heeler_core::error_chain(&error);
    assert!(text.contains("connect to 127.0.0.1 port") && text.contains("refused"), "{text}");
}
