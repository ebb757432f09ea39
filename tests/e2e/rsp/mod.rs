//! The Runtime Server Protocol.
//!
//! - `node_clients`: clients built on third-party libraries.
//! - `runs`: the messages that a client receives about a run.
//! - `peers`: clients that are slow, hostile or one too many, or that disconnect.
//! - `process_death`: process deaths and cancels at any moment.

mod node_clients;
mod peers;
mod process_death;
mod runs;
