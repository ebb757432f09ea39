//! The verdict about a client's answer: what it reports, against what it should report, with the tolerances
//! of the conformance suite. What servers see of a call is not judged here.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::{
    expansion::Case,
    message::{Any, CallResult, CaseAnswer, ConformancePayload, Header, RequestInfo, RpcError},
    text::message_types::REQUEST_INFO,
    tree::{tree_of_any, tree_of_contents},
};

/// How much less than the client's timeout a server may see: time passes before it looks.
const TIMEOUT_TOLERANCE_MS: i64 = 500;

/// Returns what is wrong with a client's answer to a case; nothing if the case has passed.
#[must_use]
pub fn problems_of_answer(case: &Case, answer: Option<&CaseAnswer>) -> Vec<String> {
    match answer {
        Some(CaseAnswer::Response(result)) => problems_of_result(case, result),
        Some(CaseAnswer::Error(error)) => vec![error.message.clone()],
        None => vec!["an answer with neither a response nor an error".to_owned()],
    }
}

fn problems_of_result(case: &Case, actual: &CallResult) -> Vec<String> {
    let expected = &case.expected;
    let mut problems = Vec::new();
    check_error(
        expected.error.as_ref(),
        actual.error.as_ref(),
        &case.other_allowed_error_codes,
        &mut problems,
    );
    check_payloads(&expected.payloads, &actual.payloads, &mut problems);
    check_metadata(case, actual, &mut problems);
    if let (Some(expected), Some(actual)) = (expected.http_status_code, actual.http_status_code)
        && expected != actual
    {
        problems.push(format!("HTTP status {actual}, expected {expected}"));
    }
    problems
}

/// Checks headers and trailers. Where a call with one response fails, a client may be unable to tell them
/// apart: then all of them may be headers, or all trailers.
fn check_metadata(case: &Case, actual: &CallResult, problems: &mut Vec<String>) {
    let expected = &case.expected;
    let mut found = Vec::new();
    check_headers("response header", &expected.response_headers, &actual.response_headers, &mut found);
    check_headers("response trailer", &expected.response_trailers, &actual.response_trailers, &mut found);
    let may_be_merged =
        expected.payloads.is_empty() && expected.error.is_some() && case.stream_type.has_one_response();
    if may_be_merged && !found.is_empty() {
        let merged = merged(&expected.response_headers, &expected.response_trailers);
        let is_all_in = |headers: &[Header]| {
            let mut found = Vec::new();
            check_headers("response metadata", &merged, headers, &mut found);
            found.is_empty()
        };
        if is_all_in(&actual.response_headers) || is_all_in(&actual.response_trailers) {
            return;
        }
    }
    problems.append(&mut found);
}

fn merged(headers: &[Header], trailers: &[Header]) -> Vec<Header> {
    let mut merged: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers {
        merged.insert(header.name.to_lowercase(), header.value.clone());
    }
    for trailer in trailers {
        merged.entry(trailer.name.to_lowercase()).or_default().extend(trailer.value.iter().cloned());
    }
    merged.into_iter().map(|(name, value)| Header { name, value }).collect()
}

/// Checks that all expected headers are there, with their values. Others may be there too.
fn check_headers(what: &str, expected: &[Header], actual: &[Header], problems: &mut Vec<String>) {
    let actual: BTreeMap<String, &[String]> =
        actual.iter().map(|header| (header.name.to_lowercase(), header.value.as_slice())).collect();
    for header in expected {
        let name = header.name.to_lowercase();
        let Some(values) = actual.get(&name) else {
            problems.push(format!("no {what} {name:?}"));
            continue;
        };
        let (expected, actual) = (separate_values(&header.value), separate_values(values));
        if expected != actual {
            problems.push(format!("{what} {name:?} with {actual:?}, expected {expected:?}"));
        }
    }
}

/// Separates values that a library has joined with commas, and a space on either side of them.
fn separate_values(values: &[String]) -> Vec<&str> {
    let mut separate = Vec::new();
    for value in values {
        let last = value.split(',').count() - 1;
        for (place, part) in value.split(',').enumerate() {
            let part = if place > 0 { part.strip_prefix(' ').unwrap_or(part) } else { part };
            let part = if place < last { part.strip_suffix(' ').unwrap_or(part) } else { part };
            separate.push(part);
        }
    }
    separate
}

fn check_payloads(
    expected: &[ConformancePayload],
    actual: &[ConformancePayload],
    problems: &mut Vec<String>,
) {
    if expected.len() != actual.len() {
        problems.push(format!("{} response messages, expected {}", actual.len(), expected.len()));
    }
    for (place, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        if expected.data != actual.data {
            let (actual, expected) = (actual.data.escape_ascii(), expected.data.escape_ascii());
            problems.push(format!("response {}: data \"{actual}\", expected \"{expected}\"", place + 1));
        }
        let infos = [&expected.request_info, &actual.request_info].map(Option::as_ref);
        if place == 0 {
            check_request_head(infos, problems);
        }
        check_requests(infos, problems);
    }
}

/// Checks what a server saw before the messages of a request: expected, then actual.
fn check_request_head([expected, actual]: [Option<&RequestInfo>; 2], problems: &mut Vec<String>) {
    let headers =
        |info: Option<&RequestInfo>| info.map_or_else(Vec::new, |info| info.request_headers.clone());
    check_headers("request header", &headers(expected), &headers(actual), problems);
    let timeouts = [expected, actual].map(|info| info.and_then(|info| info.timeout_ms));
    match timeouts {
        [None, None] => {}
        [Some(expected), None] => problems.push(format!("no timeout, expected {expected} ms")),
        [None, Some(actual)] => problems.push(format!("a timeout of {actual} ms, expected none")),
        [Some(expected), Some(actual)] => {
            let minimum = (expected - TIMEOUT_TOLERANCE_MS).max(0);
            if !(minimum..=expected).contains(&actual) {
                problems.push(format!("a timeout of {actual} ms, expected {minimum} to {expected} ms"));
            }
        }
    }
    let query = |info: Option<&RequestInfo>| {
        let get_info = info.and_then(|info| info.connect_get_info.as_ref());
        get_info.map_or_else(Vec::new, |info| info.query_params.clone())
    };
    let (expected, actual) = (query(expected), query(actual));
    // A client may use GET or not, where a case is not about it.
    if !actual.is_empty() {
        check_headers("query parameter", &expected, &actual, problems);
    }
}

/// Checks the messages that a server received: expected, then actual.
fn check_requests([expected, actual]: [Option<&RequestInfo>; 2], problems: &mut Vec<String>) {
    let requests = |info: Option<&'_ RequestInfo>| info.map_or_else(Vec::new, |info| info.requests.clone());
    let (expected, actual) = (requests(expected), requests(actual));
    if expected.len() != actual.len() {
        problems.push(format!("{} request messages, expected {}", actual.len(), expected.len()));
    }
    for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let place = place + 1;
        match (tree_of_contents(expected), tree_of_contents(actual)) {
            (_, Err(error)) => problems.push(format!("request {place} can't be read: {error}")),
            (Err(error), _) => problems.push(format!("expected request {place} can't be read: {error}")),
            (Ok(expected), Ok(actual)) if expected != actual => {
                problems.push(format!("request {place} is {actual:?}, expected {expected:?}"));
            }
            (Ok(_), Ok(_)) => {}
        }
    }
}

fn check_error(
    expected: Option<&RpcError>,
    actual: Option<&RpcError>,
    other_codes: &[i32],
    problems: &mut Vec<String>,
) {
    let (expected, actual) = match (expected, actual) {
        (None, None) => return,
        (None, Some(actual)) => return problems.push(format!("error {actual:?}, expected none")),
        (Some(expected), None) => return problems.push(format!("no error, expected {expected:?}")),
        (Some(expected), Some(actual)) => (expected, actual),
    };
    if expected.code != actual.code && !other_codes.contains(&actual.code) {
        let allowed = [&[expected.code], other_codes].concat();
        let message = actual.message();
        problems.push(format!("error code {} with {message:?}, expected {allowed:?}", actual.code));
    }
    if expected.message.is_some() && expected.message() != actual.message() {
        problems.push(format!("error message {:?}, expected {:?}", actual.message(), expected.message()));
    }
    if expected.details.len() != actual.details.len() {
        problems.push(format!("{} error details, expected {}", actual.details.len(), expected.details.len()));
    }
    for (place, (expected, actual)) in expected.details.iter().zip(&actual.details).enumerate() {
        check_detail(place + 1, expected, actual, problems);
    }
}

fn check_detail(place: usize, expected: &Any, actual: &Any, problems: &mut Vec<String>) {
    let is_info = |any: &Any| any.type_url.rsplit('/').next() == Some(REQUEST_INFO.name);
    if is_info(expected) && is_info(actual) {
        match [expected, actual].map(|any| RequestInfo::decode(&any.value[..])) {
            [Ok(expected), Ok(actual)] => {
                let infos = [Some(&expected), Some(&actual)];
                check_request_head(infos, problems);
                check_requests(infos, problems);
            }
            [Err(error), _] | [_, Err(error)] => {
                problems.push(format!("error detail {place} can't be read: {error}"));
            }
        }
    } else if tree_of_any(expected) != tree_of_any(actual) {
        problems.push(format!("error detail {place} is {actual:?}, expected {expected:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, values: &[&str]) -> Header {
        Header { name: name.to_owned(), value: values.iter().map(|value| (*value).to_owned()).collect() }
    }

    #[test]
    fn values_may_be_joined_with_commas() {
        let expected = [header("X-A", &["1", "2", " 3 "])];
        for (values, is_right) in [
            (&["1", "2", " 3 "][..], true),
            (&["1,2, 3 "], false),
            (&["1,2,  3 "], true),
            (&["1 , 2", " 3 "], true),
            (&["1", "2"], false),
            (&["2", "1", " 3 "], false),
        ] {
            let mut problems = Vec::new();
            check_headers("header", &expected, &[header("x-a", values), header("x-b", &[])], &mut problems);
            assert_eq!(problems.is_empty(), is_right, "{values:?}: {problems:?}");
        }
    }

    #[test]
    fn timeout_may_be_half_a_second_less() {
        let info = |timeout_ms| Some(RequestInfo { timeout_ms, ..RequestInfo::default() });
        for (expected, actual, is_right) in [
            (None, None, true),
            (None, Some(1), false),
            (Some(200), None, false),
            (Some(200), Some(0), true),
            (Some(200), Some(201), false),
            (Some(2000), Some(1500), true),
            (Some(2000), Some(1499), false),
        ] {
            let mut problems = Vec::new();
            check_request_head([info(expected).as_ref(), info(actual).as_ref()], &mut problems);
            assert_eq!(problems.is_empty(), is_right, "{expected:?} {actual:?}: {problems:?}");
        }
        let mut problems = Vec::new();
        check_request_head([info(Some(2)).as_ref(), None], &mut problems);
        assert_eq!(problems, ["no timeout, expected 2 ms"]);
    }
}
