//! The client: JSON lines over the server's standard streams, and the faults of the client itself.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    path::Path,
    process::ChildStdin,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::plan::{McpPlan, ProtocolEra};
use crate::{
    heeler_process::{HeelerProcess, heeler},
    injector::{RoundClient, RoundProgress},
    planned_faults::{InjectedAction, environment_of},
    traffic_record::{Traffic, TrafficRecord},
};

/// The client and the server that it started.
pub(crate) struct McpClient {
    pub(crate) process: HeelerProcess,
    pub(crate) record: Arc<TrafficRecord<Value>>,
    stdin: Mutex<Option<ChildStdin>>,
    eras: Vec<ProtocolEra>,
    next_id: Mutex<usize>,
}

impl McpClient {
    /// Starts the server.
    pub(crate) fn start(plan: &McpPlan, dir: &Path, mark: &str) -> Self {
        let mut command = heeler(dir, mark);
        command.envs(environment_of(&plan.faults, &plan.clock, dir)).args(["serve", "mcp"]);
        let process = HeelerProcess::start(command);
        let (stdin, stdout) = {
            let mut child = process.child.lock().unwrap();
            (child.stdin.take(), child.stdout.take().unwrap())
        };
        Self {
            process,
            record: TrafficRecord::of_reader(reader_of_lines(stdout), plan.per_message),
            stdin: Mutex::new(stdin),
            eras: plan.eras.clone(),
            next_id: Mutex::new(0),
        }
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&self, method: &str, mut params: Value) -> Value {
        let number = {
            let mut next = self.next_id.lock().unwrap();
            *next += 1;
            *next - 1
        };
        // Alternate between numbers and strings as ids.
        let id = if number.is_multiple_of(3) { json!(format!("call {number}")) } else { json!(number) };
        let is_handshake = ["initialize", "server/discover"].contains(&method);
        if method == "server/discover"
            || (!is_handshake && self.eras[number % self.eras.len()] == ProtocolEra::Modern)
        {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Calls a tool; returns the id of the call.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Cancels a call.
    pub(crate) fn cancel(&self, id: &Value) {
        let params = json!({"requestId": id, "reason": "no longer needed"});
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    /// Writes a message. Errors are ignored: other checks detect a dead server.
    pub(crate) fn send(&self, message: Value) {
        let mut stdin = self.stdin.lock().unwrap();
        let Some(stdin) = &mut *stdin else { return };
        let line = match &message {
            // A string is written as a line that is not a message.
            Value::String(text) => format!("{text}\n"),
            message => format!("{message}\n"),
        };
        self.record.send(message);
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).ok();
    }

    /// Closes the server's standard input.
    pub(crate) fn close_input(&self) {
        self.record.leave();
        drop(self.stdin.lock().unwrap().take());
    }

    /// Waits for a response; `None` if the output ends first.
    pub(crate) fn wait_response(&self, id: &Value) -> Option<Value> {
        self.record.wait(&format!("the response to {id}"), |traffic| {
            traffic.iter().find_map(|one| match one {
                Traffic::Received(message) if message.get("method").is_none() && message["id"] == *id => {
                    Some(message.clone())
                }
                _ => None,
            })
        })
    }

    /// Returns the latest `run_tests` call that is neither answered nor cancelled.
    pub(crate) fn open_run(&self) -> Option<Value> {
        self.record.look(|traffic| open_runs(traffic).pop())
    }

    /// Returns the id of the latest run that has reported progress.
    pub(crate) fn reported_run(&self) -> Option<String> {
        let progress = self.record.last_received(|message| {
            let text = message["params"]["message"].as_str();
            text.is_some_and(|text| text.starts_with("run "))
        })?;
        let text = progress["params"]["message"].as_str()?;
        Some(text.strip_prefix("run ")?.split_once(':')?.0.to_owned())
    }
}

/// Returns the `run_tests` calls that are neither answered nor cancelled.
pub(super) fn open_runs(traffic: &[Traffic<Value>]) -> Vec<Value> {
    let mut open: Vec<Value> = Vec::new();
    for one in traffic {
        match one {
            Traffic::Sent(message) if message["params"]["name"] == "run_tests" => {
                open.push(message["id"].clone());
            }
            Traffic::Sent(message) if message["method"] == "notifications/cancelled" => {
                open.retain(|id| *id != message["params"]["requestId"]);
            }
            Traffic::Received(message) if message.get("method").is_none() => {
                open.retain(|id| *id != message["id"]);
            }
            Traffic::Sent(_) | Traffic::Received(_) | Traffic::Closed => {}
        }
    }
    open
}

/// Returns a reader of JSON lines. Other lines are returned as strings. An incomplete line, which a killed
/// server may leave, is ignored.
fn reader_of_lines(from: impl Read + Send + 'static) -> impl FnMut() -> Option<Value> + Send + 'static {
    let mut from = BufReader::new(from);
    move || {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8_lossy(line.strip_suffix(b"\n")?).into_owned();
        Some(serde_json::from_str(&line).unwrap_or(Value::String(line)))
    }
}

impl RoundClient for McpClient {
    fn coordinator(&self) -> u32 {
        self.process.pid
    }

    fn updates(&self) -> usize {
        self.record.received()
    }

    fn has_completed_run(&self) -> bool {
        self.record.has_received(|message| {
            message["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("\"counts\""))
        })
    }

    fn act(&self, action: InjectedAction, progress: &RoundProgress) -> Option<String> {
        match action {
            InjectedAction::Cancel => {
                let call = self.open_run()?;
                self.cancel(&call);
                return Some(format!("call {call}"));
            }
            InjectedAction::StopReadingMain(pause) => {
                self.record.set_paused(true);
                progress.wait_for(pause);
                self.record.set_paused(false);
            }
            InjectedAction::Disconnect => self.close_input(),
            // Never drawn for this protocol, or injected without the client.
            _ => return None,
        }
        Some("the client".to_owned())
    }
}
