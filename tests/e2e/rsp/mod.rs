//! The Runtime Server Protocol.
//!
//! - `node_clients`: clients on third-party libraries.
//! - `runs`: the messages that a client gets about a run.
//! - `peers`: clients that are slow, gone, hostile or one too many.
//! - `process_death`: deaths and cancels at any moment.

mod node_clients;
mod peers;
mod process_death;
mod runs;
