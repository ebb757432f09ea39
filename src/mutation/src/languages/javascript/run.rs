//! Finds and tests mutants with StrykerJS, from the request to the verdicts.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_core::error_chain;
use heeler_mutant_model::{Language, Mutant, MutantResult};
use heeler_mutate::SourceSelection;

use super::{
    client::{StrykerClient, TestEvent},
    error::StrykerError,
    mutants::{SearchedPaths, StrykerMutants},
    package::StrykerPackage,
};
use crate::{
    error::MutateError,
    languages::served_language::{ServedFuture, ServedMutants, ServedProject, ServedTests},
    observer::{MutationObserver, ObserverRequest},
    unfinished::Unfinished,
};

/// Reason for a mutant without a result although StrykerJS finished.
const NOT_REPORTED: &str = "StrykerJS reported no result for this mutant";

struct FoundByStryker {
    client: StrykerClient,
    mutants: StrykerMutants,
}

enum RunStep {
    Event(Result<TestEvent, StrykerError>),
    Request(ObserverRequest),
}

impl ServedProject for StrykerPackage {
    fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the named sources that exist: StrykerJS does not report sources without mutants.
    fn named_sources(&self, selection: &SourceSelection) -> Vec<PathBuf> {
        let is_source = |path: &PathBuf| {
            let language = Language::of_path(&path.to_string_lossy());
            let is_mutated = matches!(language, Some(Language::JavaScript | Language::TypeScript));
            is_mutated && path.starts_with(&self.dir) && path.is_file()
        };
        selection.named_paths().unwrap_or_default().into_iter().filter(is_source).collect()
    }

    fn find<'a>(
        &'a self,
        root: &'a Path,
        named: Option<&'a [String]>,
        concurrency: Option<NonZeroUsize>,
    ) -> ServedFuture<'a, Result<Option<Box<dyn ServedMutants>>, MutateError>> {
        Box::pin(async move {
            let searched = SearchedPaths::new(named, &self.dir, root);
            if searched == SearchedPaths::Only(Vec::new()) {
                return Ok(None);
            }
            let mut client = StrykerClient::start(self, concurrency).await?;
            let found = client.discover(searched.files()).await;
            match found.and_then(|found| StrykerMutants::read(found, &searched, &self.dir, root)) {
                Ok(mutants) => {
                    Ok(Some(Box::new(FoundByStryker { client, mutants }) as Box<dyn ServedMutants>))
                }
                Err(error) => {
                    client.end().await;
                    Err(error.into())
                }
            }
        })
    }
}

impl ServedMutants for FoundByStryker {
    fn selected(&self) -> Vec<Arc<Mutant>> {
        self.mutants.selected().cloned().collect()
    }

    fn retain(&mut self, is_selected: &dyn Fn(&Mutant) -> bool) {
        self.mutants.retain(is_selected);
    }

    fn sources(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.mutants.sources().map(|(path, text)| (Arc::clone(path), Arc::clone(text))).collect()
    }

    fn test(self: Box<Self>, observer: &mut dyn MutationObserver) -> ServedFuture<'_, Option<ServedTests>> {
        observer.show_phase("Testing", "JavaScript and TypeScript with StrykerJS");
        let Self { client, mutants } = *self;
        let run = StrykerRun { client, mutants, observer, known: BTreeMap::new(), unfinished: None };
        Box::pin(run.run())
    }

    fn end(self: Box<Self>) -> ServedFuture<'static, ()> {
        Box::pin(self.client.end())
    }
}

struct StrykerRun<'o> {
    client: StrykerClient,
    mutants: StrykerMutants,
    observer: &'o mut dyn MutationObserver,
    /// Results by mutant index.
    known: BTreeMap<usize, MutantResult>,
    unfinished: Option<Unfinished>,
}

impl StrykerRun<'_> {
    async fn run(mut self) -> Option<ServedTests> {
        self.observer.begin(self.mutants.selected().count(), None, &[]).await;
        self.client.begin_tests(self.mutants.selected_places()).await;
        let error = loop {
            let step = tokio::select! {
                event = self.client.next_test_event() => RunStep::Event(event),
                request = self.observer.next_request(self.unfinished.is_some()) => RunStep::Request(request),
            };
            match step {
                RunStep::Event(Ok(TestEvent::Results(tested))) => {
                    for (number, result) in self.mutants.results(tested) {
                        self.on_result(number, result).await;
                    }
                }
                RunStep::Event(Ok(TestEvent::Done)) => break None,
                // The error is a consequence of ending StrykerJS.
                RunStep::Event(Err(_)) if self.unfinished.is_some() => break None,
                RunStep::Event(Err(error)) => break Some(error),
                RunStep::Request(ObserverRequest::Tick) => self.observer.tick(),
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

    /// Keeps only the first result of a mutant.
    async fn on_result(&mut self, number: usize, result: MutantResult) {
        if !self.known.contains_key(&number) {
            self.observer.on_result(&result).await;
            self.known.insert(number, result);
        }
    }

    /// Stops StrykerJS and then this process, like Ctrl-Z, until the user continues it.
    async fn pause(&mut self) {
        self.client.pause().await;
        self.observer.pause();
        self.client.resume().await;
    }

    async fn finish(self, error: Option<StrykerError>) -> ServedTests {
        let Self { client, mutants, mut known, unfinished, .. } = self;
        client.end().await;
        let reason = match (&error, unfinished) {
            (Some(error), _) => error_chain(error),
            (None, Some(unfinished)) => unfinished.reason(),
            (None, None) => NOT_REPORTED.to_owned(),
        };
        let results = mutants.all_results(&mut known, Some(&reason));
        ServedTests { results, error: error.map(MutateError::from), unfinished }
    }
}
