//! A request that takes time: it waits for its turn, runs, and answers. It is cancelled by its client, or
//! when the client can't be answered any more.

use std::{sync::Arc, time::Duration};

use heeler_mutant_model::MutantResult;
use heeler_protocol::{
    mutation::{
        ServerNotification, ServerResult,
        alpha::{InstrumentParams, MutantInFile, MutateParams, ProgressParams, ProgressToken, ProgressValue},
        code::REQUEST_CANCELLED,
        method, read_params,
        v0_4::{DiscoverParams, MutationTestParams, MutationTestResult},
    },
    rpc::{RequestId, RpcError, code},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};

use super::{OpenMutationRequests, rpc_error};
use crate::mutation::{
    Cancellation, Canceller, MutantSelection, MutationProject, MutationServiceError, ProgressForm,
    rendering::{AwaitedMutants, discovered, mutants_in_files, tested},
    responder::{RawParams, Responder, ResultDelivery},
};

/// Number of results queued for the client.
const RESULT_QUEUE: usize = 256;
/// Maximum number of results in one notification. Results are sent at once; several are combined only if the
/// client reads more slowly than mutants are tested.
const MAX_RESULTS: usize = 256;
/// Time limit for a cancelled operation to end. After that it is dropped.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// A request that was accepted.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: RawParams,
    pub(super) responder: Responder,
    pub(super) cancellation: Cancellation,
}

/// Everything needed to run a request.
pub(super) struct MutationRequestContext {
    pub(super) project: Arc<dyn MutationProject>,
    pub(super) run_queue: Arc<Semaphore>,
    pub(super) progress_form: ProgressForm,
    pub(super) open: OpenMutationRequests,
}

/// The work that a request asks for.
enum Work {
    Instrument(MutantSelection),
    Discover(MutantSelection),
    Test(MutantSelection, TestResults),
}

/// Where results of tested mutants go.
enum TestResults {
    /// Version 0.0.1-alpha.1. Results not sent in notifications are kept for the response.
    Alpha {
        token: Option<ProgressToken>,
        form: ProgressForm,
        kept: Vec<MutantInFile>,
    },
    V04 {
        awaited: AwaitedMutants,
        kept: MutationTestResult,
    },
}

/// Why a request has no result.
enum RequestFailure {
    Cancelled,
    Service(MutationServiceError),
}

impl WaitingRequest {
    /// Runs the request and answers it.
    ///
    /// Cancel safe: no, because the request would not be answered.
    pub(super) async fn run(self, context: MutationRequestContext) {
        let Self { id, method, params, responder, mut cancellation } = self;
        let work = match read_work(&method, params, &context) {
            Ok(work) => work,
            Err(error) => {
                context.open.lock().remove(&id);
                return responder.error(&id, &error).await;
            }
        };
        let sender = responder.channel.sender.clone();
        let gone = async move {
            tokio::select! {
                () = cancellation.cancelled() => {}
                () = sender.closed() => {}
            }
        };
        let mut gone = std::pin::pin!(gone);
        match work {
            Work::Instrument(selection) => {
                let found = discover(selection, &context, gone.as_mut()).await;
                let found = found.map(|found| mutants_in_files(&found, context.project.directory()));
                answer(&id, &responder, &context, found.map(ServerResult::Mutants)).await;
            }
            Work::Discover(selection) => {
                let found = discover(selection, &context, gone.as_mut()).await;
                answer(
                    &id,
                    &responder,
                    &context,
                    found.map(|found| ServerResult::Discovered(discovered(&found))),
                )
                .await;
            }
            Work::Test(selection, results) => {
                let run = TestRun { id, responder, context, results };
                run.serve(selection, gone.as_mut()).await;
            }
        }
    }
}

async fn answer(
    id: &RequestId,
    responder: &Responder,
    context: &MutationRequestContext,
    result: Result<ServerResult, RequestFailure>,
) {
    // The client may reuse the id as soon as it has the answer.
    context.open.lock().remove(id);
    match result {
        Ok(result) => responder.result(id, &result).await,
        Err(failure) => responder.error(id, &failure.rpc_error()).await,
    }
}

impl RequestFailure {
    fn rpc_error(&self) -> RpcError {
        match self {
            Self::Cancelled => RpcError::new(REQUEST_CANCELLED, "the request was cancelled"),
            Self::Service(error) => rpc_error(error),
        }
    }
}

fn read_work(method: &str, params: RawParams, context: &MutationRequestContext) -> Result<Work, RpcError> {
    let params = params.as_deref();
    let directory = context.project.directory();
    let globs = |globs: Option<Vec<String>>| {
        MutantSelection::from_globs(&globs.unwrap_or_default(), directory)
            .map_err(|error| RpcError::new(code::INVALID_PARAMS, format!("{method}: {error}")))
    };
    match method {
        method::INSTRUMENT => {
            let InstrumentParams { glob_patterns } = read_params(method, params)?;
            Ok(Work::Instrument(globs(glob_patterns)?))
        }
        method::MUTATE => {
            let MutateParams { glob_patterns, partial_result_token: token } = read_params(method, params)?;
            let results = TestResults::Alpha { token, form: context.progress_form, kept: Vec::new() };
            Ok(Work::Test(globs(glob_patterns)?, results))
        }
        method::DISCOVER => {
            let DiscoverParams { files } = read_params(method, params)?;
            let selection = files
                .map_or_else(MutantSelection::all, |files| MutantSelection::from_files(&files, directory));
            Ok(Work::Discover(selection))
        }
        _ => {
            let MutationTestParams { files, mutants } = read_params(method, params)?;
            let selection = match (&mutants, &files) {
                (Some(mutants), _) => MutantSelection::from_mutants(mutants, directory),
                (None, Some(files)) => MutantSelection::from_files(files, directory),
                (None, None) => MutantSelection::all(),
            };
            let awaited = AwaitedMutants::new(mutants.unwrap_or_default(), directory);
            Ok(Work::Test(selection, TestResults::V04 { awaited, kept: MutationTestResult::default() }))
        }
    }
}

/// Waits for an operation. A panic counts as a failure.
pub(super) async fn outcome_of<T: 'static>(
    operation: &mut JoinSet<Result<T, MutationServiceError>>,
) -> Result<T, MutationServiceError> {
    let internal = || {
        MutationServiceError::Failed(
            "complete the operation: internal error in Heeler; see its standard error".to_owned(),
        )
    };
    match operation.join_next().await {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => {
            tracing::error!(%error, "internal error in an operation on mutants");
            Err(internal())
        }
        None => Err(internal()),
    }
}

async fn discover(
    selection: MutantSelection,
    context: &MutationRequestContext,
    gone: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> Result<Vec<MutantResult>, RequestFailure> {
    let (canceller, cancellation) = Canceller::new();
    let mut operation = JoinSet::new();
    operation.spawn(context.project.discover(Arc::new(selection), cancellation));
    tokio::select! {
        found = outcome_of(&mut operation) => found.map_err(RequestFailure::Service),
        () = gone => {
            canceller.cancel();
            Err(RequestFailure::Cancelled)
        }
    }
}

/// A test run for a client.
struct TestRun {
    id: RequestId,
    responder: Responder,
    context: MutationRequestContext,
    results: TestResults,
}

impl TestRun {
    async fn serve(
        mut self,
        selection: MutantSelection,
        mut gone: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) {
        if self.results.has_notifications() {
            self.responder.started().await;
        }
        let permit = tokio::select! {
            // A request cancelled before its turn never begins.
            biased;
            () = gone.as_mut() => return self.fail(RequestFailure::Cancelled).await,
            permit = Arc::clone(&self.context.run_queue).acquire_owned() => permit,
        };
        let (canceller, cancellation) = Canceller::new();
        let (sender, mut receiver) = mpsc::channel(RESULT_QUEUE);
        let mut operation = JoinSet::new();
        operation.spawn(self.context.project.test(Arc::new(selection), sender, cancellation));
        let outcome = tokio::select! {
            outcome = self.collect(&mut receiver, &mut operation) => outcome,
            () = gone => Err(RequestFailure::Cancelled),
        };
        match outcome {
            Ok(()) => self.succeed().await,
            Err(failure) => {
                canceller.cancel();
                receiver.close();
                self.fail(failure).await;
                // The next run begins only when this one has stopped using the machine.
                let ended = timeout(CANCEL_LIMIT, async { while operation.join_next().await.is_some() {} });
                if ended.await.is_err() {
                    tracing::warn!(
                        "a cancelled mutation test did not end within {} s",
                        CANCEL_LIMIT.as_secs()
                    );
                }
            }
        }
        drop(permit);
    }

    /// Delivers results until the operation has ended and all are delivered.
    async fn collect(
        &mut self,
        receiver: &mut mpsc::Receiver<MutantResult>,
        operation: &mut JoinSet<Result<(), MutationServiceError>>,
    ) -> Result<(), RequestFailure> {
        let mut outcome = None;
        let mut results = Vec::new();
        loop {
            tokio::select! {
                count = receiver.recv_many(&mut results, MAX_RESULTS) => {
                    // The queue ends with the operation, or right before it.
                    if count == 0 {
                        let outcome = match outcome.take() {
                            Some(outcome) => outcome,
                            None => outcome_of(operation).await,
                        };
                        return outcome.map_err(RequestFailure::Service);
                    }
                    if !self.deliver(&results).await {
                        return Err(RequestFailure::Cancelled);
                    }
                    results.clear();
                }
                ended = outcome_of(operation), if outcome.is_none() => {
                    outcome = Some(ended);
                    // Results that are already queued are still received.
                    receiver.close();
                }
            }
        }
    }

    /// Delivers results. Returns whether the client is still there.
    async fn deliver(&mut self, results: &[MutantResult]) -> bool {
        let is_kept_only = self.responder.channel.delivery == ResultDelivery::InResponse;
        match &mut self.results {
            TestResults::Alpha { token, form, kept } => {
                let mutants = mutants_in_files(results, self.context.project.directory());
                let Some(token) = token else {
                    kept.extend(mutants);
                    return true;
                };
                if is_kept_only {
                    kept.extend(mutants.iter().cloned());
                }
                let value = match form {
                    ProgressForm::List => ProgressValue::List(mutants),
                    ProgressForm::Object => ProgressValue::Object { mutants },
                };
                let params = ProgressParams { token: token.clone(), value };
                self.responder.notify(&ServerNotification::Progress(params)).await
            }
            TestResults::V04 { awaited, kept } => {
                let tested = tested(results);
                awaited.remove(&tested);
                if is_kept_only {
                    merge(kept, tested.clone());
                }
                self.responder.notify(&ServerNotification::ReportProgress(tested)).await
            }
        }
    }

    async fn succeed(self) {
        let Self { id, responder, context, results } = self;
        match results {
            TestResults::Alpha { kept, .. } => {
                answer(&id, &responder, &context, Ok(ServerResult::Mutants(kept))).await
            }
            TestResults::V04 { awaited, mut kept } => {
                let missing = awaited.into_ignored();
                if !missing.files.is_empty() {
                    if responder.channel.delivery == ResultDelivery::InResponse {
                        merge(&mut kept, missing.clone());
                    }
                    responder.notify(&ServerNotification::ReportProgress(missing)).await;
                }
                answer(&id, &responder, &context, Ok(ServerResult::Tested(kept))).await;
            }
        }
    }

    async fn fail(&self, failure: RequestFailure) {
        answer(&self.id, &self.responder, &self.context, Err(failure)).await;
    }
}

fn merge(kept: &mut MutationTestResult, tested: MutationTestResult) {
    for (path, file) in tested.files {
        kept.files.entry(path).or_default().mutants.extend(file.mutants);
    }
}

impl TestResults {
    fn has_notifications(&self) -> bool {
        match self {
            Self::Alpha { token, .. } => token.is_some(),
            Self::V04 { .. } => true,
        }
    }
}
