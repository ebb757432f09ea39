//! The real server of the Runtime Server Protocol, and a client written from the specification. The client
//! reads only while a test waits for a message, like a busy client. Every message in both directions is
//! validated against the schema.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
};

use serde_json::{Value, json};

use super::{
    framing::{self, MessageReader},
    recorder::DEADLINE,
    schema::{rsp_client_schema_violation, rsp_server_schema_violation},
    server::{announced_address, listen_to_errors},
    world::TestWorld,
};

pub(crate) struct RspServer<'w> {
    world: &'w TestWorld,
    child: Child,
    errors: Arc<Mutex<String>>,
    all_gone: Receiver<()>,
    address: Option<String>,
}

/// A client of a running server.
pub(crate) struct RspClient {
    to: Box<dyn Write + Send>,
    messages: Receiver<Value>,
    stream: Option<TcpStream>,
    next_id: u64,
    /// All notifications read so far, in order.
    pub(crate) heard: Vec<Value>,
}

impl<'w> RspServer<'w> {
    /// Starts a server that listens on a port.
    pub(crate) fn start(world: &'w TestWorld, programs: &[&str]) -> Self {
        let (mut server, _child) = Self::launch(world, &[&["serve", "rsp"], programs].concat());
        server.address = Some(announced_address(&server.errors));
        server
    }

    /// Starts a server for one client on its standard streams. Pipes buffer less than sockets.
    pub(crate) fn start_over_pipes(world: &'w TestWorld, programs: &[&str]) -> (Self, RspClient) {
        let words = [&["serve", "--protocol", "rsp", "--stdio"], programs].concat();
        let (server, streams) = Self::launch(world, &words);
        let (to, from) = streams;
        (server, RspClient::new(to, from, None))
    }

    #[expect(clippy::type_complexity, reason = "both ends of one connection")]
    fn launch(world: &'w TestWorld, words: &[&str]) -> (Self, (Box<dyn Write + Send>, Box<dyn Read + Send>)) {
        let mut command = world.heeler(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, all_gone) = listen_to_errors(child.stderr.take().unwrap());
        let streams = (
            Box::new(child.stdin.take().unwrap()) as Box<dyn Write + Send>,
            Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
        );
        (Self { world, child, errors, all_gone, address: None }, streams)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a connection without sending anything.
    pub(crate) fn connect_raw(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address.as_ref().expect("this server listens")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Connects a client.
    pub(crate) fn connect(&self) -> RspClient {
        let stream = self.connect_raw();
        let (to, from) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        RspClient::new(Box::new(to), Box::new(from), Some(stream))
    }

    /// Returns the server's standard error so far.
    pub(crate) fn errors_so_far(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Waits until no Heeler process or file is left; returns the server's exit code.
    pub(crate) fn wait_gone(&mut self) -> Option<i32> {
        let code = self.wait_processes_gone();
        self.world.check_tidy();
        code
    }

    /// Waits until no Heeler process is left; returns the server's exit code. A killed server may leave its
    /// directory behind, which the next start removes.
    pub(crate) fn wait_processes_gone(&mut self) -> Option<i32> {
        let gone = self.all_gone.recv_timeout(DEADLINE);
        assert!(gone.is_ok(), "processes are left\n{}", self.errors_so_far());
        self.child.wait().unwrap().code()
    }
}

impl Drop for RspServer<'_> {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- the server's standard error ---\n{}", self.errors_so_far());
        }
    }
}

impl RspClient {
    fn new(to: Box<dyn Write + Send>, from: Box<dyn Read + Send>, stream: Option<TcpStream>) -> Self {
        // With capacity 0, the reader blocks until the test asks for a message.
        let (sender, messages) = sync_channel(0);
        std::thread::spawn(move || {
            let mut frames = MessageReader::new(from);
            while let Some(message) = frames.next() {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { to, messages, stream, next_id: 0, heard: Vec::new() }
    }

    /// Returns the next message; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.messages.recv_timeout(DEADLINE) {
            Ok(message) => {
                assert_eq!(rsp_server_schema_violation(&message), None, "{message}");
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no message comes after {:?}", self.heard.last()),
        }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        assert_eq!(rsp_client_schema_violation(message), None, "{message}");
        framing::write_message(&mut *self.to, message).unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str) {
        self.send(&framing::notification(method, Value::Null));
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&framing::request(id, method, params));
        id
    }

    /// Sends a request and reads until its response; returns the result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        loop {
            let message = self.next().expect("the request is answered");
            if message.get("method").is_some() {
                self.heard.push(message);
                continue;
            }
            assert_eq!(message["id"], id, "requests are answered in order: {message}");
            assert!(message.get("error").is_none(), "{message}");
            return message["result"].clone();
        }
    }

    /// Starts a suite; returns the status in the response.
    pub(crate) fn start(&mut self, suite: &str, attributes: Value) -> Value {
        let params = json!({"serverType": "heeler.suite", "id": suite, "attributes": attributes});
        self.ask("server/startServerAsync", json!({"mode": "run", "params": params}))["status"].clone()
    }

    /// Reads until a suite has reached a state.
    pub(crate) fn wait_state(&mut self, suite: &str, state: u64) {
        let mut is_there = self.states(suite).contains(&state);
        while !is_there {
            let message = self.next().unwrap_or_else(|| panic!("the connection ends before state {state}"));
            let params = &message["params"];
            is_there = message["method"] == "client/serverStateChanged"
                && params["server"]["id"] == suite
                && params["state"] == state;
            self.heard.push(message);
        }
    }

    /// Reads until the connection ends.
    pub(crate) fn wait_closed(&mut self) {
        while let Some(message) = self.next() {
            self.heard.push(message);
        }
    }

    /// Returns the states that a suite has had so far, in order.
    pub(crate) fn states(&self, suite: &str) -> Vec<u64> {
        let params = self.params_of("client/serverStateChanged");
        params
            .filter(|state| state["server"]["id"] == suite)
            .map(|state| state["state"].as_u64().unwrap())
            .collect()
    }

    /// Returns the parameters of all notifications of this method so far.
    pub(crate) fn params_of(&self, method: &str) -> impl Iterator<Item = &Value> {
        self.heard.iter().filter(move |message| message["method"] == method).map(|message| &message["params"])
    }

    /// Returns the statuses of all finished jobs.
    pub(crate) fn job_ends(&self) -> Vec<Value> {
        self.params_of("client/jobRemoved").map(|end| end["status"].clone()).collect()
    }

    /// Returns the output received on a stream so far.
    pub(crate) fn output(&self, stream: u64) -> String {
        let texts = self.params_of("client/serverProcessOutputAppended");
        texts.filter(|one| one["streamType"] == stream).filter_map(|one| one["text"].as_str()).collect()
    }

    /// Closes the connection without a shutdown message, as if the client had died.
    pub(crate) fn disconnect(self) {
        if let Some(stream) = &self.stream {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
}
