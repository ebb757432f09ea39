//! Builds that requests ask for before the listing. A build serves all requests that arrive before its end;
//! it is cancelled when none of them is left.

use std::{future::pending, os::fd::OwnedFd, sync::Arc};

use heeler_protocol::control::ClientId;
use tokio::task::{Id, JoinSet};

use super::{ClientEvent, RequestNumber, event_loop::Scheduler};
use crate::discovery::{ProgramFinder, ProgramSource};

/// Result of a build: the programs, or why there are none.
type BuiltSources = Result<Vec<ProgramSource>, String>;

/// A build that has ended.
pub(super) struct FinishedBuild {
    task: Id,
    result: BuiltSources,
}

/// The running builds.
#[derive(Default)]
pub(super) struct RunningBuilds {
    tasks: JoinSet<BuiltSources>,
}

/// A build of a catalogue's programs.
pub(super) struct PendingBuild {
    task: Id,
    /// Requests that wait for it.
    waiting: Vec<(ClientId, RequestNumber)>,
    /// The result, once it has ended.
    result: Option<BuiltSources>,
    /// Its end cancels the build.
    _running: OwnedFd,
}

impl PendingBuild {
    /// Removes requests; returns whether none is left.
    pub(super) fn remove_waiting(&mut self, is_removed: impl Fn(&(ClientId, RequestNumber)) -> bool) -> bool {
        self.waiting.retain(|waiting| !is_removed(waiting));
        self.waiting.is_empty()
    }
}

impl RunningBuilds {
    fn start(
        &mut self,
        finder: Arc<dyn ProgramFinder>,
        waiting: Vec<(ClientId, RequestNumber)>,
    ) -> Result<PendingBuild, String> {
        let no_pipe = |error| format!("failed to start the build: {error}");
        let (cancelled, running) = heeler_sys::io::pipe().map_err(no_pipe)?;
        let task = self.tasks.spawn_blocking(move || finder.build(cancelled)).id();
        Ok(PendingBuild { task, waiting, result: None, _running: running })
    }

    /// Returns the next build that ends.
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

    /// Waits for the cancelled builds to end.
    ///
    /// Cancel safe: yes, because the builds end by themselves.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Scheduler {
    /// Builds the programs of a client before they are listed for a request. Programs that can't be built are
    /// listed at once.
    pub(super) async fn list_after_build(&mut self, client: ClientId, request: RequestNumber) {
        let Some(entry) = self.clients.get(&client) else { return };
        let (place, events) = (entry.catalogue, entry.events.clone());
        let one = self.catalogues.get_mut(place);
        let Some(finder) = one.finder.clone() else { return self.list(client, request).await };
        if let Some(build) = one.build.as_mut().filter(|build| build.result.is_none()) {
            return build.waiting.push((client, request));
        }
        // One that has ended, but is not listed yet, knows nothing of what was changed since.
        let mut waiting = one.build.as_ref().map(|build| build.waiting.clone()).unwrap_or_default();
        waiting.push((client, request));
        match self.builds.start(finder, waiting) {
            Ok(build) => one.build = Some(build),
            Err(error) => events.send(ClientEvent::Listed { request, catalogue: Err(error) }),
        }
    }

    pub(super) fn on_build_finished(&mut self, finished: FinishedBuild) {
        let FinishedBuild { task, result } = finished;
        let mut builds = self.catalogues.iter_mut().filter_map(|one| one.build.as_mut());
        // A cancelled build has no place any more.
        if let Some(build) = builds.find(|build| build.task == task) {
            build.result = Some(result);
        }
    }

    /// Lists the programs that were built, for the requests that wait for them. Those of a catalogue that is
    /// being listed are not replaced before the end of the listing.
    pub(super) async fn finish_builds(&mut self) {
        let mut ready = Vec::new();
        for one in self.catalogues.iter_mut().filter(|one| one.lister.is_none()) {
            let Some(PendingBuild { waiting, result: Some(result), .. }) =
                one.build.take_if(|build| build.result.is_some())
            else {
                continue;
            };
            let failed = result.map(|sources| one.replace_sources(sources)).err();
            ready.extend(waiting.into_iter().map(|(client, request)| (client, request, failed.clone())));
        }
        for (client, request, failed) in ready {
            match (failed, self.clients.get(&client)) {
                (Some(error), Some(entry)) => {
                    entry.events.send(ClientEvent::Listed { request, catalogue: Err(error) });
                }
                (None, Some(_)) => self.list(client, request).await,
                (_, None) => {}
            }
        }
    }
}
