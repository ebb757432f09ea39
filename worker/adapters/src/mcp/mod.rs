//! Model Context Protocol servers whose `mcp.test.*` tools are tests. Heeler is a client over standard
//! streams for both protocol eras.
//!
//! - `message`: JSON-RPC messages and lines, and the differences between the eras.
//! - `listing`: the dialogue that detects the era and lists the tools. `tool`: a listed tool as a test.
//! - `transcript`: the dialogue that calls the tools one by one. `result`: the verdict of an answer.

mod adapter;
mod listing;
mod message;
mod result;
#[cfg(test)]
mod tests;
mod tool;
mod transcript;

pub(crate) use adapter::Mcp;
