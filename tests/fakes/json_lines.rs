//! Fakes that report JSON lines and run several batches in one process: on descriptor 3, or on standard input
//! and output in roles that begin with `json-lines-stdio`.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{abort, exit},
};

use serde_json::{Value, json};

use crate::wait::wait_for_ever;

/// Number of tests that each role lists.
const COUNT: usize = 64;
/// Length of a test name that makes a request larger than a pipe buffer.
const LONG_NAME: usize = 16 << 10;

/// Serves the requests; returns the exit code.
pub(crate) fn serve(role: &str) -> u8 {
    let role = role.strip_prefix("json-lines").unwrap_or_default();
    let (input, output, behaviour) = match role.strip_prefix("-stdio") {
        Some(behaviour) => {
            let input = heeler_sys::io::take_standard_input().expect("descriptors are free");
            (File::from(input), FakeOutput::StandardOutput, behaviour)
        }
        None => {
            let channel = heeler_sys::io::take_report_channel().expect("descriptor 3 is the channel");
            let input = File::from(channel.try_clone().expect("a descriptor is free"));
            (input, FakeOutput::Channel(File::from(channel)), role)
        }
    };
    FakeReporter { input: Some(input), output: Some(output), behaviour: behaviour.to_owned(), batches: 0 }
        .serve()
}

enum FakeOutput {
    Channel(File),
    StandardOutput,
}

struct FakeReporter {
    input: Option<File>,
    output: Option<FakeOutput>,
    behaviour: String,
    batches: usize,
}

impl FakeReporter {
    fn serve(&mut self) -> u8 {
        while let Some(line) = self.read_line() {
            let request: Value = serde_json::from_slice(&line).expect("JSON");
            match request["k"].as_str().unwrap_or_default() {
                "list" => self.list(),
                "run" => self.run(&request),
                "stop" => return 0,
                other => panic!("unknown request {other:?}"),
            }
            if self.behaviour == "-begins-unread" && self.batches == 1 {
                self.report(&json!({"k": "begin", "i": 0}));
                wait_for_ever();
            }
            if self.behaviour == "-closes-input" && self.batches == 1 {
                // The next request can no longer be written.
                self.input = None;
                self.report(&json!({"k": "done"}));
            }
        }
        u8::from(self.input.is_some()) * 3
    }

    /// Reads a line byte by byte, to leave the following bytes unread.
    fn read_line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.input.as_mut()?.read(&mut byte).expect("requests can be read") > 0 {
            if byte == *b"\n" {
                return Some(line);
            }
            line.extend_from_slice(&byte);
        }
        None
    }

    fn report(&mut self, report: &Value) {
        match &mut self.output {
            Some(FakeOutput::Channel(channel)) => {
                channel.write_all(format!("{report}\n").as_bytes()).expect("reports can be written");
            }
            Some(FakeOutput::StandardOutput) => print(&format!("\u{1e}{report}\n")),
            None => {}
        }
    }

    fn list(&mut self) {
        print("listing");
        self.report(&json!({"k": "hello", "v": 1, "name": "fake"}));
        for number in 0..COUNT {
            let mut id = format!("t{number:02}");
            if self.behaviour == "-begins-unread" {
                id.push_str(&"x".repeat(LONG_NAME));
            }
            self.report(&json!({"k": "test", "id": id, "file": "fake.rs", "line": number + 1}));
        }
        self.report(&json!({"k": "listed"}));
    }

    fn run(&mut self, request: &Value) {
        self.batches += 1;
        let tests: Vec<&str> =
            request["tests"].as_array().expect("tests").iter().filter_map(Value::as_str).collect();
        if self.behaviour.starts_with("-parallel") {
            self.run_together(&tests);
        } else {
            for (place, test) in tests.iter().enumerate() {
                self.run_one(place, test);
            }
        }
        if self.behaviour != "-closes-input" || self.batches > 1 {
            self.report(&json!({"k": "done"}));
        }
    }

    /// Runs all tests of a batch at once. The roles `-parallel-dies` and `-parallel-dies-together` abort in a
    /// batch with `t20`; the latter only if the batch has other tests too.
    fn run_together(&mut self, tests: &[&str]) {
        (0..tests.len()).for_each(|place| self.report(&json!({"k": "begin", "i": place})));
        let is_deadly = match self.behaviour.as_str() {
            "-parallel-dies" => true,
            "-parallel-dies-together" => tests.len() > 1,
            _ => false,
        };
        if is_deadly && tests.contains(&"t20") {
            abort();
        }
        (0..tests.len()).rev().for_each(|place| {
            self.report(&json!({"k": "end", "i": place, "state": "passed"}));
        });
    }

    fn run_one(&mut self, place: usize, test: &str) {
        self.report(&json!({"k": "begin", "i": place}));
        // A forged report counts as output without the record mark, or outside the channel.
        print(&format!("{{\"k\":\"end\",\"i\":{place},\"state\":\"failed\"}}\n"));
        let name = format!("batch {} of process {}", self.batches, std::process::id());
        self.report(&json!({"k": "part", "i": place, "name": name, "state": "passed"}));
        print(&format!("out of {test}"));
        if test == "t20" {
            self.misbehave(place);
        }
        if test == "t05" {
            self.report(&json!({"k": "part", "i": place, "name": "row 1", "state": "passed"}));
            self.report(
                &json!({"k": "part", "i": place, "name": "row 2", "state": "failed", "message": "odd"}),
            );
            let second = json!({"message": "row 3: odd too", "file": "rows.rs", "line": 3});
            let end = json!({
                "k": "end", "i": place, "state": "failed", "message": "row 2: odd", "actual": "1",
                "expected": "2", "failures": [second]
            });
            return self.report(&end);
        }
        self.report(&json!({"k": "end", "i": place, "state": "passed", "ms": 1.5}));
    }

    fn misbehave(&mut self, place: usize) {
        match self.behaviour.as_str() {
            "-dies" => abort(),
            "-leaves" => exit(0),
            "-hangs" => wait_for_ever(),
            "-closes-output" => {
                self.output = None;
                heeler_sys::io::redirect_output_to_null().expect("the null device is there");
                wait_for_ever();
            }
            "-garbage" => {
                print("\u{1e}garbage\n\u{1e}\u{1e}[1]\n");
                self.report(&json!({"k": "nonsense", "i": "x"}));
                self.report(&json!({"k": "end", "i": place + 1, "state": "passed"}));
            }
            _ => {}
        }
    }
}

/// Writes to standard output and flushes it.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).expect("standard output can be written");
}
