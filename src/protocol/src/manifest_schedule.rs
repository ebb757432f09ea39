//! Schedule in a run's manifest: the slots of the run, and what its tests had to wait for. Explanations of
//! the run's duration need it; nothing else reads it.

use serde::{Deserialize, Serialize};

/// Limits of the order and the concurrency of a run's tests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ManifestSchedule {
    /// Number of slots.
    pub slots: u32,
    /// Milliseconds from the start of the command to the start of the run: builds and listings.
    pub preparation_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ManifestResource>,
    /// Needs of all tests that need more than a slot, each with its tests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<ManifestNeeds>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<ManifestPrerequisites>,
}

/// A resource that tests take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestResource {
    pub name: String,
    /// Number of units.
    pub capacity: u32,
}

/// Tests with equal needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestNeeds {
    /// Number of slots of each test; may exceed the slots of the run.
    pub weight: u32,
    /// Index and units of each resource that each test takes.
    pub resources: Vec<(u32, u32)>,
    /// Indices of the tests in the plan's list.
    pub tests: Vec<u32>,
}

/// Tests that must end before another test starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestPrerequisites {
    /// Index of the waiting test in the plan's list.
    pub test: u32,
    /// Indices of its prerequisites.
    pub after: Vec<u32>,
}
