//! Provides the process of a lease: a waiting process that has listed the program's tests, a fork of a
//! process that has loaded the program, or a new process.

use heeler_adapters::{Adapter, AdapterInvocation, InvocationChannel, TranscriptParser};
use heeler_core::{LogLine, RecordSink, RunRecord, error_chain};
use heeler_protocol::control::{ForkPoint, LeaseEnd, ListedTest, TestCommand, TestProgram};
use heeler_sys::process::Pid;
use tokio::sync::mpsc;

use super::{
    diagnostics::CrashDiagnostics,
    result_sink::ResultSink,
    warm_process::{Interrupted, WantedFork, WarmIdentity, WarmProcesses},
};
use crate::{
    discovery::{AdoptedProcess, ProcessIdentity, WaitingProcess},
    process::{
        guarded_process::{DetachedProcess, GuardedProcess},
        job_order::JobOrder,
        launch_offer::LaunchOffer,
        process_clock::ProcessClock,
        test_directory::{TestDirectory, TestDirectoryVariables},
        worker_context::{JobVariables, WorkerContext},
    },
};

/// A process that now runs the tests of a lease.
pub(super) struct LeaseProcess<'a> {
    pub(super) process: GuardedProcess<'a>,
    pub(super) origin: ProcessOrigin,
    pub(super) transcript: Box<dyn TranscriptParser + Send>,
    pub(super) clock: ProcessClock,
    pub(super) test_directory: Option<TestDirectory>,
}

/// Where the process of a lease comes from.
pub(super) enum ProcessOrigin {
    /// The guard starts a new process.
    New,
    /// A process that has listed the program's tests and waited for the lease. Its start time was not
    /// measured.
    Waiting { root: Pid },
    /// A fork of a process that has loaded the program.
    Forked,
    /// The guard starts a new process and stops it before its first instruction. Alternatively, a debugger
    /// launches the offered process.
    Launched { offer: Option<LaunchOffer> },
}

/// Processes started before their lease.
pub(super) struct KeptProcesses {
    pub(super) waiting: Option<WaitingProcess>,
    pub(super) warm: WarmProcesses,
}

/// How to fork a process for a lease.
pub(super) struct ForkSource {
    pub(super) adapter: &'static dyn Adapter,
    /// Program without the variables of a variant.
    pub(super) program: TestProgram,
    pub(super) point: ForkPoint,
}

/// Description of the process that a lease needs.
pub(super) struct LeaseProcessStart<'s> {
    pub(super) program: &'s TestProgram,
    pub(super) invocation: &'s AdapterInvocation,
    pub(super) tests: &'s [&'s ListedTest],
    /// Process whose fork can be used instead.
    pub(super) forked: Option<ForkSource>,
    /// Whether the lease can use a process that waits after listing its tests. `false` if the lease repeats
    /// or isolates tests, runs a variant, limits memory, traces, has units of resources, or needs a debugger.
    pub(super) is_adoptable: bool,
    pub(super) directory_variables: TestDirectoryVariables,
    pub(super) job: &'s JobVariables,
    pub(super) memory_bytes: Option<u64>,
    pub(super) is_debugged: bool,
    pub(super) diagnostics: &'s CrashDiagnostics,
}

impl LeaseProcessStart<'_> {
    /// Continues with the waiting process if it matches. Otherwise ends it, and forks or starts another
    /// process. `new_transcript` creates the parser of the new process's reports.
    ///
    /// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
    pub(super) async fn adopt_or_start<'a>(
        &self,
        kept: &mut KeptProcesses,
        new_transcript: impl FnOnce() -> Box<dyn TranscriptParser + Send>,
        context: &'a WorkerContext,
        sink: &mut ResultSink,
        orders: &'a mut mpsc::Receiver<JobOrder>,
    ) -> Result<LeaseProcess<'a>, LeaseEnd> {
        let adopted = match kept.waiting.take() {
            Some(waiting) => self.adopt(waiting, sink.run(), context).await,
            None => None,
        };
        if let Some(AdoptedProcess { process, root, transcript, test_directory }) = adopted {
            return Ok(LeaseProcess {
                clock: ProcessClock::start(),
                process: GuardedProcess::attach(&context.guards, process, orders),
                origin: ProcessOrigin::Waiting { root },
                transcript,
                test_directory: Some(test_directory),
            });
        }
        let test_directory = create_test_directory(context, sink, self.directory_variables);
        let forked = self.fork(&mut kept.warm, test_directory.as_ref(), context, sink, orders).await;
        let transcript = new_transcript();
        match forked.map_err(|Interrupted| LeaseEnd::Cancelled)? {
            Some(process) => Ok(LeaseProcess {
                clock: ProcessClock::start(),
                process: GuardedProcess::attach(&context.guards, process, orders),
                origin: ProcessOrigin::Forked,
                transcript,
                test_directory,
            }),
            None => self
                .start(transcript, test_directory, context, sink, orders)
                .await
                .map_err(|error| LeaseEnd::NotStarted { error }),
        }
    }

    async fn adopt(
        &self,
        waiting: WaitingProcess,
        run: &str,
        context: &WorkerContext,
    ) -> Option<AdoptedProcess> {
        if !self.is_adoptable {
            waiting.end(&context.guards).await;
            return None;
        }
        let identity = ProcessIdentity {
            program: self.program.clone(),
            invocation: self.invocation.clone(),
            directory_variables: self.directory_variables,
            run: run.to_owned(),
        };
        waiting.adopt(&identity, self.tests, &context.guards).await
    }

    async fn fork(
        &self,
        warm: &mut WarmProcesses,
        test_directory: Option<&TestDirectory>,
        context: &WorkerContext,
        sink: &ResultSink,
        orders: &mut mpsc::Receiver<JobOrder>,
    ) -> Result<Option<DetachedProcess>, Interrupted> {
        let Some(ForkSource { adapter, program, point }) = &self.forked else { return Ok(None) };
        let identity = WarmIdentity {
            program: program.clone(),
            point: *point,
            directory_variables: self.directory_variables,
        };
        let wanted = WantedFork {
            identity,
            adapter: *adapter,
            invocation: self.invocation,
            program: self.program,
            job: self.job,
            lease: sink.lease.0,
        };
        warm.fork(&wanted, test_directory, context, orders).await
    }

    async fn start<'a>(
        &self,
        transcript: Box<dyn TranscriptParser + Send>,
        test_directory: Option<TestDirectory>,
        context: &'a WorkerContext,
        sink: &mut ResultSink,
        orders: &'a mut mpsc::Receiver<JobOrder>,
    ) -> Result<LeaseProcess<'a>, String> {
        let Self { program, invocation, memory_bytes, is_debugged, .. } = *self;
        context.clean_scratch().map_err(|error| error_chain(&error))?;
        let command = context.prepare_command(program, invocation, self.job, test_directory.as_ref());
        let mut command = command.map_err(|error| error_chain(&error))?;
        // A debugged process has no limits. If no debugger attaches, this worker samples the process's memory
        // instead.
        command.memory_bytes = memory_bytes.filter(|_| !is_debugged);
        command.is_stopped_at_start = is_debugged;
        let run_mark = invocation.run_report.as_ref().map(|files| files.run_mark.as_path());
        command.trace = self.diagnostics.trace_plan(run_mark, sink);
        let origin = if is_debugged {
            // If the process connects to this worker, a debugger can only attach to it, because the address
            // to connect to is part of the guard's command.
            let is_launchable = invocation.channel != InvocationChannel::Connections;
            let offer = || create_launch_offer(context, &command, invocation.channel, sink);
            ProcessOrigin::Launched { offer: is_launchable.then(offer).flatten() }
        } else {
            ProcessOrigin::New
        };
        let clock = ProcessClock::start();
        let process = GuardedProcess::start(&context.guards, command, invocation.channel, orders)
            .await
            .map_err(|error| error_chain(&error))?;
        Ok(LeaseProcess { process, origin, transcript, clock, test_directory })
    }
}

/// Creates the temporary directory of a process. If that fails, its tests share the common temporary
/// directory.
fn create_test_directory(
    context: &WorkerContext,
    sink: &mut ResultSink,
    variables: TestDirectoryVariables,
) -> Option<TestDirectory> {
    let created = context.create_test_directory(sink.lease.0, variables);
    if let Err(error) = &created {
        let message =
            format!("failed to {}; the tests use the common temporary directory", error_chain(error));
        sink.record(RunRecord::Log(LogLine::warning(None, message)));
    }
    created.ok()
}

/// Offers a process for a debugger to launch. If that fails, a debugger can still attach.
fn create_launch_offer(
    context: &WorkerContext,
    command: &TestCommand,
    channel: InvocationChannel,
    records: &mut dyn RecordSink,
) -> Option<LaunchOffer> {
    match LaunchOffer::create(&context.scratch, command, channel) {
        Ok(offer) => Some(offer),
        Err(error) => {
            let message =
                format!("the test cannot be launched in a debugger: failed to {}", error_chain(&error));
            records.record(RunRecord::Log(LogLine::warning(None, message)));
            None
        }
    }
}
