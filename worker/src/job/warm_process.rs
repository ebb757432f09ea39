//! Warm processes, which have loaded a framework or program and are forked for tests. For some programs,
//! loading the interpreter and framework and collecting the tests takes far longer than one test. Each fork
//! runs below its own guard, with its own outputs and report channel, as if the guard had started it. The
//! warm process itself runs no test, but is also below a guard.

use std::{io, time::Duration};

use heeler_adapters::{Adapter, AdapterInvocation, InvocationChannel, WarmDialogue, WarmReport, WarmStart};
use heeler_core::error_chain;
use heeler_protocol::{
    control::{ForkPoint, OsText, TestCommand, TestProgram},
    fork_server::ADOPT_ARGUMENT,
};
use heeler_sys::{
    process::{self, Pid},
    spawn::ForkedChild,
};
use tokio::{sync::mpsc, time::Instant};

use crate::process::{
    guard_connection::GuardEvent,
    guard_spawner::{GUARD_ROLE, GuardProcess, GuardSpawner, create_guard_pipes},
    guarded_process::{DetachedProcess, GuardedProcess, ProcessEvent},
    job_order::JobOrder,
    test_directory::{TestDirectory, TestDirectoryVariables},
    worker_context::{JobVariables, PrepareError, WorkerContext},
};

/// Time limit for loading a program. A slower program is started anew for each lease.
const LOAD_LIMIT: Duration = Duration::from_secs(300);
/// Time limit for a fork, which normally takes a few milliseconds.
const FORK_LIMIT: Duration = Duration::from_secs(30);
/// Time that a warm process waits for the next lease of its program. While it waits, the process wastes
/// memory.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a warm process to exit on request; `GRACE_MS` is the time between SIGTERM and SIGKILL after
/// that.
const EXIT_LIMIT: Duration = Duration::from_secs(1);
const GRACE_MS: u64 = 500;
/// Maximum number of warm processes of a program lost in a row, without a fork in between.
const MAX_LOSSES: u32 = 3;
/// Maximum size of a request that is sent with descriptors. A socket accepts that much at once.
const MAX_REQUEST_BYTES: usize = 32 << 10;

/// Configuration of a warm process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarmIdentity {
    /// Program with its framework, without the variables of a variant.
    pub(super) program: TestProgram,
    pub(super) point: ForkPoint,
    pub(super) directory_variables: TestDirectoryVariables,
}

/// Warm processes of a worker, all of one program, and configurations that cannot be forked.
#[derive(Default)]
pub(crate) struct WarmProcesses {
    /// At most one per fork point.
    running: Vec<WarmProcess>,
    /// Number of warm processes lost since the last fork.
    losses: u32,
    /// Configurations that cannot be loaded or forked.
    unforkable: Vec<WarmIdentity>,
}

impl WarmIdentity {
    fn is_of_program(&self, other: &Self) -> bool {
        self.program == other.program && self.directory_variables == other.directory_variables
    }
}

/// An order ended the job.
#[derive(Debug)]
pub(super) struct Interrupted;

/// Why a warm process did not answer.
#[derive(Debug)]
enum NoAnswer {
    /// The process has ended, or did not answer in time.
    Lost(String),
    Interrupted,
}

struct WarmProcess {
    identity: WarmIdentity,
    process: DetachedProcess,
    dialogue: Box<dyn WarmDialogue>,
    /// Environment of the process at its start.
    environment: Vec<(OsText, OsText)>,
    until: Instant,
    /// Removes the directory when dropped, so this must be dropped after the process.
    _test_directory: TestDirectory,
}

/// Request for a fork.
pub(super) struct WantedFork<'f> {
    pub(super) identity: WarmIdentity,
    pub(super) adapter: &'static dyn Adapter,
    /// Invocation for starting a process instead of forking one.
    pub(super) invocation: &'f AdapterInvocation,
    /// Program with the variables of the variant.
    pub(super) program: &'f TestProgram,
    pub(super) job: &'f JobVariables,
    /// Used in the names of directories.
    pub(super) lease: u32,
}

impl WarmProcesses {
    /// Returns when the wait limit of the last process ends, or `None` if there is no process.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.running.iter().map(|warm| warm.until).max()
    }

    /// Takes the processes, so that the caller can end them.
    pub(crate) fn take_processes(&mut self) -> Self {
        Self { running: std::mem::take(&mut self.running), ..Self::default() }
    }

    /// Ends the processes.
    ///
    /// Cancel safe: no, because cancelling abandons the processes, which their guards then end.
    pub(crate) async fn end(&mut self, guards: &GuardSpawner) {
        for warm in std::mem::take(&mut self.running) {
            warm.end(guards).await;
        }
    }

    /// Returns a fork that uses this test directory, or `None` if a process must be started instead.
    ///
    /// # Errors
    /// If the job was ordered to end meanwhile.
    ///
    /// Cancel safe: no, because cancelling abandons the processes, which their guards then end.
    pub(super) async fn fork(
        &mut self,
        wanted: &WantedFork<'_>,
        test_directory: Option<&TestDirectory>,
        context: &WorkerContext,
        orders: &mut mpsc::Receiver<JobOrder>,
    ) -> Result<Option<DetachedProcess>, Interrupted> {
        while !self.unforkable.contains(&wanted.identity) {
            // Only one program is kept loaded.
            if self.running.iter().any(|warm| !warm.identity.is_of_program(&wanted.identity)) {
                self.end(&context.guards).await;
                self.losses = 0;
            }
            let place = self.running.iter().position(|warm| warm.identity == wanted.identity);
            // Fork the warm process, or start one first.
            let answer = match place.map(|place| self.running.swap_remove(place)) {
                Some(warm) => warm.fork(wanted, test_directory, context, orders).await,
                None => match WarmProcess::start(wanted, context, orders).await {
                    Ok(Ok(warm)) => warm.fork(wanted, test_directory, context, orders).await,
                    Ok(Err(reason)) => {
                        tracing::debug!(reason, "tests cannot run in forks of a process");
                        self.unforkable.push(wanted.identity.clone());
                        return Ok(None);
                    }
                    Err(no_answer) => Err(no_answer),
                },
            };
            match answer {
                Ok((warm, forked)) => {
                    self.running.push(warm);
                    self.losses = 0;
                    return Ok(forked);
                }
                Err(NoAnswer::Interrupted) => return Err(Interrupted),
                Err(NoAnswer::Lost(how)) => {
                    tracing::debug!(how, "a warm process was lost");
                    self.losses += 1;
                    if self.losses >= MAX_LOSSES {
                        self.unforkable.push(wanted.identity.clone());
                    }
                }
            }
        }
        Ok(None)
    }
}

impl WarmProcess {
    /// Starts a process that loads the program. The inner error is the reason why the process cannot be
    /// forked.
    async fn start(
        wanted: &WantedFork<'_>,
        context: &WorkerContext,
        orders: &mut mpsc::Receiver<JobOrder>,
    ) -> Result<Result<Self, String>, NoAnswer> {
        let identity = wanted.identity.clone();
        let Some(start) = wanted.adapter.warm_start(&identity.program, &context.scratch) else {
            return Ok(Err("not supported by the framework".to_owned()));
        };
        let WarmStart { invocation, mut dialogue } = start;
        // Prepare and start the process.
        let prepare = || -> Result<(TestCommand, TestDirectory), PrepareError> {
            context.clean_scratch()?;
            let name = format!("w{}", wanted.lease);
            let directory = context.create_test_directory(name, identity.directory_variables)?;
            let job = JobVariables { run: wanted.job.run.clone(), ..JobVariables::default() };
            let command = context.prepare_command(&identity.program, &invocation, &job, Some(&directory))?;
            Ok((command, directory))
        };
        let (command, test_directory) = match prepare() {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error_chain(&error))),
        };
        let environment = command.env.clone();
        let started = GuardedProcess::start(&context.guards, command, invocation.channel, orders).await;
        let mut process = started.map_err(|error| NoAnswer::Lost(error_chain(&error)))?;
        // Wait until the process has loaded the program.
        process.send_request(dialogue.opening_request(identity.point));
        let deadline = Instant::now() + LOAD_LIMIT;
        let answer = next_report(&mut process, &mut *dialogue, deadline).await?;
        let warm = Self {
            identity,
            process: process.detach(),
            dialogue,
            environment,
            until: Instant::now() + WAIT_LIMIT,
            _test_directory: test_directory,
        };
        match answer {
            WarmReport::Ready => Ok(Ok(warm)),
            WarmReport::Unforkable(reason) => {
                warm.end(&context.guards).await;
                Ok(Err(reason))
            }
            WarmReport::Forked(_) | WarmReport::Refused(_) => {
                Err(NoAnswer::Lost("unexpected answer before the first request".to_owned()))
            }
        }
    }

    /// Forks the process. Returns no fork if the warm process refuses; the caller must then start a new
    /// process.
    async fn fork(
        mut self,
        wanted: &WantedFork<'_>,
        test_directory: Option<&TestDirectory>,
        context: &WorkerContext,
        orders: &mut mpsc::Receiver<JobOrder>,
    ) -> Result<(Self, Option<DetachedProcess>), NoAnswer> {
        // The warm process has already loaded the files.
        let invocation =
            AdapterInvocation { files: Vec::new(), directories: Vec::new(), ..wanted.invocation.clone() };
        let prepared = context.prepare_command(wanted.program, &invocation, wanted.job, test_directory);
        let Ok(command) = prepared else { return Ok((self, None)) };
        let program = heeler_sys::process::shared_program_path();
        // Prepare the request, with the environment of the fork.
        let words = [OsText::from(program.as_path()), GUARD_ROLE.into(), ADOPT_ARGUMENT.into()];
        let changes = changed_variables(&self.environment, &command.env);
        let request = self.dialogue.fork_request(&words, &changes);
        let Some(request) = request.filter(|request| request.len() <= MAX_REQUEST_BYTES) else {
            return Ok((self, None));
        };
        let lost = |error: io::Error| NoAnswer::Lost(error.to_string());
        // Send the request together with the guard's ends of the pipes.
        let (pipes, endpoints) = create_guard_pipes(InvocationChannel::Descriptor).map_err(lost)?;
        let mut process = GuardedProcess::attach(&context.guards, self.process, orders);
        process.send_with_descriptors(&request, &endpoints.as_fds()).map_err(lost)?;
        drop(endpoints);
        let deadline = Instant::now() + FORK_LIMIT;
        let answer = next_report(&mut process, &mut *self.dialogue, deadline).await;
        self.process = process.detach();
        self.until = Instant::now() + WAIT_LIMIT;
        // Connect to the guard of the fork.
        match answer? {
            WarmReport::Forked(pid) => {
                let pid = Pid(pid);
                // The warm process reaps guards only at the next request, so the id cannot have been reused
                // yet.
                let pidfd = process::pidfd_open(pid).map_err(lost)?;
                let guard = GuardProcess::Forked(ForkedChild { pid, pidfd });
                let forked = DetachedProcess::open(guard, pipes, command).await.map_err(lost)?;
                Ok((self, Some(forked)))
            }
            WarmReport::Refused(reason) => {
                tracing::debug!(reason, "fork refused; starting a process instead");
                Ok((self, None))
            }
            WarmReport::Ready | WarmReport::Unforkable(_) => {
                Err(NoAnswer::Lost("unexpected answer".to_owned()))
            }
        }
    }

    /// Asks the process to exit, and kills it if it does not.
    async fn end(self, guards: &GuardSpawner) {
        let request = self.dialogue.closing_request();
        self.process.end(guards, request, EXIT_LIMIT, GRACE_MS).await;
    }
}

/// Waits for the answer of a warm process. Discards its outputs.
async fn next_report(
    process: &mut GuardedProcess<'_>,
    dialogue: &mut dyn WarmDialogue,
    deadline: Instant,
) -> Result<WarmReport, NoAnswer> {
    let mut reports = Vec::new();
    loop {
        if !process.is_paused()
            && let Some(report) = reports.pop()
        {
            return Ok(report);
        }
        let deadline = (!process.is_paused()).then_some(deadline);
        let event = process.next_event(deadline, true).await;
        match process.apply(event).await {
            Some(ProcessEvent::Output) => {
                process.read_outputs(|_, input| {
                    reports.extend(dialogue.on_channel(input.bytes()));
                    Vec::new()
                });
            }
            Some(ProcessEvent::Order(
                JobOrder::Cancel { .. }
                | JobOrder::ReturnTests { .. }
                | JobOrder::CancelAfterRunningTests { .. }
                | JobOrder::Kill,
            )) => return Err(NoAnswer::Interrupted),
            Some(ProcessEvent::Guard(GuardEvent::NotStarted(error))) => return Err(NoAnswer::Lost(error)),
            Some(ProcessEvent::Guard(GuardEvent::Ended(end))) => {
                return Err(NoAnswer::Lost(format!("code {:?}, signal {:?}", end.code, end.signal)));
            }
            Some(ProcessEvent::Guard(GuardEvent::Lost)) => {
                return Err(NoAnswer::Lost("its guard was lost".to_owned()));
            }
            Some(ProcessEvent::Deadline) => return Err(NoAnswer::Lost("timed out".to_owned())),
            Some(
                ProcessEvent::Order(_)
                | ProcessEvent::Guard(_)
                | ProcessEvent::GuardOverdue
                | ProcessEvent::TerminationDue,
            )
            | None => {}
        }
    }
}

/// Returns the changes that turn one environment into another. `None` unsets a variable.
fn changed_variables(from: &[(OsText, OsText)], to: &[(OsText, OsText)]) -> Vec<(OsText, Option<OsText>)> {
    let value = |all: &[(OsText, OsText)], name: &OsText| {
        all.iter().find(|one| one.0 == *name).map(|one| one.1.clone())
    };
    let gone = from.iter().filter(|(name, _)| value(to, name).is_none());
    let changed = to.iter().filter(|(name, new)| value(from, name).as_ref() != Some(new));
    let gone = gone.map(|(name, _)| (name.clone(), None));
    gone.chain(changed.map(|(name, new)| (name.clone(), Some(new.clone())))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_an_environment_unset_add_and_replace() {
        let environment = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let from: Vec<_> = environment(&[("A", "1"), ("B", "2"), ("C", "3")]);
        let to: Vec<_> = environment(&[("B", "2"), ("C", "4"), ("D", "5")]);
        let expected = [("A", None), ("C", Some("4")), ("D", Some("5"))];
        let expected = expected.map(|(name, value)| (OsText::from(name), value.map(OsText::from)));
        assert_eq!(changed_variables(&from, &to), expected);
    }
}
