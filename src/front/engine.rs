//! Does a session's requests, one after the other: it owns the catalogue and the pool.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tokio::sync::mpsc;
use wire::{
    control::CallbackAddress,
    mtp::{LogForm, LogLevel, LogMessage, log_frames},
    rpc::{RequestId, RpcError, code},
};

use super::mtp::{
    discover::{self, cancelled},
    params::TestsRequest,
    run,
};
use crate::{
    config::{Capture, Settings},
    discover::{Catalogue, Listing, ProgramSource, TestRef},
    pool::{Pool, PoolOptions},
    run::{Ingredients, Knowledge, RunCommand, RunOutcome, RunPlan},
};

/// So many runs are kept in the state directory; older ones go when a new one begins.
const RUNS_KEPT: usize = 20;

/// One request for the engine.
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) request: TestsRequest,
    pub(super) kind: JobKind,
    pub(super) commands: mpsc::Receiver<RunCommand>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Discover,
    Run,
}

/// How an engine is made.
pub(super) struct EngineOptions {
    pub(super) settings: Arc<Settings>,
    pub(super) sources: Vec<ProgramSource>,
    pub(super) callback: Option<CallbackAddress>,
    pub(super) has_attachments_stream: bool,
    pub(super) log_form: LogForm,
    pub(super) client: link::Outbox,
}

/// A session's doer of requests.
pub(in crate::front) struct Engine {
    settings: Arc<Settings>,
    catalogue: Catalogue,
    callback: Option<CallbackAddress>,
    has_attachments_stream: bool,
    log_form: LogForm,
    client: link::Outbox,
    pool: Option<Pool>,
    /// The commands of the job in hand.
    commands: mpsc::Receiver<RunCommand>,
}

impl Engine {
    pub(super) fn new(options: EngineOptions) -> Self {
        let (_, commands) = mpsc::channel(1);
        Self {
            catalogue: Catalogue::new(options.sources),
            settings: options.settings,
            callback: options.callback,
            has_attachments_stream: options.has_attachments_stream,
            log_form: options.log_form,
            client: options.client,
            pool: None,
            commands,
        }
    }

    /// Does jobs until there are no more, tells each one's end, then ends the pool.
    ///
    /// Cancel safe: no, because a job in hand would be left without an answer; but dropping it ends all processes.
    pub(super) async fn work(mut self, mut jobs: mpsc::Receiver<Job>, done: mpsc::Sender<RequestId>) {
        while let Some(job) = jobs.recv().await {
            self.commands = job.commands;
            match job.kind {
                JobKind::Discover => discover::answer(&mut self, &job.id, &job.request).await,
                JobKind::Run => run::answer(&mut self, &job.id, &job.request).await,
            }
            if done.send(job.id).await.is_err() {
                break;
            }
        }
        if let Some(pool) = self.pool.take() {
            pool.leave().await;
        }
    }

    pub(in crate::front) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(in crate::front) fn has_attachments_stream(&self) -> bool {
        self.has_attachments_stream
    }

    pub(in crate::front) fn log_form(&self) -> LogForm {
        self.log_form
    }

    pub(in crate::front) fn runs_dir(&self) -> PathBuf {
        self.settings.state_dir.join("runs")
    }

    pub(in crate::front) async fn send(&self, frame: Bytes) {
        // A client that is gone is noticed by the session's reader.
        let _closed = self.client.send(frame).await;
    }

    pub(in crate::front) async fn log(&self, level: LogLevel, message: String) {
        for frame in log_frames(self.log_form, None, vec![LogMessage::new(level, message)]) {
            self.send(frame).await;
        }
    }

    /// Lists what is not known yet.
    pub(in crate::front) async fn list(&mut self) -> Result<(), RpcError> {
        if self.catalogue.unlisted().is_empty() {
            self.catalogue.index();
            return Ok(());
        }
        self.start_pool().await?;
        let pool = self.pool.as_mut().expect("it was just started");
        let limits = (self.settings.run.jobs.slots().get(), self.settings.run.list_timeout);
        if !crate::discover::discover(pool, &mut self.catalogue, limits, &mut self.commands).await {
            return Err(cancelled());
        }
        for entry in self.catalogue.programs() {
            if let Listing::Broken { error } = &entry.listing {
                self.log(LogLevel::Error, error.clone()).await;
            }
        }
        Ok(())
    }

    async fn start_pool(&mut self) -> Result<(), RpcError> {
        if self.pool.is_some() {
            return Ok(());
        }
        let options = PoolOptions {
            callback: self.callback.clone(),
            limits: crate::run::delivery(&self.settings),
            client: self.client.clone(),
            is_output_shared: self.settings.run.capture == Capture::Shown,
        };
        let pool = Pool::start(options).await.map_err(|error| {
            RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", crate::error_chain(&error)))
        })?;
        self.pool = Some(pool);
        Ok(())
    }

    pub(in crate::front) fn plan(
        &self,
        run_id: &str,
        run_dir: PathBuf,
        (selected, missing): (&[TestRef], &[String]),
    ) -> RunPlan {
        let knowledge = self.knowledge(selected);
        let ingredients = Ingredients {
            catalogue: &self.catalogue,
            selected,
            missing,
            settings: &self.settings,
            knowledge: &knowledge,
        };
        RunPlan::new(run_id, run_dir, &ingredients)
    }

    fn knowledge(&self, selected: &[TestRef]) -> Knowledge {
        if !self.settings.run.is_history_kept {
            return Knowledge::default();
        }
        let uids = selected.iter().filter_map(|place| Some(self.catalogue.test(*place)?.uid.as_str()));
        Knowledge::read(&self.settings.state_dir, uids).unwrap_or_else(|error| {
            tracing::warn!(error = crate::error_chain(&error), "durations of earlier runs are not used");
            Knowledge::default()
        })
    }

    /// Drives a run to its end.
    pub(in crate::front) async fn drive(&mut self, plan: &RunPlan) -> Result<RunOutcome, RpcError> {
        self.start_pool().await?;
        let pool = self.pool.as_mut().expect("it was just started");
        Ok(crate::run::drive(pool, plan, &self.client, &mut self.commands).await)
    }

    /// Notes durations and crashes for later runs. A history that can't be written is no reason to fail a run.
    pub(in crate::front) fn record(&self, plan: &RunPlan, outcome: &RunOutcome) {
        if !self.settings.run.is_history_kept {
            return;
        }
        if let Err(error) = crate::run::record(&self.settings.state_dir, plan, outcome) {
            tracing::warn!(error = crate::error_chain(&error), "durations of this run are not kept");
        }
    }
}

/// Makes a directory for a run's journals, and clears away those of long ago.
pub(in crate::front) fn make_run_dir(runs: &Path, run_id: &str) -> Result<PathBuf, host::dirs::DirError> {
    host::dirs::private_dir(runs)?;
    prune(runs);
    hide_from_git(runs);
    let id: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ");
    let dir = runs.join(format!("{now}-{id}"));
    host::dirs::private_dir(&dir)?;
    Ok(dir)
}

/// What is kept of runs belongs in nobody's repository. A state directory that can't be written was told already.
fn hide_from_git(runs: &Path) {
    let Some(state_dir) = runs.parent() else { return };
    let path = state_dir.join(".gitignore");
    if !path.exists()
        && let Err(error) = std::fs::write(&path, "*\n")
    {
        tracing::debug!(path = %path.display(), %error, "git is not told to ignore the state directory");
    }
}

/// Names begin with the time, so the oldest come first. What can't be removed stays for the next time.
fn prune(runs: &Path) {
    let Ok(entries) = std::fs::read_dir(runs) else { return };
    let mut dirs: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    dirs.sort_unstable();
    let surplus = (dirs.len() + 1).saturating_sub(RUNS_KEPT).min(dirs.len());
    for dir in &dirs[..surplus] {
        if let Err(error) = std::fs::remove_dir_all(dir) {
            tracing::debug!(dir = %dir.display(), %error, "an old run could not be removed");
        }
    }
}
