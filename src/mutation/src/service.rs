//! Mutation testing for clients of the Mutation Server Protocol, in the server's directory.

use std::{
    collections::BTreeSet,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{CommandLineSettings, Config, ResolvedSettings};
use heeler_core::error_chain;
use heeler_mutant_model::{MutantResult, MutantStatus};
use heeler_server::mutation::{
    Cancellation, MutantSelection, MutationProject, MutationService, MutationServiceError, ServiceFuture,
};
use tokio::{sync::mpsc, task::spawn_blocking};

use crate::{
    building::{BuildEnd, FollowedBuild, build_followed},
    engine::MutantEngine,
    error::MutateError,
    found::{FoundMutants, MutantSearch, SearchedProject},
    languages::{BuildOptions, FoundProject, ServedMutants},
    observer::{MutationObserver, ObserverFuture, ObserverRequest},
    test_finder::TestFinder,
    testing::{MutantTesting, TestedMutants},
    unfinished::Unfinished,
    work_place::WorkPlace,
};

/// How long a build waits for the working directory, which a cancelled request may still be using.
const WORK_PLACE_WAIT: Duration = Duration::from_secs(5);
const WORK_PLACE_POLL: Duration = Duration::from_millis(20);

/// Tests the mutants of the project around a directory.
pub struct DirectoryMutationService {
    pub directory: PathBuf,
    /// The user's build options.
    pub build: BuildOptions,
    pub finder: &'static dyn TestFinder,
    /// The configuration file named on the command line.
    pub config_file: Option<PathBuf>,
    pub command_line: CommandLineSettings,
}

#[derive(Clone)]
struct DirectoryMutationProject {
    searched: SearchedProject,
    settings: Arc<ResolvedSettings>,
    finder: &'static dyn TestFinder,
}

impl MutationService for DirectoryMutationService {
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>> {
        let config_file = config_file.or_else(|| self.config_file.clone());
        let config_file = config_file.map(|file| self.directory.join(file));
        let (directory, build, finder) = (self.directory.clone(), self.build.clone(), self.finder);
        let command_line = self.command_line.clone();
        Box::pin(blocking(move || {
            let wrong = |error: &dyn std::error::Error| MutationServiceError::Config(error_chain(error));
            let config = Config::load_nearest(config_file.as_deref());
            let config = config.map_err(|error| wrong(&error))?;
            let settings = ResolvedSettings::resolve(&config, command_line).map_err(|error| wrong(&error))?;
            let searched = SearchedProject::open(&build, &directory, &config);
            let searched = searched.map_err(|error| failed(&error))?;
            if let Some(text) = searched.left_out() {
                tracing::warn!("{text}");
            }
            let settings = Arc::new(settings);
            let project: Arc<dyn MutationProject> =
                Arc::new(DirectoryMutationProject { searched, settings, finder });
            Ok(project)
        }))
    }
}

impl MutationProject for DirectoryMutationProject {
    fn directory(&self) -> &Path {
        self.searched.root()
    }

    fn discover(
        &self,
        selection: Arc<MutantSelection>,
        cancellation: Cancellation,
    ) -> ServiceFuture<Vec<MutantResult>> {
        let project = self.clone();
        Box::pin(async move {
            let found = project.find(&selection, cancellation).await?;
            let results = found.untested();
            found.end().await;
            Ok(results)
        })
    }

    fn test(
        &self,
        selection: Arc<MutantSelection>,
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    ) -> ServiceFuture<()> {
        let project = self.clone();
        Box::pin(async move {
            let began = Instant::now();
            let found = project.find(&selection, cancellation.clone()).await?;
            let mut client = ClientObserver { results, cancellation };
            let (built, served) = found.into_selected().await;
            if let Some(built) = built
                && let Err(error) = project.test_built(built, began, &mut client).await
            {
                if let Some(mutants) = served {
                    mutants.end().await;
                }
                return Err(error);
            }
            match served {
                Some(mutants) => test_served(mutants, &mut client).await,
                None => Ok(()),
            }
        })
    }
}

impl DirectoryMutationProject {
    async fn find(
        &self,
        selection: &MutantSelection,
        mut cancellation: Cancellation,
    ) -> Result<FoundMutants, MutationServiceError> {
        let search = MutantSearch::of_workspace(selection.named_paths(), self.settings.run.jobs);
        let found = tokio::select! {
            found = search.run(&self.searched) => found,
            () = cancellation.cancelled() => return Err(MutationServiceError::Cancelled),
        };
        let mut found = found.map_err(|error| failed(&error))?;
        found.retain(|mutant| selection.includes(mutant));
        Ok(found)
    }

    /// Tests the mutants of sources that are built here.
    async fn test_built(
        &self,
        project: FoundProject,
        began: Instant,
        client: &mut ClientObserver,
    ) -> Result<(), MutationServiceError> {
        let settings = &self.settings;
        let place = open_work_place(&settings.state_dir, &project.mutated.root).await;
        let place = place.map_err(|error| failed(&error))?;
        let request = FollowedBuild { project, place, finder: self.finder };
        let built = build_followed(request, client).await.map_err(|error| failed(&error))?;
        let (mut build, place) = match built {
            BuildEnd::Built(build, place) => (build, place),
            // The next request builds in the same directory.
            BuildEnd::Ended(_) | BuildEnd::Left => return Err(MutationServiceError::Cancelled),
        };
        // Send the results that need no test.
        let known = MutantTesting::all_results(&build.guarded, &mut TestedMutants::default(), None);
        let written: BTreeSet<_> = build.guarded.written().map(|one| one.found.mutant.id).collect();
        for result in known.into_iter().filter(|result| !written.contains(&result.mutant.id)) {
            if client.results.send(result).await.is_err() {
                return Err(MutationServiceError::Cancelled);
            }
        }
        for note in &build.notes {
            tracing::warn!("{note}");
        }
        let engine = MutantEngine { settings, place: &place, setup: began.elapsed() };
        match engine.test(&mut build, client).await.map_err(|error| failed(&error))? {
            Some(run) if run.unfinished.is_none() => Ok(()),
            Some(_) | None => Err(MutationServiceError::Cancelled),
        }
    }
}

/// Sends results to a client of a session. The queue is bounded, so a slow client slows down the tests.
struct ClientObserver {
    results: mpsc::Sender<MutantResult>,
    cancellation: Cancellation,
}

impl MutationObserver for ClientObserver {
    fn next_request(&mut self, is_cancelled: bool) -> ObserverFuture<'_, ObserverRequest> {
        Box::pin(async move {
            if is_cancelled {
                return pending().await;
            }
            self.cancellation.cancelled().await;
            ObserverRequest::End(Unfinished::Cancelled)
        })
    }

    fn warn(&mut self, text: &str) {
        tracing::warn!("{text}");
    }

    fn begin<'a>(
        &'a mut self,
        _total: usize,
        _longest: Option<Duration>,
        known: &'a [MutantResult],
    ) -> ObserverFuture<'a, ()> {
        Box::pin(async move {
            for result in known {
                self.on_result(result).await;
            }
        })
    }

    fn on_result<'a>(&'a mut self, result: &'a MutantResult) -> ObserverFuture<'a, ()> {
        Box::pin(async move {
            tokio::select! {
                // A client that is gone needs no result, and cancels.
                _gone = self.results.send(result.clone()) => {}
                () = self.cancellation.cancelled() => {}
            }
        })
    }
}

/// Tests the mutants of a mutation server.
async fn test_served(
    mutants: Box<dyn ServedMutants>,
    client: &mut ClientObserver,
) -> Result<(), MutationServiceError> {
    let Some(tested) = mutants.test(client).await else { return Err(MutationServiceError::Cancelled) };
    if tested.unfinished.is_some() {
        return Err(MutationServiceError::Cancelled);
    }
    // Pending results contain the error, or the reason why no result arrived.
    for result in tested.results.iter().filter(|result| result.status == MutantStatus::Pending) {
        client.on_result(result).await;
    }
    match &tested.error {
        Some(error) => Err(failed(error)),
        None => Ok(()),
    }
}

async fn open_work_place(state_dir: &Path, root: &Path) -> Result<WorkPlace, MutateError> {
    let deadline = Instant::now() + WORK_PLACE_WAIT;
    loop {
        match WorkPlace::open(state_dir, root) {
            Err(MutateError::Busy { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(WORK_PLACE_POLL).await;
            }
            opened => return opened,
        }
    }
}

/// Converts the error. The text follows "failed to", as on the command line.
fn failed(error: &MutateError) -> MutationServiceError {
    MutationServiceError::Failed(format!("test mutants: {}", error_chain(error)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MutationServiceError> + Send + 'static,
) -> Result<T, MutationServiceError> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(MutationServiceError::Failed(format!("test mutants: internal error: {error}"))),
    }
}
