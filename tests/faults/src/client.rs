//! The client of a round: starts the real program, records everything, and tolerates its death.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    round_plan::{ClientPlan, PlannedCallback, PlannedTransport, RoundPlan},
    support::{
        callback_listener::{ListenerBehaviour, RecordingListener},
        checked_run::RequestedRun,
        framing::{self, MessageReader},
        message_handlers::MessageHandlers,
        recorder::{ClientConnection, DEADLINE, RecordedEvent, RecordedEventKind, TrafficRecorder},
        schema::client_schema_violation,
    },
    system_limits::RoundCgroup,
};

/// Environment variable that marks the processes of a round, and all their descendants, with the round's id.
pub(crate) const MARK: &str = "HEELER_FAULT_ROUND";

/// The client and the program that it started.
pub(crate) struct FaultClient {
    pub(crate) child: Mutex<Child>,
    pub(crate) pid: u32,
    pub(crate) recorder: TrafficRecorder,
    /// The control group that counts the round's processes, if there is one.
    pub(crate) counted: Option<RoundCgroup>,
    to: Mutex<Box<dyn Write + Send>>,
    /// ServerStreams the connection from this side.
    disconnect: Box<dyn Fn() + Send + Sync>,
    /// The client has ended the connection, or is dead.
    is_gone: AtomicBool,
    listener: Mutex<Option<RecordingListener>>,
    port: Option<u16>,
    /// The process that the client gives as its own in `initialize`.
    named_process: Option<Mutex<Child>>,
    errors: Arc<Mutex<String>>,
    /// Standard output of a command line client.
    output: Arc<Mutex<String>>,
    all_gone: Mutex<Receiver<()>>,
    next_id: Mutex<u64>,
    /// The requested runs.
    runs: Mutex<Vec<RequestedRun>>,
}

impl FaultClient {
    /// Starts the program; `None` if it exited before it connected to its client.
    ///
    /// `words` are further arguments of the command line.
    pub(crate) fn start(round: &RoundPlan, dir: &Path, mark: &str, words: &[String]) -> Option<Self> {
        let plan = &round.client;
        let dialled = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = heeler(dir, mark);
        command.envs(round.environment(dir));
        let port = dialled.local_addr().unwrap().port().to_string();
        match plan.transport {
            PlannedTransport::Dial => {
                command.args(["--server", "--client-host", "localhost", "--client-port", &port])
            }
            PlannedTransport::Stdio => command.args(["serve", "--stdio"]),
            PlannedTransport::CommandLine => command.args(["run", "--junit", "report.xml"]).args(words),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let counted = round.counts_processes().then(|| RoundCgroup::new(mark)).flatten();
        let mut child = command.spawn().unwrap();
        if let Some(group) = &counted {
            group.add_process(child.id());
        }
        let (errors, all_gone) = listen_to_errors(child.stderr.take().unwrap());
        let recorder = TrafficRecorder::default();
        let (from, to, hang_up) = if plan.transport == PlannedTransport::Dial {
            tcp(accept(&dialled, &mut child)?)
        } else {
            (
                Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
                Box::new(child.stdin.take().unwrap()) as Box<dyn Write + Send>,
                Box::new(|| ()) as Box<dyn Fn() + Send + Sync>,
            )
        };
        let output = Arc::default();
        let handlers = plan.handling.map(|handling| MessageHandlers::new(handling, recorder.clone()));
        match (plan.transport, &handlers) {
            (PlannedTransport::CommandLine, _) => record_lines(from, recorder.clone(), Arc::clone(&output)),
            (_, Some(handlers)) => handlers.read_main(from),
            (_, None) => record(from, recorder.clone()),
        }
        let open = |all: Vec<ListenerBehaviour>| {
            RecordingListener::with_handlers(recorder.clone(), handlers.clone(), move |number| {
                *all.get(number).or(all.last()).expect("one is drawn")
            })
        };
        let listener = match &plan.callback {
            Some(PlannedCallback::Open(all)) => Some(open(all.clone())),
            Some(PlannedCallback::Refused) | None => None,
        };
        let refused = matches!(plan.callback, Some(PlannedCallback::Refused)).then(free_port);
        let named = plan.names_process.then(|| {
            let cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
            Mutex::new(cat.unwrap())
        });
        Some(Self {
            pid: child.id(),
            child: Mutex::new(child),
            recorder,
            counted,
            to: Mutex::new(to),
            disconnect: hang_up,
            is_gone: AtomicBool::new(false),
            port: listener.as_ref().map(|listener| listener.port).or(refused),
            listener: Mutex::new(listener),
            named_process: named,
            errors,
            output,
            all_gone: Mutex::new(all_gone),
            next_id: Mutex::new(1),
            runs: Mutex::default(),
        })
    }

    /// Sends a message. A dead program does not receive it, which other checks detect.
    fn send(&self, message: &Value) {
        framing::write_message(&mut **self.to.lock().unwrap(), message).ok();
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(&framing::notification(method, params));
    }

    pub(crate) fn request(&self, method: &str, params: Value) -> u64 {
        let id = {
            let mut next = self.next_id.lock().unwrap();
            *next += 1;
            *next
        };
        let request = framing::request(id, method, params);
        assert_eq!(client_schema_violation(&request), None, "{request}");
        self.send(&request);
        id
    }

    pub(crate) fn initialize(&self, plan: &ClientPlan) -> u64 {
        let process = match &self.named_process {
            Some(named) => named.lock().unwrap().id(),
            None => std::process::id(),
        };
        let mut testing = json!({"debuggerProvider": false, "attachmentsSupport": plan.has_attachments});
        if let Some(port) = self.port {
            testing["callbackProvider"] = json!({"port": port});
        }
        self.request(
            "initialize",
            json!({
                "processId": process,
                "clientInfo": {"name": "faults", "version": "1"},
                "capabilities": {"testing": testing},
            }),
        )
    }

    pub(crate) fn run(&self, number: u64, tests: Option<&[String]>) -> RequestedRun {
        let run_id = format!("00000000-0000-4000-8000-{number:012x}");
        let tests = tests.map(|all| all.iter().map(|uid| json!({"uid": uid})).collect::<Vec<_>>());
        let request = self.request("testing/runTests", json!({"runId": run_id, "tests": tests}));
        let run = RequestedRun { run_id, request };
        self.runs.lock().unwrap().push(run.clone());
        run
    }

    /// Returns the requested runs.
    pub(crate) fn runs(&self) -> Vec<RequestedRun> {
        self.runs.lock().unwrap().clone()
    }

    /// ServerStreams the connection without `exit`.
    pub(crate) fn disconnect(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        *self.to.lock().unwrap() = Box::new(std::io::sink());
        (self.disconnect)();
    }

    /// Kills the process that the client gave as its own; returns false if that is the client itself.
    pub(crate) fn kill_named(&self) -> bool {
        let Some(named) = &self.named_process else { return false };
        self.is_gone.store(true, Ordering::SeqCst);
        let mut named = named.lock().unwrap();
        named.kill().ok();
        named.wait().unwrap();
        true
    }

    /// Returns whether the client ended the connection without `exit`.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// Reads the remaining messages on all connections, whose writers have exited.
    pub(crate) fn read_to_the_end(&self) {
        self.recorder.resume();
        drop(self.listener.lock().unwrap().take());
        self.recorder.wait("the end of the first connection", |events| {
            let is_end = |event: &RecordedEvent| {
                event.on == ClientConnection::Main && matches!(event.what, RecordedEventKind::Closed)
            };
            events.iter().any(is_end).then_some(())
        });
    }

    /// Waits until no process holds the standard error that all of Heeler's processes inherit; returns
    /// whether that happened.
    pub(crate) fn wait_gone(&self) -> bool {
        self.all_gone.lock().unwrap().recv_timeout(DEADLINE).is_ok()
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.child.lock().unwrap().wait().unwrap().code()
    }

    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }
}

impl Drop for FaultClient {
    fn drop(&mut self) {
        // PausedConnections readers would never reach the end.
        self.recorder.resume();
        let mut child = self.child.lock().unwrap();
        // The process may be gone already.
        child.kill().ok();
        child.wait().ok();
        if let Some(named) = &self.named_process {
            let mut named = named.lock().unwrap();
            named.kill().ok();
            named.wait().ok();
        }
    }
}

/// Returns a `heeler` command in a round's directory, without the tester's environment.
pub(crate) fn heeler(dir: &Path, mark: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.current_dir(dir).env_clear();
    for name in ["PATH", "HEELER_LOG"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.env("HOME", dir.join("home")).env("TMPDIR", dir.join("tmp")).env("LANG", "C.UTF-8");
    command.env("XDG_RUNTIME_DIR", dir.join("run")).env(MARK, mark);
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits for the program to connect; `None` if it exited before.
fn accept(listener: &TcpListener, child: &mut Child) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + DEADLINE;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return Some(stream);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(Instant::now() < until, "waited in vain for the program to dial");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

type ClientStreams = (Box<dyn Read + Send>, Box<dyn Write + Send>, Box<dyn Fn() + Send + Sync>);

fn tcp(stream: TcpStream) -> ClientStreams {
    let (from, end) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    let hang_up = move || end.shutdown(Shutdown::Both).unwrap_or_default();
    (Box::new(from), Box::new(stream), Box::new(hang_up))
}

fn listen_to_errors(from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, Receiver<()>) {
    let errors = Arc::new(Mutex::new(String::new()));
    let (sender, all_gone) = sync_channel(1);
    let text = Arc::clone(&errors);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let mut text = text.lock().unwrap();
            text.push_str(&String::from_utf8_lossy(&line));
            text.push('\n');
        }
        // The receiver may have given up.
        sender.send(()).ok();
    });
    (errors, all_gone)
}

/// Records the end of a command line's output, which is not a protocol.
fn record_lines(mut from: Box<dyn Read + Send>, recorder: TrafficRecorder, output: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        recorder.record(ClientConnection::Main, RecordedEventKind::Opened);
        let mut text = Vec::new();
        // The output of a killed process is read as well.
        from.read_to_end(&mut text).ok();
        output.lock().unwrap().push_str(&String::from_utf8_lossy(&text));
        recorder.record(ClientConnection::Main, RecordedEventKind::Closed);
    });
}

fn record(from: Box<dyn Read + Send>, recorder: TrafficRecorder) {
    std::thread::spawn(move || {
        recorder.record(ClientConnection::Main, RecordedEventKind::Opened);
        let mut frames = MessageReader::new(from);
        while let Some(message) = frames.next() {
            recorder.record(ClientConnection::Main, RecordedEventKind::Message(message));
        }
        recorder.record(ClientConnection::Main, RecordedEventKind::Closed);
    });
}
