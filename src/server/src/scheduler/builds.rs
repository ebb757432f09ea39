//! Builds that run before a listing. A build serves all requests that arrive before it ends, and is cancelled
//! when none of them is left.

use std::{future::pending, os::fd::OwnedFd, sync::Arc};

use heeler_protocol::control::ClientId;
use tokio::task::{Id, JoinSet};

use super::RequestNumber;
use crate::discovery::{ProgramFinder, ProgramSource};

/// The built programs, or why the build failed.
type BuiltSources = Result<Vec<ProgramSource>, String>;

pub(super) struct FinishedBuild {
    task: Id,
    result: BuiltSources,
}

#[derive(Default)]
pub(super) struct RunningBuilds {
    tasks: JoinSet<BuiltSources>,
}

/// A build of a catalogue's programs.
pub(super) struct PendingBuild {
    task: Id,
    /// Requests that wait for the build.
    waiting: Vec<(ClientId, RequestNumber)>,
    /// Set once the build has ended.
    result: Option<BuiltSources>,
    /// Closing this pipe end cancels the build.
    _running: OwnedFd,
}

/// A request whose programs were built.
pub(super) struct BuiltRequest {
    pub(super) client: ClientId,
    pub(super) request: RequestNumber,
    /// Why the build failed, if it did.
    pub(super) failed: Option<String>,
}

impl PendingBuild {
    pub(super) fn is_done(&self) -> bool {
        self.result.is_some()
    }

    pub(super) fn add_waiting(&mut self, client: ClientId, request: RequestNumber) {
        self.waiting.push((client, request));
    }

    /// Removes requests. Returns whether none is left.
    pub(super) fn remove_waiting(&mut self, is_removed: impl Fn(&(ClientId, RequestNumber)) -> bool) -> bool {
        self.waiting.retain(|waiting| !is_removed(waiting));
        self.waiting.is_empty()
    }

    pub(super) fn is_of(&self, finished: &FinishedBuild) -> bool {
        self.task == finished.task
    }

    pub(super) fn finish(&mut self, finished: FinishedBuild) {
        self.result = Some(finished.result);
    }

    /// Passes the built programs to `use_sources`. Returns the requests that wait for them.
    pub(super) fn into_requests(self, use_sources: impl FnOnce(Vec<ProgramSource>)) -> Vec<BuiltRequest> {
        let failed = self.result.and_then(|result| result.map(use_sources).err());
        let built = |(client, request)| BuiltRequest { client, request, failed: failed.clone() };
        self.waiting.into_iter().map(built).collect()
    }
}

impl RunningBuilds {
    /// Starts a build. Requests of a `replaced` build, whose programs were not listed yet, wait for this one
    /// instead.
    pub(super) fn start(
        &mut self,
        finder: Arc<dyn ProgramFinder>,
        replaced: Option<&PendingBuild>,
    ) -> Result<PendingBuild, String> {
        let waiting = replaced.map(|build| build.waiting.clone()).unwrap_or_default();
        let no_pipe = |error| format!("failed to start the build: {error}");
        let (cancelled, running) = heeler_sys::io::pipe().map_err(no_pipe)?;
        let task = self.tasks.spawn_blocking(move || finder.build(cancelled)).id();
        Ok(PendingBuild { task, waiting, result: None, _running: running })
    }

    /// Waits for the next build to end.
    ///
    /// Cancel safe: yes, because an ended build is taken only when it is returned.
    pub(super) async fn next_finished(&mut self) -> FinishedBuild {
        match self.tasks.join_next_with_id().await {
            Some(Ok((task, result))) => FinishedBuild { task, result },
            Some(Err(error)) => {
                let text = format!("internal error in Heeler during the build: {error}");
                FinishedBuild { task: error.id(), result: Err(text) }
            }
            None => pending().await,
        }
    }

    /// Waits for cancelled builds to end.
    ///
    /// Cancel safe: yes, because the builds end by themselves.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
