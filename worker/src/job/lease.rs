//! Runs one lease in one test process, or in one for each iteration: starts it, reads its output, measures
//! its running time, forwards the coordinator's orders to its guard, and passes on the results. `batch`
//! decides what all of it means for the tests.

use std::sync::Arc;

use heeler_protocol::control::{
    CommandTest, LeaseEnd, LeasedTest, ListedTest, OsText, OutputDisplay, TestProgram, TestVariant,
    WorkerLease,
};
use heeler_sys::process::Pid;
use tokio::sync::mpsc;

use super::{
    death_files::DeathFileReader,
    diagnostics::CrashDiagnostics,
    extension::{ExtensionCheck, LeaseExtension},
    lease_process::{ForkSource, KeptProcesses, LeaseProcess, ProcessStart},
    named_files::{NamedFiles, missing_need},
    output_writers::OutputWriters,
    repetition::{
        IterationEnd, RepetitionStep, end_after_rerun, end_of_lease, has_ended_by_itself, may_continue,
        step_after,
    },
    result_sink::ResultSink,
    run_report::RunReportReader,
    test_process::{EndedProcess, RunningProcess},
    variant::{parser_of, tests_of, variant_of},
    warm_process::WarmProcesses,
};
use crate::{
    batch::{FrameworkQueries, RunningBatch},
    discovery::WaitingProcess,
    process::{
        guarded_process::GuardedProcess,
        job_order::JobOrder,
        launch_offer::LaunchOffer,
        process_clock::ProcessClock,
        process_handle::ProcessHandle,
        test_directory::{TestDirectory, TestDirectoryVariables},
        worker_context::WorkerContext,
    },
    results::{journal::Journal, uplink::SenderMessage},
};
use heeler_adapters::{
    self, Adapter, AdapterInvocation, AdapterTraits, BatchSelection, CommandLineError, FrameworkVerdict,
    InvocationChannel, SelectionScope, StackPosition, TranscriptParser,
};
use heeler_core::{Iteration, RecordSink};

/// Resources that a lease runs with.
pub(crate) struct LeaseResources {
    pub(crate) context: Arc<WorkerContext>,
    pub(crate) result_sender: mpsc::Sender<SenderMessage>,
    pub(crate) orders: mpsc::Receiver<JobOrder>,
    pub(crate) journal: Journal,
    /// A process that has listed the tests of a program, and runs this lease if it fits.
    pub(crate) waiting: Option<WaitingProcess>,
    /// A process that is forked for this lease if it fits.
    pub(crate) warm: WarmProcesses,
}

/// What is left of a lease for the next one.
pub(crate) struct EndedLease {
    pub(crate) journal: Journal,
    pub(crate) warm: WarmProcesses,
}

/// Runs one lease to its end.
///
/// Cancel safe: no, because the test process is abandoned with the call: its guard ends it.
pub(crate) async fn run_lease(lease: WorkerLease, tools: LeaseResources) -> EndedLease {
    let LeaseResources { context, result_sender, mut orders, journal, waiting, warm } = tools;
    let mut kept = KeptProcesses { waiting, warm };
    let mut sink = ResultSink::new(&lease, context.worker, journal, result_sender);
    let run = run_iterations(lease, &context, &mut sink, &mut orders, &mut kept);
    let LeaseRunEnd { end, start_us, handle } = run.await;
    // Nothing runs any more, so dropping the receiver confirms a requested pause.
    drop(orders);
    if matches!(end, LeaseEnd::GuardLost { .. }) {
        // What the lost process has left runs below the process that was forked for it.
        kept.warm.end(&context.guards).await;
    }
    // The coordinator does not have to wait for the guard's own exit.
    sink.finish(end, start_us).await;
    if let Some(handle) = handle {
        handle.reap().await;
    }
    if let Some(waiting) = kept.waiting {
        waiting.end(&context.guards).await;
    }
    EndedLease { journal: sink.into_journal(), warm: kept.warm }
}

/// How all processes of a lease have ended.
struct LeaseRunEnd {
    end: LeaseEnd,
    /// How long the first process took to its first test.
    start_us: Option<u64>,
    /// The last process, if one was started, which is to be reaped.
    handle: Option<ProcessHandle>,
}

/// Runs the process of each iteration, one after the other.
async fn run_iterations(
    lease: WorkerLease,
    context: &WorkerContext,
    sink: &mut ResultSink,
    orders: &mut mpsc::Receiver<JobOrder>,
    kept_processes: &mut KeptProcesses,
) -> LeaseRunEnd {
    let mut iteration = first_iteration(&lease);
    let mut lease = lease;
    let (mut earlier_end, mut first_start_us) = (None, None);
    loop {
        let is_run = |test: &&Arc<LeasedTest>| test.listed.skip.is_none();
        let runnable_tests = lease.tests.iter().filter(is_run).count();
        let tests = std::mem::take(&mut lease.tests);
        let has_next = !iteration.is_last() && lease.repeat_until_ms.is_none();
        let kept = lease.clone();
        lease.tests = tests;
        let form = ProcessForm { iteration, has_pipes: false };
        let ready = match prepare_process(lease, form, context, sink, orders, kept_processes).await {
            Ok(ready) => ready,
            Err(end) => {
                let end = end_of_lease(earlier_end, end);
                return LeaseRunEnd { end, start_us: first_start_us, handle: None };
            }
        };
        let mut ended = RunningProcess::new(ready, sink).run().await;
        first_start_us = first_start_us.or(ended.start_us);
        for test in std::mem::take(&mut ended.refused) {
            if !has_ended_by_itself(&ended.end) {
                break;
            }
            let is_whole_program = kept.is_whole_program && runnable_tests == 1;
            let lease =
                WorkerLease { tests: vec![test], is_isolated: true, is_whole_program, ..kept.clone() };
            ended.handle.reap().await;
            let form = ProcessForm { iteration, has_pipes: true };
            let ready = match may_continue(orders, ended.is_paused).await {
                true => prepare_process(lease, form, context, sink, orders, kept_processes).await,
                false => Err(LeaseEnd::Cancelled),
            };
            let again = match ready {
                Ok(ready) => RunningProcess::new(ready, sink).run().await,
                Err(end) => {
                    let end = end_of_lease(earlier_end, end_after_rerun(ended.end, end));
                    return LeaseRunEnd { end, start_us: first_start_us, handle: None };
                }
            };
            let repeatable = [ended.repeatable, again.repeatable].concat();
            let (end, is_ending) =
                (end_after_rerun(ended.end, again.end), ended.is_ending || again.is_ending);
            ended = EndedProcess { end, repeatable, is_ending, ..again };
        }
        let EndedProcess { end, handle, repeatable, is_ending, is_paused, .. } = ended;
        let kept = has_next.then_some(kept);
        let has_repeatable_tests = !repeatable.is_empty();
        match (step_after(IterationEnd { iteration, end, has_repeatable_tests, is_ending }), kept) {
            (RepetitionStep::Continue(next, end), Some(kept)) => {
                handle.reap().await;
                if !may_continue(orders, is_paused).await {
                    return LeaseRunEnd { end: LeaseEnd::Cancelled, start_us: first_start_us, handle: None };
                }
                earlier_end = Some(end_of_lease(earlier_end, end));
                let is_whole_program = kept.is_whole_program && repeatable.len() == runnable_tests;
                lease = WorkerLease { tests: repeatable, is_whole_program, ..kept };
                iteration = next;
            }
            (RepetitionStep::Continue(_, end) | RepetitionStep::End(end), _) => {
                let end = end_of_lease(earlier_end, end);
                return LeaseRunEnd { end, start_us: first_start_us, handle: Some(handle) };
            }
        }
    }
}

/// Properties of a process of a lease besides its tests.
#[derive(Debug, Clone, Copy)]
struct ProcessForm {
    iteration: Iteration,
    /// Outputs are pipes, which the process can open by name, where otherwise a socket would name writers.
    has_pipes: bool,
}

/// Returns the iteration of a lease's first process. Where time limits iterations, it is the only one, and
/// its files are named by the highest iteration of its tests.
fn first_iteration(lease: &WorkerLease) -> Iteration {
    match lease.repeat_until_ms {
        Some(_) => {
            let passed = lease.tests.iter().map(|test| test.passed_iterations).max();
            Iteration::after(passed.unwrap_or_default())
        }
        None => Iteration::first_of(lease.repeat),
    }
}

/// A process that has just been started.
pub(super) struct StartedProcess<'a> {
    pub(super) batch: RunningBatch,
    pub(super) transcript: Box<dyn TranscriptParser + Send>,
    pub(super) process: GuardedProcess<'a>,
    /// The program's process, if it has run before.
    pub(super) adopted: Option<Pid>,
    pub(super) clock: ProcessClock,
    pub(super) grace_ms: u64,
    pub(super) memory_bytes: Option<u64>,
    pub(super) is_debugged: bool,
    /// Another process, for a debugger to launch instead.
    pub(super) offer: Option<LaunchOffer>,
    pub(super) diagnostics: CrashDiagnostics,
    pub(super) writers: OutputWriters,
    pub(super) run_report: RunReportReader,
    pub(super) death_files: DeathFileReader,
    pub(super) context: &'a WorkerContext,
    /// Removed with this, unless its contents are kept.
    pub(super) test_directory: Option<TestDirectory>,
    pub(super) extension: LeaseExtension,
    /// Files that the command of the test names for its result.
    pub(super) named_files: Option<NamedFiles>,
}

/// Settles the tests that need no process, and starts a process for the others, unless one waits for them.
async fn prepare_process<'a>(
    lease: WorkerLease,
    ProcessForm { iteration, has_pipes }: ProcessForm,
    context: &'a WorkerContext,
    sink: &mut ResultSink,
    orders: &'a mut mpsc::Receiver<JobOrder>,
    kept_processes: &mut KeptProcesses,
) -> Result<StartedProcess<'a>, LeaseEnd> {
    let not_started = |error: String| LeaseEnd::NotStarted { error };
    let name = lease.program.framework.as_deref().unwrap_or_default();
    let Some(adapter) = heeler_adapters::by_name(name) else {
        return Err(not_started(format!("there is no framework {name:?}")));
    };
    let variant = variant_of(&lease);
    let mut program = TestProgram::clone(&lease.program);
    let mut own_program = program.clone();
    // As far as it belongs to one variant, what the program's own variables say is not known to the others.
    let names = variant.iter().flat_map(|variant| &variant.env).map(|(name, _)| (name.clone(), None));
    own_program.env.extend(names);
    program.env.extend(variant.iter().flat_map(|variant| variant.env.iter().cloned()));
    let (output_display, grace_ms) = (lease.output_display, lease.limits.grace_ms);
    let (memory_bytes, is_debugged) = (lease.limits.memory_bytes, lease.is_debugged);
    let diagnostics = CrashDiagnostics::new(&lease, iteration, context.worker, adapter.traits());
    let reproduced = reproduced_program(&program, lease.is_environment_shown);
    let framework = Box::new(LeaseFramework {
        adapter,
        program: reproduced,
        is_environment_shown: lease.is_environment_shown,
    });
    let (is_whole_program, runs_ignored) = (lease.is_whole_program, lease.runs_ignored);
    let directory_variables = TestDirectoryVariables::of_run(lease.has_private_tmpdir);
    let extension = ExtensionCheck::of(&lease, adapter, &context.scratch).filter(|_| variant.is_none());
    let mut batch = RunningBatch::new(lease, iteration, sink, framework);
    let runnable_tests = is_whole_program.then_some(batch.tests().len());
    let is_output_shown = output_display != OutputDisplay::Hidden;
    let variant = variant.as_deref();
    let choice =
        CommandChoice { adapter, program: &program, variant, runnable_tests, runs_ignored, is_output_shown };
    let Some(mut invocation) = choice.select_command(context, &mut batch, sink) else {
        return Err(LeaseEnd::Complete);
    };
    if has_pipes {
        batch.settlement.stream_names.begin_rerun();
    } else {
        name_writers(&mut batch, adapter.traits(), &mut invocation.channel, is_debugged);
    }
    sink.try_send_batch();
    // A report of several tests says nothing of the one that they are here.
    let report_files = invocation.run_report.clone().filter(|_| variant.is_none());
    let run_report = RunReportReader::new(adapter, report_files);
    expect_ends(&mut batch, adapter.traits(), invocation.channel, grace_ms);
    let tests = listed_tests(&batch);
    let needs_new_process = memory_bytes.is_some() || is_debugged || diagnostics.is_tracing();
    let fork_point = variant.and_then(|variant| variant.fork_point).filter(|_| !needs_new_process);
    let start = ProcessStart {
        program: &program,
        invocation: &invocation,
        tests: &tests,
        forked: fork_point.map(|point| ForkSource { adapter, program: own_program, point }),
        is_adoptable: extension.is_some() && memory_bytes.is_none() && !diagnostics.is_tracing(),
        directory_variables,
        memory_bytes,
        is_debugged,
        diagnostics: &diagnostics,
    };
    let new_transcript = || parser_of(adapter, variant, &tests);
    let writers = OutputWriters::new(adapter, program.path.as_path(), variant.is_some());
    let LeaseProcess { process, adopted, transcript, clock, offer, test_directory } =
        start.adopt_or_start(kept_processes, new_transcript, context, sink, orders).await?;
    Ok(StartedProcess {
        batch,
        transcript,
        process,
        adopted,
        clock,
        grace_ms,
        memory_bytes,
        is_debugged,
        offer,
        diagnostics,
        writers,
        run_report,
        death_files: DeathFileReader::new(adapter, program, invocation.death_files),
        context,
        test_directory,
        extension: LeaseExtension::on(invocation.channel, extension),
        named_files: invocation.own_command.as_ref().and_then(NamedFiles::of_command),
    })
}

/// Has the kernel name who writes to standard output, where a copy of the process may write to it as well.
fn name_writers(
    batch: &mut RunningBatch,
    traits: &AdapterTraits,
    channel: &mut InvocationChannel,
    is_debugged: bool,
) {
    batch.settlement.stream_names.set_report_socket(channel.names_writers() && channel.has_requests());
    if traits.reports_from_one_process {
        *channel = channel.with_named_writers();
        batch.settlement.stream_names.set_socket(!is_debugged && !channel.has_requests());
    }
}

/// Has a batch treat ends of tests, and of the process, as the framework reports them.
fn expect_ends(batch: &mut RunningBatch, traits: &AdapterTraits, channel: InvocationChannel, grace_ms: u64) {
    if !channel.has_requests() {
        batch.held_tests.hold_results(batch.tests().len());
    }
    if traits.has_several_ends {
        batch.held_tests.hold_until_confirmed();
    }
    if traits.begins_with_request {
        batch.deadlines.dialogue.expect_requests_taken();
    }
    if traits.is_server {
        batch.deadlines.expect_server(grace_ms);
    }
}

/// What the command of a batch depends on.
struct CommandChoice<'a> {
    adapter: &'static dyn Adapter,
    program: &'a TestProgram,
    /// What the only test of the batch is.
    variant: Option<&'a TestVariant>,
    /// Number of tests that the program runs, if the lease has all of them.
    runnable_tests: Option<usize>,
    runs_ignored: bool,
    is_output_shown: bool,
}

impl CommandChoice<'_> {
    /// Returns the command for the batch, without the tests that no command can select; `None` if no test
    /// remains.
    fn select_command(
        &self,
        context: &WorkerContext,
        batch: &mut RunningBatch,
        records: &mut dyn RecordSink,
    ) -> Option<AdapterInvocation> {
        while !batch.tests().is_empty() {
            // A test that fits no command by itself is left to the adapter, which refuses it.
            let fitting = self.adapter.selectable_together(&listed_tests(batch)).max(1);
            // Captured output is shown by no framework before its test has ended.
            let is_alone = self.is_output_shown && self.adapter.traits().captures_output;
            batch.order.truncate(if is_alone { 1 } else { fitting });
            let tests = self.variant.map_or_else(|| listed_tests(batch), tests_of);
            let scope = if self.variant.is_some() {
                SelectionScope::TestsOfVariant
            } else if self.runnable_tests == Some(tests.len()) {
                SelectionScope::WholeProgram
            } else {
                SelectionScope::SomeTests
            };
            let selection = BatchSelection {
                tests: &tests,
                scope,
                runs_ignored: self.runs_ignored,
                follows_unclear_death: context.unclear_deaths.contains(self.program),
            };
            match self.adapter.run_command(self.program, &selection, &context.scratch) {
                Ok(invocation) => match invocation.own_command.as_ref().and_then(missing_need) {
                    None => return Some(invocation),
                    Some(reason) => batch.refuse(0, &reason, records),
                },
                Err(CommandLineError::Unselectable { place, reason }) => {
                    let place = if self.variant.is_some() { 0 } else { place };
                    batch.refuse(place, &reason, records);
                }
            }
        }
        None
    }
}

pub(super) fn listed_tests(batch: &RunningBatch) -> Vec<&ListedTest> {
    batch.tests().iter().map(|test| &test.listed).collect()
}

/// What stands for the value of a configured variable, which may be a secret.
const HIDDEN_VALUE: &str = "(hidden, see --show-env)";

/// Returns the program as the commands that run its tests again name it.
fn reproduced_program(program: &TestProgram, is_environment_shown: bool) -> TestProgram {
    let mut reproduced = program.clone();
    if !is_environment_shown {
        hide_values(&mut reproduced.env);
    }
    reproduced
}

fn hide_values(env: &mut [(OsText, Option<OsText>)]) {
    let values = env.iter_mut().filter_map(|(_, value)| value.as_mut());
    values.for_each(|value| *value = OsText::from(HIDDEN_VALUE));
}

/// The framework of one lease.
struct LeaseFramework {
    adapter: &'static dyn Adapter,
    /// As the commands that run its tests again name it.
    program: TestProgram,
    is_environment_shown: bool,
}

impl FrameworkQueries for LeaseFramework {
    fn has_proven_answers(&self) -> bool {
        self.adapter.traits().has_proven_answers
    }

    fn reproduce(&self, test: &ListedTest) -> String {
        let command = test.selector.as_deref().and_then(CommandTest::from_selector);
        if let Some(mut command) = command.filter(|_| !self.is_environment_shown) {
            hide_values(&mut command.env);
            let test = ListedTest { selector: Some(command.to_selector()), ..test.clone() };
            return self.adapter.reproduce_command(&self.program, &test);
        }
        let first = test.variant.as_ref().and_then(|variant| variant.tests.first()).map(|first| &**first);
        self.adapter.reproduce_command(&self.program, first.unwrap_or(test))
    }

    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, test: &ListedTest, stderr: &str) {
        if let Some(add_details) = self.adapter.traits().details_from_stderr {
            add_details(verdict, &test.name, stderr);
        }
    }

    fn is_own_line(&self, line: &[u8]) -> bool {
        (self.adapter.traits().is_own_line)(line)
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        self.adapter.stack_position(stack, test)
    }
}
