//! Rounds with the Runtime Server Protocol: a client starts and stops suites, disconnects and reconnects.
//!
//! - `plan`: the client's actions, all drawn at random.
//! - `client`: the client's consecutive connections.
//! - `round`: one round.
//! - `guarantees`: the checks of each connection.

mod client;
mod guarantees;
mod plan;
mod round;

pub(crate) use plan::RspPlan;
pub(crate) use round::play;
