//! Messages of the MSTest Runner Protocol: strict in what Heeler writes, lenient in what it reads.

mod change;
mod log;
mod members;
mod messages;
mod node;
#[cfg(feature = "schema")]
mod schema;
mod telemetry;

pub use change::*;
pub use log::*;
pub use members::NodeMembers;
pub use messages::*;
pub use node::*;
#[cfg(feature = "schema")]
pub use schema::{client_schema, server_schema};
pub use telemetry::*;
