//! The fields of the messages of `connectrpc.conformance.v1`, by name and number: what suites and
//! configuration files are read by. Fields stand in the order of their numbers.

/// A message type.
#[derive(Debug)]
pub(crate) struct MessageType {
    /// Its full name, as the types of `Any` have it.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A field of a message type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// Its name in the definition of the message, in `snake_case`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Text,
    Bytes,
    Enum(&'static EnumType),
    Message(&'static MessageType),
    /// `google.protobuf.Any`: any of [`ANY_TYPES`].
    Any,
}

/// How often a field may be there, and when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Written unless it is zero or empty.
    Implicit,
    /// Written whenever it is set.
    Explicit,
    /// As `Explicit`; at most one of those of the same name is set.
    OneOf(&'static str),
    Repeated,
}

/// An enumeration: the prefix that all names of its values have, and what follows it, by number.
#[derive(Debug)]
pub(crate) struct EnumType {
    pub(crate) prefix: &'static str,
    pub(crate) names: &'static [&'static str],
}

/// Prefix of the types that [`Kind::Any`] writes.
pub(crate) const ANY_PREFIX: &str = "type.googleapis.com/";

const fn implicit(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Implicit }
}

const fn explicit(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Explicit }
}

const fn repeated(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::Repeated }
}

const fn one_of(group: &'static str, number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, presence: Presence::OneOf(group) }
}

static HTTP_VERSION: EnumType = EnumType { prefix: "HTTP_VERSION_", names: &["UNSPECIFIED", "1", "2", "3"] };
static PROTOCOL: EnumType =
    EnumType { prefix: "PROTOCOL_", names: &["UNSPECIFIED", "CONNECT", "GRPC", "GRPC_WEB"] };
static CODEC: EnumType = EnumType { prefix: "CODEC_", names: &["UNSPECIFIED", "PROTO", "JSON", "TEXT"] };
static COMPRESSION: EnumType = EnumType {
    prefix: "COMPRESSION_",
    names: &["UNSPECIFIED", "IDENTITY", "GZIP", "BR", "ZSTD", "DEFLATE", "SNAPPY"],
};
static STREAM_TYPE: EnumType = EnumType {
    prefix: "STREAM_TYPE_",
    names: &[
        "UNSPECIFIED",
        "UNARY",
        "CLIENT_STREAM",
        "SERVER_STREAM",
        "HALF_DUPLEX_BIDI_STREAM",
        "FULL_DUPLEX_BIDI_STREAM",
    ],
};
static CODE: EnumType = EnumType {
    prefix: "CODE_",
    names: &[
        "UNSPECIFIED",
        "CANCELED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ],
};
static TEST_MODE: EnumType = EnumType { prefix: "TEST_MODE_", names: &["UNSPECIFIED", "CLIENT", "SERVER"] };
static CONNECT_VERSION_MODE: EnumType =
    EnumType { prefix: "CONNECT_VERSION_MODE_", names: &["UNSPECIFIED", "REQUIRE", "IGNORE"] };

macro_rules! message_type {
    ($constant:ident, $name:literal, [$($field:expr),* $(,)?]) => {
        pub(crate) static $constant: MessageType = MessageType {
            name: $name,
            fields: &[$($field),*],
        };
    };
}

message_type!(EMPTY, "google.protobuf.Empty", []);
// Stands for any message in the details of errors; other fields of it are not used.
message_type!(
    FILE_DESCRIPTOR,
    "google.protobuf.FileDescriptorProto",
    [explicit(1, "name", Kind::Text), explicit(2, "package", Kind::Text)]
);
message_type!(
    HEADER,
    "connectrpc.conformance.v1.Header",
    [implicit(1, "name", Kind::Text), repeated(2, "value", Kind::Text)]
);
message_type!(
    ERROR,
    "connectrpc.conformance.v1.Error",
    [
        implicit(1, "code", Kind::Enum(&CODE)),
        explicit(2, "message", Kind::Text),
        repeated(3, "details", Kind::Any),
    ]
);
message_type!(
    MESSAGE_CONTENTS,
    "connectrpc.conformance.v1.MessageContents",
    [
        one_of("data", 1, "binary", Kind::Bytes),
        one_of("data", 2, "text", Kind::Text),
        one_of("data", 3, "binary_message", Kind::Any),
        implicit(4, "compression", Kind::Enum(&COMPRESSION)),
    ]
);
message_type!(
    STREAM_ITEM,
    "connectrpc.conformance.v1.StreamContents.StreamItem",
    [
        implicit(1, "flags", Kind::Uint32),
        explicit(2, "length", Kind::Uint32),
        explicit(3, "payload", Kind::Message(&MESSAGE_CONTENTS)),
    ]
);
message_type!(
    STREAM_CONTENTS,
    "connectrpc.conformance.v1.StreamContents",
    [repeated(1, "items", Kind::Message(&STREAM_ITEM))]
);
message_type!(
    RAW_RESPONSE,
    "connectrpc.conformance.v1.RawHTTPResponse",
    [
        implicit(1, "status_code", Kind::Uint32),
        repeated(2, "headers", Kind::Message(&HEADER)),
        one_of("body", 3, "unary", Kind::Message(&MESSAGE_CONTENTS)),
        one_of("body", 4, "stream", Kind::Message(&STREAM_CONTENTS)),
        repeated(5, "trailers", Kind::Message(&HEADER)),
    ]
);
message_type!(
    ENCODED_QUERY_PARAM,
    "connectrpc.conformance.v1.RawHTTPRequest.EncodedQueryParam",
    [
        implicit(1, "name", Kind::Text),
        explicit(2, "value", Kind::Message(&MESSAGE_CONTENTS)),
        implicit(3, "base64_encode", Kind::Bool),
    ]
);
message_type!(
    RAW_REQUEST,
    "connectrpc.conformance.v1.RawHTTPRequest",
    [
        implicit(1, "verb", Kind::Text),
        implicit(2, "uri", Kind::Text),
        repeated(3, "headers", Kind::Message(&HEADER)),
        repeated(4, "raw_query_params", Kind::Message(&HEADER)),
        repeated(5, "encoded_query_params", Kind::Message(&ENCODED_QUERY_PARAM)),
        one_of("body", 6, "unary", Kind::Message(&MESSAGE_CONTENTS)),
        one_of("body", 7, "stream", Kind::Message(&STREAM_CONTENTS)),
    ]
);
message_type!(
    UNARY_DEFINITION,
    "connectrpc.conformance.v1.UnaryResponseDefinition",
    [
        repeated(1, "response_headers", Kind::Message(&HEADER)),
        one_of("response", 2, "response_data", Kind::Bytes),
        one_of("response", 3, "error", Kind::Message(&ERROR)),
        repeated(4, "response_trailers", Kind::Message(&HEADER)),
        explicit(5, "raw_response", Kind::Message(&RAW_RESPONSE)),
        implicit(6, "response_delay_ms", Kind::Uint32),
    ]
);
message_type!(
    STREAM_DEFINITION,
    "connectrpc.conformance.v1.StreamResponseDefinition",
    [
        repeated(1, "response_headers", Kind::Message(&HEADER)),
        repeated(2, "response_data", Kind::Bytes),
        implicit(3, "response_delay_ms", Kind::Uint32),
        explicit(4, "error", Kind::Message(&ERROR)),
        repeated(5, "response_trailers", Kind::Message(&HEADER)),
        explicit(6, "raw_response", Kind::Message(&RAW_RESPONSE)),
    ]
);
message_type!(
    UNARY_REQUEST,
    "connectrpc.conformance.v1.UnaryRequest",
    [
        explicit(1, "response_definition", Kind::Message(&UNARY_DEFINITION)),
        implicit(2, "request_data", Kind::Bytes),
    ]
);
message_type!(
    IDEMPOTENT_UNARY_REQUEST,
    "connectrpc.conformance.v1.IdempotentUnaryRequest",
    [
        explicit(1, "response_definition", Kind::Message(&UNARY_DEFINITION)),
        implicit(2, "request_data", Kind::Bytes),
    ]
);
message_type!(
    CLIENT_STREAM_REQUEST,
    "connectrpc.conformance.v1.ClientStreamRequest",
    [
        explicit(1, "response_definition", Kind::Message(&UNARY_DEFINITION)),
        implicit(2, "request_data", Kind::Bytes),
    ]
);
message_type!(
    SERVER_STREAM_REQUEST,
    "connectrpc.conformance.v1.ServerStreamRequest",
    [
        explicit(1, "response_definition", Kind::Message(&STREAM_DEFINITION)),
        implicit(2, "request_data", Kind::Bytes),
    ]
);
message_type!(
    BIDI_STREAM_REQUEST,
    "connectrpc.conformance.v1.BidiStreamRequest",
    [
        explicit(1, "response_definition", Kind::Message(&STREAM_DEFINITION)),
        implicit(2, "full_duplex", Kind::Bool),
        implicit(3, "request_data", Kind::Bytes),
    ]
);
message_type!(UNIMPLEMENTED_REQUEST, "connectrpc.conformance.v1.UnimplementedRequest", []);
message_type!(
    CONNECT_GET_INFO,
    "connectrpc.conformance.v1.ConformancePayload.ConnectGetInfo",
    [repeated(1, "query_params", Kind::Message(&HEADER))]
);
message_type!(
    REQUEST_INFO,
    "connectrpc.conformance.v1.ConformancePayload.RequestInfo",
    [
        repeated(1, "request_headers", Kind::Message(&HEADER)),
        explicit(2, "timeout_ms", Kind::Int64),
        repeated(3, "requests", Kind::Any),
        explicit(4, "connect_get_info", Kind::Message(&CONNECT_GET_INFO)),
    ]
);
message_type!(
    PAYLOAD,
    "connectrpc.conformance.v1.ConformancePayload",
    [implicit(1, "data", Kind::Bytes), explicit(2, "request_info", Kind::Message(&REQUEST_INFO))]
);

macro_rules! response_types {
    ($($constant:ident, $name:literal;)*) => {
        $(message_type!($constant, $name, [explicit(1, "payload", Kind::Message(&PAYLOAD))]);)*
    };
}
response_types! {
    UNARY_RESPONSE, "connectrpc.conformance.v1.UnaryResponse";
    IDEMPOTENT_UNARY_RESPONSE, "connectrpc.conformance.v1.IdempotentUnaryResponse";
    CLIENT_STREAM_RESPONSE, "connectrpc.conformance.v1.ClientStreamResponse";
    SERVER_STREAM_RESPONSE, "connectrpc.conformance.v1.ServerStreamResponse";
    BIDI_STREAM_RESPONSE, "connectrpc.conformance.v1.BidiStreamResponse";
}

message_type!(
    TLS_CREDS,
    "connectrpc.conformance.v1.TLSCreds",
    [implicit(1, "cert", Kind::Bytes), implicit(2, "key", Kind::Bytes)]
);
message_type!(
    CANCEL,
    "connectrpc.conformance.v1.ClientCompatRequest.Cancel",
    [
        one_of("cancel_timing", 1, "before_close_send", Kind::Message(&EMPTY)),
        one_of("cancel_timing", 2, "after_close_send_ms", Kind::Uint32),
        one_of("cancel_timing", 3, "after_num_responses", Kind::Uint32),
    ]
);
message_type!(
    CLIENT_REQUEST,
    "connectrpc.conformance.v1.ClientCompatRequest",
    [
        implicit(1, "test_name", Kind::Text),
        implicit(2, "http_version", Kind::Enum(&HTTP_VERSION)),
        implicit(3, "protocol", Kind::Enum(&PROTOCOL)),
        implicit(4, "codec", Kind::Enum(&CODEC)),
        implicit(5, "compression", Kind::Enum(&COMPRESSION)),
        implicit(6, "host", Kind::Text),
        implicit(7, "port", Kind::Uint32),
        implicit(8, "server_tls_cert", Kind::Bytes),
        explicit(9, "client_tls_creds", Kind::Message(&TLS_CREDS)),
        implicit(10, "message_receive_limit", Kind::Uint32),
        explicit(11, "service", Kind::Text),
        explicit(12, "method", Kind::Text),
        implicit(13, "stream_type", Kind::Enum(&STREAM_TYPE)),
        implicit(14, "use_get_http_method", Kind::Bool),
        repeated(15, "request_headers", Kind::Message(&HEADER)),
        repeated(16, "request_messages", Kind::Any),
        explicit(17, "timeout_ms", Kind::Uint32),
        implicit(18, "request_delay_ms", Kind::Uint32),
        explicit(19, "cancel", Kind::Message(&CANCEL)),
        explicit(20, "raw_request", Kind::Message(&RAW_REQUEST)),
    ]
);
message_type!(
    CLIENT_RESULT,
    "connectrpc.conformance.v1.ClientResponseResult",
    [
        repeated(1, "response_headers", Kind::Message(&HEADER)),
        repeated(2, "payloads", Kind::Message(&PAYLOAD)),
        explicit(3, "error", Kind::Message(&ERROR)),
        repeated(4, "response_trailers", Kind::Message(&HEADER)),
        implicit(5, "num_unsent_requests", Kind::Int32),
        explicit(6, "http_status_code", Kind::Int32),
        repeated(7, "feedback", Kind::Text),
    ]
);
message_type!(
    EXPANDED_SIZE,
    "connectrpc.conformance.v1.TestCase.ExpandedSize",
    [explicit(1, "size_relative_to_limit", Kind::Int32)]
);
message_type!(
    TEST_CASE,
    "connectrpc.conformance.v1.TestCase",
    [
        explicit(1, "request", Kind::Message(&CLIENT_REQUEST)),
        repeated(2, "expand_requests", Kind::Message(&EXPANDED_SIZE)),
        explicit(3, "expected_response", Kind::Message(&CLIENT_RESULT)),
        repeated(4, "other_allowed_error_codes", Kind::Enum(&CODE)),
    ]
);
message_type!(
    TEST_SUITE,
    "connectrpc.conformance.v1.TestSuite",
    [
        implicit(1, "name", Kind::Text),
        implicit(2, "mode", Kind::Enum(&TEST_MODE)),
        repeated(3, "test_cases", Kind::Message(&TEST_CASE)),
        repeated(4, "relevant_protocols", Kind::Enum(&PROTOCOL)),
        repeated(5, "relevant_http_versions", Kind::Enum(&HTTP_VERSION)),
        repeated(6, "relevant_codecs", Kind::Enum(&CODEC)),
        repeated(7, "relevant_compressions", Kind::Enum(&COMPRESSION)),
        implicit(8, "connect_version_mode", Kind::Enum(&CONNECT_VERSION_MODE)),
        implicit(9, "relies_on_tls", Kind::Bool),
        implicit(10, "relies_on_tls_client_certs", Kind::Bool),
        implicit(11, "relies_on_connect_get", Kind::Bool),
        implicit(12, "relies_on_message_receive_limit", Kind::Bool),
    ]
);
message_type!(
    FEATURES,
    "connectrpc.conformance.v1.Features",
    [
        repeated(1, "versions", Kind::Enum(&HTTP_VERSION)),
        repeated(2, "protocols", Kind::Enum(&PROTOCOL)),
        repeated(3, "codecs", Kind::Enum(&CODEC)),
        repeated(4, "compressions", Kind::Enum(&COMPRESSION)),
        repeated(5, "stream_types", Kind::Enum(&STREAM_TYPE)),
        explicit(6, "supports_h2c", Kind::Bool),
        explicit(7, "supports_tls", Kind::Bool),
        explicit(8, "supports_tls_client_certs", Kind::Bool),
        explicit(9, "supports_trailers", Kind::Bool),
        explicit(10, "supports_half_duplex_bidi_over_http1", Kind::Bool),
        explicit(11, "supports_connect_get", Kind::Bool),
        explicit(12, "supports_message_receive_limit", Kind::Bool),
    ]
);
message_type!(
    CONFIG_CASE,
    "connectrpc.conformance.v1.ConfigCase",
    [
        implicit(1, "version", Kind::Enum(&HTTP_VERSION)),
        implicit(2, "protocol", Kind::Enum(&PROTOCOL)),
        implicit(3, "codec", Kind::Enum(&CODEC)),
        implicit(4, "compression", Kind::Enum(&COMPRESSION)),
        implicit(5, "stream_type", Kind::Enum(&STREAM_TYPE)),
        explicit(6, "use_tls", Kind::Bool),
        explicit(7, "use_tls_client_certs", Kind::Bool),
        explicit(8, "use_message_receive_limit", Kind::Bool),
    ]
);
message_type!(
    CONFIG,
    "connectrpc.conformance.v1.Config",
    [
        explicit(1, "features", Kind::Message(&FEATURES)),
        repeated(2, "include_cases", Kind::Message(&CONFIG_CASE)),
        repeated(3, "exclude_cases", Kind::Message(&CONFIG_CASE)),
    ]
);

/// The message types that an `Any` may hold.
pub(crate) static ANY_TYPES: [&MessageType; 14] = [
    &UNARY_REQUEST,
    &IDEMPOTENT_UNARY_REQUEST,
    &CLIENT_STREAM_REQUEST,
    &SERVER_STREAM_REQUEST,
    &BIDI_STREAM_REQUEST,
    &UNIMPLEMENTED_REQUEST,
    &UNARY_RESPONSE,
    &IDEMPOTENT_UNARY_RESPONSE,
    &CLIENT_STREAM_RESPONSE,
    &SERVER_STREAM_RESPONSE,
    &BIDI_STREAM_RESPONSE,
    &REQUEST_INFO,
    &HEADER,
    &FILE_DESCRIPTOR,
];

/// Returns the type of an `Any` by its address, of which only what follows the last `/` counts.
pub(crate) fn any_type(address: &str) -> Option<&'static MessageType> {
    let name = address.rsplit('/').next().unwrap_or_default();
    ANY_TYPES.iter().copied().find(|message_type| message_type.name == name)
}

impl Field {
    /// Returns whether it is meant by a key: its name as JSON has it, its name, or its number.
    pub(crate) fn is_named(&self, key: &str) -> bool {
        let without_underscores = || self.name.replace('_', "");
        key == self.name
            || key.parse() == Ok(self.number)
            || (!key.contains('_')
                && key.eq_ignore_ascii_case(&without_underscores())
                && key == self.json_name())
    }

    /// Returns its name in `lowerCamelCase`.
    pub(crate) fn json_name(&self) -> String {
        let mut words = self.name.split('_');
        let mut name = words.next().unwrap_or_default().to_owned();
        for word in words {
            let mut letters = word.chars();
            name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
            name.push_str(letters.as_str());
        }
        name
    }
}

impl EnumType {
    /// Returns the number of a value by its full name.
    pub(crate) fn number(&self, name: &str) -> Option<i32> {
        let name = name.strip_prefix(self.prefix)?;
        let number = self.names.iter().position(|known| *known == name)?;
        i32::try_from(number).ok()
    }
}

/// Returns the full name of a value of an enumeration, or its number where it has none.
fn full_name(enum_type: &EnumType, number: i32) -> String {
    let name = usize::try_from(number).ok().and_then(|number| enum_type.names.get(number));
    name.map_or_else(|| number.to_string(), |name| format!("{}{name}", enum_type.prefix))
}

/// Returns the full name of a protocol.
pub(crate) fn protocol_name(number: i32) -> String {
    full_name(&PROTOCOL, number)
}

/// Returns the full name of a codec.
pub(crate) fn codec_name(number: i32) -> String {
    full_name(&CODEC, number)
}

/// Returns the full name of a compression.
pub(crate) fn compression_name(number: i32) -> String {
    full_name(&COMPRESSION, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_the_order_of_their_numbers() {
        for message_type in ANY_TYPES.into_iter().chain([&TEST_SUITE, &TEST_CASE, &CLIENT_REQUEST, &CONFIG]) {
            let numbers: Vec<_> = message_type.fields.iter().map(|field| field.number).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{}: {numbers:?}", message_type.name);
        }
    }

    #[test]
    fn fields_have_three_names() {
        let field = &FEATURES.fields[9];
        for key in ["supports_half_duplex_bidi_over_http1", "supportsHalfDuplexBidiOverHttp1", "10"] {
            assert!(field.is_named(key), "{key}");
        }
        for key in ["supportsHalfDuplexBidiOverHTTP1", "SupportsHalfDuplexBidiOverHttp1", "1", ""] {
            assert!(!field.is_named(key), "{key}");
        }
    }
}
