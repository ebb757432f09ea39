//! Fakes that report as JSON lines on descriptor 3, and live for several batches.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    process::abort,
};

use serde_json::{Value, json};

/// Tests that each of these roles lists.
const COUNT: usize = 64;

/// Serves the requests of the channel; returns the exit code.
pub(crate) fn serve(role: &str) -> u8 {
    let channel = heeler_sys::io::take_report_channel().expect("descriptor 3 is the channel");
    let reader = File::from(channel.try_clone().expect("a descriptor is free"));
    let mut fake = FakeReporter { channel: File::from(channel), role: role.to_owned(), batches: 0 };
    for line in BufReader::new(reader).lines() {
        let request: Value = serde_json::from_str(&line.expect("the channel can be read")).expect("JSON");
        match request["k"].as_str().unwrap_or_default() {
            "list" => fake.list(),
            "run" => fake.run(&request),
            "stop" => return 0,
            other => panic!("unknown request {other:?}"),
        }
    }
    3
}

struct FakeReporter {
    channel: File,
    role: String,
    batches: usize,
}

impl FakeReporter {
    fn report(&mut self, report: &Value) {
        let line = format!("{report}\n");
        self.channel.write_all(line.as_bytes()).expect("the channel can be written");
    }

    fn list(&mut self) {
        self.report(&json!({"k": "hello", "v": 1, "name": "fake"}));
        for number in 0..COUNT {
            self.report(
                &json!({"k": "test", "id": format!("t{number:02}"), "file": "fake.rs", "line": number + 1}),
            );
        }
        self.report(&json!({"k": "listed"}));
    }

    fn run(&mut self, request: &Value) {
        self.batches += 1;
        let tests: Vec<&str> =
            request["tests"].as_array().expect("tests").iter().filter_map(Value::as_str).collect();
        if self.role == "json-lines-parallel" {
            (0..tests.len()).for_each(|place| self.report(&json!({"k": "begin", "i": place})));
            (0..tests.len()).rev().for_each(|place| {
                self.report(&json!({"k": "end", "i": place, "state": "passed"}));
            });
        } else {
            for (place, test) in tests.iter().enumerate() {
                self.run_one(place, test);
            }
        }
        self.report(&json!({"k": "done"}));
    }

    fn run_one(&mut self, place: usize, test: &str) {
        self.report(&json!({"k": "begin", "i": place}));
        // A forged report on standard output is output.
        println!("{{\"k\":\"end\",\"i\":{place},\"state\":\"failed\"}}");
        println!("out of {test}");
        let name = format!("batch {} of process {}", self.batches, std::process::id());
        self.report(&json!({"k": "part", "i": place, "name": name, "state": "passed"}));
        if test == "t20" && self.role == "json-lines-dies" {
            abort();
        }
        if test == "t05" {
            self.report(&json!({"k": "part", "i": place, "name": "row 1", "state": "passed"}));
            self.report(
                &json!({"k": "part", "i": place, "name": "row 2", "state": "failed", "message": "odd"}),
            );
            let end = json!({"k": "end", "i": place, "state": "failed", "message": "row 2: odd", "actual": "1", "expected": "2"});
            return self.report(&end);
        }
        self.report(&json!({"k": "end", "i": place, "state": "passed", "ms": 1.5}));
    }
}
