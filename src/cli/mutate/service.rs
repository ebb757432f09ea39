//! Mutation testing for clients of the Mutation Server Protocol: what the command finds in the server's
//! directory.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{CommandLineSettings, ResolvedSettings};
use heeler_core::error_chain;
use heeler_mutant_model::{MutantResult, MutantStatus};
use heeler_mutate::SourceSelection;
use heeler_server::mutation::{
    Cancellation, MutantSelection, MutationProject, MutationService, MutationServiceError, ServiceFuture,
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    build::WorkPlace,
    building::{BuildEnd, build_followed},
    cargo_options::CargoOptions,
    engine::{EngineEnd, MutantEngine},
    error::MutateError,
    find::{FoundProject, NamedBuild, SearchedPackages},
    found::{FoundMutants, MutantSearch, SearchedProject},
    observer::MutationObserver,
    stryker::{FoundByStryker, StrykerEnd},
    testing::{MutantTesting, TestedMutants},
};
use crate::cli::configuration::load_config;

/// How long a build waits for that of a request that has just been cancelled.
const WORK_PLACE_WAIT: Duration = Duration::from_secs(5);
const WORK_PLACE_POLL: Duration = Duration::from_millis(20);

/// Tests mutants of what is around a directory.
pub(in crate::cli) struct DirectoryMutationService {
    pub(in crate::cli) directory: PathBuf,
    /// How the user builds the sources; otherwise Cargo does.
    pub(in crate::cli) command: Option<NamedBuild>,
    pub(in crate::cli) cargo: CargoOptions,
    /// The configuration file that the command line names.
    pub(in crate::cli) config_file: Option<PathBuf>,
    pub(in crate::cli) command_line: CommandLineSettings,
}

/// A project with its settings.
#[derive(Clone)]
struct DirectoryMutationProject {
    server_directory: PathBuf,
    command: Option<NamedBuild>,
    cargo: CargoOptions,
    searched: SearchedProject,
    settings: Arc<ResolvedSettings>,
}

impl MutationService for DirectoryMutationService {
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>> {
        let config_file = config_file.or_else(|| self.config_file.clone());
        let config_file = config_file.map(|file| self.directory.join(file));
        let (server_directory, command) = (self.directory.clone(), self.command.clone());
        let (command_line, cargo) = (self.command_line.clone(), self.cargo.clone());
        Box::pin(blocking(move || {
            let wrong = |error: &dyn std::error::Error| MutationServiceError::Config(error_chain(error));
            let config = load_config(config_file.as_deref()).map_err(|error| wrong(&error))?;
            let settings = ResolvedSettings::resolve(&config, command_line).map_err(|error| wrong(&error))?;
            let searched = SearchedProject::open(command.as_ref(), &server_directory, &config);
            let searched = searched.map_err(|error| failed(&error))?;
            if let Some(missing) = &searched.missing {
                tracing::warn!("JavaScript and TypeScript are left out: failed to {missing}");
            }
            let settings = Arc::new(settings);
            let project: Arc<dyn MutationProject> =
                Arc::new(DirectoryMutationProject { server_directory, command, cargo, searched, settings });
            Ok(project)
        }))
    }
}

impl MutationProject for DirectoryMutationProject {
    fn directory(&self) -> &Path {
        &self.searched.root
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
            let FoundMutants { built, stryker, .. } = found;
            let mut observer = MutationObserver::Client { results, cancellation };
            let (tested, untested) = stryker.into_iter().partition::<Vec<_>, _>(FoundByStryker::has_selected);
            for found in untested {
                // It is not needed any more.
                found.end().await;
            }
            if let Some(built) = built.filter(FoundProject::has_selected) {
                match test_built(built, Arc::clone(&project.settings), began, observer).await {
                    Ok(client) => observer = client,
                    Err(error) => {
                        for found in tested {
                            found.end().await;
                        }
                        return Err(error);
                    }
                }
            }
            for found in tested {
                observer = test_with_stryker(found, observer).await?;
            }
            Ok(())
        })
    }
}

impl DirectoryMutationProject {
    /// Finds the selected mutants.
    async fn find(
        &self,
        selection: &MutantSelection,
        mut cancellation: Cancellation,
    ) -> Result<FoundMutants, MutationServiceError> {
        let search = MutantSearch {
            directory: self.server_directory.clone(),
            command: self.command.clone(),
            cargo: self.cargo.clone(),
            selection: SourceSelection::default(),
            packages: SearchedPackages::Workspace,
            named: selection.named_paths(),
            jobs: self.settings.run.jobs,
        };
        let found = tokio::select! {
            found = search.run(&self.searched) => found,
            () = cancellation.cancelled() => return Err(MutationServiceError::Cancelled),
        };
        let mut found = found.map_err(|error| failed(&error))?;
        found.retain(|mutant| selection.includes(mutant));
        Ok(found)
    }
}

/// Tests mutants of sources that are built here, and returns the client.
async fn test_built(
    project: FoundProject,
    settings: Arc<ResolvedSettings>,
    began: Instant,
    observer: MutationObserver,
) -> Result<MutationObserver, MutationServiceError> {
    let mut observer = observer;
    let state_dir = std::path::absolute(&settings.state_dir).unwrap_or_else(|_| settings.state_dir.clone());
    let place = open_work_place(&state_dir, &project.mutated.root).await.map_err(|error| failed(&error))?;
    let built = build_followed(project, place, state_dir, &mut observer).await;
    let (mut build, place) = match built.map_err(|error| failed(&error))? {
        BuildEnd::Built(build, place) => (build, place),
        // The next request builds in the same directory.
        BuildEnd::Ended(_) | BuildEnd::Left => return Err(MutationServiceError::Cancelled),
    };
    let MutationObserver::Client { results, cancellation } = observer else { return Ok(observer) };
    // What is known without a test.
    let known = MutantTesting::all_results(&build.guarded, &mut TestedMutants::default(), None);
    let written: BTreeSet<_> = build.guarded.written().map(|one| one.found.mutant.id).collect();
    for result in known.into_iter().filter(|result| !written.contains(&result.mutant.id)) {
        if results.send(result).await.is_err() {
            return Err(MutationServiceError::Cancelled);
        }
    }
    for note in &build.notes {
        tracing::warn!("{note}");
    }
    let observer = MutationObserver::Client { results, cancellation };
    let engine = MutantEngine { settings: &settings, place: &place, setup: began.elapsed() };
    match engine.test(&mut build, observer).await.map_err(|error| failed(&error))? {
        EngineEnd::Over(run, observer) if run.unfinished.is_none() => Ok(observer),
        EngineEnd::Over(..) | EngineEnd::Left => Err(MutationServiceError::Cancelled),
    }
}

/// Tests mutants that StrykerJS has found, and returns the client.
async fn test_with_stryker(
    found: FoundByStryker,
    observer: MutationObserver,
) -> Result<MutationObserver, MutationServiceError> {
    let StrykerEnd::Over(tested, mut observer) = found.test(observer).await else {
        return Err(MutationServiceError::Cancelled);
    };
    if tested.unfinished.is_some() {
        return Err(MutationServiceError::Cancelled);
    }
    // Their reasons are those of the error, or that there is none.
    for result in tested.results.iter().filter(|result| result.status == MutantStatus::Pending) {
        observer.on_result(result).await;
    }
    match &tested.error {
        Some(error) => Err(failed(&MutateError::stryker(error))),
        None => Ok(observer),
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

/// Returns the error, whose text reads after "failed to".
fn failed(error: &MutateError) -> MutationServiceError {
    MutationServiceError::Failed(error_chain(error))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MutationServiceError> + Send + 'static,
) -> Result<T, MutationServiceError> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(MutationServiceError::Failed(format!("go on: internal error: {error}"))),
    }
}
