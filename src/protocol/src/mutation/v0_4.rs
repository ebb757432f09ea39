//! Messages of version 0.4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{SourceLocation, TestedMutant};

/// Protocol version in the response to `configure`. Clients compare it as text.
pub const PROTOCOL_VERSION: &str = "0.4.0";

/// Parameters of `configure`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigureParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file_path: Option<String>,
}

/// Result of `configure`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigureResult {
    pub version: String,
}

/// A file, a directory (its path ends with `/`), or a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRange {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<SourceLocation>,
}

/// Parameters of `discover`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiscoverParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRange>>,
}

/// A discovered mutant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiscoveredMutant {
    pub id: String,
    pub location: SourceLocation,
    pub mutator_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The mutants of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiscoveredFile {
    pub mutants: Vec<DiscoveredMutant>,
}

/// Files by path relative to the server's directory.
pub type DiscoveredFiles = BTreeMap<String, DiscoveredFile>;

/// Result of `discover`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiscoverResult {
    pub files: DiscoveredFiles,
}

/// Parameters of `mutationTest`. If both members are given, `files` is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MutationTestParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRange>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutants: Option<DiscoveredFiles>,
}

/// The tested mutants of a file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestedFile {
    pub mutants: Vec<TestedMutant>,
}

/// Result of `mutationTest`, and parameters of `reportMutationTestProgress`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MutationTestResult {
    pub files: BTreeMap<String, TestedFile>,
}
