//! GitHub Actions: folding groups, annotations, and escaping of test output that contains workflow commands.

use super::{format, result};
use crate::report::{
    Record,
    text::{self, Colours},
};

/// GitHub shows at most this many annotations, and stores at most 50 for a job.
pub(super) const ANNOTATIONS: usize = 50;
/// Maximum number of lines in an annotation's message, which GitHub shows in a narrow column.
const MESSAGE_LINES: usize = 12;

/// Returns the workflow command that begins a group.
pub(super) fn group(record: &Record) -> String {
    format!("::group::output of {}", escape_message(&format::cut_name(record.people_name(), 120)))
}

/// The workflow command that ends a group.
pub(super) const END_GROUP: &str = "::endgroup::";

/// Returns the workflow command that annotates a failure, with file and line where these are known.
pub(super) fn annotation(record: &Record, root: &str) -> String {
    let mut properties = Vec::new();
    let detail = record.detail.as_deref();
    if let Some(file) = detail.and_then(|detail| detail.file.as_deref()) {
        properties.push(format!("file={}", escape_property(result::below(file, root))));
        if let Some(line) = detail.and_then(|detail| detail.line) {
            properties.push(format!("line={line}"));
        }
    }
    let title = format!("{} {}", format::label(record), format::cut_name(&record.uid, 120));
    properties.push(format!("title={}", escape_property(&title)));
    format!("::error {}::{}", properties.join(","), escape_message(&message(record)))
}

fn message(record: &Record) -> String {
    let told = record.text(|detail| detail.message.as_ref()).unwrap_or("no message");
    let mut lines = text::lines(told, Colours::Dropped);
    lines.truncate(MESSAGE_LINES);
    if let Some(command) = record.text(|detail| detail.reproduce.as_ref()) {
        lines.push(format!("$ {}", format::cut_name(&text::command_line(command), 500)));
    }
    lines.join("\n")
}

fn escape_message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_message(text).replace(':', "%3A").replace(',', "%2C")
}

/// Returns a log line that the runner does not interpret as a workflow command. The runner looks for `::` at
/// the first non-blank character, and for `##[` anywhere.
pub(super) fn defuse(line: String) -> String {
    let line = if line.contains("##[") { line.replace("##[", "# #[") } else { line };
    if line.trim_start().starts_with("::") { line.replacen("::", ": :", 1) } else { line }
}

#[cfg(test)]
mod tests {
    use wire::mtp::{ExecutionState, TestNode};

    use super::*;

    fn record(file: &str, message: &str) -> Record {
        let node = TestNode {
            location_file: Some(file.into()),
            location_line_start: Some(7),
            error_message: Some(message.into()),
            ..TestNode::test("core::a,b", "a,b", ExecutionState::Failed)
        };
        Record::new(&node).unwrap()
    }

    #[test]
    fn an_annotation_escapes_what_the_runner_would_take_for_its_own() {
        let command = annotation(&record("/w/src/a:b.rs", "50% lost\r\n::error::forged"), "/w");
        assert_eq!(
            command,
            "::error file=src/a%3Ab.rs,line=7,title=FAIL core%3A%3Aa%2Cb::50%25 lost%0A::error::forged"
        );
        assert!(annotation(&record("/else/a.rs", "m"), "/w").starts_with("::error file=/else/a.rs,"));
        assert!(annotation(&record("a.rs", "m"), "").starts_with("::error file=a.rs,"));
    }

    #[test]
    fn output_that_speaks_the_runners_language_is_not_understood() {
        for (line, expected) in [
            ("    ::set-env name=A::b", "    : :set-env name=A::b"),
            ("::error::x", ": :error::x"),
            ("text ##[error]x", "text # #[error]x"),
            ("a::b", "a::b"),
        ] {
            assert_eq!(defuse(line.into()), expected);
        }
    }
}
