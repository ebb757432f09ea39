//! Requests and reports as JSON lines. Unknown members and kinds are ignored.

use heeler_protocol::control::{ForkPoint, ListedTest, OsText, TraitPair};
use serde_json::{Value, json};

/// Byte before each report on standard output, as in JSON text sequences (RFC 7464). A report may follow
/// output that does not end with a newline.
pub(crate) const RECORD_START: u8 = 0x1e;

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Version of requests and reports.
pub(crate) const VERSION: u64 = 1;

pub(crate) fn list() -> Vec<u8> {
    line(&json!({"k": "list", "v": VERSION}))
}

/// Returns the request for a listing that skips these files.
pub(crate) fn list_without(files: &[String]) -> Vec<u8> {
    line(&json!({"k": "list", "v": VERSION, "skip": files}))
}

/// Returns the request to run tests. `is_only_test` means that the lease has no other test.
pub(crate) fn run(tests: &[String], is_only_test: bool) -> Vec<u8> {
    line(&json!({"k": "run", "v": VERSION, "tests": tests, "alone": is_only_test}))
}

/// Returns the request to load the framework (or also all tests), and then wait to be forked.
pub(crate) fn warm(point: ForkPoint) -> Vec<u8> {
    line(&json!({"k": "warm", "v": VERSION, "collect": point == ForkPoint::Program}))
}

/// Returns the request to fork below a guard, which is executed with this command line; `None` if an argument
/// or variable is not UTF-8.
pub(crate) fn fork(guard: &[OsText], environment: &[(OsText, Option<OsText>)]) -> Option<Vec<u8>> {
    let text = |text: &OsText| std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned);
    let guard = guard.iter().map(text).collect::<Option<Vec<_>>>()?;
    let pair = |(name, value): &(OsText, Option<OsText>)| match value {
        Some(value) => Some((text(name)?, Some(text(value)?))),
        None => Some((text(name)?, None)),
    };
    let environment = environment.iter().map(pair).collect::<Option<Vec<_>>>()?;
    Some(line(&json!({"k": "fork", "guard": guard, "env": environment})))
}

pub(crate) fn stop() -> Vec<u8> {
    line(&json!({"k": "stop"}))
}

/// A report, or an object inside a report.
pub(crate) struct ReportLine(Value);

impl ReportLine {
    /// Parses a line; `None` if it is not a JSON object.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(Value::is_object).map(Self)
    }

    pub(crate) fn kind(&self) -> &str {
        self.0["k"].as_str().unwrap_or_default()
    }

    /// Returns a member; null if it is absent.
    pub(crate) fn member(&self, name: &str) -> &Value {
        &self.0[name]
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0[name].as_str().map(str::to_owned)
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.0[name].as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }

    /// Returns the objects of an array; other items are ignored.
    pub(crate) fn objects(&self, name: &str) -> Vec<Self> {
        let items = self.0[name].as_array().into_iter().flatten();
        items.filter(|item| item.is_object()).cloned().map(Self).collect()
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.0[name].as_f64()
    }

    pub(crate) fn line_number(&self) -> Option<u32> {
        self.0["line"].as_u64().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
    }

    /// Returns the index of the test in its request.
    pub(crate) fn index(&self) -> Option<usize> {
        self.0["i"].as_u64().and_then(|index| usize::try_from(index).ok())
    }

    /// Returns an error if the version in a `hello` report is not supported. A `hello` without a version uses
    /// the version of the request.
    pub(crate) fn unknown_version(&self) -> Option<String> {
        let version = &self.0["v"];
        let is_known = version.is_null() || version.as_u64().is_some_and(|version| version == VERSION);
        (!is_known).then(|| {
            format!("\"hello\" of version {version}; this version of Heeler supports version {VERSION}")
        })
    }

    /// Returns the number of the last fence before the report.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.0["f"].as_u64()
    }

    /// Returns the test that a listing report describes; `None` if it has no id.
    pub(crate) fn listed_test(&self) -> Option<ListedTest> {
        let tags = self.texts("tags").into_iter();
        Some(ListedTest {
            report_name: None,
            name: self.text("id")?,
            display: self.text("name"),
            file: self.text("file"),
            line: self.line_number(),
            skip: self.text("skip"),
            traits: tags.map(|name| TraitPair { name, value: String::new() }).collect(),
            selector: None,
            timeout_ms: None,
            broken: self.text("broken"),
            variant: None,
            reported_file: None,
        })
    }
}
