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
use crate::cli::mutate::{
    observer::{MutationObserver, ObserverRequest},
    unfinished::Unfinished,
};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);
/// Why a mutant has no result of a StrykerJS that says that it has tested all.
const NOT_REPORTED: &str = "StrykerJS reported no result for it";

/// A running StrykerJS and the mutants that it has found.
pub(in crate::cli::mutate) struct FoundByStryker {
    client: StrykerClient,
    pub(in crate::cli::mutate) mutants: StrykerMutants,
}

/// What the tests have shown.
pub(in crate::cli::mutate) struct TestedByStryker {
    /// Those of all selected mutants, in the order of their places.
    pub(in crate::cli::mutate) results: Vec<MutantResult>,
    /// Why some of them are pending.
    pub(in crate::cli::mutate) error: Option<StrykerError>,
    /// Why the observer has ended the tests before all mutants had verdicts.
    pub(in crate::cli::mutate) unfinished: Option<Unfinished>,
}

/// How the tests ended.
pub(in crate::cli::mutate) enum StrykerEnd {
    /// Nothing runs any more.
    Over(TestedByStryker, MutationObserver),
    /// The observer does not wait for the end of what runs, which ends with this process.
    Left,
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
    pub(in crate::cli::mutate) async fn discover(
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
    pub(in crate::cli::mutate) fn has_selected(&self) -> bool {
        self.mutants.selected().next().is_some()
    }

    /// Ends StrykerJS; nothing of it runs when this returns.
    ///
    /// Cancel safe: yes, as [`StrykerClient::end`].
    pub(in crate::cli::mutate) async fn end(self) -> StrykerMutants {
        self.client.end().await;
        self.mutants
    }

    /// Tests the selected mutants, and ends StrykerJS.
    ///
    /// Cancel safe: no, because verdicts would be lost; what runs ends.
    pub(in crate::cli::mutate) async fn test(self, observer: MutationObserver) -> StrykerEnd {
        let Self { client, mutants } = self;
        let run = StrykerRun { client, mutants, observer, known: BTreeMap::new(), unfinished: None };
        run.run().await
    }
}

impl TestedByStryker {
    /// Returns whether anything is known that would be lost with an error.
    pub(in crate::cli::mutate) fn has_verdicts(&self) -> bool {
        self.results.iter().any(|result| result.status != MutantStatus::Pending)
    }
}

/// Tests in progress.
struct StrykerRun {
    client: StrykerClient,
    mutants: StrykerMutants,
    observer: MutationObserver,
    /// Results by the numbers of their mutants.
    known: BTreeMap<usize, MutantResult>,
    unfinished: Option<Unfinished>,
}

impl StrykerRun {
    async fn run(mut self) -> StrykerEnd {
        self.observer.begin(self.mutants.selected().count(), None, []).await;
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
                    return StrykerEnd::Left;
                }
                RunStep::Request(ObserverRequest::End(why)) => {
                    self.unfinished = Some(why);
                    self.client.terminate().await;
                }
            }
        };
        self.finish(error).await
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

    async fn finish(self, error: Option<StrykerError>) -> StrykerEnd {
        let Self { client, mutants, observer, mut known, unfinished } = self;
        client.end().await;
        let reason = match (&error, unfinished) {
            (Some(error), _) => format!("failed to {}", error_chain(error)),
            (None, Some(unfinished)) => unfinished.reason(),
            (None, None) => NOT_REPORTED.to_owned(),
        };
        let results = mutants.all_results(&mut known, Some(&reason));
        StrykerEnd::Over(TestedByStryker { results, error, unfinished }, observer)
    }
}
