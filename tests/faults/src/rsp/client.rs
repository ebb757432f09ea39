//! The client: its consecutive connections, and the faults of the client itself.

use std::{
    net::{Shutdown, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::plan::RspPlan;
use crate::{
    heeler_process::{HeelerProcess, heeler},
    injector::{RoundClient, RoundProgress},
    planned_faults::{InjectedAction, environment_of},
    support::{
        framing::{self, MessageReader},
        recorder::DEADLINE,
        schema::rsp_client_schema_violation,
    },
    traffic_record::{Traffic, TrafficRecord},
};

/// The client and the server that it started.
pub(crate) struct RspClient {
    pub(crate) process: HeelerProcess,
    per_message: Duration,
    connections: Mutex<Vec<RspConnection>>,
    next_id: Mutex<u64>,
}

/// A connection of the client.
#[derive(Clone)]
pub(crate) struct RspConnection {
    pub(crate) record: Arc<TrafficRecord<Value>>,
    stream: Arc<Mutex<TcpStream>>,
    /// Closes the connection even while another thread is writing.
    end: Arc<TcpStream>,
}

impl RspClient {
    /// Starts the server.
    pub(crate) fn start(plan: &RspPlan, dir: &Path, mark: &str) -> Self {
        let mut command = heeler(dir, mark);
        command.envs(environment_of(&plan.faults, &plan.clock, dir)).args(["serve", "rsp"]);
        Self {
            process: HeelerProcess::start(command),
            per_message: plan.per_message,
            connections: Mutex::default(),
            next_id: Mutex::new(0),
        }
    }

    /// Connects; `None` if the server exits before serving this connection. While the server cleans up after
    /// the previous connection, it closes new ones, so this retries.
    pub(crate) fn connect(&self) -> Option<RspConnection> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(connection) = self.try_connect() {
                self.connections.lock().unwrap().push(connection.clone());
                let id = self.request(&connection, "server/getServerHandles", Value::Null);
                if connection.wait_response(id).is_some() || connection.record.is_left() {
                    return Some(connection);
                }
                self.connections.lock().unwrap().pop();
            }
            if self.process.has_exited() {
                return None;
            }
            assert!(Instant::now() < until, "waited in vain to be served\n{}", self.process.errors());
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn try_connect(&self) -> Option<RspConnection> {
        let errors = self.process.errors();
        let line = errors.lines().find(|line| line.contains("listening on"))?;
        let stream = TcpStream::connect(line.split_whitespace().last()?).ok()?;
        let mut frames = MessageReader::new(stream.try_clone().unwrap());
        let record = TrafficRecord::of_reader(move || frames.next(), self.per_message);
        let end = Arc::new(stream.try_clone().unwrap());
        Some(RspConnection { record, stream: Arc::new(Mutex::new(stream)), end })
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&self, connection: &RspConnection, method: &str, params: Value) -> u64 {
        let id = {
            let mut next = self.next_id.lock().unwrap();
            *next += 1;
            *next - 1
        };
        connection.send(framing::request(id, method, params));
        id
    }

    /// Returns all connections so far.
    pub(crate) fn connections(&self) -> Vec<RspConnection> {
        self.connections.lock().unwrap().clone()
    }
}

impl RspConnection {
    /// Sends a message. Errors are ignored: other checks detect a dead server.
    pub(crate) fn send(&self, message: Value) {
        assert_eq!(rsp_client_schema_violation(&message), None, "{message}");
        // The lock makes the order of sending equal the recorded order.
        let mut stream = self.stream.lock().unwrap();
        self.record.send(message.clone());
        framing::write_message(&mut *stream, &message).ok();
    }

    /// Waits for a response; `None` if the connection ends first.
    pub(crate) fn wait_response(&self, id: u64) -> Option<Value> {
        self.record.wait(&format!("the response to {id}"), |traffic| {
            traffic.iter().find_map(|one| match one {
                Traffic::Received(message) if message.get("method").is_none() && message["id"] == id => {
                    Some(message.clone())
                }
                _ => None,
            })
        })
    }

    /// Closes the connection without a message.
    pub(crate) fn hang_up(&self) {
        self.record.leave();
        self.end.shutdown(Shutdown::Both).ok();
    }
}

impl RoundClient for RspClient {
    fn coordinator(&self) -> u32 {
        self.process.pid
    }

    fn updates(&self) -> usize {
        self.connections().iter().map(|one| one.record.received()).sum()
    }

    fn has_completed_run(&self) -> bool {
        let is_end = |message: &Value| message["method"] == "client/jobRemoved";
        self.connections().iter().any(|one| one.record.has_received(is_end))
    }

    fn act(&self, action: InjectedAction, progress: &RoundProgress) -> Option<String> {
        let connection = self.connections().pop()?;
        match action {
            InjectedAction::Cancel => {
                let is_job = |message: &Value| message["method"] == "client/jobAdded";
                let job = connection.record.last_received(is_job)?["params"].clone();
                self.request(&connection, "server/cancelJob", job.clone());
                return Some(format!("job {}", job["id"]));
            }
            InjectedAction::StopReadingMain(pause) => {
                connection.record.set_paused(true);
                progress.wait_for(pause);
                connection.record.set_paused(false);
            }
            InjectedAction::Disconnect => connection.hang_up(),
            // Never drawn for this protocol, or injected without the client.
            _ => return None,
        }
        Some("the client".to_owned())
    }
}

/// Returns the parameters of a request that starts a suite.
pub(super) fn start_params(suite: &str, filter: Option<&str>) -> Value {
    let attributes = filter.map_or_else(|| json!({}), |filter| json!({"filter": filter}));
    json!({"mode": "run", "params": {"serverType": "heeler.suite", "id": suite, "attributes": attributes}})
}
