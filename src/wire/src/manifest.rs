//! What a run was to do, beside its journals: with both, whoever survives can tell how every test ended.

use serde::{Deserialize, Serialize};

use crate::control::Group;

/// The manifest's name in the run's directory.
pub const FILE_NAME: &str = "manifest.json";
/// The form's version; readers refuse others.
pub const VERSION: u32 = 2;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// The client's id of the run.
    pub run: String,
    /// The selected tests; journals name them by their place here.
    pub tests: Vec<ManifestTest>,
    /// The groups above them, each behind its own group.
    pub groups: Vec<Group>,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestTest {
    /// Its name for the client.
    pub uid: String,
    /// Its name for people.
    pub display_name: String,
    /// Its suite.
    pub suite: String,
    /// Its group: the place in the manifest's list.
    pub group: Option<u32>,
    /// Members that the client gave it, as JSON: `"name":value,…`.
    pub foreign: Option<String>,
}
