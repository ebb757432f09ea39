//! Messages of the Runtime Server Protocol, and the base protocol's requirements on envelopes.
//!
//! - `envelope`: reads a body as strictly as the base protocol demands.
//! - `method`: names of requests and notifications.
//! - `servers`: server types, servers, their states, start and stop.
//! - `jobs`: jobs, processes and their output.
//! - `other`: results of requests for which Heeler has nothing to offer.
//! - `results`: reads parameters and writes results.

mod envelope;
mod jobs;
pub mod method;
mod other;
mod results;
#[cfg(feature = "schema")]
mod schema;
mod servers;

pub use envelope::read_message;
pub use jobs::*;
pub use other::*;
pub use results::{ServerResult, read_params};
#[cfg(feature = "schema")]
pub use schema::{client_schema, server_schema};
pub use servers::*;

/// Version of the messages in the response to `registerClientCapabilities`.
pub const PROTOCOL_VERSION: &str = "0.22.0";

/// Maximum size of a client's body. The largest useful body is a start with a long filter.
pub const BODY_LIMIT_BYTES: usize = 4 << 20;
