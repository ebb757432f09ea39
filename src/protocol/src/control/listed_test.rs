//! Tests as frameworks list them, and what runs in their place.

use std::sync::Arc;

use heeler_core::OsText;
use serde::{Deserialize, Serialize};

use super::TraitPair;

/// Test as its framework lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ListedTest {
    /// Name as the framework knows it.
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
    /// The source file as the framework names it in its reports, where `file` is the absolute path of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_file: Option<String>,
    /// Line in the source file, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u32>,
    /// Reason why the framework would not run the test (`ignored: needs net`, `disabled`); such a test is
    /// skipped without a process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub skip: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub traits: Vec<TraitPair>,
    /// Handle by which the framework selects exactly this test, where its name does not: the adapter that
    /// wrote it reads it again. A test with a selector is selectable even if another has the same name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub selector: Option<String>,
    /// Time limit that the test names for itself, in milliseconds; a shorter one of the settings applies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Reason why the test can't be run, which is an error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<String>,
    /// What runs as this test, of which no framework knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant: Option<Arc<TestVariant>>,
}

/// Class and name of a test in JUnit reports, equal to the reports of its framework: readers then recognize a
/// test by its earlier results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ReportName {
    pub class: String,
    pub name: String,
}

/// Tests of a program that run with variables of their own in one process, as one test: it passes if all of
/// them do, and ends with the first that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct TestVariant {
    /// Environment on top of the program's; `None` unsets a variable.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// The tests, in the framework's order; never empty.
    pub tests: Vec<Arc<ListedTest>>,
    /// Of which process they may run in a fork, where the framework has such processes; `None` for a process
    /// of their own from the start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fork_point: Option<ForkPoint>,
}

/// When a process is forked for tests that it does not run itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkPoint {
    /// When its framework is loaded, and nothing of the program.
    Framework,
    /// When the program is loaded as well: the variables of its tests change nothing before the first one.
    Program,
}

impl ListedTest {
    /// Returns the source file as the framework names it.
    #[must_use]
    pub fn framework_file(&self) -> Option<&str> {
        self.reported_file.as_deref().or(self.file.as_deref())
    }

    /// Returns whether its framework skips it unless it is told otherwise.
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.skip.is_some() || self.traits.iter().any(|one| one.name == crate::mtp::key::IGNORED_TRAIT)
    }
}

/// Limit of the test names that a framework takes on one command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionLimit {
    /// Maximum sum of the costs of all names.
    pub budget_bytes: usize,
    /// Bytes that a name takes beside its text.
    pub overhead_bytes: usize,
}

impl SelectionLimit {
    /// Returns the bytes that a name takes.
    #[must_use]
    pub fn cost(&self, name: &str) -> usize {
        name.len().saturating_add(self.overhead_bytes)
    }
}
