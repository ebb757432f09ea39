//! Places in source files.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Place in a source file. Displayed as `file:line`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePlace {
    pub file: String,
    /// Line number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(text, "{}:{line}", self.file),
            None => text.write_str(&self.file),
        }
    }
}
