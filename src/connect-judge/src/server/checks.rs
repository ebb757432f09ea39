//! What a reference server checks of a request beside answering it: that it is as the case says, which its
//! `x-expect-*` headers repeat.

use std::time::Duration;

use hyper::{HeaderMap, Method, Version, http::request::Parts};

use crate::{
    axes::{Codec, Compression, Protocol},
    expansion::CLIENT_CERT_NAME,
};

use super::query::QueryParameters;

/// Longest timeouts that the protocols can write, in digits.
const CONNECT_TIMEOUT_DIGITS: usize = 10;
const GRPC_TIMEOUT_DIGITS: usize = 8;

/// What is known of the connection of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TransportFacts {
    pub(super) uses_tls: bool,
    /// Whether the client has shown the certificate that was made for it.
    pub(super) has_client_cert: bool,
}

/// What is wrong with a request, in words.
pub(super) type Feedback = Vec<String>;

/// Checks a request, and takes its timeout out of the headers: the server does not enforce it, so that the
/// client must.
pub(super) fn check_request(
    parts: &mut Parts,
    facts: TransportFacts,
    feedback: &mut Feedback,
) -> Option<Duration> {
    check_version(parts, feedback);
    let content_type = text(&parts.headers, "content-type").to_owned();
    let mut timeout = None;
    if let Some(expected) = expected_number(&parts.headers, "x-expect-protocol", feedback)
        && let Ok(expected) = Protocol::of_number(expected)
    {
        check_protocol(expected, parts, &content_type, feedback);
        timeout = take_timeout(&mut parts.headers, expected, feedback);
    }
    if let Some(expected) = expected_number(&parts.headers, "x-expect-codec", feedback) {
        check_codec(expected, parts, &content_type, feedback);
    }
    if let Some(expected) = expected_number(&parts.headers, "x-expect-compression", feedback) {
        check_compression(expected, parts, &content_type, feedback);
    }
    check_tls(&parts.headers, facts, feedback);
    let expected_method = single(&parts.headers, "x-expect-http-method", feedback).unwrap_or_default();
    if parts.method != expected_method {
        feedback.push(format!("method {}, expected {expected_method:?}", parts.method));
    }
    timeout
}

fn check_tls(headers: &HeaderMap, facts: TransportFacts, feedback: &mut Feedback) {
    let expected = single(headers, "x-expect-tls", feedback).unwrap_or_default();
    let uses_tls = facts.uses_tls;
    match (expected, uses_tls) {
        ("true", true) | ("false", false) => {}
        ("true" | "false", _) => return feedback.push(format!("TLS: {uses_tls}, expected {expected}")),
        (other, _) => return feedback.push(format!("header x-expect-tls with {other:?}")),
    }
    if uses_tls {
        let expected = single(headers, "x-expect-client-cert", feedback).unwrap_or_default();
        let actual = if facts.has_client_cert { CLIENT_CERT_NAME } else { "" };
        if expected != actual {
            feedback.push(format!("client certificate {actual:?}, expected {expected:?}"));
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the value of a header that should be there once at most.
fn single<'h>(headers: &'h HeaderMap, name: &str, feedback: &mut Feedback) -> Option<&'h str> {
    let count = headers.get_all(name).iter().count();
    if count > 1 {
        feedback.push(format!("header {name} {count} times, expected once"));
    }
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

fn expected_number(headers: &HeaderMap, name: &str, feedback: &mut Feedback) -> Option<i32> {
    let value = single(headers, name, feedback).unwrap_or_default();
    let number = value.parse().ok();
    if number.is_none() {
        feedback.push(format!("header {name} with {value:?}, expected a number"));
    }
    number
}

fn check_version(parts: &Parts, feedback: &mut Feedback) {
    let Some(expected) = expected_number(&parts.headers, "x-expect-http-version", feedback) else { return };
    let actual = match parts.version {
        Version::HTTP_2 => 2,
        Version::HTTP_3 => 3,
        _ => 1,
    };
    if expected != actual {
        feedback.push(format!("HTTP version {actual}, expected {expected}"));
    }
}

/// Returns what follows a protocol's content type: nothing, or `+` and the codec.
fn after_type<'t>(content_type: &'t str, protocol_type: &str) -> Option<&'t str> {
    content_type.strip_prefix(protocol_type).filter(|rest| rest.is_empty() || rest.starts_with('+'))
}

/// Returns the protocol of a request.
pub(super) fn protocol_of(method: &Method, content_type: &str) -> Option<Protocol> {
    if after_type(content_type, "application/grpc").is_some() {
        Some(Protocol::Grpc)
    } else if after_type(content_type, "application/grpc-web").is_some() {
        Some(Protocol::GrpcWeb)
    } else if content_type.starts_with("application/") || method == Method::GET {
        Some(Protocol::Connect)
    } else {
        None
    }
}

fn check_protocol(expected: Protocol, parts: &Parts, content_type: &str, feedback: &mut Feedback) {
    match protocol_of(&parts.method, content_type) {
        None => feedback.push(format!("content type {content_type:?}, which is of no protocol")),
        Some(actual) if actual != expected => {
            feedback.push(format!("protocol {actual:?}, expected {expected:?}"));
        }
        Some(Protocol::Grpc) if text(&parts.headers, "te") != "trailers" => {
            feedback.push("no header \"te: trailers\", which gRPC needs".to_owned());
        }
        Some(_) => {}
    }
}

/// Returns the name of the codec that a content type has.
pub(super) fn codec_name(content_type: &str) -> Option<&str> {
    for protocol_type in ["application/grpc", "application/grpc-web"] {
        match after_type(content_type, protocol_type) {
            Some("") => return Some("proto"),
            Some(rest) => return rest.strip_prefix('+'),
            None => {}
        }
    }
    content_type.strip_prefix("application/connect+").or_else(|| content_type.strip_prefix("application/"))
}

fn check_codec(expected: i32, parts: &Parts, content_type: &str, feedback: &mut Feedback) {
    let expected = if expected == Codec::Proto.number() { "proto" } else { "json" };
    let actual = if parts.method == Method::GET {
        if parts.headers.contains_key("content-type") {
            feedback.push("a content type, which GET has not".to_owned());
        }
        match QueryParameters::of(&parts.uri).single("encoding", feedback) {
            Some(encoding) => encoding,
            None => return feedback.push("no query parameter encoding".to_owned()),
        }
    } else {
        // A type of no protocol was reported with the protocol.
        single(&parts.headers, "content-type", feedback);
        let Some(name) = codec_name(content_type) else { return };
        name.to_owned()
    };
    if actual != expected {
        feedback.push(format!("codec {actual:?}, expected {expected:?}"));
    }
}

/// Returns the name of a compression in headers.
pub(super) fn compression_header_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Identity => "identity",
        Compression::Gzip => "gzip",
        Compression::Br => "br",
        Compression::Zstd => "zstd",
        Compression::Deflate => "deflate",
        Compression::Snappy => "snappy",
    }
}

fn check_compression(expected: i32, parts: &Parts, content_type: &str, feedback: &mut Feedback) {
    let Ok(expected) = Compression::of_number(expected) else {
        return feedback.push(format!("header x-expect-compression with {expected}"));
    };
    let actual = if parts.method == Method::GET {
        QueryParameters::of(&parts.uri).single("compression", feedback)
    } else {
        let header = match protocol_of(&parts.method, content_type) {
            Some(Protocol::Grpc | Protocol::GrpcWeb) => "grpc-encoding",
            Some(Protocol::Connect) if content_type.starts_with("application/connect+") => {
                "connect-content-encoding"
            }
            Some(Protocol::Connect) => "content-encoding",
            None => return,
        };
        single(&parts.headers, header, feedback).map(str::to_owned)
    };
    let (actual, expected) =
        (actual.unwrap_or_else(|| "identity".to_owned()), compression_header_name(expected));
    if actual != expected {
        feedback.push(format!("compression {actual:?}, expected {expected:?}"));
    }
}

fn take_timeout(headers: &mut HeaderMap, protocol: Protocol, feedback: &mut Feedback) -> Option<Duration> {
    let name = match protocol {
        Protocol::Connect => "connect-timeout-ms",
        Protocol::Grpc | Protocol::GrpcWeb => "grpc-timeout",
    };
    let value = single(headers, name, feedback)?.to_owned();
    headers.remove(name);
    let timeout = parse_timeout(&value, protocol);
    if timeout.is_none() {
        feedback.push(format!("header {name} with {value:?}"));
    }
    timeout
}

/// Takes the timeout of a gRPC call out of the headers, as libraries of servers do.
pub(super) fn take_grpc_timeout(headers: &mut HeaderMap) -> Option<Duration> {
    let value = headers.remove("grpc-timeout")?;
    parse_timeout(value.to_str().ok()?, Protocol::Grpc)
}

fn parse_timeout(value: &str, protocol: Protocol) -> Option<Duration> {
    let (digits, most, unit) = match protocol {
        Protocol::Connect => (value, CONNECT_TIMEOUT_DIGITS, 'm'),
        Protocol::Grpc | Protocol::GrpcWeb => {
            let unit = value.chars().last().filter(|unit| "HMSmun".contains(*unit))?;
            (&value[..value.len() - 1], GRPC_TIMEOUT_DIGITS, unit)
        }
    };
    let number: u64 = digits.parse().ok()?;
    if number >= 10_u64.pow(u32::try_from(most).ok()?) {
        return None;
    }
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => Duration::from_millis(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_units_and_limits() {
        for (value, protocol, expected) in [
            ("200", Protocol::Connect, Some(200_000_000)),
            ("10000000000", Protocol::Connect, None),
            ("-1", Protocol::Connect, None),
            ("200m", Protocol::Grpc, Some(200_000_000)),
            ("200", Protocol::Grpc, None),
            ("99999999u", Protocol::GrpcWeb, Some(99_999_999_000)),
            ("100000000u", Protocol::GrpcWeb, None),
            ("", Protocol::Grpc, None),
            ("2é", Protocol::Grpc, None),
            ("2H", Protocol::Grpc, Some(7_200_000_000_000)),
        ] {
            assert_eq!(parse_timeout(value, protocol).map(|timeout| timeout.as_nanos()), expected, "{value}");
        }
    }

    #[test]
    fn content_types_have_a_protocol_and_a_codec() {
        for (content_type, protocol, codec) in [
            ("application/grpc", Some(Protocol::Grpc), Some("proto")),
            ("application/grpc+json", Some(Protocol::Grpc), Some("json")),
            ("application/grpc-web+proto", Some(Protocol::GrpcWeb), Some("proto")),
            ("application/connect+json", Some(Protocol::Connect), Some("json")),
            ("application/proto", Some(Protocol::Connect), Some("proto")),
            ("text/plain", None, None),
        ] {
            assert_eq!(protocol_of(&Method::POST, content_type), protocol);
            assert_eq!(codec_name(content_type), codec);
        }
    }
}
