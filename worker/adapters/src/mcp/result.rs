//! The verdict of an answer to `tools/call`.

use heeler_core::Failure;
use serde_json::Value;

use super::message::{RequestError, shortened};
use crate::{FrameworkResult, FrameworkVerdict, TestPart};

/// Maximum number of assertions reported as parts of a test. The output lists all of them.
const MAX_PARTS: usize = 1000;
/// Maximum number of assertions named in a message.
const NAMED_ASSERTIONS: usize = 10;

/// The result of a test according to an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolResult {
    pub(super) verdict: FrameworkVerdict,
    /// Assertions of the test.
    pub(super) parts: Vec<TestPart>,
}

/// Reads the answer to a call.
pub(super) fn tool_result(answer: &Result<Value, RequestError>) -> ToolResult {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(format!("answered with {}", error.describe())),
    };
    if answer["resultType"] == "input_required" {
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Skipped, None);
        verdict.reason = Some(format!("needs input: {}", wanted_input(answer)));
        return ToolResult { verdict, parts: Vec::new() };
    }
    let is_error = answer["isError"] == true;
    let texts = text_blocks(answer);
    if let Some(contradiction) = find_contradiction(answer, &texts) {
        return failed(contradiction);
    }
    let (result, place) = match find_result(answer, &texts) {
        Some(found) => found,
        None if is_error => return failed(error_text(&texts)),
        None => {
            let said = texts.first().map(|text| format!(": {}", shortened(text))).unwrap_or_default();
            return failed(format!("answered with no test result{said}"));
        }
    };
    let others = texts.iter().enumerate().filter(|(at, _)| Some(*at) != place);
    let others: Vec<&str> = others.map(|(_, text)| text.as_str()).collect();
    let claims = ClaimedResult::read(&result);
    let mut verdict = claims.verdict(is_error);
    verdict.stdout = Some(claims.output(&others)).filter(|text| !text.is_empty());
    ToolResult { verdict, parts: claims.parts() }
}

/// Returns a failure with only this message.
pub(super) fn failed(message: String) -> ToolResult {
    let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
    verdict.push_failure(failure(message));
    ToolResult { verdict, parts: Vec::new() }
}

fn failure(message: String) -> Failure {
    Failure { message: Some(message), ..Failure::default() }
}

fn text_blocks(answer: &Value) -> Vec<String> {
    let blocks = answer["content"].as_array().into_iter().flatten();
    let texts = blocks.filter(|block| block["type"] == "text");
    texts.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect()
}

fn error_text(texts: &[String]) -> String {
    let text = texts.join("\n");
    if text.trim().is_empty() {
        "answered with an error without text".to_owned()
    } else {
        format!("answered with an error: {}", shortened(text.trim()))
    }
}

/// Returns an error if the answer contains both a success and a failure.
fn find_contradiction(answer: &Value, texts: &[String]) -> Option<String> {
    let parsed: Vec<Value> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let results = [&answer["structuredContent"]].into_iter().chain(&parsed);
    let mut claims = results.filter_map(|result| result["success"].as_bool());
    let first = claims.next()?;
    let is_contradicted = claims.any(|claim| claim != first);
    is_contradicted.then(|| "contradictory results: success is both true and false".to_owned())
}

/// Returns the result in an answer, and the index of its text block if a text block contains it.
fn find_result(answer: &Value, texts: &[String]) -> Option<(Value, Option<usize>)> {
    let is_result = |value: &Value| value["success"].is_boolean();
    let structured = &answer["structuredContent"];
    let parse = |text: &String| serde_json::from_str(text).ok().filter(is_result);
    if is_result(structured) {
        // Servers repeat the structured result as text for older clients.
        let repeated = texts.iter().position(|text| parse(text).as_ref() == Some(structured));
        return Some((structured.clone(), repeated));
    }
    texts.iter().enumerate().find_map(|(place, text)| Some((parse(text)?, Some(place))))
}

/// Returns the input that the server requests from a user.
fn wanted_input(answer: &Value) -> String {
    let requests = answer["inputRequests"].as_object().into_iter().flatten();
    let requests = requests.map(|(name, request)| {
        let message = request["params"]["message"].as_str().or_else(|| request["method"].as_str());
        shortened(message.unwrap_or(name))
    });
    let wanted = requests.take(NAMED_ASSERTIONS).collect::<Vec<_>>().join(", ");
    if wanted.is_empty() { "unspecified".to_owned() } else { wanted }
}

/// Returns the assertions of a list. A non-empty value that is not a list, such as a string, counts as one
/// assertion, so that no failure is lost because of its form.
fn assertion_list(value: &Value) -> Vec<String> {
    let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::Number(number) if number.as_f64() == Some(0.0) => Vec::new(),
        Value::Object(members) if members.is_empty() => Vec::new(),
        other => vec![text(other)],
    }
}

/// The result object of a test, as the server claims it.
struct ClaimedResult {
    is_success: bool,
    message: Option<String>,
    passed: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
    duration_ms: Option<f64>,
}

impl ClaimedResult {
    fn read(result: &Value) -> Self {
        let details = &result["details"];
        let list = |name: &str| {
            let mut assertions = assertion_list(&details[name]);
            assertions.extend(assertion_list(&result[name]));
            assertions
        };
        let message = result["message"].as_str().map(str::to_owned);
        Self {
            is_success: result["success"] == true,
            message: message.filter(|text| !text.trim().is_empty()),
            passed: list("passed"),
            failed: list("failed"),
            skipped: list("skipped"),
            duration_ms: result["duration"].as_f64(),
        }
    }

    fn verdict(&self, is_error: bool) -> FrameworkVerdict {
        let contradiction = match (self.is_success, is_error, self.failed.len()) {
            (false, ..) | (true, false, 0) => None,
            (true, true, _) => Some("success is true, but isError is set".to_owned()),
            (true, false, 1) => Some(format!("success is true, but 1 assertion failed: {}", self.failed[0])),
            (true, false, count) => {
                Some(format!("success is true, but {count} assertions failed: {}", named(&self.failed)))
            }
        };
        let is_skipped = self.passed.is_empty() && !self.skipped.is_empty();
        if let Some(contradiction) = contradiction {
            return failed(contradiction).verdict;
        }
        if self.is_success && is_skipped {
            let mut verdict = FrameworkVerdict::new(FrameworkResult::Skipped, None);
            let skipped = || format!("skipped all of its assertions: {}", named(&self.skipped));
            verdict.reason = Some(self.message.clone().unwrap_or_else(skipped));
            return verdict;
        }
        if self.is_success {
            return FrameworkVerdict::new(FrameworkResult::Passed, None);
        }
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
        match &self.message {
            Some(message) => verdict.push_failure(failure(message.clone())),
            None if self.failed.is_empty() => {
                verdict.push_failure(failure("success is false, without a message".to_owned()));
            }
            None => self.failed.iter().for_each(|one| verdict.push_failure(failure(one.clone()))),
        }
        verdict
    }

    /// Returns the output of the test: the other texts of the answer, one line per assertion, and the
    /// assertion counts.
    fn output(&self, others: &[&str]) -> String {
        let mut lines: Vec<String> = others.iter().map(|text| text.trim_end().to_owned()).collect();
        if self.is_success {
            lines.extend(self.message.clone());
        }
        let lists = [("passed", &self.passed), ("failed", &self.failed), ("skipped", &self.skipped)];
        for (state, assertions) in lists {
            lines.extend(assertions.iter().map(|one| format!("{state}: {one}")));
        }
        let total = self.passed.len() + self.failed.len() + self.skipped.len();
        if total > 0 {
            let noun = if total == 1 { "assertion" } else { "assertions" };
            let (failed, skipped) = (self.failed.len(), self.skipped.len());
            lines.push(format!("{total} {noun}, {failed} failed, {skipped} skipped"));
        }
        lines.extend(
            self.duration_ms.map(|duration| format!("duration reported by the server: {duration} ms")),
        );
        let mut text = lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    fn parts(&self) -> Vec<TestPart> {
        let lists = [
            (FrameworkResult::Failed, &self.failed),
            (FrameworkResult::Passed, &self.passed),
            (FrameworkResult::Skipped, &self.skipped),
        ];
        let parts = lists.into_iter().flat_map(|(result, assertions)| {
            assertions.iter().map(move |name| TestPart {
                name: shortened(name),
                result: Some(result),
                message: None,
            })
        });
        parts.take(MAX_PARTS).collect()
    }
}

fn named(assertions: &[String]) -> String {
    let named = assertions.iter().take(NAMED_ASSERTIONS).map(|one| shortened(one)).collect::<Vec<_>>();
    let more = assertions.len().saturating_sub(NAMED_ASSERTIONS);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{more}", named.join("; "))
}
