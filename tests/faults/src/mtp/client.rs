//! The client of a round: starts the real program, records all messages, and tolerates the program's death.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::plan::{ClientPlan, MtpPlan, PlannedCallback, PlannedTransport};
use crate::{
    heeler_process::{HeelerProcess, heeler},
    injector::{RoundClient, RoundProgress},
    planned_faults::InjectedAction,
    support::{
        callback_listener::{ListenerBehaviour, RecordingListener},
        checked_run::RequestedRun,
        framing::{self, MessageReader},
        message_handlers::{MessageHandlers, ResponseWriter},
        recorder::{ClientConnection, DEADLINE, RecordedEvent, RecordedEventKind, TrafficRecorder},
        schema::client_schema_violation,
    },
    system_limits::RoundCgroup,
};

const UPDATES: &str = "testing/testUpdates/tests";

/// The client and the program that it started.
pub(crate) struct FaultClient {
    pub(crate) process: HeelerProcess,
    pub(crate) recorder: TrafficRecorder,
    /// Control group that counts the round's processes; `None` if unavailable.
    pub(crate) counted: Option<RoundCgroup>,
    to: ResponseWriter,
    /// Closes the connection from the client's side.
    disconnect: Box<dyn Fn() + Send + Sync>,
    /// The client closed the connection or is dead.
    is_gone: AtomicBool,
    listener: Mutex<Option<RecordingListener>>,
    port: Option<u16>,
    /// The process that the client reports as its own in `initialize`.
    named_process: Option<Mutex<Child>>,
    /// Standard output, if the client is the command line.
    output: Arc<Mutex<String>>,
    next_id: Mutex<u64>,
    /// The requested runs.
    runs: Mutex<Vec<RequestedRun>>,
}

impl FaultClient {
    /// Starts the program; `None` if it exits before connecting to its client.
    ///
    /// `words` are additional command-line arguments.
    pub(crate) fn start(round: &MtpPlan, dir: &Path, mark: &str, words: &[String]) -> Option<Self> {
        let plan = &round.client;
        // Start the program.
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
        let counted = round.counts_processes().then(|| RoundCgroup::new(mark)).flatten();
        let process = HeelerProcess::start(command);
        if let Some(group) = &counted {
            group.add_process(process.pid);
        }
        // Open the main connection.
        let recorder = TrafficRecorder::default();
        let (from, to, hang_up) = if plan.transport == PlannedTransport::Dial {
            tcp(accept(&dialled, &process)?)
        } else {
            let mut child = process.child.lock().unwrap();
            (
                Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
                Box::new(child.stdin.take().unwrap()) as Box<dyn Write + Send>,
                Box::new(|| ()) as Box<dyn Fn() + Send + Sync>,
            )
        };
        // Record the main connection.
        let output = Arc::default();
        let to: ResponseWriter = Arc::new(Mutex::new(to));
        let handlers = plan.handling.map(|handling| MessageHandlers::new(handling, recorder.clone()));
        match (plan.transport, &handlers) {
            (PlannedTransport::CommandLine, _) => record_lines(from, recorder.clone(), Arc::clone(&output)),
            (_, Some(handlers)) => handlers.read_main(from, Arc::clone(&to)),
            (_, None) => record(from, recorder.clone()),
        }
        // Open the callback port.
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
            process,
            recorder,
            counted,
            to,
            disconnect: hang_up,
            is_gone: AtomicBool::new(false),
            port: listener.as_ref().map(|listener| listener.port).or(refused),
            listener: Mutex::new(listener),
            named_process: named,
            output,
            next_id: Mutex::new(1),
            runs: Mutex::default(),
        })
    }

    /// Sends a message. Errors are ignored: other checks detect a dead program.
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

    /// Closes the connection without `exit`.
    pub(crate) fn disconnect(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        *self.to.lock().unwrap() = Box::new(std::io::sink());
        (self.disconnect)();
    }

    /// Kills the process that the client reported as its own; returns false if that is the harness itself.
    pub(crate) fn kill_named(&self) -> bool {
        let Some(named) = &self.named_process else { return false };
        self.is_gone.store(true, Ordering::SeqCst);
        let mut named = named.lock().unwrap();
        named.kill().ok();
        named.wait().unwrap();
        true
    }

    /// Returns whether the client closed the connection without `exit`.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// Reads the remaining messages on all connections, after the processes have exited.
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

    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }
}

impl RoundClient for FaultClient {
    fn coordinator(&self) -> u32 {
        self.process.pid
    }

    fn updates(&self) -> usize {
        self.recorder.wait("the record", |events| {
            Some(events.iter().filter(|event| event.params(UPDATES).is_some()).count())
        })
    }

    fn has_completed_run(&self) -> bool {
        let is_completion =
            |event: &RecordedEvent| event.params(UPDATES).is_some_and(|params| params["changes"].is_null());
        self.recorder.wait("the record", |events| Some(events.iter().any(is_completion)))
    }

    fn act(&self, action: InjectedAction, progress: &RoundProgress) -> Option<String> {
        match action {
            InjectedAction::Cancel => {
                let run_id = self.runs().first()?.run_id.clone();
                self.notify("testing/cancelTestRun", json!({"runId": run_id}));
                return Some(format!("run {run_id}"));
            }
            InjectedAction::LimitProcesses(more, pause) => {
                let group = self.counted.as_ref().filter(|group| group.limit(more))?;
                progress.wait_for(pause);
                group.unlimit();
                return Some("all processes".to_owned());
            }
            InjectedAction::StopReadingMain(pause) => {
                self.recorder.stop_main();
                progress.wait_for(pause);
                self.recorder.resume();
            }
            InjectedAction::StopReadingCallbacks(pause) => {
                self.recorder.stop_callbacks();
                progress.wait_for(pause);
                self.recorder.resume();
            }
            InjectedAction::Disconnect => self.disconnect(),
            InjectedAction::KillClient => {
                return self.kill_named().then(|| "the client's process".to_owned());
            }
            // These faults are injected without the client.
            InjectedAction::Kill(_)
            | InjectedAction::Stop(..)
            | InjectedAction::StopForGood(_)
            | InjectedAction::LimitFiles(..)
            | InjectedAction::LimitMemory(..)
            | InjectedAction::At(..) => return None,
        }
        Some("the client".to_owned())
    }
}

impl Drop for FaultClient {
    fn drop(&mut self) {
        // Paused readers would never reach the end of the stream.
        self.recorder.resume();
        if let Some(named) = &self.named_process {
            let mut named = named.lock().unwrap();
            named.kill().ok();
            named.wait().ok();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits for the program to connect; `None` if it exits first.
fn accept(listener: &TcpListener, process: &HeelerProcess) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + DEADLINE;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return Some(stream);
        }
        if process.has_exited() {
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

/// Records the output of the command line, which is plain text.
fn record_lines(mut from: Box<dyn Read + Send>, recorder: TrafficRecorder, output: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        recorder.record(ClientConnection::Main, RecordedEventKind::Opened);
        let mut text = Vec::new();
        // Keep the text read so far, even if reading fails.
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
