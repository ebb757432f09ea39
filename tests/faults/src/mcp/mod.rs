//! Rounds with the Model Context Protocol: a client of both eras lists tests, runs them, cancels runs and
//! reads failures.
//!
//! - `plan`: the client's actions, all drawn at random.
//! - `client`: the client, on standard streams.
//! - `round`: one round.
//! - `guarantees`: the checks of every call.

mod client;
mod guarantees;
mod plan;
mod round;

pub(crate) use plan::McpPlan;
pub(crate) use round::play;
