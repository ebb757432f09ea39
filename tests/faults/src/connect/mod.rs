//! Rounds on the protocol of Connect's conformance suite: the harness is the judge, a fake is the client
//! under test, and `heeler connect relay` stands between them.
//!
//! - `plan`: the cases, and what the judge does; all of it is drawn.
//! - `messages`: requests and answers.
//! - `client_program`: the client under test.
//! - `judge`: the judge.
//! - `round`: one round, and what must hold of every case.

mod client_program;
mod judge;
mod messages;
mod plan;
mod round;

pub(crate) use client_program::client_program;
pub(crate) use plan::ConnectPlan;
pub(crate) use round::play;
