//! A process that has listed its tests and waits for the first lease of its program. Some programs take
//! longer to start than to run all of their tests.

use std::time::Duration;

use heeler_adapters::{AdapterInvocation, ListingDialogue, TranscriptParser};
use heeler_protocol::control::{ListedTest, TestProgram};
use heeler_sys::process::Pid;
use tokio::time::Instant;

use super::listing_process::{SERVER_EXIT_TIMEOUT, SERVER_GRACE_MS};
use crate::process::{
    guard_spawner::GuardSpawner,
    guarded_process::DetachedProcess,
    test_directory::{TestDirectory, TestDirectoryVariables},
};

/// Time that a process waits for a lease. The run that it was kept for begins once all programs are listed.
/// If that run has no tests of this program, the process wastes memory.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Configuration of a started process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    /// Program with its framework.
    pub(crate) program: TestProgram,
    pub(crate) invocation: AdapterInvocation,
    pub(crate) directory_variables: TestDirectoryVariables,
    /// Id of the run in the process's environment.
    pub(crate) run: String,
}

/// A process that has listed its tests and waits.
pub(crate) struct WaitingProcess {
    identity: ProcessIdentity,
    process: DetachedProcess,
    root: Pid,
    dialogue: Box<dyn ListingDialogue>,
    test_directory: TestDirectory,
    until: Instant,
}

/// A process that has listed its tests and now runs some of them.
pub(crate) struct AdoptedProcess {
    pub(crate) process: DetachedProcess,
    pub(crate) root: Pid,
    pub(crate) transcript: Box<dyn TranscriptParser + Send>,
    pub(crate) test_directory: TestDirectory,
}

impl WaitingProcess {
    pub(crate) fn new(
        identity: ProcessIdentity,
        process: DetachedProcess,
        root: Pid,
        dialogue: Box<dyn ListingDialogue>,
        test_directory: TestDirectory,
    ) -> Self {
        Self { identity, process, root, dialogue, test_directory, until: Instant::now() + WAIT_LIMIT }
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Adopts the process for these tests, if it was started with this configuration and is still running.
    /// Otherwise ends it.
    ///
    /// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
    pub(crate) async fn adopt(
        mut self,
        identity: &ProcessIdentity,
        tests: &[&ListedTest],
        guards: &GuardSpawner,
    ) -> Option<AdoptedProcess> {
        if self.identity != *identity || !self.process.is_unchanged().await {
            self.end(guards).await;
            return None;
        }
        let Self { process, root, dialogue, test_directory, .. } = self;
        let transcript = dialogue.continue_with(tests)?;
        Some(AdoptedProcess { process, root, transcript, test_directory })
    }

    /// Asks the process to exit, and ends it if it does not.
    ///
    /// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
    pub(crate) async fn end(self, guards: &GuardSpawner) {
        let Self { process, mut dialogue, test_directory, .. } = self;
        process.end(guards, dialogue.closing_request(), SERVER_EXIT_TIMEOUT, SERVER_GRACE_MS).await;
        drop(test_directory);
    }
}
