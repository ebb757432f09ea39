//! A mutant and its verdict, encoded for both protocols and the report schema.

use serde::{Deserialize, Serialize};

/// A position in a source. Lines and columns count from 1, columns in UTF-16 units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourcePosition {
    pub line: u32,
    pub column: u32,
}

/// A part of a source. The end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceLocation {
    pub start: SourcePosition,
    pub end: SourcePosition,
}

/// Result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StatusName {
    Killed,
    Survived,
    NoCoverage,
    CompileError,
    RuntimeError,
    Timeout,
    Ignored,
    Pending,
}

/// A mutant and its result. Unknown members are omitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestedMutant {
    pub id: String,
    pub location: SourceLocation,
    pub mutator_name: String,
    /// Replacement text; empty if the mutant deletes code.
    pub replacement: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub status: StatusName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<String>,
    /// Ids of the tests that cover the mutant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered_by: Vec<String>,
    /// Ids of the tests that killed the mutant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed_by: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests_completed: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#static: Option<bool>,
    /// Duration of the tests in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<f64>,
}
