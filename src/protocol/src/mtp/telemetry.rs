//! `telemetry/update`: metrics of a discovery or run, sent after the completion and before the response.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::method;

/// Names of Heeler's telemetry events.
pub mod event {
    /// Sent at the end of a run; its metrics are [`super::RunMetrics`].
    pub const RUN: &str = "heeler/run";
    /// Sent at the end of a discovery; its metrics are [`super::DiscoveryMetrics`].
    pub const DISCOVERY: &str = "heeler/discovery";
}

/// Parameters of `telemetry/update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TelemetryParams<M> {
    /// Name of the event, such as `heeler/run`.
    pub event_name: String,
    /// Numbers by name; each server defines its own.
    pub metrics: M,
}

/// Metrics of a run. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RunMetrics {
    /// Tests that were selected: the sum of the outcomes below.
    pub selected: usize,
    /// Tests that passed.
    pub passed: usize,
    /// Tests that their framework skipped.
    pub skipped: usize,
    /// Tests that failed, as the framework reported.
    pub failed: usize,
    /// Tests that exceeded their time limit.
    pub timed_out: usize,
    /// Tests that crashed, disappeared, or could not be run.
    pub error: usize,
    /// Tests that were cancelled.
    pub cancelled: usize,
    /// Tests during which a process died.
    pub crashed: usize,
    /// Programs that took part in the run.
    pub programs: usize,
    /// Programs that failed outside any test.
    pub failed_programs: usize,
    /// Workers that took part in the run.
    pub workers: usize,
    /// Workers that died.
    pub worker_deaths: usize,
    /// Files attached to results.
    pub attachments: usize,
    /// Duration from the request to the completion.
    pub duration_ms: f64,
    /// Sum of the durations of all tests.
    pub tests_ms: f64,
}

/// Metrics of a discovery. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveryMetrics {
    /// Tests that were reported.
    pub discovered: usize,
    /// Programs of the session.
    pub programs: usize,
    /// Programs that could not be listed.
    pub broken_programs: usize,
    /// Duration from the request to the completion.
    pub duration_ms: f64,
}

/// Encodes one telemetry event.
#[must_use]
pub fn telemetry_frame(event_name: &str, metrics: &impl Serialize) -> Bytes {
    crate::rpc::encode_notification(
        method::TELEMETRY,
        &TelemetryParams { event_name: event_name.to_owned(), metrics },
    )
}
