//! Options of one run in a client's request. The server parses them like the configuration, so errors name
//! the member.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Options of one run: the member `heeler.options` of `testing/runTests`. Each option overrides the
/// configured setting for this run only; absent or null keeps the setting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RequestedRunOptions {
    /// Maximum number of test processes that this run uses in parallel, at least 1. Values above the server's
    /// number of slots mean all slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Number of retries of a failed test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Number of times to run each test, at least 1. A test stops at its first iteration that does not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// Time limit of each test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<RequestedTimeLimit>,
    /// Whether each test gets a process of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate: Option<bool>,
    /// Environment variables of the test programs, applied after the configured ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, RequestedVariable>>,
    /// Arguments of the test programs, added to the configured ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Whether the output of tests is sent while they run, as `heeler.output` of updates in progress.
    #[serde(rename = "liveOutput", skip_serializing_if = "Option::is_none")]
    pub live_output: Option<bool>,
}

/// Time limit in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RequestedTimeLimit {
    /// Duration such as `60s` or `1m 30s`.
    After(String),
    /// `false`: no limit, even if one is configured.
    Limited(bool),
}

/// Value of an environment variable in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RequestedVariable {
    /// Value of the variable.
    Value(String),
    /// `false`: the variable is unset.
    Set(bool),
    /// Null: the variable is as configured.
    Configured(()),
}
