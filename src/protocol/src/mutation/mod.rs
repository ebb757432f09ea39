//! Messages of the Mutation Server Protocol in the two versions that clients use, 0.0.1-alpha.1 ([`alpha`])
//! and its successor 0.4 ([`v0_4`]), and report formats of mutation testing.
//!
//! - `envelope`: reads a body, which may be a batch, as strictly as the base protocol demands.
//! - `method`, `code`: names of requests and notifications, and error codes.
//! - `sent`: results and notifications of the server.
//! - `client`: requests of a 0.4 client, for servers that Heeler starts itself.
//! - `tested_mutant`: a mutant and its verdict, in protocols and reports.
//! - `params`: reads parameters.
//! - `version`: supported versions of clients.
//! - `elements`: reports in the mutation testing report schema.
//! - `streamed`: maps and lists that are generated while they are written.
//! - `hash`: ids and hashes in files.
//! - `cache`, `cached_baseline`: verdicts and coverage that a later run may reuse.
//! - `sarif`: reports in the Static Analysis Results Interchange Format.

pub mod alpha;
pub mod cache;
pub mod cached_baseline;
mod client;
pub mod code;
pub mod elements;
mod envelope;
mod hash;
pub mod method;
mod params;
pub mod sarif;
#[cfg(feature = "schema")]
mod schema;
mod sent;
mod streamed;
mod tested_mutant;
pub mod v0_4;
mod version;

pub use client::{ClientRequest, read_result};
pub use envelope::{ClientBody, MAX_BATCH_MESSAGES, batch_body, error_body, read_body};
pub use hash::HexHash;
pub use params::read_params;
#[cfg(feature = "schema")]
pub use schema::{client_schema, server_schema};
pub use sent::{ServerNotification, ServerResult};
pub use streamed::{StreamedList, StreamedMap};
pub use tested_mutant::{SourceLocation, SourcePosition, StatusName, TestedMutant};
pub use version::check_client_version;

/// Maximum size of a client's body. The largest useful body names every mutant of a large project, at about
/// 300 bytes each.
pub const BODY_LIMIT_BYTES: usize = 64 << 20;
