//! Validates the traffic of every test against the schemas of Heeler's protocols.

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

/// Returns a validator for one definition of a schema.
fn build_part(text: &str, definition: &str) -> Validator {
    let mut schema: Value = serde_json::from_str(text).unwrap();
    let root = schema.as_object_mut().unwrap();
    root.remove("anyOf");
    root.insert("$ref".to_owned(), format!("#/$defs/{definition}").into());
    jsonschema::validator_for(&schema).unwrap()
}

/// Returns how a line sent to a JSON Lines program violates the schema.
pub(crate) fn json_lines_request_violation(line: &Value) -> Option<String> {
    schema_violation(&JSON_LINES_REQUEST, line)
}

/// Returns how a line from a JSON Lines program violates the schema.
pub(crate) fn json_lines_report_violation(line: &Value) -> Option<String> {
    schema_violation(&JSON_LINES_REPORT, line)
}

/// Returns how a message from the server violates the schema.
pub(crate) fn server_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&SERVER, message)
}

/// Returns how a message from a client violates the schema.
pub(crate) fn client_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&CLIENT, message)
}

/// Returns how a Runtime Server Protocol message from the server violates the schema.
pub(crate) fn rsp_server_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&RSP_SERVER, message)
}

/// Returns how a Runtime Server Protocol message from a client violates the schema.
pub(crate) fn rsp_client_schema_violation(message: &Value) -> Option<String> {
    schema_violation(&RSP_CLIENT, message)
}

/// Panics if a line of a run's event stream violates its schema.
#[track_caller]
pub(crate) fn check_run_event(event: &Value) {
    let violation = schema_violation(&RUN_EVENTS, event);
    assert!(violation.is_none(), "{violation:?}\n{event:#}");
}

/// Panics if a CTRF report violates the schema of the format.
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
