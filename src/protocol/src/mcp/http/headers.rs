//! Checks of request headers: addressee, sender, and agreement with the body.

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    header,
    url::{is_loopback_name, split_authority},
};
use crate::{
    mcp::{
        error_code, shortened,
        version::{LEGACY_VERSIONS, MODERN_VERSIONS},
    },
    rpc::RpcError,
};

/// Start and end of an encoded value.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// A header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderField<'h> {
    Absent,
    One(&'h str),
    /// The header is repeated, or is not ASCII.
    Invalid,
}

impl<'h, E> From<Result<Option<&'h str>, E>> for HeaderField<'h> {
    fn from(value: Result<Option<&'h str>, E>) -> Self {
        match value {
            Ok(Some(value)) => Self::One(value),
            Ok(None) => Self::Absent,
            Err(_) => Self::Invalid,
        }
    }
}

/// Returns whether a media type or an accepted range is this type, ignoring parameters.
#[must_use]
pub fn is_media_type(value: &str, wanted: &str) -> bool {
    value.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(wanted))
}

/// A request that is not addressed to this server, or comes from another site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForeignRequest {
    #[error("the Host header must be localhost, 127.0.0.1 or [::1]")]
    Host,
    #[error("requests from web pages of other origins are rejected")]
    Origin,
}

/// Rejects requests sent by pages of other sites through a browser, including sites whose own name resolves
/// to this machine.
///
/// # Errors
/// See [`ForeignRequest`].
pub fn check_local_request(host: HeaderField<'_>, origin: HeaderField<'_>) -> Result<(), ForeignRequest> {
    match host {
        HeaderField::One(host) if is_loopback_authority(host) => {}
        HeaderField::Absent | HeaderField::One(_) | HeaderField::Invalid => return Err(ForeignRequest::Host),
    }
    match origin {
        HeaderField::Absent => Ok(()),
        HeaderField::One(origin) if is_loopback_origin(origin) => Ok(()),
        HeaderField::One(_) | HeaderField::Invalid => Err(ForeignRequest::Origin),
    }
}

fn is_loopback_authority(authority: &str) -> bool {
    split_authority(authority).is_some_and(|(host, _)| is_loopback_name(host))
}

fn is_loopback_origin(origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(is_loopback_authority)
}

/// Parameters of a request that its headers repeat.
#[derive(Deserialize, Default)]
struct MirroredParams {
    #[serde(rename = "_meta", default)]
    meta: Value,
    #[serde(default)]
    name: Value,
    #[serde(default)]
    uri: Value,
    #[serde(rename = "taskId", default)]
    task_id: Value,
}

impl MirroredParams {
    fn read(params: Option<&RawValue>) -> Self {
        params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
    }

    fn version(&self) -> Option<&str> {
        self.meta.get("io.modelcontextprotocol/protocolVersion")?.as_str()
    }

    /// Returns the value that the header `Mcp-Name` repeats.
    fn name(&self, method: &str) -> Option<&str> {
        match method {
            "tools/call" | "prompts/get" => self.name.as_str(),
            "resources/read" => self.uri.as_str(),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task_id.as_str(),
            _ => None,
        }
    }
}

/// Returns whether a request names its version, as in the era without a handshake.
#[must_use]
pub fn is_modern_request(params: Option<&RawValue>) -> bool {
    MirroredParams::read(params).version().is_some()
}

/// Returns the headers that repeat parts of a request, as names and values. Requests of the era with a
/// handshake have none.
#[must_use]
pub fn mirrored_headers(method: &str, params: Option<&RawValue>) -> Vec<(&'static str, String)> {
    let params = MirroredParams::read(params);
    let Some(version) = params.version() else { return Vec::new() };
    let mut headers = vec![
        (header::PROTOCOL_VERSION, encode_header_value(version)),
        (header::METHOD, encode_header_value(method)),
    ];
    headers.extend(params.name(method).map(|name| (header::NAME, encode_header_value(name))));
    headers
}

/// Checks the headers that repeat parts of a request.
///
/// # Errors
/// A header is missing or differs from the body, or the version is unknown.
pub fn check_message_headers<'h>(
    method: &str,
    params: Option<&RawValue>,
    field: impl Fn(&'static str) -> HeaderField<'h>,
) -> Result<(), RpcError> {
    let params = MirroredParams::read(params);
    let stated = field(header::PROTOCOL_VERSION);
    if params.version().is_none() {
        return match stated {
            HeaderField::Absent => Ok(()),
            HeaderField::One(version) if LEGACY_VERSIONS.contains(&version) => Ok(()),
            HeaderField::One(version) if MODERN_VERSIONS.contains(&version) => {
                Err(mismatch(header::PROTOCOL_VERSION, "the same version in the _meta of the request"))
            }
            HeaderField::One(_) | HeaderField::Invalid => {
                let known = [MODERN_VERSIONS.as_slice(), &LEGACY_VERSIONS].concat().join(", ");
                Err(mismatch(header::PROTOCOL_VERSION, &format!("one of {known}")))
            }
        };
    }
    let expected = [
        (header::PROTOCOL_VERSION, params.version()),
        (header::METHOD, Some(method)),
        (header::NAME, params.name(method)),
    ];
    for (name, value) in expected {
        let Some(value) = value else { continue };
        let is_equal = match field(name) {
            HeaderField::One(stated) => decode_header_value(stated).is_some_and(|stated| stated == value),
            HeaderField::Absent | HeaderField::Invalid => false,
        };
        if !is_equal {
            return Err(mismatch(name, &format!("{:?}, as in the body", shortened(value))));
        }
    }
    Ok(())
}

fn mismatch(name: &str, expected: &str) -> RpcError {
    RpcError::new(error_code::HEADER_MISMATCH, format!("invalid header {name}: expected {expected}"))
}

/// Encodes a text as a header value: unchanged if possible, otherwise base64.
#[must_use]
pub fn encode_header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
        && !text.get(..ENCODED.0.len()).is_some_and(|start| start.eq_ignore_ascii_case(ENCODED.0));
    if is_plain {
        text.to_owned()
    } else {
        format!("{}{}{}", ENCODED.0, BASE64.encode(text.as_bytes()), ENCODED.1)
    }
}

/// Decodes a header value; `None` if it is encoded incorrectly.
#[must_use]
pub fn decode_header_value(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    let prefix = value.get(..ENCODED.0.len()).filter(|prefix| prefix.eq_ignore_ascii_case(ENCODED.0));
    let encoded = prefix.and_then(|prefix| value[prefix.len()..].strip_suffix(ENCODED.1));
    match encoded {
        Some(encoded) => String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_ask_for_this_machine() {
        use HeaderField::{Absent, Invalid, One};
        for host in ["127.0.0.1:3000", "localhost", "LOCALHOST:1", "[::1]:80", "127.1.2.3"] {
            assert_eq!(check_local_request(One(host), Absent), Ok(()), "{host}");
        }
        for host in [
            "",
            "example.com",
            "evil.localhost:3000",
            "localhost.",
            "127.0.0.1.example.com",
            "0.0.0.0",
            "::1",
            "[::2]",
            "localhost:x",
            "localhost:1:2",
            "user@localhost",
            "[localhost]",
            "192.168.0.1",
            "2130706433",
        ] {
            assert_eq!(check_local_request(One(host), Absent), Err(ForeignRequest::Host), "{host}");
        }
        for host in [Absent, Invalid] {
            assert_eq!(check_local_request(host, Absent), Err(ForeignRequest::Host));
        }
        let own = One("127.0.0.1:3000");
        for origin in ["http://localhost:6274", "https://127.0.0.1", "http://[::1]:5"] {
            assert_eq!(check_local_request(own, One(origin)), Ok(()), "{origin}");
        }
        for origin in
            ["", "null", "http://example.com", "localhost", "file://", "http://localhost@example.com"]
        {
            assert_eq!(check_local_request(own, One(origin)), Err(ForeignRequest::Origin), "{origin}");
        }
        assert_eq!(check_local_request(own, Invalid), Err(ForeignRequest::Origin));
    }

    fn checked(method: &str, params: &str, headers: &[(&str, &'static str)]) -> Result<(), i64> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let field = |name: &str| match headers.iter().find(|(one, _)| *one == name) {
            Some((_, "INVALID")) => HeaderField::Invalid,
            Some((_, value)) => HeaderField::One(value),
            None => HeaderField::Absent,
        };
        check_message_headers(method, Some(&params), field).map_err(|error| error.code)
    }

    const MODERN: &str = r#"{"name":"ü","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;

    #[test]
    fn headers_of_a_modern_request_repeat_its_body() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", " =?base64?w7w=?=\t");
        assert_eq!(checked("tools/call", MODERN, &[version, method, name]), Ok(()));
        assert_eq!(checked("tools/list", MODERN, &[version, ("mcp-method", "tools/list")]), Ok(()));
        for wrong in [
            [("x", ""), method, name],
            [("mcp-protocol-version", "2025-11-25"), method, name],
            [version, ("x", ""), name],
            [version, ("mcp-method", "tools/list"), name],
            [version, ("mcp-method", "INVALID"), name],
            [version, method, ("x", "")],
            [version, method, ("mcp-name", "u")],
            [version, method, ("mcp-name", "=?base64?w7w?=")],
        ] {
            assert_eq!(checked("tools/call", MODERN, &wrong), Err(-32020), "{wrong:?}");
        }
    }

    #[test]
    fn other_requests_need_no_headers_and_may_not_claim_the_other_era() {
        assert_eq!(checked("tools/list", "{}", &[]), Ok(()));
        for version in LEGACY_VERSIONS {
            assert_eq!(checked("tools/list", "{}", &[("mcp-protocol-version", version)]), Ok(()));
        }
        for version in ["2026-07-28", "1999-01-01", "", "INVALID"] {
            assert_eq!(checked("tools/list", "{}", &[("mcp-protocol-version", version)]), Err(-32020));
        }
    }

    #[test]
    fn mirrored_headers_pass_their_own_check() {
        let params = RawValue::from_string(MODERN.to_owned()).unwrap();
        for method in ["tools/call", "tools/list", "resources/read"] {
            let headers = mirrored_headers(method, Some(&params));
            let field = |name: &str| match headers.iter().find(|(one, _)| *one == name) {
                Some((_, value)) => HeaderField::One(Box::leak(value.clone().into_boxed_str())),
                None => HeaderField::Absent,
            };
            assert_eq!(check_message_headers(method, Some(&params), field), Ok(()), "{headers:?}");
        }
        assert_eq!(mirrored_headers("tools/call", None), []);
    }

    #[test]
    fn values_keep_their_text() {
        for text in ["plain", "two words", "", " x", "ü\n", "=?base64?x", "=?Base64?w7w=?="] {
            let value = encode_header_value(text);
            assert!(value.is_ascii() && !value.contains('\n'), "{value}");
            assert_eq!(decode_header_value(&value).as_deref(), Some(text));
        }
        assert_eq!(decode_header_value("=?base64?%?="), None);
        assert_eq!(decode_header_value("=?BASE64?YQ==?=").as_deref(), Some("a"));
    }
}
