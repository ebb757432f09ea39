//! The front end of the Model Context Protocol, for agents: tools that list and run tests and read results.
//!
//! - `front_end`: the protocol's entry among the front ends.
//! - `session`: one client, from the first line to the last; `session/dispatch`: its messages.
//! - `calls`: the calls of tools that are in progress.
//! - `selection`: the tests that a filter or an earlier run selects.
//! - `recorded`: answers about runs, from their files.
//! - `http`: clients that connect over HTTP.
//! - `self_test`: the tools that test this server.

mod calls;
mod front_end;
mod http;
mod recorded;
mod selection;
mod self_test;
mod session;
mod tasks;

pub(crate) use front_end::McpFrontEnd;
