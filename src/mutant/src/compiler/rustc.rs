//! Diagnostics of rustc as JSON, one a line: its own, or inside of Cargo's messages.

use super::error::{CompilerError, ErrorPlace, ErrorSpan};
use serde_json::Value;

/// How many macros may be inside of each other.
const EXPANSIONS: usize = 64;

/// Returns the error of a line; `None` if it is none, or no diagnostic.
pub fn error_of_line(line: &str) -> Option<CompilerError> {
    let value: Value = serde_json::from_str(line).ok()?;
    let diagnostic = if value["reason"] == "compiler-message" { &value["message"] } else { &value };
    if !diagnostic["level"].as_str()?.starts_with("error") {
        return None;
    }
    let spans: Vec<_> = diagnostic["spans"].as_array()?.iter().filter_map(span).collect();
    // The summary of all errors has no place.
    if spans.is_empty() && diagnostic["message"].as_str()?.starts_with("aborting due to") {
        return None;
    }
    Some(CompilerError {
        code: diagnostic["code"]["code"].as_str().map(str::to_owned),
        message: diagnostic["message"].as_str()?.to_owned(),
        spans,
    })
}

/// Returns a span; that of the call, for code that a macro of another file made.
fn span(value: &Value) -> Option<ErrorSpan> {
    let is_primary = value["is_primary"].as_bool().unwrap_or(false);
    let mut place = value;
    for _ in 0..EXPANSIONS {
        let Some(call) = place["expansion"]["span"].as_object() else { break };
        if call.is_empty() {
            break;
        }
        place = &place["expansion"]["span"];
    }
    let number = |name: &str| usize::try_from(place[name].as_u64()?).ok();
    let bytes = number("byte_start")?..number("byte_end")?;
    let line = number("line_start")?;
    let file = place["file_name"].as_str()?.to_owned();
    Some(ErrorSpan { file, place: ErrorPlace::Bytes { bytes, line }, is_primary })
}
