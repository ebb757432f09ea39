//! A process that exchanges JSON lines over its standard streams.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Instant,
};

use serde_json::{Value, json};

use crate::support::{recorder::DEADLINE, world::read_all};

pub(super) struct LineProcess {
    pub(super) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Receiver<String>,
}

impl LineProcess {
    pub(super) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        // The capacity exceeds the output of every test, so the reader never blocks.
        let (sender, lines) = sync_channel(10_000);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n') {
                // The receiver may have been dropped.
                sender.send(String::from_utf8(line.unwrap()).unwrap()).ok();
            }
        });
        let stderr = read_all(child.stderr.take().unwrap());
        Self { stdin: child.stdin.take(), child, lines, stderr }
    }

    /// Writes bytes. Errors are ignored: if the process has exited, the next read shows it.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.flush()).ok();
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Returns the next line; `None` at the end of the output.
    #[track_caller]
    pub(super) fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no line within {DEADLINE:?}"),
        }
    }

    /// Returns the next response with this id; discards all other messages.
    #[track_caller]
    pub(super) fn response(&mut self, id: &Value) -> Value {
        loop {
            let line = self.next_line().expect("the process answers");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == *id && message.get("method").is_none() {
                return message;
            }
        }
    }

    #[track_caller]
    pub(super) fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.response(&id)
    }

    /// Calls a tool; returns its parsed result.
    #[track_caller]
    pub(super) fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        let answer = self.request(json!(id), "tools/call", json!({ "name": tool, "arguments": arguments }));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// Closes standard input and waits for the exit; returns the exit status, the remaining lines and
    /// standard error.
    #[track_caller]
    pub(super) fn end(mut self) -> (ExitStatus, Vec<String>, String) {
        self.close_stdin();
        self.end_with_open_stdin()
    }

    /// Like [`LineProcess::end`], but keeps standard input open.
    #[track_caller]
    pub(super) fn end_with_open_stdin(mut self) -> (ExitStatus, Vec<String>, String) {
        let begun = Instant::now();
        let mut left = Vec::new();
        while let Some(line) = self.next_line() {
            left.push(line);
            assert!(begun.elapsed() < DEADLINE, "it writes on and on");
        }
        let stderr = self.stderr.recv_timeout(DEADLINE).expect("standard error ends with the process");
        (self.child.wait().unwrap(), left, stderr)
    }
}
