//! What StrykerJS finds, and the tests of its mutants from the request to the verdicts.

use std::{collections::BTreeMap, num::NonZeroUsize, path::Path, time::Duration};

use heeler_core::error_chain;
use heeler_mutant_model::{MutantResult, MutantStatus};
use tokio::time::MissedTickBehavior;

use super::{
    client::{StrykerClient, TestEvent},
    error::StrykerError,
    mutants::{SearchedPaths, StrykerMutants},
    package::StrykerPackage,
};
use crate::{
    observer::{MutationObserver, ObserverRequest},
    unfinished::Unfinished,
};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);
/// Why a mutant has no result of a StrykerJS that says that it has tested all.
const NOT_REPORTED: &str = "StrykerJS reported no result for it";

/// A running StrykerJS and the mutants that it has found.
pub(crate) struct FoundByStryker {
    client: StrykerClient,
    pub(crate) mutants: StrykerMutants,
}

/// What the tests have shown.
pub(crate) struct TestedByStryker {
    /// Those of all selected mutants, in the order of their places.
    pub(crate) results: Vec<MutantResult>,
    /// Why some of them are pending.
    pub(crate) error: Option<StrykerError>,
    /// Why the observer has ended the tests before all mutants had verdicts.
    pub(crate) unfinished: Option<Unfinished>,
}

/// What the tests wait for.
enum RunStep {
    Event(Result<TestEvent, StrykerError>),
    Request(ObserverRequest),
    Tick,
}

impl FoundByStryker {
    /// Starts StrykerJS in a package, and finds mutants; `None` if there can be none, because the named paths
    /// are not those of its sources. They are relative to the project's directory; without any, all are
    /// found.
    ///
    /// # Errors StrykerJS can't be started, fails, or answers in another form.
    ///
    /// Cancel safe: yes, because its process ends with its guard's connection.
    pub(crate) async fn discover(
        package: &StrykerPackage,
        project: &Path,
        named: Option<&[String]>,
        concurrency: Option<NonZeroUsize>,
    ) -> Result<Option<Self>, StrykerError> {
        let searched = SearchedPaths::new(named, package.dir(), project);
        if searched == SearchedPaths::Only(Vec::new()) {
            return Ok(None);
        }
        let mut client = StrykerClient::start(package, concurrency).await?;
        let found = client.discover(searched.files()).await;
        match found.and_then(|found| StrykerMutants::read(found, &searched, package.dir(), project)) {
            Ok(mutants) => Ok(Some(Self { client, mutants })),
            Err(error) => {
                client.end().await;
                Err(error)
            }
        }
    }

    /// Returns whether any mutant is selected.
    pub(crate) fn has_selected(&self) -> bool {
        self.mutants.selected().next().is_some()
    }

    /// Ends StrykerJS; nothing of it runs when this returns.
    ///
    /// Cancel safe: yes, as [`StrykerClient::end`].
    pub(crate) async fn end(self) -> StrykerMutants {
        self.client.end().await;
        self.mutants
    }

    /// Tests the selected mutants, and ends StrykerJS; `None` if the observer does not wait for the end of
    /// what runs, which ends with this process.
    ///
    /// Cancel safe: no, because verdicts would be lost; what runs ends.
    pub(crate) async fn test(self, observer: &mut dyn MutationObserver) -> Option<TestedByStryker> {
        let Self { client, mutants } = self;
        let run = StrykerRun { client, mutants, observer, known: BTreeMap::new(), unfinished: None };
        run.run().await
    }
}

impl TestedByStryker {
    /// Returns whether anything is known that would be lost with an error.
    pub(crate) fn has_verdicts(&self) -> bool {
        self.results.iter().any(|result| result.status != MutantStatus::Pending)
    }
}

/// Tests in progress.
struct StrykerRun<'o> {
    client: StrykerClient,
    mutants: StrykerMutants,
    observer: &'o mut dyn MutationObserver,
    /// Results by the numbers of their mutants.
    known: BTreeMap<usize, MutantResult>,
    unfinished: Option<Unfinished>,
}

impl StrykerRun<'_> {
    async fn run(mut self) -> Option<TestedByStryker> {
        self.observer.begin(self.mutants.selected().count(), None, &[]).await;
        self.client.begin_tests(self.mutants.selected_places()).await;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let error = loop {
            let step = tokio::select! {
                event = self.client.next_test_event() => RunStep::Event(event),
                request = self.observer.next_request(self.unfinished.is_some()) => RunStep::Request(request),
                _ = ticks.tick() => RunStep::Tick,
            };
            match step {
                RunStep::Event(Ok(TestEvent::Results(tested))) => {
                    for (number, result) in self.mutants.results(tested) {
                        self.on_result(number, result).await;
                    }
                }
                RunStep::Event(Ok(TestEvent::Done)) => break None,
                // It was ended.
                RunStep::Event(Err(_)) if self.unfinished.is_some() => break None,
                RunStep::Event(Err(error)) => break Some(error),
                RunStep::Tick => self.observer.tick(),
                RunStep::Request(ObserverRequest::Pause) => self.pause().await,
                RunStep::Request(ObserverRequest::End(_)) if self.unfinished.is_some() => {
                    return None;
                }
                RunStep::Request(ObserverRequest::End(why)) => {
                    self.unfinished = Some(why);
                    self.client.terminate().await;
                }
            }
        };
        Some(self.finish(error).await)
    }

    /// Keeps the first result of a mutant.
    async fn on_result(&mut self, number: usize, result: MutantResult) {
        if !self.known.contains_key(&number) {
            self.observer.on_result(&result).await;
            self.known.insert(number, result);
        }
    }

    /// Stops StrykerJS and then this process, as Ctrl-Z does, until the user continues it.
    async fn pause(&mut self) {
        self.client.pause().await;
        if let Err(error) = heeler_sys::process::Signal::STOP.raise() {
            tracing::warn!(%error, "this process can't be stopped");
        }
        self.client.resume().await;
    }

    async fn finish(self, error: Option<StrykerError>) -> TestedByStryker {
        let Self { client, mutants, mut known, unfinished, .. } = self;
        client.end().await;
        let reason = match (&error, unfinished) {
            (Some(error), _) => format!("failed to {}", error_chain(error)),
            (None, Some(unfinished)) => unfinished.reason(),
            (None, None) => NOT_REPORTED.to_owned(),
        };
        let results = mutants.all_results(&mut known, Some(&reason));
        TestedByStryker { results, error, unfinished }
    }
}
