//! Reports in the mutation testing report schema, version 2, which the viewers and dashboards of other
//! mutation testing tools read.

use std::collections::BTreeMap;

use serde::Serialize;

/// The version of the schema.
pub const SCHEMA_VERSION: &str = "2";

/// A report. `F` are its files, by path: they may be made while they are written.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElementsReport<F> {
    pub schema_version: &'static str,
    pub thresholds: ScoreThresholds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_root: Option<String>,
    pub files: F,
    /// By path, or by program where a test's file is not known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub test_files: BTreeMap<String, TestFile>,
    pub framework: FrameworkName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub performance: Option<PhaseDurations>,
}

/// Percentages from which a score is good (`high`), and below which it is bad (`low`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScoreThresholds {
    pub high: u8,
    pub low: u8,
}

/// A source and its mutants, a list of [`TestedMutant`](super::TestedMutant).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MutatedFile<'a, M> {
    pub language: &'a str,
    pub source: &'a str,
    pub mutants: M,
}

/// The tests of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TestFile {
    pub tests: Vec<NamedTest>,
}

/// A test to which mutants refer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedTest {
    pub id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<TestLocation>,
}

/// Where a test begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TestLocation {
    pub start: super::SourcePosition,
}

/// The tool that tested the mutants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameworkName {
    pub name: &'static str,
    pub version: &'static str,
}

/// Milliseconds of each phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseDurations {
    pub setup: f64,
    pub initial_run: f64,
    pub mutation: f64,
}
