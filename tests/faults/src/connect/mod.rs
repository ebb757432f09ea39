//! Rounds with the protocol of Connect's conformance suite: the harness is the judge, a fake is the client
//! under test, and `heeler connect relay` connects them.
//!
//! - `plan`: the cases and the judge's actions, all drawn at random.
//! - `messages`: requests and answers.
//! - `client_program`: the client under test.
//! - `judge`: the judge.
//! - `round`: one round and its checks.

mod client_program;
mod judge;
mod messages;
mod plan;
mod round;

pub(crate) use client_program::client_program;
pub(crate) use plan::ConnectPlan;
pub(crate) use round::play;
