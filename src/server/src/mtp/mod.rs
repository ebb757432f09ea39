//! The front end of the MSTest Runner Protocol.
//!
//! - `front_end`: implements the common front end interface.
//! - `session`: one client connection; `session/dispatch`: its messages.
//! - `ending`: the phases of a session's end.
//! - `requests`: the session's requests in progress, and events of their runs.
//! - `debugger`: debugger requests to the client.
//! - `metrics`: run metrics for telemetry.
//! - `initialize`, `discover`, `run`: one file per request; `params`: parameters of discovery and run.

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
