//! Reports in the mutation testing report schema, version 2, which viewers and dashboards of other mutation
//! testing tools read.

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of the schema.
pub const SCHEMA_VERSION: &str = "2";

/// A report. `F` contains the files by path, which may be generated while they are written.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElementsReport<F> {
    pub schema_version: &'static str,
    pub thresholds: ScoreThresholds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_root: Option<String>,
    pub files: F,
    /// Test files by path, or by program if a test's file is unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub test_files: BTreeMap<String, TestFile>,
    pub framework: FrameworkName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub performance: Option<PhaseDurations>,
}

/// Percentages: a score of at least `high` is good, and a score below `low` is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScoreThresholds {
    pub high: u8,
    pub low: u8,
}

/// A source file with its mutants, a list of [`TestedMutant`](super::TestedMutant).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MutatedFile<'a, M> {
    pub language: &'a str,
    pub source: &'a str,
    pub mutants: M,
}

/// Tests of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TestFile {
    pub tests: Vec<NamedTest>,
}

/// A test that mutants refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedTest {
    pub id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<TestLocation>,
}

/// Start of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TestLocation {
    pub start: super::SourcePosition,
}

/// The mutation testing tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameworkName {
    pub name: &'static str,
    pub version: &'static str,
}

/// Duration of each phase in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseDurations {
    pub setup: f64,
    pub initial_run: f64,
    pub mutation: f64,
}
