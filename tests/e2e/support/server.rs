//! The real server, started the way editors start it, and a client that follows the specification.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub(crate) use super::checked_run::RequestedRun;
use super::{
    callback_listener::{ListenerBehaviour, RecordingListener},
    checked_run::{CheckedRun, ExpectedDelivery},
    framing::{self, MessageReader},
    message_handlers::{MessageHandlers, MessageHandling, ResponseWriter},
    process::{ProcessRole, processes_of_role, wait_until},
    recorder::{ClientConnection, DEADLINE, RecordedEventKind, TrafficRecorder},
    rendezvous::TestRendezvous,
    schema::client_schema_violation,
    world::TestWorld,
};

/// How client and server connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerTransport {
    /// The client listens and the server dials.
    Dial,
    /// Standard input and output.
    Stdio,
    /// The server listens on TCP.
    Listen,
    /// The server listens on a local socket.
    Pipe,
}

/// A running server and its client.
pub(crate) struct TestServer<'w> {
    world: &'w TestWorld,
    child: Child,
    to: ResponseWriter,
    /// Closes the connection from the client's side where dropping the writer does not do so.
    disconnect: Option<Box<dyn Fn() + Send>>,
    pub(crate) recorder: TrafficRecorder,
    handlers: Option<MessageHandlers>,
    pub(crate) listener: Option<RecordingListener>,
    errors: Arc<Mutex<String>>,
    all_gone: Receiver<()>,
    /// The server's address, if it listens.
    address: Option<String>,
    next_id: u64,
    has_mistakes: bool,
}

impl<'w> TestServer<'w> {
    /// Starts a server on standard input and output without sending anything.
    pub(crate) fn start(world: &'w TestWorld, programs: &[&str]) -> Self {
        Self::start_over(ServerTransport::Stdio, world, programs)
    }

    /// Starts a server and opens the connection without sending anything.
    pub(crate) fn start_over(transport: ServerTransport, world: &'w TestWorld, programs: &[&str]) -> Self {
        Self::start_with(transport, world, programs, &[])
    }

    /// Starts a server whose arguments make it connect to the listener.
    pub(crate) fn start_connecting_to(
        world: &'w TestWorld,
        words: &[String],
        listener: &TcpListener,
    ) -> Self {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Self::launch(ServerTransport::Dial, world, &words, listener, None)
    }

    /// Like [`TestServer::start_over`], with additional options.
    pub(crate) fn start_with(
        transport: ServerTransport,
        world: &'w TestWorld,
        programs: &[&str],
        options: &[&str],
    ) -> Self {
        Self::start_handling(transport, world, programs, options, None)
    }

    /// Like [`TestServer::start_with`], for a client with this message handling.
    fn start_handling(
        transport: ServerTransport,
        world: &'w TestWorld,
        programs: &[&str],
        options: &[&str],
        handling: Option<MessageHandling>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let socket = pipe(world);
        let words = match transport {
            ServerTransport::Dial => vec!["--server", "--client-host", "localhost", "--client-port", &port],
            ServerTransport::Stdio => vec!["serve", "--stdio"],
            ServerTransport::Listen => vec!["serve", "--listen", "127.0.0.1:0"],
            ServerTransport::Pipe => vec!["serve", "--pipe", &socket],
        };
        let words = if transport == ServerTransport::Dial {
            [programs, &words].concat()
        } else {
            [&words, programs].concat()
        };
        Self::launch(transport, world, &[&words, options].concat(), &listener, handling)
    }

    fn launch(
        transport: ServerTransport,
        world: &'w TestWorld,
        words: &[&str],
        listener: &TcpListener,
        handling: Option<MessageHandling>,
    ) -> Self {
        // Start the server.
        let mut command = world.heeler(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, all_gone) = listen_to_errors(child.stderr.take().unwrap());
        let recorder = TrafficRecorder::default();
        let address = (transport == ServerTransport::Listen).then(|| announced_address(&errors));
        // Open the main connection.
        let (from, to, disconnect) = match transport {
            ServerTransport::Stdio => {
                let (from, to) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
                (Box::new(from) as Box<dyn Read + Send>, Box::new(to) as Box<dyn Write + Send>, None)
            }
            ServerTransport::Dial => tcp(listener.accept().unwrap().0),
            ServerTransport::Listen => tcp(TcpStream::connect(address.as_ref().unwrap()).unwrap()),
            ServerTransport::Pipe => {
                announced_address(&errors);
                let stream = UnixStream::connect(pipe(world)).unwrap();
                let (from, end) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
                let hang_up = Box::new(move || end.shutdown(Shutdown::Both).unwrap_or_default())
                    as Box<dyn Fn() + Send>;
                (Box::new(from) as Box<_>, Box::new(stream) as Box<_>, Some(hang_up))
            }
        };
        let to: ResponseWriter = Arc::new(Mutex::new(to));
        // Read the main connection, with or without message handlers.
        let handlers = handling.map(|handling| MessageHandlers::new(handling, recorder.clone()));
        match &handlers {
            Some(handlers) => handlers.read_main(from, Arc::clone(&to)),
            None => record(from, recorder.clone()),
        }
        Self {
            world,
            child,
            to,
            disconnect,
            recorder,
            handlers,
            listener: None,
            errors,
            all_gone,
            address,
            next_id: 1,
            has_mistakes: false,
        }
    }

    /// Starts and initializes a server without a callback port: results use the main connection.
    pub(crate) fn initialized(world: &'w TestWorld, programs: &[&str]) -> Self {
        let mut server = Self::start(world, programs);
        server.initialize(json!({"testing": {"debuggerProvider": false}}));
        server
    }

    /// Starts and initializes a server with a callback port. `choose` selects the behaviour of each
    /// connection.
    pub(crate) fn with_callback(
        world: &'w TestWorld,
        programs: &[&str],
        choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
    ) -> Self {
        let mut server = Self::start(world, programs);
        server.initialize_with_callback(choose);
        server
    }

    /// Starts and initializes a server with a callback port, for a client that handles messages as `handling`
    /// says.
    pub(crate) fn with_handlers(
        world: &'w TestWorld,
        programs: &[&str],
        handling: MessageHandling,
        choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
    ) -> Self {
        let mut server = Self::start_handling(ServerTransport::Stdio, world, programs, &[], Some(handling));
        server.initialize_with_callback(choose);
        server
    }

    fn initialize_with_callback(&mut self, choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static) {
        let handlers = self.handlers.clone();
        let listener = RecordingListener::with_handlers(self.recorder.clone(), handlers, choose);
        let provider = json!({"port": listener.port});
        self.listener = Some(listener);
        self.initialize(
            json!({"testing": {"debuggerProvider": false, "attachmentsSupport": true, "callbackProvider": provider}}),
        );
    }

    /// Starts and initializes a server, with or without a callback port.
    pub(crate) fn with_optional_callback(
        world: &'w TestWorld,
        programs: &[&str],
        is_listening: bool,
    ) -> Self {
        if is_listening {
            Self::with_callback(world, programs, |_| ListenerBehaviour::Normal)
        } else {
            Self::initialized(world, programs)
        }
    }

    /// Returns the process id of the coordinator.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens another connection to a listening server, which starts a session.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address.as_ref().expect("this server listens")).unwrap()
    }

    /// Returns the callback port's listener.
    pub(crate) fn callback(&self) -> &RecordingListener {
        self.listener.as_ref().expect("this client listens")
    }

    /// Disables schema validation of sent messages, for tests of incorrect clients.
    pub(crate) fn skip_schema_checks(&mut self) {
        self.has_mistakes = true;
    }

    pub(crate) fn send(&mut self, message: &Value) {
        if !self.has_mistakes {
            assert_eq!(client_schema_violation(message), None, "{message}");
        }
        framing::write_message(&mut **self.to.lock().unwrap(), message).unwrap();
    }

    /// Sends arbitrary bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let mut to = self.to.lock().unwrap();
        to.write_all(bytes).and_then(|()| to.flush()).unwrap();
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&framing::request(id, method, params));
        id
    }

    /// Requests a run of these tests with options.
    pub(crate) fn run_with_options(
        &mut self,
        number: u64,
        selected: &[String],
        options: &Value,
    ) -> RequestedRun {
        let run_id = run_id(number);
        let tests: Vec<_> = selected.iter().map(|uid| json!({"uid": uid})).collect();
        let params = json!({"runId": run_id, "tests": tests, "heeler.options": options});
        let request = self.request("testing/runTests", params);
        RequestedRun { run_id, request }
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&framing::notification(method, params));
    }

    /// Waits for the response to the request with this id.
    pub(crate) fn wait_response(&self, id: impl Into<Value>) -> Value {
        let id = id.into();
        let what = format!("the answer to {id}\n{}", self.errors_so_far());
        self.recorder.wait(&what, |events| {
            let is_answer = |message: &&Value| message.get("method").is_none() && message["id"] == id;
            events.iter().filter_map(|event| event.message()).find(is_answer).cloned()
        })
    }

    /// Sends a request and waits for its response.
    pub(crate) fn request_and_wait(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.wait_response(id)
    }

    /// Initializes the session; returns the result.
    pub(crate) fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "processId": std::process::id(),
            "clientInfo": {"name": "it", "version": "1"},
            "capabilities": capabilities,
        });
        let answer = self.request_and_wait("initialize", params);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Requests a run of these tests; `None` selects all tests.
    pub(crate) fn run(&mut self, tests: Option<&[&str]>) -> RequestedRun {
        let run_id = run_id(self.next_id);
        let tests = tests.map(|all| all.iter().map(|uid| json!({"uid": uid})).collect::<Vec<_>>());
        let params = json!({"runId": run_id, "tests": tests});
        let request = self.request("testing/runTests", params);
        RequestedRun { run_id, request }
    }

    /// Waits for the end of a run of the tests `selected` and checks its messages.
    pub(crate) fn finish(&self, run: &RequestedRun, selected: &[String]) -> CheckedRun {
        self.finish_as(run, selected, ExpectedDelivery::Once)
    }

    /// Like [`TestServer::finish`], for runs whose results may arrive more than once.
    pub(crate) fn finish_as(
        &self,
        run: &RequestedRun,
        selected: &[String],
        delivery: ExpectedDelivery,
    ) -> CheckedRun {
        self.wait_response(run.request);
        CheckedRun::check(&self.recorder.events(), run, selected, delivery)
    }

    /// Waits for the completion of a run whose coordinator is dead.
    pub(crate) fn finish_orphaned(&self, run: &RequestedRun, selected: &[String]) -> CheckedRun {
        self.recorder.wait("the end of all connections", |events| {
            let is_complete = events.iter().any(|event| event.is_completion_of(&run.run_id));
            let closed =
                events.iter().filter(|event| matches!(event.what, RecordedEventKind::Closed)).count();
            (is_complete && closed > self.callback().connections()).then_some(())
        });
        CheckedRun::check(&self.recorder.events(), run, selected, ExpectedDelivery::Orphaned)
    }

    /// Releases every test that connects, until these runs are answered.
    pub(crate) fn release_tests_until_done(&self, rendezvous: &TestRendezvous, runs: &[&RequestedRun]) {
        let recorder = self.recorder.clone();
        let requests: Vec<_> = runs.iter().map(|run| run.request).collect();
        std::thread::scope(|scope| {
            let (over, is_over) = sync_channel::<()>(1);
            scope.spawn(move || {
                for request in requests {
                    recorder.wait("the answers to the runs", |events| {
                        let is_answer =
                            |message: &Value| message.get("method").is_none() && message["id"] == request;
                        events.iter().filter_map(|event| event.message()).any(is_answer).then_some(())
                    });
                }
                drop(over);
            });
            while is_over.try_recv() != Err(TryRecvError::Disconnected) {
                let soon = Instant::now() + Duration::from_millis(20);
                if let Some(connected) = rendezvous.next_test_until(soon) {
                    connected.release();
                }
            }
        });
    }

    /// Waits until a test is reported in this state.
    pub(crate) fn wait_state(&self, uid: &str, state: &str) {
        self.recorder.wait(&format!("{uid} to be {state}"), |events| {
            let mut changes = events
                .iter()
                .filter_map(|event| event.params("testing/testUpdates/tests")?["changes"].as_array())
                .flatten();
            changes
                .any(|change| change["node"]["uid"] == uid && change["node"]["execution-state"] == state)
                .then_some(())
        });
    }

    /// Waits until at least one process has this role; returns all processes with the role.
    pub(crate) fn processes(&self, role: ProcessRole) -> Vec<u32> {
        let mut found = Vec::new();
        wait_until(&format!("there is a process in the role {role:?}"), || {
            found = processes_of_role(self.pid(), role);
            !found.is_empty()
        });
        found
    }

    /// Sends `exit` and waits until no Heeler process is left; returns the exit code.
    pub(crate) fn exit(mut self) -> Option<i32> {
        self.notify("exit", json!({}));
        self.wait_gone();
        let code = self.exit_code();
        self.listener = None;
        self.world.check_tidy();
        code
    }

    /// Waits until the coordinator has exited; returns its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Waits until the server has closed the connection.
    pub(crate) fn wait_closed(&self) {
        self.recorder.wait("the end of the connection", |events| {
            events
                .iter()
                .any(|event| {
                    event.on == ClientConnection::Main && matches!(event.what, RecordedEventKind::Closed)
                })
                .then_some(())
        });
    }

    /// Closes the connection without `exit`.
    pub(crate) fn disconnect(&mut self) {
        *self.to.lock().unwrap() = Box::new(std::io::sink());
        if let Some(hang_up) = &self.disconnect {
            hang_up();
        }
    }

    /// Waits until no Heeler process is left: all of them have the inherited standard error open. Afterwards,
    /// unless the recorder is paused, everything that the server sent is recorded. Returns how long this
    /// took.
    pub(crate) fn wait_gone(&self) -> Duration {
        let start = Instant::now();
        if self.all_gone.recv_timeout(DEADLINE).is_err() {
            let left = self.processes_left();
            panic!("processes are left: {left}\n{}", self.errors_so_far());
        }
        let took = start.elapsed();
        // The processes may exit before their last messages have been read.
        if !self.recorder.is_main_stopped() {
            self.wait_closed();
        }
        took
    }

    /// Returns the server's standard error so far.
    pub(crate) fn errors_so_far(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    fn processes_left(&self) -> String {
        let below =
            heeler_sys::process::descendants(heeler_sys::process::Pid(i32::try_from(self.pid()).unwrap()));
        below.iter().map(|pid| format!("{} {}\n", pid.0, heeler_sys::process::command_line(*pid))).collect()
    }
}

impl Drop for TestServer<'_> {
    fn drop(&mut self) {
        // Paused readers would never reach the end of the stream.
        self.recorder.resume();
        // The process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- the server's standard error ---\n{}", self.errors_so_far());
        }
    }
}

/// Returns a run's GUID for a number.
pub(crate) fn run_id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn pipe(world: &TestWorld) -> String {
    world.path("run").join("../pipe").to_str().unwrap().to_owned()
}

type ServerStreams = (Box<dyn Read + Send>, Box<dyn Write + Send>, Option<Box<dyn Fn() + Send>>);

fn tcp(stream: TcpStream) -> ServerStreams {
    let (from, end) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    (
        Box::new(from),
        Box::new(stream),
        Some(Box::new(move || end.shutdown(Shutdown::Both).unwrap_or_default())),
    )
}

/// Waits for the line that announces the server's address; returns the last word of that line.
pub(crate) fn announced_address(errors: &Mutex<String>) -> String {
    let mut found = None;
    wait_until("the server says where it listens", || {
        let text = errors.lock().unwrap();
        let line = text.lines().find(|line| line.contains("listening on"));
        found = line.and_then(|line| line.split_whitespace().last()).map(str::to_owned);
        found.is_some()
    });
    found.expect("it was just found")
}

pub(crate) fn listen_to_errors(from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, Receiver<()>) {
    let errors = Arc::new(Mutex::new(String::new()));
    let (sender, all_gone) = sync_channel(1);
    let text = Arc::clone(&errors);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let mut text = text.lock().unwrap();
            text.push_str(&String::from_utf8_lossy(&line));
            text.push('\n');
        }
        // The receiver may have been dropped.
        sender.send(()).ok();
    });
    (errors, all_gone)
}

/// Records all messages of a main connection.
pub(crate) fn record(from: Box<dyn Read + Send>, recorder: TrafficRecorder) {
    std::thread::spawn(move || {
        recorder.record(ClientConnection::Main, RecordedEventKind::Opened);
        let mut frames = MessageReader::new(from);
        while let Some(message) = frames.next() {
            recorder.record(ClientConnection::Main, RecordedEventKind::Message(message));
        }
        recorder.record(ClientConnection::Main, RecordedEventKind::Closed);
    });
}
