//! Reads the result of a test from its node.

use std::time::Duration;

use heeler_core::Failure;
use heeler_protocol::mtp::{ExecutionState, TestNode, path_of_file_uri};
use serde_json::Value;

use crate::{FrameworkResult, FrameworkVerdict, scan};

/// Maximum number of attachments read from a node.
const MAX_ATTACHMENTS: usize = 100;
/// Maximum size of an output or message kept from a node.
const TEXT_LIMIT_BYTES: usize = 8 << 20;

/// An attachment of a node.
pub(super) struct NodeFile {
    pub(super) path: String,
    pub(super) description: String,
}

/// Returns the verdict of a finished test; `None` for a node that is not finished.
pub(super) fn verdict(node: &TestNode) -> Option<FrameworkVerdict> {
    let result = match node.state? {
        ExecutionState::Passed => FrameworkResult::Passed,
        ExecutionState::Skipped => FrameworkResult::Skipped,
        ExecutionState::Failed
        | ExecutionState::TimedOut
        | ExecutionState::Error
        | ExecutionState::Cancelled => FrameworkResult::Failed,
        ExecutionState::Discovered | ExecutionState::InProgress | ExecutionState::Unknown => return None,
    };
    let duration = node.duration_ms.and_then(|time| Duration::try_from_secs_f64(time.max(0.0) / 1000.0).ok());
    let mut verdict = FrameworkVerdict::new(result, duration);
    verdict.stdout = text(node.standard_output.as_deref());
    verdict.stderr = text(node.standard_error.as_deref());
    let message = text(node.error_message.as_deref());
    if result == FrameworkResult::Failed {
        let state = node.state.filter(|state| *state == ExecutionState::TimedOut);
        verdict.push_failure(Failure {
            message: message.or_else(|| state.map(|state| state.to_string())),
            file: None,
            line: None,
            expected: text(node.assert_expected.as_deref()),
            actual: text(node.assert_actual.as_deref()),
            stack: text(node.error_stacktrace.as_deref()),
        });
    } else {
        verdict.reason = message;
    }
    Some(verdict)
}

/// Returns whether another attempt of the same test supersedes this node.
pub(super) fn is_superseded(node: &TestNode) -> bool {
    node.members.get("retry.is-superseded").and_then(Value::as_bool) == Some(true)
}

pub(super) fn files(node: &TestNode) -> Vec<NodeFile> {
    let file = |number: usize| {
        let uri = node.text_member(&format!("attachments.{number}.uri"))?;
        let path = path_of_file_uri(uri).unwrap_or_else(|| uri.to_owned());
        // Some frameworks repeat the path as the description.
        let words = ["description", "display-name"].map(|member| format!("attachments.{number}.{member}"));
        let words = words.iter().filter_map(|member| node.text_member(member));
        let description = words.filter(|words| !words.starts_with('/')).map(str::to_owned).next();
        let description = description.unwrap_or_else(|| "attachment".to_owned());
        path.starts_with('/').then_some(NodeFile { path, description })
    };
    (0..MAX_ATTACHMENTS).map_while(file).collect()
}

fn text(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| scan::truncated(text, TEXT_LIMIT_BYTES).to_owned())
}
