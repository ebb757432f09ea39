//! Messages of a client under test. Fields that Heeler does not use are left out: decoding skips them, and
//! decoded messages are never re-encoded.

use prost::{DecodeError as MessageDecodeError, Message, Oneof, bytes::Bytes};

/// A request to a client under test (`ClientCompatRequest`).
#[derive(Clone, PartialEq, Message)]
pub struct ClientRequest {
    /// Full name of the case.
    #[prost(string, tag = "1")]
    pub test_name: String,
    #[prost(int32, tag = "2")]
    pub http_version: i32,
    #[prost(int32, tag = "3")]
    pub protocol: i32,
    #[prost(int32, tag = "4")]
    pub codec: i32,
    #[prost(int32, tag = "5")]
    pub compression: i32,
    #[prost(bytes = "bytes", tag = "8")]
    pub server_tls_cert: Bytes,
    #[prost(message, optional, tag = "9")]
    pub client_tls_creds: Option<Present>,
    #[prost(int32, tag = "13")]
    pub stream_type: i32,
}

/// A message whose fields are not used.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Present {}

/// A response of a client under test (`ClientCompatResponse`).
#[derive(Clone, PartialEq, Message)]
pub struct ClientResponse {
    /// Full name of the case.
    #[prost(string, tag = "1")]
    pub test_name: String,
    #[prost(oneof = "ClientAnswer", tags = "2, 3")]
    pub answer: Option<ClientAnswer>,
}

/// Result of a case.
#[derive(Clone, PartialEq, Oneof)]
pub enum ClientAnswer {
    /// The call was made; the suite judges the result.
    #[prost(message, tag = "2")]
    Response(Present),
    /// The call could not be made.
    #[prost(message, tag = "3")]
    Error(ClientError),
}

/// Why the call could not be made (`ClientErrorResult`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClientError {
    #[prost(string, tag = "1")]
    pub message: String,
}

impl ClientResponse {
    /// Returns the response for a case that could not be run.
    #[must_use]
    pub fn of_error(test_name: &str, message: String) -> Self {
        let answer = Some(ClientAnswer::Error(ClientError { message }));
        Self { test_name: test_name.to_owned(), answer }
    }
}

/// The bytes are not a message of the conformance suite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(#[from] MessageDecodeError);

/// Decodes a request.
///
/// # Errors
/// The bytes are not a request.
pub fn decode_request(bytes: &[u8]) -> Result<ClientRequest, MessageError> {
    Ok(ClientRequest::decode(bytes)?)
}

/// Decodes a response.
///
/// # Errors
/// The bytes are not a response.
pub fn decode_response(bytes: &[u8]) -> Result<ClientResponse, MessageError> {
    Ok(ClientResponse::decode(bytes)?)
}

#[must_use]
pub fn encode_response(response: &ClientResponse) -> Vec<u8> {
    response.encode_to_vec()
}

const HTTP_VERSIONS: [&str; 3] = ["1", "2", "3"];
const PROTOCOLS: [&str; 3] = ["connect", "grpc", "grpc-web"];
const CODECS: [&str; 3] = ["proto", "json", "text"];
const COMPRESSIONS: [&str; 6] = ["identity", "gzip", "br", "zstd", "deflate", "snappy"];
const STREAMS: [&str; 5] =
    ["unary", "client-stream", "server-stream", "half-duplex-bidi-stream", "full-duplex-bidi-stream"];

/// Returns the tags of a case as name and value, taken from the fields of its request, never from its name.
#[must_use]
pub fn case_tags(request: &ClientRequest) -> Vec<(&'static str, &'static str)> {
    let named = |names: &[&'static str], number: i32| {
        usize::try_from(number).ok().and_then(|number| names.get(number.checked_sub(1)?).copied())
    };
    let tls = match (request.server_tls_cert.is_empty(), &request.client_tls_creds) {
        (true, _) => "none",
        (false, None) => "server",
        (false, Some(_)) => "mutual",
    };
    [
        ("http", named(&HTTP_VERSIONS, request.http_version)),
        ("protocol", named(&PROTOCOLS, request.protocol)),
        ("codec", named(&CODECS, request.codec)),
        ("compression", named(&COMPRESSIONS, request.compression)),
        ("stream", named(&STREAMS, request.stream_type)),
        ("tls", Some(tls)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_a_case_are_those_of_its_request() {
        let request = ClientRequest {
            test_name: "HTTPVersion:9/x".to_owned(),
            http_version: 2,
            protocol: 3,
            codec: 1,
            compression: 99,
            stream_type: 5,
            server_tls_cert: Bytes::from_static(b"pem"),
            client_tls_creds: None,
        };
        let expected = [
            ("http", "2"),
            ("protocol", "grpc-web"),
            ("codec", "proto"),
            ("stream", "full-duplex-bidi-stream"),
            ("tls", "server"),
        ];
        assert_eq!(case_tags(&request), expected);
        assert_eq!(case_tags(&ClientRequest::default()), [("tls", "none")]);
    }

    #[test]
    fn unknown_fields_are_skipped_and_answers_are_told_apart() {
        // Field 14 is true, field 17 is 5, field 1 is "a".
        let bytes = [0x70, 1, 0x88, 1, 5, 0x0a, 1, b'a'];
        assert_eq!(ClientRequest::decode(&bytes[..]).unwrap().test_name, "a");
        let error = ClientResponse::of_error("a", "no".to_owned()).encode_to_vec();
        assert_eq!(error, [0x0a, 1, b'a', 0x1a, 4, 0x0a, 2, b'n', b'o']);
        let response = ClientResponse::decode(&[0x0a, 1, b'a', 0x12, 0][..]).unwrap();
        assert_eq!(response.answer, Some(ClientAnswer::Response(Present {})));
        assert_eq!(ClientResponse::decode(&[0x0a, 1, b'a'][..]).unwrap().answer, None);
    }
}
