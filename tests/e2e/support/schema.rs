//! Validates the traffic of every test against the schemas of the dialect.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static SERVER: LazyLock<Validator> = LazyLock::new(|| build(include_str!("../../schema/server.schema.json")));
static RUN_EVENTS: LazyLock<Validator> =
    LazyLock::new(|| build(include_str!("../../../docs/reference/run-events.schema.json")));
static CTRF: LazyLock<Validator> = LazyLock::new(|| build(include_str!("../../schema/ctrf/schema.json")));
static CLIENT: LazyLock<Validator> = LazyLock::new(|| build(include_str!("../../schema/client.schema.json")));
static RSP_SERVER: LazyLock<Validator> =
    LazyLock::new(|| build(include_str!("../../schema/rsp-server.schema.json")));
static RSP_CLIENT: LazyLock<Validator> =
    LazyLock::new(|| build(include_str!("../../schema/rsp-client.schema.json")));

static JSON_LINES: &str = include_str!("../../../docs/reference/json-lines.schema.json");
static JSON_LINES_REQUEST: LazyLock<Validator> = LazyLock::new(|| build_part(JSON_LINES, "request"));
static JSON_LINES_REPORT: LazyLock<Validator> = LazyLock::new(|| build_part(JSON_LINES, "report"));

fn build(text: &str) -> Validator {
    let schema: Value = serde_json::from_str(text).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// Returns the validator of one definition of a schema.
fn build_part(text: &str, definition: &str) -> Validator {
    let mut schema: Value = serde_json::from_str(text).unwrap();
    let root = schema.as_object_mut().unwrap();
    root.remove("anyOf");
    root.insert("$ref".to_owned(), format!("#/$defs/{definition}").into());
    jsonschema::validator_for(&schema).unwrap()
}

/// Returns the schema violation of a line to a program that reports as JSON lines.
pub(crate) fn json_lines_request_violation(line: &Value) -> Option<String> {
    schema_violation(&JSON_LINES_REQUEST, line)
}

/// Returns the schema violation of a line from a program that reports as JSON lines.
pub(crate) fn json_lines_report_violation(line: &Value) -> Option<String> {
    schema_violation(&JSON_LINES_REPORT, line)
}

/// Returns the schema violation of a message that the server sent, if there is one.
pub(crate) fn server_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&SERVER, message)
}

/// Returns the schema violation of a message that a client sent, if there is one.
pub(crate) fn client_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&CLIENT, message)
}

/// Returns the schema violation of a message of the Runtime Server Protocol that the server sent.
pub(crate) fn rsp_server_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&RSP_SERVER, message)
}

/// Returns the schema violation of a message of the Runtime Server Protocol that a client sent.
pub(crate) fn rsp_client_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&RSP_CLIENT, message)
}

/// Checks a line of the event stream of a run.
#[track_caller]
pub(crate) fn check_run_event(event: &Value) {
    let violation = schema_violation(&RUN_EVENTS, event);
    assert!(violation.is_none(), "{violation:?}\n{event:#}");
}

/// Checks a CTRF report against the schema of its format.
#[track_caller]
pub(crate) fn check_ctrf(report: &Value) {
    let violation = schema_violation(&CTRF, report);
    assert!(violation.is_none(), "{violation:?}\n{report:#}");
}

fn schema_violation(validator: &Validator, message: &Value) -> Option<String> {
    if validator.is_valid(message) {
        return None;
    }
    let errors: Vec<_> = validator
        .iter_errors(message)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    Some(errors.join("\n"))
}
