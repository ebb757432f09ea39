//! A project with four mutants. A run reports one mutant for each permit from the test.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use heeler_config::{CommandLineSettings, Config, ResolvedSettings};
use heeler_mutant_model::{
    ForeignMutant, ForeignSource, Language, Mutant, MutantId, MutantResult, MutantStatus, Position,
};
use heeler_server::{
    listen::{ClientServer, SessionOptions, TcpAddress, serve_tcp},
    mutation::{
        Cancellation, FirstMethod, MutantSelection, MutationFrontEnd, MutationProject, MutationServer,
        MutationService, MutationServiceError, MutationSessionOptions, ProgressForm, ServiceFuture,
    },
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};

/// Timeout for events that are certain to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const MUTANTS: usize = 4;

/// Counts of the service's operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServiceCounts {
    pub(crate) opening: u32,
    pub(crate) started: u32,
    pub(crate) ended: u32,
    pub(crate) cancelled: u32,
}

/// The service and the project that it opens.
#[derive(Clone)]
pub(crate) struct TestService {
    /// Each permit allows opening one project.
    pub(crate) openings: Arc<Semaphore>,
    /// Each permit allows testing one mutant.
    pub(crate) steps: Arc<Semaphore>,
    pub(crate) counts: watch::Sender<ServiceCounts>,
}

impl TestService {
    pub(crate) fn new() -> Self {
        Self {
            openings: Arc::new(Semaphore::new(1000)),
            steps: Arc::new(Semaphore::new(0)),
            counts: watch::Sender::default(),
        }
    }

    /// Waits until the counts satisfy the condition.
    pub(crate) async fn wait_for(&self, is_met: impl FnMut(&ServiceCounts) -> bool) {
        let mut counts = self.counts.subscribe();
        let met = timeout(DEADLINE, counts.wait_for(is_met)).await;
        assert!(met.is_ok(), "{:?}", self.counts.borrow());
    }
}

impl MutationService for TestService {
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>> {
        let service = self.clone();
        Box::pin(async move {
            service.counts.send_modify(|counts| counts.opening += 1);
            service.openings.acquire().await.unwrap().forget();
            match config_file.as_deref().and_then(Path::to_str) {
                None | Some("/project/heeler.toml") => Ok(Arc::new(service) as Arc<dyn MutationProject>),
                Some("panic") => panic!("a panic of the tests"),
                Some(other) => {
                    Err(MutationServiceError::Config(format!("expected a file of the project, got {other}")))
                }
            }
        })
    }
}

impl MutationProject for TestService {
    fn directory(&self) -> &Path {
        Path::new("/project")
    }

    fn discover(&self, selection: Arc<MutantSelection>, _: Cancellation) -> ServiceFuture<Vec<MutantResult>> {
        let found = |(index, mutant)| {
            let status = if index == 3 { MutantStatus::Ignored } else { MutantStatus::Pending };
            MutantResult::new(mutant, status, None)
        };
        let found = selected(&selection).map(found).collect();
        Box::pin(async { Ok(found) })
    }

    fn test(
        &self,
        selection: Arc<MutantSelection>,
        results: mpsc::Sender<MutantResult>,
        mut cancellation: Cancellation,
    ) -> ServiceFuture<()> {
        let service = self.clone();
        Box::pin(async move {
            service.counts.send_modify(|counts| counts.started += 1);
            let testing = async {
                for (index, mutant) in selected(&selection) {
                    service.steps.acquire().await.unwrap().forget();
                    results.send(tested(index, mutant)).await.unwrap();
                }
            };
            let outcome = tokio::select! {
                () = testing => Ok(()),
                () = cancellation.cancelled() => Err(MutationServiceError::Cancelled),
            };
            service.counts.send_modify(|counts| {
                counts.ended += 1;
                counts.cancelled += u32::from(outcome.is_err());
            });
            outcome
        })
    }
}

fn tested(index: usize, mutant: Arc<Mutant>) -> MutantResult {
    let uid: Arc<str> = "unit::both".into();
    match index {
        0 => MutantResult {
            covered_by: std::iter::once(Arc::clone(&uid)).collect(),
            killed_by: vec![uid],
            tests_completed: Some(1),
            is_static: Some(false),
            duration: Some(Duration::from_micros(1500)),
            ..MutantResult::new(mutant, MutantStatus::Killed, Some("left: 1".into()))
        },
        1 => MutantResult::new(mutant, MutantStatus::Survived, None),
        2 => MutantResult::new(mutant, MutantStatus::NoCoverage, None),
        _ => MutantResult::new(mutant, MutantStatus::Ignored, None),
    }
}

fn selected(selection: &MutantSelection) -> impl Iterator<Item = (usize, Arc<Mutant>)> + use<> {
    let all = mutants().into_iter().enumerate();
    let kept: Vec<_> = all
        .filter(|(_, mutant)| selection.may_include(mutant.path()) && selection.includes(mutant))
        .collect();
    kept.into_iter()
}

fn mutants() -> Vec<Arc<Mutant>> {
    let mutant = |number: u32, path: &str, replacement: &str| {
        let position = |column| Position { line: number, column };
        let text = "    a && b\n".repeat(4);
        let source = ForeignSource { path: path.into(), language: Language::Rust, text: text.into() };
        let found = ForeignMutant {
            start: position(5),
            end: position(11),
            mutator: "ConditionalExpression".to_owned(),
            replacement: replacement.to_owned(),
            description: None,
        };
        let mut mutant = source.mutants(vec![found]).unwrap().remove(0);
        (mutant.id, mutant.item) = (MutantId(number.into()), "both".into());
        Arc::new(mutant)
    };
    vec![
        mutant(1, "src/lib.rs", "true"),
        mutant(2, "src/lib.rs", "false"),
        mutant(3, "src/deep/ü.rs", ""),
        mutant(4, "tests/it.rs", "true"),
    ]
}

pub(crate) fn options() -> MutationSessionOptions {
    MutationSessionOptions {
        first_method: FirstMethod::Handshake,
        progress_form: ProgressForm::List,
        begin_within: None,
    }
}

/// Returns the front end with this service, and a scheduler that it does not use.
pub(crate) fn client_server(service: &TestService, options: MutationSessionOptions) -> ClientServer {
    let config = Config::without_file("/".as_ref());
    let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
    let (scheduler, _task) = SchedulerHandle::start(SchedulerOptions {
        program: "/nowhere".into(),
        slots: 1,
        machine: None,
        worker_stdout: WorkerStdout::Discarded,
        has_concurrent_runs: true,
        starts_workers_early: false,
        upcoming_run: None,
    });
    let mutation = Some(MutationServer::new(Arc::new(service.clone()), options));
    let options = SessionOptions { mutation, ..SessionOptions::new(Arc::new(settings), Vec::new()) };
    ClientServer { front_end: &MutationFrontEnd, options, scheduler }
}

/// A listening server.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    pub(crate) service: TestService,
    stop: Option<mpsc::Sender<()>>,
    tasks: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(options()).await
    }

    pub(crate) async fn start_with(options: MutationSessionOptions) -> Self {
        let service = TestService::new();
        let server = client_server(&service, options);
        let (stop, stopped) = mpsc::channel(1);
        let (ready, port) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let address = TcpAddress::Loopback { address: None, port: 0 };
            serve_tcp(&address, &server, |bound| ready.send(bound.port()).unwrap(), stopped).await.unwrap();
        });
        Self { port: port.await.unwrap(), service, stop: Some(stop), tasks }
    }

    /// Stops the server and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        while let Some(ended) = timeout(DEADLINE, self.tasks.join_next()).await.unwrap() {
            ended.unwrap();
        }
    }
}
