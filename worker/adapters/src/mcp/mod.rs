//! Servers of the Model Context Protocol whose tools named `mcp.test.*` are tests: a client of both eras of
//! the protocol over standard streams.
//!
//! - `message`: messages and lines of JSON-RPC, and what differs between the eras.
//! - `listing`: the dialogue that finds the era and lists the tools; `tool`: one listed tool as a test.
//! - `transcript`: the dialogue that calls one tool after the other; `result`: the verdict of one answer.

mod adapter;
mod listing;
mod message;
mod result;
#[cfg(test)]
mod tests;
mod tool;
mod transcript;

pub(crate) use adapter::Mcp;
