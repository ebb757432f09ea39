//! `telemetry/update`: what a discovery or a run came to, in numbers. Sent behind the completion, before the response.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::method;

/// Names of our events.
pub mod event {
    /// A run has ended; its metrics are [`super::RunMetrics`].
    pub const RUN: &str = "heeler/run";
    /// A discovery has ended; its metrics are [`super::DiscoveryMetrics`].
    pub const DISCOVERY: &str = "heeler/discovery";
}

/// Parameters of `telemetry/update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TelemetryParams<M> {
    /// What happened.
    pub event_name: String,
    /// Numbers by name; each server has its own.
    pub metrics: M,
}

/// What a run came to. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RunMetrics {
    /// Tests that were asked for, by all that follow together.
    pub selected: usize,
    /// Tests that passed.
    pub passed: usize,
    /// Tests that their framework skipped.
    pub skipped: usize,
    /// Tests that failed by their framework's word.
    pub failed: usize,
    /// Tests that ran out of time.
    pub timed_out: usize,
    /// Tests that crashed, vanished, or could not be run.
    pub error: usize,
    /// Tests that were cancelled.
    pub cancelled: usize,
    /// Tests under which a process died.
    pub crashed: usize,
    /// Programs that took part.
    pub programs: usize,
    /// Programs whose processes ended badly outside any test.
    pub charged_programs: usize,
    /// Workers that took part.
    pub workers: usize,
    /// Workers that died.
    pub worker_deaths: usize,
    /// Files beside the results.
    pub attachments: usize,
    /// From the request to the completion.
    pub duration_ms: f64,
    /// The sum of what the tests took.
    pub tests_ms: f64,
}

/// What a discovery came to. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveryMetrics {
    /// Tests that were told.
    pub discovered: usize,
    /// Programs of the session.
    pub programs: usize,
    /// Programs that could not be listed.
    pub broken_programs: usize,
    /// From the request to the completion.
    pub duration_ms: f64,
}

/// Encodes one event.
#[must_use]
pub fn telemetry_frame(event_name: &str, metrics: &impl Serialize) -> Bytes {
    crate::rpc::notification(
        method::TELEMETRY,
        &TelemetryParams { event_name: event_name.to_owned(), metrics },
    )
}
