//! Changes of test programs: Heeler's own notification `$/heeler/programsChanged`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{messages::is_false, method};

/// Parameters of `$/heeler/programsChanged`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProgramsChangedParams {
    /// Programs whose files have changed since the last notification, or since `initialize`.
    pub programs: Vec<ProgramChange>,
    /// Whether other programs may have changed as well: notifications of the system were lost, the list was
    /// cut, or not every directory can be watched.
    #[serde(skip_serializing_if = "is_false")]
    pub is_incomplete: bool,
}

/// Change of a test program's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramChange {
    /// Absolute path of the file.
    pub path: String,
    /// Suite of the program, as in the node of its tests; absent for a program that no discovery has listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// Kind of change.
    pub change: ProgramChangeKind,
}

/// Kind of change to the file of a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ProgramChangeKind {
    /// The content or the inode of the file has changed.
    Changed,
    /// The file no longer exists.
    Removed,
    /// The file is new.
    Appeared,
}

/// Encodes a notification about changed programs.
#[must_use]
pub fn programs_changed_frame(params: &ProgramsChangedParams) -> Bytes {
    crate::rpc::encode_notification(method::PROGRAMS_CHANGED, params)
}
