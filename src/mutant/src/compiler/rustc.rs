//! Parses rustc's JSON diagnostics, one per line, bare or wrapped in Cargo's messages.

use super::error::{CompilerError, ErrorPlace, ErrorSpan};
use serde_json::Value;

/// Maximum depth of nested macro expansions.
const EXPANSIONS: usize = 64;
/// Maximum number of note lines to keep.
const NOTE_LINES: usize = 2;
/// Lines of this length or more are dropped.
const NOTE_LENGTH: usize = 400;

/// Returns the error of a line; `None` if the line is not an error diagnostic.
pub fn error_of_line(line: &str) -> Option<CompilerError> {
    let value: Value = serde_json::from_str(line).ok()?;
    let diagnostic = if value["reason"] == "compiler-message" { &value["message"] } else { &value };
    if !diagnostic["level"].as_str()?.starts_with("error") {
        return None;
    }
    let spans: Vec<_> = diagnostic["spans"].as_array()?.iter().filter_map(span).collect();
    // "aborting due to" only counts the errors.
    if spans.is_empty() && diagnostic["message"].as_str()?.starts_with("aborting due to") {
        return None;
    }
    let mut message = diagnostic["message"].as_str()?.to_owned();
    if spans.is_empty() {
        message.push_str(&notes_of(diagnostic));
    }
    let code = diagnostic["code"]["code"].as_str().map(str::to_owned);
    let notes = diagnostic["children"].as_array().into_iter().flatten();
    let notes =
        notes.filter(|note| note["message"].as_str().is_some_and(|text| text.ends_with(" is not const")));
    let defined = notes.filter_map(|note| span(&note["spans"][0])).next();
    Some(CompilerError { code, message, spans, defined })
}

/// Returns note lines of an error without a place, such as linker output: its error lines, or else its last
/// lines.
fn notes_of(diagnostic: &Value) -> String {
    let notes = diagnostic["children"].as_array().into_iter().flatten();
    let notes: Vec<&str> = notes.filter_map(|child| child["message"].as_str()).collect();
    // A linker's command line can be many thousand characters long.
    let lines = notes.iter().flat_map(|note| note.lines()).map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && line.len() < NOTE_LENGTH).collect();
    let is_said = |line: &&&str| line.contains("error: ") && !line.starts_with("collect2: ");
    let said: Vec<&str> = lines.iter().filter(is_said).copied().collect();
    let shown = match said.len() {
        0 => &lines[lines.len().saturating_sub(NOTE_LINES)..],
        many => &said[..many.min(NOTE_LINES)],
    };
    shown.iter().flat_map(|line| [": ", line]).collect()
}

/// Returns a span. For code that a macro generated, returns the place of the outermost macro call.
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
    let byte = |name: &str| usize::try_from(place[name].as_u64()?).ok();
    let bytes = byte("byte_start")?..byte("byte_end")?;
    let line = usize::try_from(place["line_start"].as_u64()?).ok()?;
    let file = place["file_name"].as_str()?.to_owned();
    Some(ErrorSpan { file, place: ErrorPlace::Bytes { bytes, line }, is_primary })
}
