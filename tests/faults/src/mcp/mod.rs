//! Rounds on the Model Context Protocol: a client of both eras lists, runs, cancels and reads.
//!
//! - `plan`: what the client does; all of it is drawn.
//! - `client`: the client, on standard streams.
//! - `round`: one round.
//! - `guarantees`: what must hold of every call.

mod client;
mod guarantees;
mod plan;
mod round;

pub(crate) use plan::McpPlan;
pub(crate) use round::play;
