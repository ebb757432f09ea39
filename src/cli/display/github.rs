//! GitHub Actions: folding groups, annotations, and escaping of test output that contains workflow commands.

use super::{format, test_line};
use heeler_report::{
    TestReport,
    sanitise::{self, ColourPolicy},
    workflow_command::{escape_message, escape_property},
};

/// Maximum number of annotations. GitHub stores at most 50 for a job.
pub(super) const MAX_ANNOTATIONS: usize = 50;
/// Maximum number of lines in an annotation's message. GitHub shows messages in a narrow column.
const MESSAGE_LINES: usize = 12;

/// Returns the workflow command that begins a group.
pub(super) fn group(record: &TestReport) -> String {
    format!("::group::output of {}", escape_message(&format::cut_name(record.shown_name(), 120)))
}

pub(super) const END_GROUP: &str = "::endgroup::";

/// Returns the workflow command that annotates a failure. Contains the file and line of the failure if
/// known; without a known line, the title says where the test is defined.
pub(super) fn annotation(record: &TestReport, root: &str) -> String {
    let mut properties = Vec::new();
    if let Some(place) = record.place() {
        properties.push(format!("file={}", escape_property(test_line::relative_path(&place.file, root))));
        if let Some(line) = place.line {
            properties.push(format!("line={line}"));
        }
    }
    let mut title = format!("{} {}", format::result_label(record), format::cut_name(&record.uid, 120));
    let definition = record.definition().filter(|_| record.failed_place().is_none());
    if let Some(line) = definition.and_then(|place| place.line) {
        title.push_str(&format!(" (defined at line {line})"));
    }
    properties.push(format!("title={}", escape_property(&title)));
    format!("::error {}::{}", properties.join(","), escape_message(&message(record)))
}

fn message(record: &TestReport) -> String {
    let text = record.detail_text(|detail| detail.message.as_ref()).unwrap_or("no message");
    let mut lines = sanitise::sanitised_lines(text, ColourPolicy::Dropped);
    lines.truncate(MESSAGE_LINES);
    if let Some(command) = record.detail_text(|detail| detail.reproduce.as_ref()) {
        lines.push(format!("$ {}", format::cut_name(command, 500)));
    }
    lines.join("\n")
}

/// Returns a log line that the runner does not interpret as a workflow command. The runner looks for `::` at
/// the first non-blank character, and for `##[` anywhere.
pub(super) fn escape_commands(line: String) -> String {
    let line = if line.contains("##[") { line.replace("##[", "# #[") } else { line };
    if line.trim_start().starts_with("::") { line.replacen("::", ": :", 1) } else { line }
}

#[cfg(test)]
mod tests {
    use heeler_core::{Outcome, TestResult};
    use heeler_protocol::mtp::NodeDescription;

    use super::*;

    fn record(file: &str, message: &str) -> TestReport {
        let test = NodeDescription {
            uid: "core::a,b",
            display_name: "a,b",
            suite: "core",
            file: Some(file),
            line: Some(7),
            ..NodeDescription::default()
        };
        TestReport::from_result(&test, &TestResult::with_reason(Outcome::Failed, message))
    }

    #[test]
    fn annotation_escapes_workflow_command_syntax() {
        let command = annotation(&record("/w/src/a:b.rs", "50% lost\r\n::error::forged"), "/w");
        assert_eq!(
            command,
            "::error file=src/a%3Ab.rs,title=FAIL core%3A%3Aa%2Cb (defined at line 7)::\
             50%25 lost%0A::error::forged"
        );
        assert!(annotation(&record("/else/a.rs", "m"), "/w").starts_with("::error file=/else/a.rs,"));
        assert!(annotation(&record("a.rs", "m"), "").starts_with("::error file=a.rs,"));
    }

    #[test]
    fn workflow_commands_in_output_are_escaped() {
        for (line, expected) in [
            ("    ::set-env name=A::b", "    : :set-env name=A::b"),
            ("::error::x", ": :error::x"),
            ("text ##[error]x", "text # #[error]x"),
            ("a::b", "a::b"),
        ] {
            assert_eq!(escape_commands(line.into()), expected);
        }
    }
}
