//! The Model Context Protocol in both eras: up to 2025-11-25 with a handshake, and from 2026-07-28 with a
//! version in each request.
//!
//! - `lines`: messages as lines.
//! - `messages`: methods, parameters and results.
//! - `version`: versions, and the era of a request.
//! - `tools`: arguments and results of Heeler's own tools.
//! - `tasks`: calls that return a handle.
//! - `test_result`: results of `mcp.test.*` tools.
//! - `http`: messages over HTTP.
//! - `filter`: hides `mcp.test.*` tools; `scan` is its JSON scanner.

mod filter;
pub mod http;
mod lines;
mod messages;
mod scan;
mod tasks;
mod test_result;
mod tools;
mod version;

pub use filter::{FilterError, FilterOutput, LINE_LIMIT_BYTES, ToolFilter, is_readable_message, plain_text};
pub use lines::{
    LineDecoder, PeerLine, encode_error, encode_notification, encode_request, encode_result, read_message,
};
pub use messages::*;
pub use tasks::{CreateTaskResult, TASK_POLL_INTERVAL_MS, Task, TaskParams, TaskStatus};
pub use test_result::{AssertionLists, McpTestResult};
pub use tools::*;
pub use version::{Era, RequestEra, request_era};

/// Name prefix of tools that are tests.
pub const TEST_TOOL_PREFIX: &str = "mcp.test.";

/// Returns whether a tool is a test.
#[must_use]
pub fn is_test_tool(name: &str) -> bool {
    name.starts_with(TEST_TOOL_PREFIX)
}
