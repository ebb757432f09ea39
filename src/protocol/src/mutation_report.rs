//! The report schema of mutation testing tools, version 2: mutation-testing-elements. Unset members are
//! left out.

use std::collections::BTreeMap;

use serde::Serialize;

/// A report: the sources with their mutants.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MutationReport {
    pub schema_version: &'static str,
    pub thresholds: MutationThresholds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_root: Option<String>,
    /// Sources by their paths relative to the project.
    pub files: BTreeMap<String, ReportedSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<MutationFramework>,
}

impl MutationReport {
    /// The version of the schema.
    pub const SCHEMA_VERSION: &'static str = "2";
}

/// Scores that are shown as good and as bad, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MutationThresholds {
    pub high: u8,
    pub low: u8,
}

/// The tool that found the mutants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MutationFramework {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A source with its mutants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportedSource {
    pub language: String,
    pub source: String,
    pub mutants: Vec<ReportedMutant>,
}

/// A mutant and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedMutant {
    pub id: String,
    pub mutator_name: String,
    pub replacement: String,
    pub location: ReportedLocation,
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_reason: Option<String>,
}

/// A part of a source; its end is the position of the character behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedLocation {
    pub start: ReportedPosition,
    pub end: ReportedPosition,
}

/// A position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedPosition {
    pub line: u32,
    pub column: u32,
}
