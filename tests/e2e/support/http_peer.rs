//! An HTTP server process that prints its address, and a client that sends one request per connection.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::TcpStream,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

use serde_json::{Value, json};

use super::{process::signal, recorder::DEADLINE};

/// A server process, killed when this value is dropped.
pub(crate) struct HttpServer {
    child: Child,
    pub(crate) url: String,
}

impl HttpServer {
    /// Starts a process and reads its address from its standard output or standard error.
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Each output has at most one line with an address. Its other lines are for humans.
        let (sender, addresses) = sync_channel(16);
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(at) = line.find("http://") {
                        sender.send(line[at..].trim().to_owned()).ok();
                    } else {
                        println!("server: {line}");
                    }
                }
            });
        }
        drop(sender);
        let url = addresses.recv_timeout(DEADLINE).expect("the server prints its address");
        Self { child, url }
    }

    pub(crate) fn authority(&self) -> &str {
        self.url["http://".len()..].split('/').next().unwrap()
    }

    pub(crate) fn port(&self) -> &str {
        self.authority().rsplit(':').next().unwrap()
    }

    /// Sends a request: a request line such as `POST /mcp`, headers and a body.
    #[track_caller]
    pub(crate) fn send(&self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Response {
        Response::read(self.open(line, headers, body))
    }

    /// Sends a request and returns the connection with the unread response.
    #[track_caller]
    pub(crate) fn open(&self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> TcpStream {
        let body = body.as_ref();
        let mut text = format!("{line} HTTP/1.1\r\n");
        let own = [("Host", self.authority()), ("Content-Type", "application/json")];
        let own =
            own.iter().filter(|(name, _)| !headers.iter().any(|(one, _)| one.eq_ignore_ascii_case(name)));
        for (name, value) in headers.iter().chain(own) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Connection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("transfer-encoding")) {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut stream = TcpStream::connect(self.authority()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // A server that rejects the request may close the connection before reading everything.
        stream.write_all(&[text.as_bytes(), body].concat()).ok();
        stream
    }

    /// Sends a message like a client of a legacy protocol version.
    #[track_caller]
    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> Response {
        let accept = [("Accept", "application/json, text/event-stream")];
        self.send("POST /mcp", &[accept.as_slice(), headers].concat(), message.to_string())
    }

    /// Sends a request like a client of the modern protocol version, which repeats parts of the body in
    /// headers.
    #[track_caller]
    pub(crate) fn request(&self, id: u64, method: &str, mut params: Value) -> Response {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let name = params["name"].as_str().map(str::to_owned);
        let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
        self.post(&headers, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// Sends a signal to the server and returns its exit status.
    #[track_caller]
    pub(crate) fn end(mut self, name: &str) -> ExitStatus {
        signal(self.child.id(), name);
        self.child.wait().unwrap()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header names are in lower case.
    headers: Vec<(String, String)>,
    /// The body without chunk framing.
    pub(crate) body: String,
}

impl Response {
    #[track_caller]
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A reset after the response is harmless.
        stream.read_to_end(&mut bytes).ok();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let mut response = Self { status, headers: headers.collect(), body: body.to_owned() };
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = unchunked(body);
        }
        response
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// Returns the messages in the body: one, or one per event.
    #[track_caller]
    pub(crate) fn messages(&self) -> Vec<Value> {
        let parse =
            |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        match self.header("content-type") {
            Some("text/event-stream") => {
                self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(parse).collect()
            }
            _ => vec![parse(&self.body)],
        }
    }

    /// Returns the last message, which is the response.
    #[track_caller]
    pub(crate) fn answer(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message: {self:?}"))
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    text
}

/// Reads a response until `text` has arrived; returns everything read.
#[track_caller]
pub(crate) fn read_until(stream: &mut TcpStream, text: &str) -> String {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the response ended before {text:?}: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&buffer[..count]);
        let so_far = String::from_utf8_lossy(&received);
        if so_far.contains(text) {
            return so_far.into_owned();
        }
    }
}

/// Starts a server that responds to each request with the text that a function returns. Returns its URL and
/// the received requests, in order.
#[track_caller]
pub(crate) fn recording_server(
    answer: impl Fn(&str) -> String + Send + 'static,
) -> (String, Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    // The capacity exceeds the number of requests in every test.
    let (sender, requests) = sync_channel(100);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
            let is_whole = |received: &[u8]| {
                let text = String::from_utf8_lossy(received).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                let length = head
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
                body.len() >= length.unwrap_or(0)
            };
            while !is_whole(&received) {
                match stream.read(&mut buffer) {
                    Ok(count) if count > 0 => received.extend_from_slice(&buffer[..count]),
                    _ => break,
                }
            }
            let request = String::from_utf8(received).unwrap();
            let response = answer(&request);
            sender.send(request).ok();
            stream.write_all(response.as_bytes()).ok();
        }
    });
    (url, requests)
}
