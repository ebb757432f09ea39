//! Answers to the conformance suite: the client's answer, or why there is none.

use data_encoding::BASE64;
use heeler_core::{Outcome, TestResult};
use heeler_protocol::connect::{ClientResponse, encode_response};

/// Number of stack trace lines in an answer. The suite prints them all for each failed case, and the answer
/// names the file with the rest.
const STACK_LINES: usize = 12;
/// Number of standard error lines in an answer.
const STDERR_LINES: usize = 10;

/// Returns the encoded answer to a case: the client's answer exactly as written, or an error if there is
/// none.
pub(super) fn answer_to(name: &str, result: &TestResult) -> Vec<u8> {
    let is_answered = matches!(result.outcome, Outcome::Passed | Outcome::Flaky);
    let own = result.answer.as_deref().filter(|_| is_answered);
    match own.and_then(|answer| BASE64.decode(answer.as_bytes()).ok()) {
        Some(answer) => answer,
        None => encode_response(&ClientResponse::of_error(name, failure_text(result))),
    }
}

/// Returns the error answer for a case that was never run.
pub(super) fn answer_of_error(name: &str, error: &str) -> Vec<u8> {
    encode_response(&ClientResponse::of_error(name, format!("the client under test was not run: {error}")))
}

/// Describes what happened to a case that the client did not answer.
fn failure_text(result: &TestResult) -> String {
    let mut text = format!("the client under test: {}", result.outcome.label());
    if let Some(message) = result.message() {
        text.push_str(": ");
        text.push_str(message.trim_end());
    }
    let diagnostics = result.diagnostics.as_deref();
    if let Some(stack) = diagnostics.map(|found| found.stack.trim_end()).filter(|stack| !stack.is_empty()) {
        append_lines(&mut text, "stack", stack.lines().take(STACK_LINES));
    }
    let files = diagnostics.map(|found| found.files.as_slice()).unwrap_or_default();
    append_lines(&mut text, "files", files.iter().map(|file| file.path.to_text()));
    let lines: Vec<_> = result.stderr.lines().collect();
    append_lines(&mut text, "standard error", lines[lines.len().saturating_sub(STDERR_LINES)..].iter());
    text
}

fn append_lines(text: &mut String, title: &str, lines: impl Iterator<Item = impl AsRef<str>>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        text.push_str(&format!("\n--- {title} ---"));
    }
    for line in lines {
        text.push('\n');
        text.push_str(line.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::TestDiagnostics;
    use heeler_protocol::connect::{ClientAnswer, ClientError, decode_response};

    use super::*;

    fn error_of(result: &TestResult) -> String {
        let response = decode_response(&answer_to("a/b", result)).unwrap();
        assert_eq!(response.test_name, "a/b");
        match response.answer {
            Some(ClientAnswer::Error(ClientError { message })) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answer_of_the_client_is_passed_on_as_it_is() {
        let answer = Some(BASE64.encode(b"any bytes"));
        for outcome in [Outcome::Passed, Outcome::Flaky] {
            let result = TestResult { answer: answer.clone(), ..TestResult::new(outcome) };
            assert_eq!(answer_to("a/b", &result), b"any bytes");
        }
        let died = TestResult { answer, ..TestResult::with_reason(Outcome::Crashed, "crashed with SIGABRT") };
        assert_eq!(error_of(&died), "the client under test: crashed: crashed with SIGABRT");
        assert_eq!(error_of(&TestResult::new(Outcome::Passed)), "the client under test: passed");
    }

    #[test]
    fn error_has_what_helps_and_is_bounded() {
        let stack: Vec<_> = (0..50).map(|frame| format!("#{frame}")).collect();
        let diagnostics = TestDiagnostics { stack: stack.join("\n"), ..TestDiagnostics::default() };
        let stderr: Vec<_> = (0..50).map(|line| format!("line {line}")).collect();
        let result = TestResult {
            diagnostics: Some(Box::new(diagnostics)),
            stderr: stderr.join("\n"),
            ..TestResult::with_reason(Outcome::Crashed, "crashed with SIGSEGV")
        };
        let text = error_of(&result);
        assert!(
            text.contains("--- stack ---\n#0\n") && text.contains("#11\n--- standard error ---\nline 40")
        );
        assert!(!text.contains("#12") && !text.contains("line 39") && text.ends_with("line 49"));
    }
}
