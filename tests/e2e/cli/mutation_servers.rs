//! Clients written from the specifications of the Mutation Server Protocol against `heeler serve mutation`,
//! `stdio` and `socket`. They test mutants of a real package.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    framing::{MessageReader, notification, request, write_message},
    process::{signal, wait_until},
    recorder::DEADLINE,
    world::TestWorld,
};

const MANIFEST: &str =
    "[workspace]\n[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const SOURCE: &str = "pub fn low(a: u8) -> bool {\n    a < 2\n}\n\npub fn weak(a: u8) -> bool {\n    a > 7\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn checks() {\n        assert!(super::low(1) && !super::low(2));\n        super::weak(1);\n    }\n}\n";

fn package() -> TestWorld {
    let world = TestWorld::new();
    fs::create_dir_all(world.path("package/src")).unwrap();
    world.write("package/Cargo.toml", MANIFEST);
    world.write("package/src/lib.rs", SOURCE);
    world
}

fn directory(world: &TestWorld) -> PathBuf {
    world.path("package")
}

fn start(world: &TestWorld, words: &[&str]) -> Child {
    let mut command = world.heeler(&[&["serve"], words].concat());
    command.current_dir(directory(world)).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Returns the mutant statuses in a response of version 0.4, by line and replacement.
fn statuses(files: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (path, file) in files.as_object().unwrap() {
        assert_eq!(path, "src/lib.rs");
        for mutant in file["mutants"].as_array().unwrap() {
            let status = mutant["status"].as_str().unwrap_or("discovered").to_owned();
            found.insert(name(mutant), status);
        }
    }
    found
}

fn name(mutant: &Value) -> String {
    let line = &mutant["location"]["start"]["line"];
    format!("{line}: {}", mutant["replacement"].as_str().unwrap_or_default())
}

/// A client of version 0.4 that starts the server and uses its standard streams.
struct StreamClient {
    child: Child,
    to: Option<ChildStdin>,
    from: MessageReader<ChildStdout>,
}

impl StreamClient {
    fn start(world: &TestWorld) -> Self {
        let mut child = start(world, &["stdio", "-j2"]);
        let from = MessageReader::new(child.stdout.take().unwrap());
        Self { to: child.stdin.take(), child, from }
    }

    fn send(&mut self, message: &Value) {
        write_message(self.to.as_mut().unwrap(), message).unwrap();
    }

    /// Sends a request; returns the notifications that precede the response, and the response.
    fn ask(&mut self, id: u64, method: &str, params: Value) -> (Vec<Value>, Value) {
        self.send(&request(id, method, params));
        let mut before = Vec::new();
        loop {
            let message = self.from.next().expect("the server answers");
            if message["id"] == id {
                return (before, message);
            }
            before.push(message);
        }
    }
}

#[test]
fn client_of_0_4_discovers_and_tests_mutants_and_ends_the_server() {
    let world = package();
    let mut client = StreamClient::start(&world);
    let (_, answer) = client.ask(1, "configure", json!({}));
    assert_eq!(answer["result"], json!({ "version": "0.4.0" }));
    let (_, answer) = client.ask(2, "discover", json!({ "files": [{ "path": "src/" }] }));
    let discovered = answer["result"]["files"].clone();
    assert_eq!(statuses(&discovered).len(), 12, "{discovered}");
    let (progress, answer) = client.ask(3, "mutationTest", json!({ "mutants": discovered }));
    assert_eq!(answer["result"], json!({ "files": {} }), "{answer}");
    let mut tested = BTreeMap::new();
    for message in &progress {
        assert_eq!(message["method"], "reportMutationTestProgress");
        tested.extend(statuses(&message["params"]["files"]));
    }
    let survived = |name: &str| name.starts_with(['5', '6']);
    let expected: BTreeMap<String, String> = statuses(&discovered)
        .into_keys()
        .map(|name| {
            let status = if survived(&name) { "Survived" } else { "Killed" };
            (name, status.to_owned())
        })
        .collect();
    assert_eq!(tested, expected);
    // The user's source is unchanged.
    assert_eq!(world.read("package/src/lib.rs"), SOURCE);
    drop(client.to.take());
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
}

#[test]
fn cancelled_request_is_answered_and_the_next_is_served() {
    let world = package();
    let mut client = StreamClient::start(&world);
    client.ask(1, "configure", json!({}));
    client.send(&request(2, "mutationTest", json!({})));
    client.send(&notification("$/cancelRequest", json!({ "id": 2 })));
    let answer = loop {
        let message = client.from.next().expect("the server answers");
        if message["id"] == 2 {
            break message;
        }
    };
    assert!(answer["error"]["message"].is_string(), "{answer}");
    let (progress, answer) = client.ask(3, "mutationTest", json!({}));
    assert!(!progress.is_empty() && answer["result"].is_object(), "{answer}");
}

#[test]
fn tests_that_fail_without_a_mutant_are_the_error_of_the_request() {
    let world = package();
    world.write("package/src/lib.rs", &SOURCE.replace("super::low(1) &&", "super::low(9) &&"));
    let mut client = StreamClient::start(&world);
    let (_, answer) = client.ask(1, "mutationTest", json!({}));
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("tests fail without a mutant"), "{answer}");
}

/// Starts a server on a port; returns the process and the port that it prints.
fn start_on_port(world: &TestWorld, transport: &str) -> (Child, u16) {
    let mut child = start(world, &[transport, "--port", "0"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("Server is listening on port: ").expect("it prints its port");
    (child, port.parse().unwrap())
}

fn post(port: u16, message: &Value) -> Value {
    let body = message.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

#[test]
fn client_of_alpha_tests_mutants_over_http_and_a_signal_ends_the_server() {
    let world = package();
    let (mut child, port) = start_on_port(&world, "mutation");
    let params = json!({ "clientInfo": { "version": "0.0.1-alpha.1" } });
    let answer = post(port, &request(1, "initialize", params));
    assert_eq!(answer["result"]["serverInfo"]["version"], "0.0.1-alpha.1");
    let answer = post(port, &request(2, "instrument", json!({ "globPatterns": ["src/lib.rs:5:1-7:2"] })));
    let weak = answer["result"].as_array().unwrap().len();
    assert!(weak > 0, "{answer}");
    let answer = post(port, &request(3, "mutate", json!({ "globPatterns": ["src/lib.rs"] })));
    let tested = answer["result"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let survived = tested.iter().filter(|mutant| mutant["status"] == "Survived").count();
    assert_eq!((tested.len(), survived), (12, weak), "{tested:?}");
    signal(child.id(), "TERM");
    wait_until("the server has ended", || child.try_wait().unwrap().is_some());
}

#[test]
fn client_of_0_4_is_served_on_a_port() {
    let world = package();
    let (mut child, port) = start_on_port(&world, "socket");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write_message(&mut stream, &request(1, "discover", json!({}))).unwrap();
    let answer = MessageReader::new(stream).next().unwrap();
    assert_eq!(statuses(&answer["result"]["files"]).len(), 12, "{answer}");
    signal(child.id(), "TERM");
    wait_until("the server has ended", || child.try_wait().unwrap().is_some());
}
