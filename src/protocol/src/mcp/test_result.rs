//! The result of an `mcp.test.*` tool.

use serde::{Deserialize, Serialize};

/// Result of a test tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct McpTestResult {
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<AssertionLists>,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration: f64,
}

/// Assertions of a test tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssertionLists {
    pub passed: Vec<String>,
    pub failed: Vec<String>,
    pub skipped: Vec<String>,
}
