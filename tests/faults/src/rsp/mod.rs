//! Rounds on the Runtime Server Protocol: a client starts and stops suites, disconnects and comes again.
//!
//! - `plan`: what the client does; all of it is drawn.
//! - `client`: the connections of the client, one after the other.
//! - `round`: one round.
//! - `guarantees`: what must hold on each connection.

mod client;
mod guarantees;
mod plan;
mod round;

pub(crate) use plan::RspPlan;
pub(crate) use round::play;
