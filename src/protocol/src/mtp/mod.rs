//! Messages of the MSTest Runner Protocol. Heeler writes them strictly and reads them leniently.

mod attempts;
mod barriers;
mod change;
mod initialize;
mod log;
mod members;
mod messages;
mod node;
mod nulls;
mod programs;
mod render;
mod run_options;
#[cfg(feature = "schema")]
mod schema;
mod telemetry;
mod utc_time;

pub use attempts::attempts_of_node;
pub use barriers::*;
pub use change::*;
pub use initialize::*;
pub use log::*;
pub use members::NodeMembers;
pub use messages::*;
pub use node::*;
pub use programs::*;
pub use render::*;
pub use run_options::*;
#[cfg(feature = "schema")]
pub use schema::{client_schema, server_schema};
pub use telemetry::*;
pub use utc_time::iso8601;
