//! A listed tool as a test: its metadata, its call arguments, and the selector that a run needs to call it.

use std::collections::BTreeMap;

use heeler_protocol::control::{ListedTest, TraitPair};
use serde_json::{Map, Value, json};

use super::message::{ServerEra, shortened};

/// Name prefix of tools that are tests.
pub(super) const TEST_PREFIX: &str = "mcp.test.";

/// Priority of a tool that sets none: optional.
const DEFAULT_PRIORITY: f64 = 3.0;
const MIN_TIMEOUT_MS: f64 = 1.0;
const MAX_TIMEOUT_MS: f64 = 600_000.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestTool {
    pub(super) priority: f64,
    pub(super) test: ListedTest,
}

/// Returns the test of a listed tool. Adds warnings for invalid metadata.
pub(super) fn test_tool(
    tool: &Value,
    name: &str,
    era: ServerEra,
    arguments: &BTreeMap<String, String>,
    warnings: &mut Vec<String>,
) -> TestTool {
    let metadata = Metadata::read(tool, name, warnings);
    let given = arguments.get(name).and_then(|text| serde_json::from_str(text).ok());
    let (arguments, missing) = call_arguments(&tool["inputSchema"], given.unwrap_or_default());
    let skip = (!missing.is_empty()).then(|| {
        let noun = if missing.len() == 1 { "an argument" } else { "arguments" };
        format!("needs {noun}: {}", missing.join(", "))
    });
    let tag = |name: &str, value: String| TraitPair { name: name.to_owned(), value };
    let test = ListedTest {
        name: name.to_owned(),
        skip,
        traits: vec![tag("category", metadata.category), tag("priority", metadata.priority.to_string())],
        selector: Some(CallSelector { era, arguments }.to_text()),
        timeout_ms: metadata.timeout_ms,
        ..ListedTest::default()
    };
    TestTool { priority: metadata.priority, test }
}

/// Test metadata of a tool.
struct Metadata {
    category: String,
    priority: f64,
    /// Time limit; `None` means the configured limit.
    timeout_ms: Option<u64>,
}

impl Metadata {
    fn read(tool: &Value, name: &str, warnings: &mut Vec<String>) -> Self {
        let metadata = find_metadata(tool);
        let mut number = |key: &str| {
            let value = metadata.get(key).filter(|value| !value.is_null())?;
            let number = value.as_f64();
            if number.is_none() {
                let value = shortened(&value.to_string());
                warnings.push(format!("{name}: testMetadata.{key} is not a number: {value}"));
            }
            number
        };
        let priority = number("priority").unwrap_or(DEFAULT_PRIORITY);
        let timeout = number("timeout");
        let limited = timeout.map(|timeout| timeout.clamp(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS));
        if let (Some(timeout), Some(limited)) = (timeout, limited)
            && timeout != limited
        {
            warnings.push(format!(
                "{name}: testMetadata.timeout is {timeout} ms; using {limited} ms (allowed: 1 ms to 10 min)"
            ));
        }
        let own = metadata.get("category").and_then(Value::as_str).map(shortened);
        let of_name = || name.split('.').nth(2).unwrap_or_default().to_owned();
        Self {
            category: own.unwrap_or_else(of_name),
            priority,
            // The clamped value fits without loss.
            timeout_ms: limited.map(|limit| limit.ceil() as u64),
        }
    }
}

/// Returns the first metadata found in a tool. Libraries drop unknown members except inside `_meta`, so
/// metadata may be in several places.
fn find_metadata(tool: &Value) -> Map<String, Value> {
    let meta = &tool["_meta"];
    let of_key = || {
        let members = meta.as_object().into_iter().flatten();
        members.filter(|(key, _)| key.ends_with("/testMetadata")).find_map(|(_, value)| value.as_object())
    };
    let found = tool["testMetadata"].as_object().or_else(|| meta["testMetadata"].as_object()).or_else(of_key);
    found.cloned().unwrap_or_default()
}

/// Returns the arguments of a call, and the names of required arguments without a value.
fn call_arguments(schema: &Value, given: Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let mut arguments = given;
    let mut missing = Vec::new();
    for name in super::message::texts(&schema["required"]) {
        if arguments.contains_key(&name) {
            continue;
        }
        let property = &schema["properties"][&name];
        let first = |key: &str| property[key].as_array().and_then(|values| values.first());
        let value = property
            .get("const")
            .or_else(|| property.get("default"))
            .or_else(|| first("enum"))
            .or_else(|| first("examples"));
        match value {
            Some(value) => drop(arguments.insert(name, value.clone())),
            None => missing.push(shortened(&name)),
        }
    }
    (arguments, missing)
}

/// Everything a run needs to call a tool, except its name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallSelector {
    pub(super) era: ServerEra,
    pub(super) arguments: Map<String, Value>,
}

impl CallSelector {
    fn to_text(&self) -> String {
        json!({"modern": self.era == ServerEra::Modern, "arguments": self.arguments}).to_string()
    }

    /// Reads a selector written by [`test_tool`]. A test without a selector is called without arguments after
    /// a handshake.
    pub(super) fn of(test: &ListedTest) -> Self {
        let selector: Value =
            test.selector.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let era = if selector["modern"] == true { ServerEra::Modern } else { ServerEra::Legacy };
        Self { era, arguments: selector["arguments"].as_object().cloned().unwrap_or_default() }
    }
}
