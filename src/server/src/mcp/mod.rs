//! The front end of the Model Context Protocol, for AI agents: tools that list tests, run tests and read
//! results.
//!
//! - `front_end`: implements the common front end interface.
//! - `session`: one client connection; `session/dispatch`: its messages.
//! - `calls`: tool calls in progress.
//! - `tasks`: calls that run as tasks.
//! - `selection`: selects tests by filter or from an earlier run.
//! - `recorded`: answers about runs, read from their files.
//! - `http`: clients that connect over HTTP.
//! - `self_test`: tools that test this server.

mod calls;
mod front_end;
mod http;
mod recorded;
mod selection;
mod self_test;
mod session;
mod tasks;

pub(crate) use front_end::McpFrontEnd;
