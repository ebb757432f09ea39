//! Parses gcc's output with `-fdiagnostics-format=json`: one array per compiled file.

use super::error::{CompilerError, ErrorPlace, ErrorSpan};
use serde_json::Value;

/// Returns the errors of a line of standard error; none if the line is not an array of diagnostics.
pub fn errors_of_line(line: &str) -> Vec<CompilerError> {
    let Ok(Value::Array(diagnostics)) = serde_json::from_str(line) else { return Vec::new() };
    diagnostics.iter().filter_map(error).collect()
}

fn error(diagnostic: &Value) -> Option<CompilerError> {
    if !matches!(diagnostic["kind"].as_str()?, "error" | "fatal error") {
        return None;
    }
    let locations = diagnostic["locations"].as_array()?;
    let spans =
        locations.iter().enumerate().filter_map(|(index, location)| span(location, index == 0)).collect();
    Some(CompilerError {
        code: None,
        message: diagnostic["message"].as_str()?.to_owned(),
        spans,
        defined: None,
    })
}

fn span(location: &Value, is_primary: bool) -> Option<ErrorSpan> {
    let caret = &location["caret"];
    let number = |name: &str| usize::try_from(caret[name].as_u64()?).ok();
    // gcc before version 11 reports only one column, which counts bytes.
    let column = number("byte-column").or_else(|| number("column"))?;
    let place = ErrorPlace::Line { line: number("line")?, column };
    Some(ErrorSpan { file: caret["file"].as_str()?.to_owned(), place, is_primary })
}
