//! Lists the tests of one program: determines its framework and makes the program list its tests, in as many
//! attempts as needed.

use std::{path::Path, sync::Arc, time::Duration};

use heeler_adapters::{
    Adapter, AdapterInvocation, AdapterListing, ClaimConfidence, ListingDialogue, ListingError, ListingOutput,
};
use heeler_core::{GuardLoss, error_chain, test_path::NameNesting};
use heeler_protocol::control::{DiscoveryJob, FromWorker, ListingCapture, TestProgram, UpcomingRun};
use heeler_sys::{dirs::DirError, process::Signal};
use tokio::{sync::mpsc, time::Instant};

use super::{
    discover_error::DiscoverError,
    framework_claims::{self, ProgramKind},
    listing_crash::{ListingCrashFiles, missing_evidence},
    listing_process::{CaptureError, CapturedListing, ListingTimeLimit, capture_listing},
    program_check::{check_program, check_recognized},
    reply_text::last_output_note,
    source_files,
    waiting_process::{ProcessIdentity, WaitingProcess},
};
use crate::process::{
    job_order::JobOrder,
    regular_file::read_regular_file,
    test_directory::{TestDirectory, TestDirectoryVariables},
    worker_context::{JobVariables, PrepareError, WorkerContext},
};

/// Maximum size of a listing file, the same as for printed listings.
const FILE_LIMIT_BYTES: u64 = 64 << 20;

/// Name of the framework for programs whose exit code alone decides the result.
const COMMAND: &str = "command";

/// Maximum number of lost guards per framework when listing a program. A program that kills its guard does so
/// every time.
const GUARD_LOSSES_PER_LISTING: u32 = 3;

/// Minimum size of outputs that are parsed in another thread. Parsing this much takes about a millisecond.
const LARGE_LISTING_BYTES: usize = 64 << 10;

/// Runs one discovery job. Returns its answer, and the process if it waits for a lease.
///
/// Cancel safe: no, because cancelling abandons the listing process, which its guard then ends.
pub(crate) async fn discover(
    job: DiscoveryJob,
    context: Arc<WorkerContext>,
    orders: mpsc::Receiver<JobOrder>,
) -> (FromWorker, Option<WaitingProcess>) {
    // A program that could not be built has no tests.
    let DiscoveryJob { job, program, timeout_ms, capture, upcoming_run } = job;
    if let Some(words) = program.unbuilt {
        let program = program.suite;
        let error = DiscoverError::Unbuilt { program, words }.to_string();
        return (FromWorker::NotDiscovered { job, error }, None);
    }
    // List the tests.
    let limit = Duration::from_millis(timeout_ms);
    let time_limit = ListingTimeLimit::new(limit, Instant::now());
    let mut asking = ProgramDiscovery {
        program: &program,
        context: &context,
        orders,
        capture,
        time_limit,
        start_us: None,
        crash: None,
        job,
        upcoming_run,
        waiting: None,
    };
    let mut listed = asking.list_tests().await;
    if let Ok(listing) = &mut listed {
        source_files::make_absolute(&program, &mut listing.tests);
        name_in_reports(&program, listing);
    }
    // Compose the answer.
    let waiting = asking.waiting.take();
    let answer = match listed {
        Ok(listing) => FromWorker::Discovered {
            job,
            framework: listing.framework.to_owned(),
            nesting: nesting(listing.framework),
            selection_limit: heeler_adapters::by_name(listing.framework)
                .and_then(|adapter| adapter.traits().selection_limit),
            process: heeler_adapters::by_name(listing.framework)
                .map(|adapter| adapter.process_traits(&program, &listing.tests))
                .unwrap_or_default(),
            tests: listing.tests,
            warnings: listing.warnings,
            depends_on: listing.depends_on,
            start_us: asking.start_us.unwrap_or_default(),
            has_waiting_process: waiting.is_some(),
            failure: listing.failure.map(|source| {
                let program = program.path.to_text().into_owned();
                let failed = || DiscoverError::ListingFailed { program, source };
                asking.crash.take().unwrap_or_else(failed).to_string()
            }),
        },
        Err(error) => FromWorker::NotDiscovered { job, error: error.to_string() },
    };
    (answer, waiting)
}

/// Adds the names that tests have in their framework's JUnit reports.
fn name_in_reports(program: &TestProgram, listing: &mut AdapterListing) {
    let Some(adapter) = heeler_adapters::by_name(listing.framework) else { return };
    for test in listing.tests.iter_mut().filter(|test| test.report_name.is_none()) {
        test.report_name = adapter.report_name(program, test);
    }
}

fn nesting(framework: &str) -> NameNesting {
    heeler_adapters::by_name(framework).map(|adapter| adapter.traits().nesting).unwrap_or_default()
}

struct ProgramDiscovery<'a> {
    program: &'a TestProgram,
    context: &'a WorkerContext,
    orders: mpsc::Receiver<JobOrder>,
    /// Crash capture for a listing that is repeated after a crash.
    capture: Option<ListingCapture>,
    time_limit: ListingTimeLimit,
    /// Shortest run time of a listing process.
    start_us: Option<u64>,
    /// Crash of a program that had already written its whole listing.
    crash: Option<DiscoverError>,
    job: u32,
    /// Run that the listing process stays alive for.
    upcoming_run: Option<UpcomingRun>,
    /// Process that has listed the tests and waits.
    waiting: Option<WaitingProcess>,
}

impl ProgramDiscovery<'_> {
    async fn list_tests(&mut self) -> Result<AdapterListing, DiscoverError> {
        let path = self.program.path.as_path();
        // The framework is configured.
        if let Some(name) = &self.program.framework {
            // Do not read the contents: they do not matter here, and an interpreter is many megabytes large.
            let adapter = find_adapter(name)?;
            // Tests with their own commands are checked one by one when they run.
            if self.program.entries.is_empty() || !adapter.traits().process.is_one_test {
                check_program(path, false)?;
            }
            return match self.list_with_retry(adapter).await {
                Err(
                    error @ (DiscoverError::Listing { .. }
                    | DiscoverError::Capture { .. }
                    | DiscoverError::Crashed { .. }),
                ) => Err(with_found_marks(self.program, adapter, error).await),
                listed => listed,
            };
        }
        // Recognize the framework, and try the claimed ones in order.
        let recognized = framework_claims::recognize(self.program).await;
        check_program(path, !recognized.claims.is_empty())?;
        // Without a sign of a listing in it, the program would run its tests in order to list them.
        if recognized.has_own_main(self.program) {
            return self.list_as_command();
        }
        check_recognized(path, &recognized)?;
        let marks = recognized.marks();
        let is_one_test = recognized.is_one_test_without_listing(self.program);
        let mut likely_error = None;
        for (adapter, confidence) in recognized.claims {
            // A program that contains one framework would ignore the arguments of another, and run its tests.
            if likely_error.is_some() && confidence < ClaimConfidence::Likely {
                break;
            }
            match self.list_with_retry(adapter).await {
                Ok(mut listing) => {
                    listing.warnings.extend(ambiguity_warning(path, &marks, adapter));
                    return Ok(listing);
                }
                Err(error) if is_one_test && error.is_without_listing() => return self.list_as_command(),
                Err(error) if error.is_final() => return Err(error),
                // The contents indicate this framework, so report its error.
                Err(error) if confidence == ClaimConfidence::Likely && likely_error.is_none() => {
                    likely_error = Some(error)
                }
                Err(_) => {}
            }
        }
        Err(likely_error
            .unwrap_or_else(|| DiscoverError::NoMark { program: self.program.path.to_text().into_owned() }))
    }

    /// Lists a program that lists no tests as one test, decided by its exit code.
    fn list_as_command(&self) -> Result<AdapterListing, DiscoverError> {
        let listing = find_adapter(COMMAND)?.read_listing(self.program, &[]);
        listing.map_err(|source| DiscoverError::Listing {
            program: self.program.path.to_text().into_owned(),
            source,
        })
    }

    /// Lists with one framework. If the process was killed, retries once, with tracing: the kill may be
    /// unrelated, and giving up would lose a whole program. A lost guard is not the program's fault, so the
    /// time limit then restarts.
    async fn list_with_retry(
        &mut self,
        adapter: &'static dyn Adapter,
    ) -> Result<AdapterListing, DiscoverError> {
        let mut has_retried = false;
        let mut lost: Option<(GuardLoss, u32)> = None;
        loop {
            match self.list_once(adapter, has_retried).await {
                Err(DiscoverError::Capture { program, source: CaptureError::GuardLost(loss) }) => {
                    let (loss, losses) =
                        lost.map_or((loss, 1), |(first, count)| (first.and(loss), count + 1));
                    if losses >= GUARD_LOSSES_PER_LISTING {
                        return Err(DiscoverError::GuardLost { program, loss, losses });
                    }
                    lost = Some((loss, losses));
                    self.time_limit.restart(Instant::now());
                }
                Err(error) if error.may_succeed_on_retry() && !has_retried => has_retried = true,
                answer => return answer,
            }
        }
    }

    /// Lists once. A traced process that crashes may have listed its tests anyway.
    async fn list_once(
        &mut self,
        adapter: &'static dyn Adapter,
        is_traced: bool,
    ) -> Result<AdapterListing, DiscoverError> {
        let program = || described_program(self.program, adapter);
        // Prepare crash capture, and a temporary directory for a process that waits for a lease afterwards.
        let mut crash_files = self.capture.as_ref().filter(|_| is_traced).map(|capture| {
            let markers = adapter.traits().expected_crash_markers;
            ListingCrashFiles::prepare(capture, self.program.path.as_path(), self.context.worker, markers)
        });
        let prepare = |source| DiscoverError::Prepare { program: program(), source };
        let scratch = self.context.clean_scratch().map_err(prepare)?;
        let mut outputs = Vec::new();
        let mut crash = None;
        let mut dialogue = adapter.listing_dialogue(self.program);
        let place = self.prepare_stay(dialogue.as_deref_mut().filter(|_| !is_traced));
        let (run, directory) = place.as_ref().map(|(run, directory)| (run.as_str(), directory)).unzip();
        let job = JobVariables { run: run.map(str::to_owned), ..JobVariables::default() };
        let mut detached = None;
        // Run the listing commands.
        while let Some(invocation) = adapter.next_listing(self.program, &outputs, scratch) {
            let command = self.context.prepare_command(self.program, &invocation, &job, directory);
            let mut command = command.map_err(prepare)?;
            command.trace = crash_files.as_ref().and_then(|files| Some(files.as_ref().ok()?.plan()));
            let captured = capture_listing(
                &self.context.guards,
                command,
                &invocation,
                dialogue.as_deref_mut(),
                &mut self.time_limit,
                &mut self.orders,
            )
            .await;
            let mut captured =
                captured.map_err(|source| DiscoverError::Capture { program: program(), source })?;
            self.record_start(&captured);
            if let Some(signal) = captured.end.signal {
                let (signal, said) = (Signal(signal).name(), last_output_note(&captured));
                // Collect evidence only for the first crash, which explains the later ones.
                let evidence =
                    crash_files.take().map_or(String::new(), |files| crash_evidence(&files, &mut captured));
                let crashed = DiscoverError::Crashed { program: program(), signal, said, evidence };
                if !is_traced {
                    return Err(crashed);
                }
                crash.get_or_insert(crashed);
            } else if captured.end.code.is_none() {
                return Err(DiscoverError::Lost { program: program() });
            }
            detached = captured.waiting.take().map(|process| (process, invocation.clone()));
            outputs.push(listing_output(&invocation, captured));
        }
        // Parse the outputs.
        let listing = match (&mut dialogue, outputs.first()) {
            // The dialogue parsed the output as it arrived.
            (Some(dialogue), Some(output)) => dialogue.finish(output),
            (Some(_) | None, _) => read_listing(adapter, self.program.clone(), outputs).await,
        };
        // Keep the process if it waits and the listing succeeded.
        if let (Some(((process, root), invocation)), Some(dialogue), Some((run, directory))) =
            (detached, dialogue, place)
        {
            let identity = self.identity(adapter, invocation, run, &directory);
            let waiting = WaitingProcess::new(identity, process, root, dialogue, directory);
            match &listing {
                Ok(_) => self.waiting = Some(waiting),
                Err(_) => waiting.end(&self.context.guards).await,
            }
        }
        // A crash counts unless the listing is complete.
        match (listing, crash) {
            (Ok(listing), Some(crash)) if listing.failure.is_some() => {
                self.crash = Some(crash);
                Ok(listing)
            }
            (_, Some(crash)) => Err(crash),
            (listing, None) => {
                listing.map_err(|source| DiscoverError::Listing { program: program(), source })
            }
        }
    }

    /// Makes the listing process wait for the run that follows, if any. Returns the id of that run and the
    /// temporary directory of the process.
    fn prepare_stay(
        &self,
        dialogue: Option<&mut (dyn ListingDialogue + 'static)>,
    ) -> Option<(String, TestDirectory)> {
        let (dialogue, run) = (dialogue?, self.upcoming_run.as_ref()?);
        let variables = TestDirectoryVariables::of_run(run.has_private_tmpdir);
        let created = self.context.create_test_directory(format_args!("listing-{}", self.job), variables);
        let told = |error: &PrepareError| {
            tracing::debug!(error = %error_chain(error), "no process is kept for the run");
        };
        let directory = created.inspect_err(told).ok()?;
        dialogue.stay();
        Some((run.id.clone(), directory))
    }

    /// Returns the identity of the listing process, as a lease would describe it.
    fn identity(
        &self,
        adapter: &dyn Adapter,
        invocation: AdapterInvocation,
        run: String,
        directory: &TestDirectory,
    ) -> ProcessIdentity {
        let framework = Some(adapter.traits().name.to_owned());
        let program = TestProgram { framework, ..self.program.clone() };
        ProcessIdentity { program, invocation, directory_variables: directory.variables(), run }
    }

    fn record_start(&mut self, captured: &CapturedListing) {
        let wall_us = captured.end.wall_us;
        self.start_us = Some(self.start_us.map_or(wall_us, |shortest| shortest.min(wall_us)));
    }
}

/// If a program was listed with the wrong framework, adds the frameworks that its contents show to the error.
async fn with_found_marks(
    program: &TestProgram,
    adapter: &'static dyn Adapter,
    error: DiscoverError,
) -> DiscoverError {
    let named = adapter.traits().name;
    let recognized = framework_claims::recognize(program).await;
    let found = recognized.named_marks();
    let note = match found.as_slice() {
        [] if recognized.kind == ProgramKind::Native => "no known test framework in this program".to_owned(),
        [] => return error,
        found if found.contains(&named) => return error,
        found => format!(
            "the framework is set to {named}, but the program contains {}: set the right one, or remove the setting",
            found.join(", ")
        ),
    };
    DiscoverError::WrongFramework { source: Box::new(error), note }
}

/// Parses the outputs. Large ones are parsed in another thread, so that the worker can handle messages
/// meanwhile. Each worker has one program at a time, so programs are parsed on as many cores as there are
/// workers.
async fn read_listing(
    adapter: &'static dyn Adapter,
    program: TestProgram,
    outputs: Vec<ListingOutput>,
) -> Result<AdapterListing, ListingError> {
    let sizes = outputs.iter().map(|output| {
        let file = output.file.as_ref().map_or(0, Vec::len);
        output.stdout.len() + output.stderr.len() + output.channel.len() + file
    });
    if sizes.sum::<usize>() < LARGE_LISTING_BYTES {
        return adapter.read_listing(&program, &outputs);
    }
    let read = tokio::task::spawn_blocking(move || adapter.read_listing(&program, &outputs));
    match read.await {
        Ok(listing) => listing,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and cancels this call too.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

/// Returns a warning for a program with marks of several frameworks.
fn ambiguity_warning(path: &Path, marks: &[&str], listed_by: &dyn Adapter) -> Option<String> {
    let program = path.display();
    (marks.len() > 1).then(|| {
        format!(
            "{program} contains {}, using {}; to choose another, set --framework, or framework in heeler.toml",
            marks.join(" and "),
            listed_by.traits().label
        )
    })
}

/// Returns the name of a program for messages. A server's program is often an interpreter, so its suite is
/// named too.
fn described_program(program: &TestProgram, adapter: &dyn Adapter) -> String {
    let path = program.path.to_text();
    if adapter.traits().is_server { format!("{} ({path})", program.suite) } else { path.into_owned() }
}

fn find_adapter(name: &str) -> Result<&'static dyn Adapter, DiscoverError> {
    heeler_adapters::by_name(name).ok_or_else(|| DiscoverError::UnknownFramework {
        name: name.to_owned(),
        known: heeler_adapters::framework_names(),
    })
}

/// Returns the message lines about the crash of a traced listing.
fn crash_evidence(files: &Result<ListingCrashFiles, DirError>, captured: &mut CapturedListing) -> String {
    match (files, captured.crash.take(), &captured.untraced_reason) {
        (Err(error), _, _) => missing_evidence(error),
        (Ok(files), Some(crash), _) => files.keep(*crash),
        (Ok(_), None, Some(reason)) => format!("\nno stack trace: {reason}"),
        (Ok(_), None, None) => String::new(),
    }
}

fn listing_output(invocation: &AdapterInvocation, captured: CapturedListing) -> ListingOutput {
    let CapturedListing { stdout, stderr, channel, end, .. } = captured;
    let file = invocation.listing_file.as_deref();
    let file = file.and_then(|path| read_regular_file(path, FILE_LIMIT_BYTES));
    ListingOutput { stdout, stderr, channel, file, code: end.code, signal: end.signal }
}
