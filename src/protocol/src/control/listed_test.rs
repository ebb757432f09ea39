//! Tests as frameworks list them, and variants of tests.

use std::sync::Arc;

use heeler_core::OsText;
use serde::{Deserialize, Serialize};

use super::TraitPair;

/// A test as listed by its framework.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ListedTest {
    /// Name in the framework.
    pub name: String,
    /// Display name, if it differs from the name (a parameter's value).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display: Option<String>,
    /// Class and name in JUnit reports, if they differ from suite and name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report_name: Option<ReportName>,
    /// Source file, if the framework reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Source file as the framework's reports name it, if `file` is the absolute path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_file: Option<String>,
    /// Line in the source file, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// Reason why the framework would skip the test (`ignored: needs net`, `disabled`). Such a test is
    /// skipped without a process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub skip: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub traits: Vec<TraitPair>,
    /// Selector of exactly this test, if the name alone does not suffice. Only the adapter that wrote the
    /// selector reads it. A test with a selector can be selected even if another test has the same name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub selector: Option<String>,
    /// Timeout declared by the test itself, in milliseconds; a shorter configured timeout wins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Reason why the test cannot be run, which is an error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<String>,
    /// Variant that runs as this test and is unknown to the framework.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant: Option<Arc<TestVariant>>,
}

/// Class and name of a test in JUnit reports, the same as in the framework's reports, so that tools match a
/// test with its earlier results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ReportName {
    pub class: String,
    pub name: String,
}

/// Tests of a program that run in one process with their own environment, as one test. The variant passes if
/// all its tests do, and ends at the first failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct TestVariant {
    /// Environment on top of the program's; `None` unsets a variable.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Tests in the framework's order; never empty.
    pub tests: Vec<Arc<ListedTest>>,
    /// The variant may run in a fork of a process at this point, if the framework supports that; `None`
    /// starts a new process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fork_point: Option<ForkPoint>,
}

/// When a process is forked to run tests in the fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkPoint {
    /// The framework is loaded, but no part of the program is.
    Framework,
    /// The program is loaded as well. Variables of its tests have no effect before the first test.
    Program,
}

impl ListedTest {
    /// Returns the source file as the framework names it.
    #[must_use]
    pub fn framework_file(&self) -> Option<&str> {
        self.reported_file.as_deref().or(self.file.as_deref())
    }

    /// Returns whether the framework skips the test by default.
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.skip.is_some() || self.traits.iter().any(|one| one.name == crate::mtp::key::IGNORED_TRAIT)
    }
}

/// Limit of the test names on one command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionLimit {
    /// Maximum total cost of all names.
    pub budget_bytes: usize,
    /// Bytes that each name costs in addition to its text.
    pub overhead_bytes: usize,
}

impl SelectionLimit {
    /// Returns the cost of a name in bytes.
    #[must_use]
    pub fn cost(&self, name: &str) -> usize {
        name.len().saturating_add(self.overhead_bytes)
    }
}
