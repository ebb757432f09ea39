//! Requests and reports of JSON lines. Unknown members and kinds are ignored.

use heeler_protocol::control::{ForkPoint, ListedTest, OsText, TraitPair};
use serde_json::{Value, json};

/// The byte before each report on standard output, as in JSON text sequences (RFC 7464): there a report may
/// follow output that does not end its line.
pub(crate) const RECORD_START: u8 = 0x1e;

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Version of the requests and reports.
pub(crate) const VERSION: u64 = 1;

/// Returns the request for a listing.
pub(crate) fn list() -> Vec<u8> {
    line(&json!({"k": "list", "v": VERSION}))
}

/// Returns the request for a listing without these files.
pub(crate) fn list_without(files: &[String]) -> Vec<u8> {
    line(&json!({"k": "list", "v": VERSION, "skip": files}))
}

/// Returns the request to run tests; `is_only_test` if the lease has no other.
pub(crate) fn run(tests: &[String], is_only_test: bool) -> Vec<u8> {
    line(&json!({"k": "run", "v": VERSION, "tests": tests, "alone": is_only_test}))
}

/// Returns the request to load the framework, or all tests as well, and then to be forked for them.
pub(crate) fn warm(point: ForkPoint) -> Vec<u8> {
    line(&json!({"k": "warm", "v": VERSION, "collect": point == ForkPoint::Program}))
}

/// Returns the request for a fork below a guard, which is executed with these words; `None` if something in
/// it is no text.
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

/// Returns the request to exit.
pub(crate) fn stop() -> Vec<u8> {
    line(&json!({"k": "stop"}))
}

/// One report, or one object in it.
pub(crate) struct ReportLine(Value);

impl ReportLine {
    /// Parses a line; `None` if it is no JSON object.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(Value::is_object).map(Self)
    }

    pub(crate) fn kind(&self) -> &str {
        self.0["k"].as_str().unwrap_or_default()
    }

    /// Returns a member; null if there is none.
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

    /// Returns the objects of an array; anything else in it is ignored.
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

    /// Returns why the program can't be understood, if its `hello` says so: it names the version of its
    /// reports, which without one is that of the request.
    pub(crate) fn unknown_version(&self) -> Option<String> {
        let version = &self.0["v"];
        let is_known = version.is_null() || version.as_u64().is_some_and(|version| version == VERSION);
        (!is_known).then(|| format!("\"hello\" of version {version}; this heeler reads version {VERSION}"))
    }

    /// Returns the number of the last fence before the report.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.0["f"].as_u64()
    }

    /// Returns the test that a report of a listing describes; `None` if it has no id.
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
