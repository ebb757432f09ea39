//! Prepares a lease before its process runs: its batch, its command, and the origin of its process.

use std::sync::Arc;

use heeler_adapters::{
    Adapter, AdapterInvocation, AdapterTraits, BatchSelection, CommandLineError, FrameworkVerdict,
    HIDDEN_VALUE, InvocationChannel, RuntimeStack, SelectionScope, StackPosition,
};
use heeler_core::{Iteration, RecordSink};
use heeler_protocol::control::{
    CommandTest, LeaseEnd, ListedTest, OsText, OutputDisplay, TestLimits, TestProgram, TestVariant,
    WorkerLease,
};
use tokio::sync::mpsc;

use super::{
    death_files::DeathFileReader,
    diagnostics::CrashDiagnostics,
    extension::{ExtensionCheck, LeaseExtension},
    lease_process::{ForkSource, KeptProcesses, LeaseProcess, LeaseProcessStart},
    named_files::{NamedFiles, missing_need},
    output_writers::OutputWriters,
    result_sink::ResultSink,
    run_report::RunReportReader,
    variant::{parser_of, tests_of, variant_of},
};
use crate::{
    batch::{FrameworkQueries, RunningBatch},
    process::{
        job_order::JobOrder,
        test_directory::TestDirectoryVariables,
        worker_context::{JobVariables, WorkerContext},
    },
};

/// Properties of a lease's process, besides its tests.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessForm {
    pub(super) iteration: Iteration,
    /// Outputs are pipes, which the process can open by name, instead of a socket that identifies writers.
    pub(super) has_pipes: bool,
}

/// A process that was just started, with the state to interpret its tests and output.
pub(super) struct StartedProcess<'a> {
    pub(super) process: LeaseProcess<'a>,
    pub(super) batch: RunningBatch,
    pub(super) limits: TestLimits,
    pub(super) diagnostics: CrashDiagnostics,
    pub(super) writers: OutputWriters,
    pub(super) run_report: RunReportReader,
    pub(super) death_files: DeathFileReader,
    pub(super) context: &'a WorkerContext,
    pub(super) extension: LeaseExtension,
    /// Files named by the test's command for its result.
    pub(super) named_files: Option<NamedFiles>,
}

/// A lease with a command, whose process does not run yet.
pub(super) struct PreparedLease {
    adapter: &'static dyn Adapter,
    /// Program including the variables of the only test's variant.
    program: TestProgram,
    /// Program without these variables, for a process forked for other variants too.
    shared_program: TestProgram,
    /// Variant of the only test of the batch.
    variant: Option<Arc<TestVariant>>,
    batch: RunningBatch,
    invocation: AdapterInvocation,
    limits: TestLimits,
    is_debugged: bool,
    directory_variables: TestDirectoryVariables,
    job: JobVariables,
    diagnostics: CrashDiagnostics,
    extension: Option<ExtensionCheck>,
}

impl PreparedLease {
    /// Settles the tests that need no process, and starts a process for the other tests or adopts a waiting
    /// one.
    ///
    /// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
    pub(super) async fn start_process<'a>(
        lease: WorkerLease,
        form: ProcessForm,
        context: &'a WorkerContext,
        sink: &mut ResultSink,
        orders: &'a mut mpsc::Receiver<JobOrder>,
        kept_processes: &mut KeptProcesses,
    ) -> Result<StartedProcess<'a>, LeaseEnd> {
        let prepared = Self::new(lease, form, context, sink)?;
        sink.try_send_batch();
        prepared.start(context, sink, orders, kept_processes).await
    }

    /// Decides which command the process of a lease runs.
    #[expect(
        clippy::result_large_err,
        reason = "a lease ends once, and its end is made where it is found out"
    )]
    fn new(
        lease: WorkerLease,
        ProcessForm { iteration, has_pipes }: ProcessForm,
        context: &WorkerContext,
        sink: &mut ResultSink,
    ) -> Result<Self, LeaseEnd> {
        let name = lease.program.framework.as_deref().unwrap_or_default();
        let Some(adapter) = heeler_adapters::by_name(name) else {
            return Err(LeaseEnd::NotStarted { error: format!("unknown framework {name:?}") });
        };
        // Create the batch, which settles skipped tests.
        let variant = variant_of(&lease);
        let (program, shared_program) = programs_of(&lease.program, variant.as_deref());
        let (limits, is_debugged) = (lease.limits, lease.is_debugged);
        let diagnostics = CrashDiagnostics::new(&lease, iteration, context.worker, adapter.traits());
        let framework = Box::new(LeaseFramework {
            adapter,
            program: reproduced_program(&program, lease.is_environment_shown),
            is_environment_shown: lease.is_environment_shown,
        });
        let directory_variables = TestDirectoryVariables::of_run(lease.has_private_tmpdir);
        let extension = ExtensionCheck::of(&lease, adapter, &context.scratch).filter(|_| variant.is_none());
        let job = JobVariables {
            run: Some(lease.run.id.clone()),
            slot: Some(lease.slot),
            units: lease.unit_variables.clone(),
        };
        let (is_whole_program, runs_ignored) = (lease.is_whole_program, lease.runs_ignored);
        let is_output_shown = lease.output_display != OutputDisplay::Hidden;
        let mut batch = RunningBatch::new(lease, iteration, sink, framework);
        // Choose the command for the remaining tests.
        let choice = CommandChoice {
            adapter,
            program: &program,
            variant: variant.as_deref(),
            runnable_tests: is_whole_program.then_some(batch.tests().len()),
            runs_ignored,
            is_output_shown,
        };
        let Some(mut invocation) = choice.select_command(context, &mut batch, sink) else {
            return Err(LeaseEnd::Complete);
        };
        // Set up what the batch expects of the process.
        if has_pipes {
            batch.settlement.stream_names.begin_rerun();
        } else {
            name_writers(&mut batch, adapter.traits(), &mut invocation.channel, is_debugged);
        }
        expect_ends(&mut batch, adapter.traits(), invocation.channel, limits.grace_ms);
        Ok(Self {
            adapter,
            program,
            shared_program,
            variant,
            batch,
            invocation,
            limits,
            is_debugged,
            directory_variables,
            job,
            diagnostics,
            extension,
        })
    }

    /// Starts the process, or adopts a waiting one.
    async fn start<'a>(
        self,
        context: &'a WorkerContext,
        sink: &mut ResultSink,
        orders: &'a mut mpsc::Receiver<JobOrder>,
        kept_processes: &mut KeptProcesses,
    ) -> Result<StartedProcess<'a>, LeaseEnd> {
        let Self { adapter, program, batch, invocation, limits, diagnostics, extension, .. } = self;
        let (variant, memory_bytes) = (self.variant.as_deref(), limits.memory_bytes);
        let tests = listed_tests(&batch);
        let needs_new_process = memory_bytes.is_some() || self.is_debugged || diagnostics.is_tracing();
        let fork_point = variant.and_then(|variant| variant.fork_point).filter(|_| !needs_new_process);
        let start = LeaseProcessStart {
            program: &program,
            invocation: &invocation,
            tests: &tests,
            forked: fork_point.map(|point| ForkSource { adapter, program: self.shared_program, point }),
            is_adoptable: extension.is_some()
                && memory_bytes.is_none()
                && !diagnostics.is_tracing()
                && self.job.units.is_empty(),
            job: &self.job,
            directory_variables: self.directory_variables,
            memory_bytes,
            is_debugged: self.is_debugged,
            diagnostics: &diagnostics,
        };
        let new_transcript = || parser_of(adapter, variant, &tests);
        let process = start.adopt_or_start(kept_processes, new_transcript, context, sink, orders).await?;
        // For a variant, the report has results of several tests, but none for the variant as a whole.
        let report_files = invocation.run_report.filter(|_| variant.is_none());
        Ok(StartedProcess {
            process,
            batch,
            limits,
            diagnostics,
            writers: OutputWriters::new(adapter, program.path.as_path(), variant.is_some()),
            run_report: RunReportReader::new(adapter, report_files),
            death_files: DeathFileReader::new(adapter, program, invocation.death_files),
            context,
            extension: LeaseExtension::on(invocation.channel, extension),
            named_files: invocation.own_command.as_ref().and_then(NamedFiles::of_command),
        })
    }
}

/// Returns the program with the variables of a variant, and the program with these variables removed, so that
/// a process shared by variants does not depend on one of them.
fn programs_of(program: &TestProgram, variant: Option<&TestVariant>) -> (TestProgram, TestProgram) {
    let (mut own, mut shared) = (program.clone(), program.clone());
    for (name, value) in variant.iter().flat_map(|variant| &variant.env) {
        shared.env.push((name.clone(), None));
        own.env.push((name.clone(), value.clone()));
    }
    (own, shared)
}

/// Makes the kernel identify the writers of standard output, if a forked copy of the process may also write
/// to it.
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

/// Prepares the batch for how the framework reports the ends of tests and of the process.
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

/// Inputs for choosing the command of a batch.
struct CommandChoice<'a> {
    adapter: &'static dyn Adapter,
    program: &'a TestProgram,
    /// Variant of the only test of the batch.
    variant: Option<&'a TestVariant>,
    /// Number of tests that the program runs, if the lease contains all of them.
    runnable_tests: Option<usize>,
    runs_ignored: bool,
    is_output_shown: bool,
}

impl CommandChoice<'_> {
    /// Returns the command for the batch, after refusing tests that no command can select. `None` if no test
    /// remains.
    fn select_command(
        &self,
        context: &WorkerContext,
        batch: &mut RunningBatch,
        records: &mut dyn RecordSink,
    ) -> Option<AdapterInvocation> {
        while !batch.tests().is_empty() {
            // A test that fits no command is not removed here, so that the adapter refuses it with a reason.
            let fitting = self.adapter.selectable_together(&listed_tests(batch)).max(1);
            // If output is to be shown, and the framework captures or alters the output of tests that share a
            // process, run one test per process.
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

/// Returns the program as printed in reproduce commands.
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

struct LeaseFramework {
    adapter: &'static dyn Adapter,
    /// Program as printed in reproduce commands.
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

    fn divide_stderr(&self, stderr: &str, captured: &str, test: &ListedTest) -> Option<RuntimeStack> {
        self.adapter.divide_stderr(stderr, captured, test)
    }

    fn is_own_line(&self, line: &[u8]) -> bool {
        (self.adapter.traits().is_own_line)(line)
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        self.adapter.stack_position(stack, test)
    }
}
