//! GitHub Actions: folding groups and annotations, and defence against test output that speaks the runner's own
//! command language.

use super::{format, result};
use crate::report::{
    Record,
    text::{self, Colours},
};

/// GitHub shows no more, and stores no more than 50 for a job.
pub(super) const ANNOTATIONS: usize = 50;
/// An annotation is read in a narrow column.
const MESSAGE_LINES: usize = 12;

/// Returns the command that begins a group.
pub(super) fn group(record: &Record) -> String {
    format!("::group::output of {}", escape_message(&format::cut_name(record.people_name(), 120)))
}

/// The command that ends a group.
pub(super) const END_GROUP: &str = "::endgroup::";

/// Returns the command that annotates a failure, in its file and line where they are known.
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

/// Returns a line of the log that the runner does not take for a command. The runner looks for `::` at the first
/// character that is no white space, and for `##[` anywhere.
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
