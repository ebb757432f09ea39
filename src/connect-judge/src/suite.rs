//! A suite file: its checks, and the sizes that its request messages are padded to.

use prost::Message as _;

use crate::{
    axes::{Codec, Protocol, UnknownValue},
    message::{
        Any, BidiStreamRequest, CaseTemplate, PaddedBidiRequest, PaddedRequest, RawHttpResponse,
        ServerStreamRequest, Suite, UnaryRequest,
    },
    text::{TextError, encode_document, message_types::TEST_SUITE},
};

/// Maximum size of a message that servers accept; paddings of requests are relative to it.
pub const SERVER_RECEIVE_LIMIT_BYTES: u32 = 200 << 10;

/// Modes of suites: neither, clients only, servers only.
pub(crate) const MODE_CLIENT: i32 = 1;
const MODE_SERVER: i32 = 2;

/// A suite that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteProblem {
    /// The text is no suite.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A value is none of its axis.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValue),
    /// The suite has no name.
    #[error("a suite without a name")]
    NoName,
    /// The suite has no cases.
    #[error("suite {suite:?} without cases")]
    NoCases { suite: String },
    /// The settings of the suite contradict each other.
    #[error("suite {suite:?}: {problem}")]
    Settings { suite: String, problem: &'static str },
    /// A template can't become cases.
    #[error("case {case}: {problem}")]
    Case { case: String, problem: String },
    /// Two cases have the same name.
    #[error("two cases are named {name:?}")]
    DuplicateCase { name: String },
}

impl SuiteProblem {
    pub(crate) fn of_case(case: &str, problem: impl Into<String>) -> Self {
        Self::Case { case: format!("{case:?}"), problem: problem.into() }
    }
}

/// Reads a suite file, and pads its request messages.
///
/// # Errors
/// The text is no suite, or breaks a rule of suites.
pub(crate) fn parse_suite(text: &str) -> Result<Suite, SuiteProblem> {
    let bytes = encode_document(text, &TEST_SUITE)?;
    let mut suite = Suite::decode(&bytes[..]).expect("the fields are those of the message");
    check_settings(&suite)?;
    let is_proto_only = suite.relevant_codecs == [Codec::Proto.number()];
    for (place, template) in suite.test_cases.iter_mut().enumerate() {
        check_template(template, place, suite.mode)?;
        if !template.expand_requests.is_empty() {
            let name = template.request.as_ref().map(|request| request.test_name.clone()).unwrap_or_default();
            if !is_proto_only {
                return Err(SuiteProblem::of_case(
                    &name,
                    "padded requests, but codecs other than CODEC_PROTO",
                ));
            }
            pad_requests(template).map_err(|problem| SuiteProblem::of_case(&name, problem))?;
        }
    }
    Ok(suite)
}

fn check_settings(suite: &Suite) -> Result<(), SuiteProblem> {
    if suite.name.is_empty() {
        return Err(SuiteProblem::NoName);
    }
    if suite.test_cases.is_empty() {
        return Err(SuiteProblem::NoCases { suite: suite.name.clone() });
    }
    let is_connect_only = !suite.relevant_protocols.is_empty()
        && suite.relevant_protocols.iter().all(|protocol| *protocol == Protocol::Connect.number());
    let problem = if suite.relies_on_tls_client_certs && !suite.relies_on_tls {
        "it relies on client certificates, but not on TLS"
    } else if suite.relies_on_connect_get && !is_connect_only {
        "it relies on GET, but has protocols other than Connect"
    } else if suite.connect_version_mode != 0 && !is_connect_only {
        "it is about the version of Connect, but has protocols other than Connect"
    } else {
        return Ok(());
    };
    Err(SuiteProblem::Settings { suite: suite.name.clone(), problem })
}

fn check_template(template: &CaseTemplate, place: usize, mode: i32) -> Result<(), SuiteProblem> {
    let nameless = |problem: &str| {
        Err(SuiteProblem::Case { case: format!("{}", place + 1), problem: problem.to_owned() })
    };
    let Some(request) = &template.request else { return nameless("no request") };
    if request.test_name.is_empty() {
        return nameless("no name");
    }
    let has_raw_response = raw_response(&request.request_messages).is_some();
    let problem = if request.stream_type == 0 {
        "no stream type"
    } else if request.raw_request.is_some() && mode != MODE_SERVER {
        "a raw request, which only suites for servers may have"
    } else if has_raw_response && mode != MODE_CLIENT {
        "a raw response, which only suites for clients may have"
    } else if has_raw_response && template.expected_response.is_none() {
        "a raw response, but no expected one"
    } else if request.service().is_empty() && !request.method().is_empty() {
        "a method, but no service"
    } else if !request.service().is_empty() && request.method().is_empty() {
        "a service, but no method"
    } else {
        return Ok(());
    };
    Err(SuiteProblem::of_case(&request.test_name, problem))
}

/// A request message of a known type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestMessage {
    /// `UnaryRequest`, `IdempotentUnaryRequest` or `ClientStreamRequest`.
    Unary(UnaryRequest),
    ServerStream(ServerStreamRequest),
    BidiStream(BidiStreamRequest),
    /// Another message, without a definition of its response.
    Other,
}

impl RequestMessage {
    /// Returns the message in an `Any`.
    ///
    /// # Errors
    /// The bytes are no message of that type.
    pub(crate) fn of_any(any: &Any) -> Result<Self, prost::DecodeError> {
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        let value = any.value.as_slice();
        Ok(match name.strip_prefix("connectrpc.conformance.v1.") {
            Some("UnaryRequest" | "IdempotentUnaryRequest" | "ClientStreamRequest") => {
                Self::Unary(UnaryRequest::decode(value)?)
            }
            Some("ServerStreamRequest") => Self::ServerStream(ServerStreamRequest::decode(value)?),
            Some("BidiStreamRequest") => Self::BidiStream(BidiStreamRequest::decode(value)?),
            _ => Self::Other,
        })
    }

    fn raw_response(self) -> Option<RawHttpResponse> {
        match self {
            Self::Unary(request) => request.response_definition?.raw_response,
            Self::ServerStream(request) => request.response_definition?.raw_response,
            Self::BidiStream(request) => request.response_definition?.raw_response,
            Self::Other => None,
        }
    }
}

/// Returns the raw HTTP response that the first request message asks for.
pub(crate) fn raw_response(messages: &[Any]) -> Option<RawHttpResponse> {
    RequestMessage::of_any(messages.first()?).ok()?.raw_response()
}

/// Pads request messages with zeros to the sizes that the template gives.
fn pad_requests(template: &mut CaseTemplate) -> Result<(), String> {
    let messages = template.request.as_mut().map(|request| &mut request.request_messages);
    let messages = messages.map(Vec::as_mut_slice).unwrap_or_default();
    if template.expand_requests.len() > messages.len() {
        return Err(format!("{} sizes for {} requests", template.expand_requests.len(), messages.len()));
    }
    for (message, expanded) in messages.iter_mut().zip(&template.expand_requests) {
        if let Some(size) = expanded.size_relative_to_limit {
            pad(message, i64::from(SERVER_RECEIVE_LIMIT_BYTES) + i64::from(size))?;
        }
    }
    Ok(())
}

fn pad(message: &mut Any, size: i64) -> Result<(), String> {
    let total = usize::try_from(size).map_err(|_| format!("a request of {size} bytes"))?;
    let name = message.type_url.rsplit('/').next().unwrap_or_default();
    let padded = match name.strip_prefix("connectrpc.conformance.v1.") {
        Some("BidiStreamRequest") => {
            let request = PaddedBidiRequest::decode(&message.value[..]);
            padded(request, total, |request| &mut request.request_data)
        }
        Some("UnaryRequest" | "IdempotentUnaryRequest" | "ClientStreamRequest" | "ServerStreamRequest") => {
            let request = PaddedRequest::decode(&message.value[..]);
            padded(request, total, |request| &mut request.request_data)
        }
        _ => Err(format!("{name} has no data to pad")),
    };
    message.value = padded?;
    Ok(())
}

/// Pads the data of a message so that all of it has `total` bytes.
fn padded<M: prost::Message>(
    message: Result<M, prost::DecodeError>,
    total: usize,
    data: fn(&mut M) -> &mut Vec<u8>,
) -> Result<Vec<u8>, String> {
    let mut message = message.map_err(|error| error.to_string())?;
    // Twice: the first padding may lengthen the length of the data.
    for _ in 0..2 {
        let current = message.encoded_len();
        let data = data(&mut message);
        let length = (data.len() + total).checked_sub(current);
        data.resize(length.ok_or("a request that is larger without its data")?, 0);
    }
    let bytes = message.encode_to_vec();
    if bytes.len() == total {
        return Ok(bytes);
    }
    Err(format!("no padding makes a request of {total} bytes, but of {}", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name: S\nrelevantCodecs: [CODEC_PROTO]\ntestCases:\n- request:\n    testName: a/b\n    \
                        streamType: STREAM_TYPE_UNARY\n";
    const MESSAGE: &str = "    requestMessages:\n    - \"@type\": x/connectrpc.conformance.v1.UnaryRequest\n";

    #[test]
    fn requests_are_padded_to_their_size() {
        // 4 bytes are the key and the length of the data, and from 16,384 bytes on 4 more than of two.
        for relative in [0, 1, -1, -204_700, -204_672, -188_300, 100_000] {
            let text = format!(
                "{HEAD}{MESSAGE}      requestData: YWI=\n  expandRequests: [{{sizeRelativeToLimit: {relative}}}]"
            );
            let suite = parse_suite(&text).unwrap();
            let message = &suite.test_cases[0].request.as_ref().unwrap().request_messages[0];
            assert_eq!(message.value.len() as i64, 204_800 + relative);
        }
        let text = format!("{HEAD}{MESSAGE}  expandRequests: [{{}}]");
        let suite = parse_suite(&text).unwrap();
        assert!(suite.test_cases[0].request.as_ref().unwrap().request_messages[0].value.is_empty());
    }

    #[test]
    fn rules_of_suites_are_kept() {
        let raw = format!("{MESSAGE}      responseDefinition: {{rawResponse: {{statusCode: 200}}}}\n");
        for (text, expected) in [
            ("name: \"\"".to_owned(), "a suite without a name"),
            ("name: S".to_owned(), "suite \"S\" without cases"),
            (
                format!("reliesOnTlsClientCerts: true\n{HEAD}"),
                "suite \"S\": it relies on client certificates",
            ),
            (format!("reliesOnConnectGet: true\n{HEAD}"), "suite \"S\": it relies on GET"),
            (format!("connectVersionMode: 1\n{HEAD}"), "suite \"S\": it is about the version"),
            ("name: S\ntestCases: [{}]".to_owned(), "case 1: no request"),
            ("name: S\ntestCases: [{request: {}}]".to_owned(), "case 1: no name"),
            ("name: S\ntestCases: [{request: {testName: a}}]".to_owned(), "case \"a\": no stream type"),
            (format!("{HEAD}    rawRequest: {{}}"), "case \"a/b\": a raw request"),
            (format!("{HEAD}    service: x"), "case \"a/b\": a service"),
            (format!("{HEAD}    method: x"), "case \"a/b\": a method"),
            (format!("{HEAD}{raw}"), "case \"a/b\": a raw response, which only"),
            (format!("mode: TEST_MODE_CLIENT\n{HEAD}{raw}"), "case \"a/b\": a raw response, but no"),
            (format!("{HEAD}  expandRequests: [{{}}]"), "case \"a/b\": 1 sizes for 0 requests"),
            (
                format!("{HEAD}{MESSAGE}  expandRequests: [{{sizeRelativeToLimit: -204801}}]"),
                "case \"a/b\": a request of -1 bytes",
            ),
            (
                format!("{HEAD}{MESSAGE}  expandRequests: [{{sizeRelativeToLimit: 0}}]")
                    .replace("PROTO", "JSON"),
                "case \"a/b\": padded requests",
            ),
        ] {
            let error = parse_suite(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
