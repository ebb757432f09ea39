//! The front end of the MSTest Runner Protocol.
//!
//! - `front_end`: the protocol's entry among the front ends.
//! - `session`: one client, from the first byte to the last; `session/dispatch`: its messages.
//! - `ending`: the phases of a session's end.
//! - `requests`: the requests in progress of a session, and the events of their runs.
//! - `debugger`: requests to the client's debugger.
//! - `metrics`: metrics of a run, for telemetry.
//! - `initialize`, `discover`, `run`, `params`: one file for each request, and their parameters.

mod debugger;
mod discover;
mod ending;
mod front_end;
mod initialize;
mod metrics;
mod params;
mod requests;
mod run;
mod session;

pub use front_end::MtpFrontEnd;
