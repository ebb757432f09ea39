//! Requests for sources of test programs, as written in the configuration, on the command line and in
//! manifests.

use serde::{Deserialize, Serialize};

use crate::OsText;

/// A request for the test programs of one source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceRequest {
    /// Registered name of the source, such as `cargo`.
    pub source: String,
    /// Arguments for the source. Only the source knows their meaning.
    pub arguments: Vec<OsText>,
}

impl SourceRequest {
    /// Returns the request for a source with its arguments.
    #[must_use]
    pub fn new(source: &str, arguments: impl IntoIterator<Item = OsText>) -> Self {
        Self { source: source.to_owned(), arguments: arguments.into_iter().collect() }
    }
}
