//! Results and notifications of the server, encoded for the base protocol.

use serde::Serialize;

use super::{
    alpha::{InitializeResult, MutantInFile, ProgressParams},
    method,
    v0_4::{ConfigureResult, DiscoverResult, MutationTestResult},
};
use crate::rpc::{self, RequestId};

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ServerResult {
    Initialized(InitializeResult),
    Mutants(Vec<MutantInFile>),
    Configured(ConfigureResult),
    Discovered(DiscoverResult),
    Tested(MutationTestResult),
}

impl ServerResult {
    /// Encodes the response.
    #[must_use]
    pub fn body(&self, id: &RequestId) -> Vec<u8> {
        rpc::result_body(id, self)
    }
}

/// A notification of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerNotification {
    Progress(ProgressParams),
    ReportProgress(MutationTestResult),
}

impl ServerNotification {
    /// Encodes the notification.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        match self {
            Self::Progress(params) => rpc::notification_body(method::PROGRESS, params),
            Self::ReportProgress(params) => rpc::notification_body(method::REPORT_PROGRESS, params),
        }
    }
}
