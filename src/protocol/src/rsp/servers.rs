//! Server types, servers, their states, start and stop.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Defines an enum of the protocol's numbers.
macro_rules! wire_numbers {
    ($(#[$docs:meta])* $name:ident { $($(#[$variant_docs:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "u8", try_from = "u8")]
        pub enum $name {
            $($(#[$variant_docs])* $variant = $number,)+
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> Self {
                value as Self
            }
        }

        impl TryFrom<u8> for $name {
            type Error = String;

            fn try_from(number: u8) -> Result<Self, String> {
                match number {
                    $($number => Ok(Self::$variant),)+
                    _ => Err(format!(concat!("{} is not a valid ", stringify!($name)), number)),
                }
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"enum": [$($number),+]})
            }
        }
    };
}
pub(super) use wire_numbers;

wire_numbers! {
    /// State of a server.
    RunState {
        /// The server does not exist.
        Unknown = 0,
        Starting = 1,
        Started = 2,
        Stopping = 3,
        Stopped = 4,
    }
}

wire_numbers! {
    /// Severity of a status.
    Severity {
        Ok = 0,
        Info = 1,
        Warning = 2,
        Error = 4,
        Cancel = 8,
    }
}

wire_numbers! {
    /// State of publishing, which clients show beside the state of a server. Heeler publishes nothing; the
    /// state shows whether the latest run needs attention.
    PublishState {
        /// All tests passed; shown as "Synchronized".
        Synchronized = 1,
        /// Tests failed; shown as "Publish Required".
        Required = 2,
        /// No run has been completed since this client connected; shown as "Unknown".
        Unknown = 6,
    }
}

/// Launch mode of a run without a debugger.
pub const RUN_MODE: &str = "run";

/// A type of server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerType {
    pub id: String,
    pub visible_name: String,
    pub description: String,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerHandle {
    pub id: String,
    #[serde(rename = "type")]
    pub server_type: ServerType,
}

/// Server, server type or job named by a request. Only the id is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NamedById {
    pub id: String,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerState {
    pub server: ServerHandle,
    pub state: RunState,
    pub publish_state: PublishState,
    pub run_mode: String,
    /// Always empty, because Heeler deploys nothing.
    pub deployable_states: [(); 0],
}

impl ServerState {
    #[must_use]
    pub fn new(server: ServerHandle, state: RunState, publish_state: PublishState) -> Self {
        Self { server, state, publish_state, run_mode: RUN_MODE.to_owned(), deployable_states: [] }
    }
}

/// Outcome of a request or of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    pub severity: Severity,
    pub plugin: String,
    pub code: i64,
    pub message: String,
    pub trace: String,
    pub ok: bool,
}

impl Status {
    /// Returns a status with a text for users.
    #[must_use]
    pub fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self {
            severity,
            plugin: "heeler".to_owned(),
            code: 0,
            message: message.into(),
            trace: String::new(),
            ok: severity == Severity::Ok,
        }
    }

    /// Returns the status of a success.
    #[must_use]
    pub fn success() -> Self {
        Self::new(Severity::Ok, "ok")
    }

    /// Returns the status of a rejection.
    #[must_use]
    pub fn refusal(reason: impl Into<String>) -> Self {
        Self::new(Severity::Error, reason)
    }
}

/// Parameters of `registerClientCapabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCapabilities {
    #[serde(default)]
    pub map: BTreeMap<String, String>,
}

/// Result of `registerClientCapabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Registration {
    pub server_capabilities: BTreeMap<String, String>,
    pub client_registration_status: Status,
}

/// Launch mode of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchMode {
    pub mode: String,
    pub desc: String,
}

/// Parameters of the requests for launch attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchAttributesParams {
    pub server_type_id: String,
    #[serde(default)]
    pub mode: Option<String>,
}

/// An attribute that a client may set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attribute {
    #[serde(rename = "type")]
    pub value_type: String,
    pub description: String,
    /// Default value; null if there is none.
    pub default_val: Value,
    pub secret: bool,
}

/// Attributes by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attributes {
    pub attributes: BTreeMap<String, Attribute>,
}

/// Parameters of a start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchParams {
    #[serde(default)]
    pub mode: Option<String>,
    pub params: LaunchedServer,
}

/// Server to start, with the values of its attributes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchedServer {
    #[serde(default)]
    pub server_type: Option<String>,
    pub id: String,
    #[serde(default)]
    pub attributes: Option<Map<String, Value>>,
}

/// Result of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartResult {
    pub status: Status,
    /// Always null, because Heeler has no command line to report.
    pub details: (),
}

/// Parameters of a stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopParams {
    pub id: String,
    /// Whether to stop the server without a grace period.
    #[serde(default)]
    pub force: Option<bool>,
}
