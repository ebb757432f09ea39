//! A client of StrykerJS that sends one request at a time.

use std::{future::pending, num::NonZeroUsize, time::Duration};

use heeler_protocol::{
    mutation::{
        ClientRequest, method, read_result,
        v0_4::{
            ConfigureParams, ConfigureResult, DiscoverParams, DiscoverResult, FileRange, MutationTestParams,
            MutationTestResult,
        },
    },
    rpc::{self, RequestId, RpcMessage},
};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::{
    error::StrykerError,
    package::StrykerPackage,
    process::{ProcessEvent, StrykerProcess},
};

/// Timeout of the first answer, which includes loading the modules of StrykerJS.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(60);
/// Timeout for discovering all mutants of a project.
const DISCOVER_LIMIT: Duration = Duration::from_secs(600);
/// StrykerJS counts as hung if it sends no result for this long. StrykerJS itself ends hanging tests; without
/// a mutant after five minutes by default.
const SILENCE_LIMIT: Duration = Duration::from_secs(3600);

pub(super) struct StrykerClient {
    process: StrykerProcess,
    next_id: u64,
    /// Whether the current request has had a result.
    has_results: bool,
    open: Option<(RequestId, &'static str)>,
    /// When the request times out, and its timeout.
    deadline: Option<(Instant, Duration)>,
}

/// An event while StrykerJS tests mutants.
pub(super) enum TestEvent {
    Results(MutationTestResult),
    /// All selected mutants have been tested.
    Done,
}

/// A message about the request in progress.
enum StrykerMessage {
    Answer(Option<Box<RawValue>>),
    Results(MutationTestResult),
}

impl StrykerClient {
    /// Starts StrykerJS and checks its protocol version.
    ///
    /// # Errors
    /// StrykerJS can't be started, or speaks another protocol version.
    ///
    /// Cancel safe: yes, because the process ends when the connection of its guard closes.
    pub(super) async fn start(
        package: &StrykerPackage,
        concurrency: Option<NonZeroUsize>,
    ) -> Result<Self, StrykerError> {
        let process = StrykerProcess::start(package, concurrency).await?;
        let mut client = Self { process, next_id: 1, has_results: false, open: None, deadline: None };
        match client.configure().await {
            Ok(()) => Ok(client),
            Err(error) => {
                client.end().await;
                Err(error)
            }
        }
    }

    async fn configure(&mut self) -> Result<(), StrykerError> {
        self.ask(&ClientRequest::Configure(ConfigureParams::default()), CONFIGURE_LIMIT).await;
        let answer = self.answer().await?;
        let ConfigureResult { version } = read_result(answer.as_deref())
            .map_err(|source| StrykerError::Answer { method: method::CONFIGURE, source })?;
        let is_known = version == "0.4" || version.starts_with("0.4.");
        if is_known { Ok(()) } else { Err(StrykerError::Version { version }) }
    }

    /// Returns the mutants of files and directories; `None` means the whole package.
    ///
    /// # Errors
    /// StrykerJS refuses, ends, or sends an invalid answer.
    ///
    /// Cancel safe: no, because the next request would get the answer of this one.
    pub(super) async fn discover(
        &mut self,
        files: Option<Vec<FileRange>>,
    ) -> Result<DiscoverResult, StrykerError> {
        self.ask(&ClientRequest::Discover(DiscoverParams { files }), DISCOVER_LIMIT).await;
        let answer = self.answer().await?;
        read_result(answer.as_deref())
            .map_err(|source| StrykerError::Answer { method: method::DISCOVER, source })
    }

    /// Starts testing the mutants of files and ranges; `None` tests all.
    ///
    /// Cancel safe: no, as [`Self::discover`].
    pub(super) async fn begin_tests(&mut self, files: Option<Vec<FileRange>>) {
        self.has_results = false;
        let params = MutationTestParams { files, mutants: None };
        self.ask(&ClientRequest::MutationTest(params), SILENCE_LIMIT).await;
    }

    /// Waits for the next event of the tests.
    ///
    /// # Errors
    /// StrykerJS refuses, ends, or sends an invalid answer.
    ///
    /// Cancel safe: yes, because received data is kept.
    pub(super) async fn next_test_event(&mut self) -> Result<TestEvent, StrykerError> {
        if self.open.is_none() {
            return Ok(TestEvent::Done);
        }
        match self.next_message().await? {
            StrykerMessage::Results(results) => {
                if !std::mem::replace(&mut self.has_results, true) {
                    self.process.note_sandboxes();
                }
                self.deadline = Some((Instant::now() + SILENCE_LIMIT, SILENCE_LIMIT));
                Ok(TestEvent::Results(results))
            }
            StrykerMessage::Answer(answer) => {
                // The protocol allows results in the answer too.
                let results: MutationTestResult = read_result(answer.as_deref())
                    .map_err(|source| StrykerError::Answer { method: method::MUTATION_TEST, source })?;
                Ok(TestEvent::Results(results))
            }
        }
    }

    /// Cancel safe: no, as [`StrykerProcess::pause`].
    pub(super) async fn pause(&mut self) {
        self.process.pause().await;
    }

    /// Continues after [`Self::pause`], and restarts the timeout.
    ///
    /// Cancel safe: yes, as [`StrykerProcess::resume`].
    pub(super) async fn resume(&mut self) {
        self.process.resume().await;
        self.deadline = self.deadline.map(|(_, limit)| (Instant::now() + limit, limit));
    }

    /// Asks StrykerJS to end.
    ///
    /// Cancel safe: yes, as [`StrykerProcess::terminate`].
    pub(super) async fn terminate(&mut self) {
        self.process.terminate().await;
    }

    /// Ends StrykerJS. None of its processes runs when this returns.
    ///
    /// Cancel safe: yes, as [`StrykerProcess::end`].
    pub(super) async fn end(self) {
        self.process.end().await;
    }

    async fn ask(&mut self, request: &ClientRequest, limit: Duration) {
        let id = RequestId::number(self.next_id);
        self.next_id += 1;
        self.process.send(request.frame(&id)).await;
        self.open = Some((id, request.method()));
        self.deadline = Some((Instant::now() + limit, limit));
    }

    async fn answer(&mut self) -> Result<Option<Box<RawValue>>, StrykerError> {
        loop {
            match self.next_message().await? {
                StrykerMessage::Answer(answer) => return Ok(answer),
                // Results without a request.
                StrykerMessage::Results(_) => {}
            }
        }
    }

    async fn next_message(&mut self) -> Result<StrykerMessage, StrykerError> {
        loop {
            let method = self.open.as_ref().map_or("", |(_, method)| method);
            let event = tokio::select! {
                event = self.process.next_event() => event,
                limit = expired(self.deadline) => return Err(StrykerError::Silent { method, limit }),
            };
            match event {
                ProcessEvent::Body(body) => {
                    if let Some(message) = self.on_body(&body).await? {
                        return Ok(message);
                    }
                }
                ProcessEvent::Ended(end) => {
                    let stderr = self.process.stderr().await;
                    return Err(StrykerError::Ended { method, end, stderr });
                }
                ProcessEvent::Unreadable(source) => {
                    let stderr = self.process.stderr().await;
                    return Err(StrykerError::Stream { stderr, source });
                }
            }
        }
    }

    async fn on_body(&mut self, body: &[u8]) -> Result<Option<StrykerMessage>, StrykerError> {
        let message =
            rpc::parse(body).map_err(|invalid| StrykerError::Message { problem: invalid.error.message })?;
        match message {
            RpcMessage::Notification { method, params } if method == method::REPORT_PROGRESS => {
                let results = read_result(params.as_deref())
                    .map_err(|source| StrykerError::Answer { method: method::REPORT_PROGRESS, source })?;
                Ok(Some(StrykerMessage::Results(results)))
            }
            RpcMessage::Response { id, outcome } => match (&self.open, outcome) {
                (Some((open, _)), Ok(result)) if *open == id => {
                    (self.open, self.deadline) = (None, None);
                    Ok(Some(StrykerMessage::Answer(result)))
                }
                // An error without an id refers to a request that StrykerJS could not parse.
                (Some((open, method)), Err(error)) if *open == id || id == RequestId::Null => {
                    let (method, message) = (*method, error.message);
                    (self.open, self.deadline) = (None, None);
                    let stderr = self.process.stderr().await;
                    Err(StrykerError::Refused { method, message, stderr })
                }
                _ => Ok(None),
            },
            RpcMessage::Notification { .. } | RpcMessage::Request { .. } => Ok(None),
        }
    }
}

/// Waits until a deadline, and returns its timeout. Without one, waits forever.
async fn expired(deadline: Option<(Instant, Duration)>) -> Duration {
    match deadline {
        Some((at, limit)) => {
            sleep_until(at).await;
            limit
        }
        None => pending().await,
    }
}
