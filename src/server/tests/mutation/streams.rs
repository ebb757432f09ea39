//! Streams of clients that start the server themselves, and connections that are not from clients.

use std::error::Error as _;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use heeler_server::{
    listen::{SessionCommand, SessionEnd, TcpAddress, serve_tcp},
    mutation::{FirstMethod, MutationSessionOptions},
};

use crate::{
    client::TestClient,
    service::{DEADLINE, MUTANTS, TestServer, TestService, client_server, options},
};

/// A session on a stream, as in `serve stdio`.
struct StreamServer {
    client: TestClient<DuplexStream>,
    service: TestService,
    commands: mpsc::Sender<SessionCommand>,
    session: JoinSet<SessionEnd>,
}

fn stream_server() -> StreamServer {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let service = TestService::new();
    let options = MutationSessionOptions { first_method: FirstMethod::AnyOfV04, ..options() };
    let server = client_server(&service, options);
    let (commands, receiver) = mpsc::channel(1);
    let mut session = JoinSet::new();
    session.spawn(server.front_end.serve(Box::new(theirs), server.options, server.scheduler, receiver));
    StreamServer { client: TestClient::new(ours), service, commands, session }
}

impl StreamServer {
    async fn wait_for_end(&mut self) {
        let end = timeout(DEADLINE, self.session.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(end, SessionEnd::Exit);
    }
}

#[tokio::test]
async fn mutants_are_discovered_and_tested_without_configure() {
    let mut server = stream_server();
    let client = &mut server.client;
    let found = client.result("discover", json!({"files": [{"path": "src/"}, {"path": "missing.rs"}]})).await;
    let files = found["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["src/deep/ü.rs", "src/lib.rs"]);
    assert_eq!(
        files["src/deep/ü.rs"],
        json!({"mutants": [{"id": "0000000000000003", "mutatorName": "ConditionalExpression", "replacement": "",
            "location": {"start": {"line": 3, "column": 5}, "end": {"line": 3, "column": 11}}}]})
    );
    assert_eq!(
        client.result("configure", json!({"configFilePath": "/project/heeler.toml"})).await["version"],
        "0.4.0"
    );
    assert_eq!(client.error("configure", json!({"configFilePath": "missing"})).await, -32602);
    assert_eq!(client.error("initialize", json!({})).await, -32601);
    server.service.steps.add_permits(100);
    // Mutants take precedence over files, and one mutant no longer exists.
    let mut mutants = found["files"].clone();
    mutants["src/deep/ü.rs"]["mutants"][0]["id"] = json!("gone");
    let params = json!({"files": [{"path": "tests/"}], "mutants": mutants});
    assert_eq!(client.result("mutationTest", params).await, json!({"files": {}}));
    let mut seen: Vec<_> = Vec::new();
    for notification in client.notifications.drain(..) {
        assert_eq!(notification["method"], "reportMutationTestProgress");
        for (path, file) in notification["params"]["files"].as_object().unwrap() {
            for mutant in file["mutants"].as_array().unwrap() {
                seen.push((path.clone(), mutant["id"].clone(), mutant["status"].clone()));
            }
        }
    }
    let one = |path: &str, id: &str, status: &str| (path.to_owned(), json!(id), json!(status));
    assert_eq!(
        seen,
        [
            one("src/lib.rs", "0000000000000001", "Killed"),
            one("src/lib.rs", "0000000000000002", "Survived"),
            one("src/deep/ü.rs", "gone", "Ignored"),
        ]
    );
    // A path may be absolute.
    let absolute = json!({"mutants": {"/project/src/lib.rs": found["files"]["src/lib.rs"]}});
    client.result("mutationTest", absolute).await;
    let text = json!(std::mem::take(&mut client.notifications)).to_string();
    assert!(text.contains("Killed") && !text.contains("Ignored"), "{text}");
    let range = json!({"start": {"line": 2, "column": 5}, "end": {"line": 2, "column": 11}});
    client.result("mutationTest", json!({"files": [{"path": "src/lib.rs", "range": range}]})).await;
    assert_eq!(client.notifications.len(), 1);
    client.notifications.clear();
    client.result("mutationTest", Value::Null).await;
    let tested: usize = client
        .notifications
        .iter()
        .map(|one| {
            one["params"]["files"]
                .as_object()
                .unwrap()
                .values()
                .map(|file| file["mutants"].as_array().unwrap().len())
                .sum::<usize>()
        })
        .sum();
    assert_eq!(tested, MUTANTS);
}

#[tokio::test]
async fn requests_wait_for_configure() {
    let mut server = stream_server();
    server.service.openings.forget_permits(1000);
    server.client.request(1, "configure", json!({})).await;
    server.client.request(2, "discover", json!({})).await;
    server.client.request(3, "mutationTest", json!({})).await;
    server.client.cancel(3).await;
    assert_eq!(server.client.error("configure", json!({})).await, -32600);
    server.service.openings.add_permits(1000);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let answer = server.client.response().await;
        answers.push((answer["id"].as_i64().unwrap(), answer["error"]["code"].as_i64()));
    }
    answers.sort_unstable();
    assert_eq!(answers, [(1, None), (2, None), (3, Some(-32000))]);
    assert_eq!(server.service.counts.borrow().started, 0);
}

#[tokio::test]
async fn end_of_input_and_a_stop_cancel_and_end_the_session() {
    for is_stop in [false, true] {
        let mut server = stream_server();
        server.client.request(1, "mutationTest", json!({})).await;
        server.service.wait_for(|counts| counts.started == 1).await;
        if is_stop {
            server.commands.send(SessionCommand::Exit).await.unwrap();
        } else {
            server.client.half_close().await;
        }
        assert_eq!(server.client.response().await["error"]["code"], -32000);
        assert_eq!(server.client.next().await, None);
        server.wait_for_end().await;
        assert_eq!(server.service.counts.borrow().cancelled, 1);
    }
}

#[tokio::test]
async fn both_addresses_of_loopback_are_served_and_no_other() {
    let server = TestServer::start().await;
    for address in ["127.0.0.1", "::1"] {
        let mut client = TestClient::new(TcpStream::connect((address, server.port)).await.unwrap());
        client.initialize().await;
    }
    for (address, port, expected) in [
        (Some("0.0.0.0".parse().unwrap()), 0, "0.0.0.0 is not a loopback address"),
        (None, server.port, "Address already in use (os error 98)"),
    ] {
        let refused = client_server(&TestService::new(), options());
        let (_stop, stopped) = mpsc::channel(1);
        let address = TcpAddress::Loopback { address, port };
        let served = serve_tcp(&address, &refused, |_| panic!("it listens"), stopped).await;
        assert_eq!(served.unwrap_err().source().unwrap().to_string(), expected);
    }
}

#[tokio::test]
async fn bytes_that_are_no_protocol_cost_their_connection_only() {
    let server = TestServer::start().await;
    let mut other = TestClient::connect(server.port).await;
    other.initialize().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"[..],
        b"{\"jsonrpc\":\"2.0\"}\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 10\r\n\r\n{",
        b"GET /",
        b"",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // The server may reset the connection, since it did not read everything.
        drop(
            timeout(DEADLINE, stream.read_to_end(&mut answer))
                .await
                .expect("the server closes the connection"),
        );
    }
    assert_eq!(other.error("none", json!({})).await, -32601);
}
