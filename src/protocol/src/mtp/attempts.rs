//! Earlier attempts of a test in the member `heeler.attempts` of its node: writing and reading.

use heeler_core::{Attempt, milliseconds_of};
use serde::Serialize;

use super::{
    ExecutionState, TestNode, key,
    render::{kind_of, read_outcome},
};

/// An earlier attempt, as an element of `heeler.attempts`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RenderedAttempt<'a> {
    execution_state: ExecutionState,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome_kind: Option<&'static str>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    standard_output: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    standard_error: &'a str,
    duration_ms: f64,
}

impl<'a> RenderedAttempt<'a> {
    pub(super) fn new(attempt: &'a Attempt) -> Self {
        let exit = attempt.exit_reason.as_ref();
        Self {
            execution_state: attempt.outcome.into(),
            outcome_kind: kind_of(attempt.outcome),
            message: &attempt.message,
            signal: exit.and_then(|exit| exit.signal.as_deref()),
            exit_code: exit.and_then(|exit| exit.code),
            standard_output: &attempt.stdout,
            standard_error: &attempt.stderr,
            duration_ms: milliseconds_of(attempt.duration_us),
        }
    }
}

/// Reads the attempts of a node sent by a server, skipping invalid elements. For clients only.
#[must_use]
pub fn attempts_of_node(node: &TestNode) -> Vec<Attempt> {
    // Form of an element. Elements of other servers may lack its required members, and are skipped.
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct ReadAttempt {
        execution_state: ExecutionState,
        outcome_kind: Option<String>,
        #[serde(default)]
        message: String,
        signal: Option<String>,
        exit_code: Option<i32>,
        #[serde(default)]
        standard_output: String,
        #[serde(default)]
        standard_error: String,
        #[serde(default)]
        duration_ms: f64,
    }
    let read = |value: &serde_json::Value| {
        let read: ReadAttempt = serde_json::from_value(value.clone()).ok()?;
        let kind = read.outcome_kind.as_deref();
        let outcome = read_outcome(read.execution_state, kind, read.signal.is_some())?;
        // An invalid duration becomes zero, so the attempt is not lost.
        let duration = std::time::Duration::try_from_secs_f64(read.duration_ms / 1e3).unwrap_or_default();
        let has_exit = read.signal.is_some() || read.exit_code.is_some();
        Some(Attempt {
            failed_at: None,
            outcome,
            message: read.message,
            exit_reason: has_exit.then(|| heeler_core::ExitReason {
                signal: read.signal,
                code: read.exit_code,
                ..heeler_core::ExitReason::default()
            }),
            stdout: read.standard_output,
            stderr: read.standard_error,
            diagnostics: None,
            // The files of all attempts are on the node itself.
            attached: Vec::new(),
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        })
    };
    let list = node.members.get(key::ATTEMPTS).and_then(serde_json::Value::as_array);
    list.into_iter().flatten().filter_map(read).collect()
}
