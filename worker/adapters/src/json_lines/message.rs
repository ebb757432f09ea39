//! Requests and reports of JSON lines. Unknown members and kinds are ignored.

use serde_json::{Value, json};

/// The byte before each report on standard output, as in JSON text sequences (RFC 7464): there a report may
/// follow output that does not end its line.
pub(super) const RECORD_START: u8 = 0x1e;

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Returns the request for a listing.
pub(super) fn list() -> Vec<u8> {
    line(&json!({"k": "list", "v": 1}))
}

/// Returns the request to run tests; `is_only_test` if the lease has no other.
pub(super) fn run(tests: &[String], is_only_test: bool) -> Vec<u8> {
    line(&json!({"k": "run", "tests": tests, "alone": is_only_test}))
}

/// Returns the request to exit.
pub(super) fn stop() -> Vec<u8> {
    line(&json!({"k": "stop"}))
}

/// One report, or one object in it.
pub(super) struct ReportLine(Value);

impl ReportLine {
    /// Parses a line; `None` if it is no JSON object.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(Value::is_object).map(Self)
    }

    pub(super) fn kind(&self) -> &str {
        self.0["k"].as_str().unwrap_or_default()
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.0[name].as_str().map(str::to_owned)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.0[name].as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }

    /// Returns the objects of an array; anything else in it is ignored.
    pub(super) fn objects(&self, name: &str) -> Vec<Self> {
        let items = self.0[name].as_array().into_iter().flatten();
        items.filter(|item| item.is_object()).cloned().map(Self).collect()
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.0[name].as_f64()
    }

    pub(super) fn line_number(&self) -> Option<u32> {
        self.0["line"].as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
    }

    /// Returns the index of the test in its request.
    pub(super) fn index(&self) -> Option<usize> {
        self.0["i"].as_u64().and_then(|index| usize::try_from(index).ok())
    }
}
