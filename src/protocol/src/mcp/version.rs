//! Protocol versions, and the era of a request. One connection may use both eras.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{error_code, method, tasks::TASKS_EXTENSION};
use crate::rpc::{RequestId, RpcError, code};

/// Versions with a handshake, newest first.
pub(crate) const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Versions that are named in each request, newest first.
pub(crate) const MODERN_VERSIONS: [&str; 1] = ["2026-07-28"];

/// Era of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Versions whose sessions begin with a handshake, `initialize`.
    Legacy,
    /// Versions named in each request, without a handshake.
    Modern,
}

/// Era of a request, and optional features that it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestEra {
    pub era: Era,
    /// Token for progress notifications, if the client wants them.
    pub progress_token: Option<RequestId>,
    /// Whether the client accepts a task in place of the result of a call.
    pub takes_tasks: bool,
}

/// Parameters that every request may have.
#[derive(Deserialize)]
struct CommonParams {
    #[serde(rename = "_meta", default)]
    meta: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestMeta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<Value>,
    #[serde(rename = "progressToken")]
    progress_token: Option<RequestId>,
}

/// Returns the version for the response to `initialize`: the client's if it is known, otherwise the newest,
/// which the client may reject.
#[must_use]
pub(crate) fn legacy_version(requested: &str) -> &'static str {
    LEGACY_VERSIONS.into_iter().find(|version| *version == requested).unwrap_or(LEGACY_VERSIONS[0])
}

/// Returns the era of a request.
///
/// # Errors
/// The request names an unsupported version, or lacks something that its era requires.
pub fn request_era(method: &str, params: Option<&RawValue>) -> Result<RequestEra, RpcError> {
    let invalid = |message: String| RpcError::new(code::INVALID_PARAMS, message);
    let params = match params {
        None => CommonParams { meta: None },
        Some(raw) if raw.get().starts_with('{') => {
            serde_json::from_str(raw.get()).map_err(|error| invalid(format!("invalid params: {error}")))?
        }
        Some(_) => return Err(invalid("the params must be an object".to_owned())),
    };
    let meta = match params.meta.as_deref().map(RawValue::get) {
        None => RequestMeta::default(),
        Some(text) if text.starts_with('{') => {
            serde_json::from_str(text).map_err(|error| invalid(format!("invalid _meta: {error}")))?
        }
        Some(_) => return Err(invalid("_meta must be an object".to_owned())),
    };
    let RequestMeta { version, client_capabilities, progress_token } = meta;
    let era = match version {
        _ if method == method::INITIALIZE => Era::Legacy,
        None if method != method::DISCOVER && client_capabilities.is_none() => Era::Legacy,
        Some(Value::String(version)) if !MODERN_VERSIONS.contains(&version.as_str()) => {
            return Err(unsupported_version(&version));
        }
        Some(Value::String(_)) if client_capabilities.as_ref().is_some_and(Value::is_object) => Era::Modern,
        Some(_) | None => {
            let message = "_meta must have a string io.modelcontextprotocol/protocolVersion and an object \
                           io.modelcontextprotocol/clientCapabilities";
            return Err(invalid(message.to_owned()));
        }
    };
    let extensions = client_capabilities.map(|mut capabilities| capabilities["extensions"].take());
    let takes_tasks = era == Era::Modern && extensions.is_some_and(|all| all[TASKS_EXTENSION].is_object());
    Ok(RequestEra { era, progress_token, takes_tasks })
}

fn unsupported_version(requested: &str) -> RpcError {
    let message = format!("unsupported protocol version; expected {}", MODERN_VERSIONS.join(" or "));
    let data = json!({ "supported": MODERN_VERSIONS, "requested": requested });
    RpcError { data, ..RpcError::new(error_code::UNSUPPORTED_VERSION, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn era(method: &str, params: &str) -> Result<Era, i64> {
        let params = (!params.is_empty()).then(|| RawValue::from_string(params.to_owned()).unwrap());
        request_era(method, params.as_deref()).map(|request| request.era).map_err(|error| error.code)
    }

    fn with_meta(version: &str, capabilities: &str) -> String {
        format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version},"io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}"#
        )
    }

    #[test]
    fn era_is_decided_for_each_request() {
        for params in ["", "{}", r#"{"_meta":{}}"#, r#"{"_meta":null,"cursor":"x"}"#] {
            assert_eq!(era("tools/list", params), Ok(Era::Legacy), "{params}");
            assert_eq!(era("server/discover", params), Err(code::INVALID_PARAMS), "{params}");
        }
        let modern = with_meta("\"2026-07-28\"", "{}");
        assert_eq!(era("tools/list", &modern), Ok(Era::Modern));
        assert_eq!(era("server/discover", &modern), Ok(Era::Modern));
        assert_eq!(era("initialize", &modern), Ok(Era::Legacy));
    }

    #[test]
    fn tasks_are_taken_by_clients_of_the_newer_era_that_say_so() {
        let takes = |capabilities: &str| {
            let params = RawValue::from_string(with_meta("\"2026-07-28\"", capabilities)).unwrap();
            request_era("tools/call", Some(&params)).unwrap().takes_tasks
        };
        assert!(takes(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#));
        for other in ["{}", r#"{"extensions":[]}"#, r#"{"extensions":{"x":{}}}"#, r#"{"tasks":{}}"#] {
            assert!(!takes(other), "{other}");
        }
    }

    #[test]
    fn incomplete_meta_and_other_versions_are_refused() {
        for params in [
            with_meta("\"2026-07-28\"", "null"),
            with_meta("\"2026-07-28\"", "[]"),
            with_meta("7", "{}"),
            with_meta("null", "{}"),
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#.to_owned(),
            r#"{"_meta":[]}"#.to_owned(),
            r#"{"_meta":{"progressToken":{}}}"#.to_owned(),
            "[]".to_owned(),
        ] {
            assert_eq!(era("tools/list", &params), Err(code::INVALID_PARAMS), "{params}");
        }
        let params = RawValue::from_string(with_meta("\"2099-01-01\"", "{}")).unwrap();
        let error = request_era("tools/list", Some(&params)).unwrap_err();
        assert_eq!(error.code, -32022);
        assert_eq!(error.data, json!({"supported": ["2026-07-28"], "requested": "2099-01-01"}));
    }

    #[test]
    fn progress_token_keeps_its_type() {
        for (token, expected) in [
            ("0", Some(RequestId::number(0))),
            ("\"a\"", Some(RequestId::String("a".into()))),
            ("null", None),
        ] {
            let params =
                RawValue::from_string(format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#)).unwrap();
            assert_eq!(request_era("tools/call", Some(&params)).unwrap().progress_token, expected);
        }
    }

    #[test]
    fn known_versions_are_echoed_and_others_answered_with_the_newest() {
        for version in LEGACY_VERSIONS {
            assert_eq!(legacy_version(version), version);
        }
        for version in ["2026-07-28", "1999-01-01", ""] {
            assert_eq!(legacy_version(version), "2025-11-25");
        }
    }
}
