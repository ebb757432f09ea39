//! `client/log`: the single form for every client, and the batch form for clients that declared
//! `batchLoggingSupport`.

use std::fmt;

use bytes::Bytes;
use heeler_core::Severity;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

use super::method;

/// Severity of a log message: a string in the single form, and the specification's number in the batch form.
/// Both are accepted in both forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LogLevel {
    /// Messages of the finest detail.
    Trace,
    /// Messages for developers of Heeler.
    Debug,
    /// An action of the user took effect.
    Information,
    /// Unusual, but recovered.
    Warning,
    /// The user must act.
    Error,
    /// The server cannot work at all.
    Critical,
    /// The specification's level for hidden messages; never sent by Heeler.
    None,
}

impl LogLevel {
    /// All levels, in the order of the specification's numbers.
    const ALL: [(Self, &'static str); 7] = [
        (Self::Trace, "Trace"),
        (Self::Debug, "Debug"),
        (Self::Information, "Information"),
        (Self::Warning, "Warning"),
        (Self::Error, "Error"),
        (Self::Critical, "Critical"),
        (Self::None, "None"),
    ];

    /// Returns the specification's number.
    fn number(self) -> u8 {
        match self {
            Self::Trace => 0,
            Self::Debug => 1,
            Self::Information => 2,
            Self::Warning => 3,
            Self::Error => 4,
            Self::Critical => 5,
            Self::None => 6,
        }
    }
}

impl From<Severity> for LogLevel {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Information => Self::Information,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LevelVisitor)
    }
}

/// Reads a level. An unknown level becomes `Information`, so the message is not lost.
struct LevelVisitor;

impl Visitor<'_> for LevelVisitor {
    type Value = LogLevel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a log level, as a string or a number")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<LogLevel, E> {
        let known = LogLevel::ALL.into_iter().find(|(_, name)| name.eq_ignore_ascii_case(word));
        Ok(known.map_or(LogLevel::Information, |(level, _)| level))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<LogLevel, E> {
        let known = usize::try_from(number).ok().and_then(|place| LogLevel::ALL.get(place));
        Ok(known.map_or(LogLevel::Information, |(level, _)| *level))
    }
}

/// Parameters of `client/log`, single form: exactly these two members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogParams {
    /// Severity of the message.
    pub level: LogLevel,
    /// Text for users.
    pub message: String,
}

/// Parameters of `client/log`, batch form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogBatchParams {
    /// Run that the messages are about; absent for the session as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Messages, in order.
    pub messages: Vec<LogMessage>,
}

/// Log message of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogMessage {
    /// Uid of the test that the message is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// Severity of the message: 0 is trace, 1 debug, 2 information, 3 warning, 4 error, 5 critical.
    #[serde(serialize_with = "level_number")]
    #[cfg_attr(feature = "schema", schemars(with = "u8"))]
    pub level: LogLevel,
    /// Text for users.
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn level_number<S: Serializer>(level: &LogLevel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(level.number())
}

impl LogMessage {
    /// Returns a message that is not about a test.
    #[must_use]
    pub fn new(level: LogLevel, message: impl Into<String>) -> Self {
        Self { node_uid: None, level, message: message.into() }
    }
}

/// Form of `client/log` that a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogForm {
    /// One message per notification.
    #[default]
    Single,
    /// Several messages per notification, each with its test.
    Batch,
}

/// Encodes a log message without a test, in the form that every client can read.
#[must_use]
pub fn log_frame(level: LogLevel, message: impl Into<String>) -> Bytes {
    crate::rpc::encode_notification(method::LOG, &LogParams { level, message: message.into() })
}

/// Encodes log messages of a run in the client's form. The single form has no member for the test, so the
/// message text names it.
#[must_use]
pub fn log_frames(form: LogForm, run_id: Option<&str>, messages: Vec<LogMessage>) -> Vec<Bytes> {
    match form {
        LogForm::Batch if messages.is_empty() => Vec::new(),
        LogForm::Batch => {
            let params = LogBatchParams { run_id: run_id.map(str::to_owned), messages };
            vec![crate::rpc::encode_notification(method::LOG, &params)]
        }
        LogForm::Single => messages.into_iter().map(single_log_frame).collect(),
    }
}

fn single_log_frame(message: LogMessage) -> Bytes {
    let LogMessage { node_uid, level, message } = message;
    log_frame(level, node_uid.map_or(message.clone(), |uid| format!("{uid}: {message}")))
}

/// Reads the parameters of `client/log` in either form.
///
/// # Errors
/// The text has neither form.
pub fn read_log(text: &str) -> Result<LogBatchParams, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum LogParamsForm {
        Batch(LogBatchParams),
        Single(LogParams),
    }
    Ok(match serde_json::from_str(text)? {
        LogParamsForm::Batch(batch) => batch,
        LogParamsForm::Single(LogParams { level, message }) => {
            LogBatchParams { run_id: None, messages: vec![LogMessage::new(level, message)] }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(frames: &[Bytes]) -> Vec<String> {
        let body = |frame: &Bytes| {
            String::from_utf8(frame.to_vec()).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned()
        };
        frames.iter().map(body).collect()
    }

    fn messages() -> Vec<LogMessage> {
        vec![
            LogMessage { node_uid: Some("s::t".into()), ..LogMessage::new(LogLevel::Warning, "leaks") },
            LogMessage::new(LogLevel::Information, "all is well"),
        ]
    }

    #[test]
    fn log_forms_name_run_and_test() {
        assert_eq!(
            bodies(&log_frames(LogForm::Batch, Some("r"), messages())),
            [
                r#"{"jsonrpc":"2.0","method":"client/log","params":{"runId":"r","messages":[{"nodeUid":"s::t","level":3,"message":"leaks"},{"level":2,"message":"all is well"}]}}"#
            ]
        );
        let head = r#"{"jsonrpc":"2.0","method":"client/log","params":"#;
        assert_eq!(
            bodies(&log_frames(LogForm::Single, Some("r"), messages())),
            [
                format!(r#"{head}{{"level":"Warning","message":"s::t: leaks"}}}}"#),
                format!(r#"{head}{{"level":"Information","message":"all is well"}}}}"#)
            ]
        );
        assert!(log_frames(LogForm::Batch, None, Vec::new()).is_empty());
    }

    #[test]
    fn level_numbers_are_read_as_written() {
        for (level, _) in LogLevel::ALL {
            let read: LogLevel = serde_json::from_str(&level.number().to_string()).unwrap();
            assert_eq!(read, level);
        }
    }

    #[test]
    fn log_forms_are_read_with_numeric_levels() {
        let read = |text| read_log(text).unwrap();
        assert_eq!(read(r#"{"level":"warning","message":"m"}"#).messages[0].level, LogLevel::Warning);
        let batch = read(
            r#"{"runId":"r","messages":[{"nodeUid":"u","level":4,"message":"m"},{"level":99,"message":""},{"level":"Loud","message":""}]}"#,
        );
        assert_eq!(batch.run_id.as_deref(), Some("r"));
        let levels: Vec<_> = batch.messages.iter().map(|message| message.level).collect();
        assert_eq!(levels, [LogLevel::Error, LogLevel::Information, LogLevel::Information]);
        assert_eq!(batch.messages[0].node_uid.as_deref(), Some("u"));
        assert!(read_log("null").is_err() && read_log("{}").is_err());
    }
}
