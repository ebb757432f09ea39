//! Mutation testing for clients of the Mutation Server Protocol: the packages of the server's directory.

use std::{
    collections::BTreeSet,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{CommandLineSettings, ResolvedSettings};
use heeler_core::error_chain;
use heeler_mutant::MutantResult;
use heeler_server::mutation::{
    Cancellation, MutantSelection, MutationProject, MutationService, MutationServiceError, ServiceFuture,
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    build::{GuardedBuild, WorkPlace, build_guarded},
    engine::{EngineEnd, MutantEngine},
    error::MutateError,
    find::{FoundProject, find_in, untested, workspace_root},
    observer::MutationObserver,
    testing::{MutantTesting, TestedMutants},
};
use crate::cli::{
    cargo::{BuildSupervision, CargoError},
    load_config,
};

/// How long a build waits for that of a request that has just been cancelled.
const WORK_PLACE_WAIT: Duration = Duration::from_secs(5);
const WORK_PLACE_POLL: Duration = Duration::from_millis(20);

/// Tests mutants of the packages around a directory.
pub(in crate::cli) struct CargoMutationService {
    pub(in crate::cli) directory: PathBuf,
    /// The configuration file that the command line names.
    pub(in crate::cli) config_file: Option<PathBuf>,
    pub(in crate::cli) command_line: CommandLineSettings,
}

/// A workspace with its settings.
struct CargoMutationProject {
    server_directory: PathBuf,
    root: PathBuf,
    settings: Arc<ResolvedSettings>,
}

impl MutationService for CargoMutationService {
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>> {
        let config_file = config_file.or_else(|| self.config_file.clone());
        let config_file = config_file.map(|file| self.directory.join(file));
        let (directory, command_line) = (self.directory.clone(), self.command_line.clone());
        Box::pin(blocking(move || {
            let wrong = |error: &dyn std::error::Error| MutationServiceError::Config(error_chain(error));
            let config = load_config(config_file.as_deref()).map_err(|error| wrong(&error))?;
            let settings = ResolvedSettings::resolve(&config, command_line).map_err(|error| wrong(&error))?;
            let root = workspace_root(&directory).map_err(|error| failed(&error))?;
            let project: Arc<dyn MutationProject> = Arc::new(CargoMutationProject {
                server_directory: directory,
                root,
                settings: Arc::new(settings),
            });
            Ok(project)
        }))
    }
}

impl MutationProject for CargoMutationProject {
    fn directory(&self) -> &Path {
        &self.root
    }

    fn discover(
        &self,
        selection: Arc<MutantSelection>,
        _cancellation: Cancellation,
    ) -> ServiceFuture<Vec<MutantResult>> {
        let directory = self.server_directory.clone();
        Box::pin(blocking(move || {
            let found = find_selected(&directory, &selection)?;
            let sources = found.mutated.sources.iter();
            Ok(sources.flat_map(|source| source.mutants().map(untested)).collect())
        }))
    }

    fn test(
        &self,
        selection: Arc<MutantSelection>,
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    ) -> ServiceFuture<()> {
        let (directory, settings) = (self.server_directory.clone(), Arc::clone(&self.settings));
        Box::pin(async move {
            let began = Instant::now();
            let built = build(directory, Arc::clone(&settings), &selection, cancellation.clone()).await?;
            let Some((mut build, place)) = built else { return Ok(()) };
            // What is known without a test.
            let known = MutantTesting::all_results(&build.guarded, &TestedMutants::default());
            let written: BTreeSet<_> = build.guarded.written().map(|one| one.found.mutant.id).collect();
            for result in known.into_iter().filter(|result| !written.contains(&result.mutant.id)) {
                if results.send(result).await.is_err() {
                    return Ok(());
                }
            }
            let observer = MutationObserver::Client { results, cancellation };
            let engine = MutantEngine { settings: &settings, place: &place, setup: began.elapsed() };
            match engine.test(&mut build, observer).await.map_err(|error| failed(&error))? {
                EngineEnd::Over(run, _observer) if run.is_cancelled => Err(MutationServiceError::Cancelled),
                EngineEnd::Over(..) | EngineEnd::Left => Ok(()),
            }
        })
    }
}

/// Builds the selected mutants; `None` if there are none.
async fn build(
    directory: PathBuf,
    settings: Arc<ResolvedSettings>,
    selection: &Arc<MutantSelection>,
    mut cancellation: Cancellation,
) -> Result<Option<(GuardedBuild, WorkPlace)>, MutationServiceError> {
    let selection = Arc::clone(selection);
    let found = blocking(move || find_selected(&directory, &selection)).await?;
    if found.mutated.sources.iter().all(|source| source.selected.is_empty()) {
        return Ok(None);
    }
    let state_dir = std::path::absolute(&settings.state_dir).unwrap_or_else(|_| settings.state_dir.clone());
    let place = open_work_place(&state_dir, &found.mutated.root).await.map_err(|error| failed(&error))?;
    // Its other end becomes readable when this one is dropped.
    let pipe = heeler_sys::io::pipe();
    let (cancelled, canceller) =
        pipe.map_err(|error| MutationServiceError::Failed(format!("failed to make a pipe: {error}")))?;
    let building = blocking(move || {
        let supervision =
            BuildSupervision { cancelled: Some(cancelled.as_fd()), ..BuildSupervision::default() };
        match build_guarded(found, &place, &state_dir, supervision, &mut |_, _| {}) {
            Ok(build) => Ok(Some((build, place))),
            Err(MutateError::Cargo(CargoError::Cancelled { .. })) => Err(MutationServiceError::Cancelled),
            Err(error) => Err(failed(&error)),
        }
    });
    let mut building = std::pin::pin!(building);
    tokio::select! {
        built = &mut building => return built,
        () = cancellation.cancelled() => {}
    }
    drop(canceller);
    // It ends soon: the next request builds in the same directory.
    let (Ok(_) | Err(_)) = building.await;
    Err(MutationServiceError::Cancelled)
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

fn find_selected(
    directory: &Path,
    selection: &MutantSelection,
) -> Result<FoundProject, MutationServiceError> {
    let mut found = find_in(directory).map_err(|error| failed(&error))?;
    for source in &mut found.mutated.sources {
        let mutants = source.source.mutants();
        source.selected.retain(|&index| selection.includes(&mutants[index].mutant));
    }
    Ok(found)
}

fn failed(error: &MutateError) -> MutationServiceError {
    MutationServiceError::Failed(format!("failed to {}", error_chain(error)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MutationServiceError> + Send + 'static,
) -> Result<T, MutationServiceError> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(MutationServiceError::Failed(format!("internal error: {error}"))),
    }
}
