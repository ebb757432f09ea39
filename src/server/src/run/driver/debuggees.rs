//! Tests that wait for a debugger.

use heeler_core::TestId;
use heeler_protocol::control::{DebuggeeCommand, LeaseId, WorkerId};

/// A test whose process is stopped and waits for a debugger.
#[derive(Debug, Clone)]
pub(crate) struct WaitingDebuggee {
    pub(crate) worker: WorkerId,
    pub(crate) lease: LeaseId,
    pub(crate) test: TestId,
    pub(crate) pid: u32,
    /// Command that a debugger can launch instead.
    pub(crate) debuggee: Option<DebuggeeCommand>,
}

/// Changes of debuggees since the last report.
#[derive(Debug, Default)]
pub(crate) struct DebuggeeReports {
    /// Tests that wait from now on.
    pub(crate) waiting: Vec<WaitingDebuggee>,
    /// Leases whose processes were launched by debuggers.
    pub(crate) launched: Vec<(WorkerId, LeaseId)>,
}
