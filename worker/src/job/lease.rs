//! Runs one lease in one test process, or in one process per iteration: starts the process, reads its output,
//! measures its running time, forwards the coordinator's orders to its guard, and passes on the results.
//! `batch` decides what the events mean for the tests.

use std::sync::Arc;

use heeler_core::Iteration;
use heeler_protocol::control::{LeaseEnd, LeasedTest, WorkerLease};
use tokio::sync::mpsc;

use super::{
    lease_process::KeptProcesses,
    prepared_lease::{PreparedLease, ProcessForm},
    repetition::{
        IterationEnd, RepetitionStep, end_after_rerun, end_of_lease, has_ended_by_itself, may_continue,
        step_after,
    },
    result_sink::ResultSink,
    test_process::{EndedProcess, RunningProcess},
    warm_process::WarmProcesses,
};
use crate::{
    discovery::WaitingProcess,
    process::{job_order::JobOrder, process_handle::ProcessHandle, worker_context::WorkerContext},
    results::{journal::Journal, uplink::SenderMessage},
};

pub(crate) struct LeaseResources {
    pub(crate) context: Arc<WorkerContext>,
    pub(crate) result_sender: mpsc::Sender<SenderMessage>,
    pub(crate) orders: mpsc::Receiver<JobOrder>,
    pub(crate) journal: Journal,
    /// Process that has listed a program's tests. Runs this lease if its configuration matches.
    pub(crate) waiting: Option<WaitingProcess>,
    /// Processes to fork for this lease if their configuration matches.
    pub(crate) warm: WarmProcesses,
}

/// Resources of an ended lease that the next lease reuses.
pub(crate) struct EndedLease {
    pub(crate) journal: Journal,
    pub(crate) warm: WarmProcesses,
}

/// Runs one lease to its end.
///
/// Cancel safe: no, because cancelling abandons the test process, which its guard then ends.
pub(crate) async fn run_lease(lease: WorkerLease, resources: LeaseResources) -> EndedLease {
    let LeaseResources { context, result_sender, mut orders, journal, waiting, warm } = resources;
    let mut kept = KeptProcesses { waiting, warm };
    let mut sink = ResultSink::new(&lease, context.worker, journal, result_sender);
    let run = run_iterations(lease, &context, &mut sink, &mut orders, &mut kept);
    let LeaseRunEnd { end, start_us, handle } = run.await;
    // No process is running, so dropping the receiver confirms a requested pause.
    drop(orders);
    if matches!(end, LeaseEnd::GuardLost { .. }) {
        // Descendants of the lost process may still run below the process it was forked from.
        kept.warm.end(&context.guards).await;
    }
    // Send the end of the lease first: the coordinator need not wait for the guard's own exit.
    sink.finish(end, start_us).await;
    if let Some(handle) = handle {
        handle.reap().await;
    }
    if let Some(waiting) = kept.waiting {
        waiting.end(&context.guards).await;
    }
    EndedLease { journal: sink.into_journal(), warm: kept.warm }
}

/// How the processes of a lease ended.
struct LeaseRunEnd {
    end: LeaseEnd,
    /// Time from the start of the first process to its first test.
    start_us: Option<u64>,
    /// The last process started, if any. Must be reaped.
    handle: Option<ProcessHandle>,
}

/// Runs the processes of all iterations, one after the other.
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
        // Keep a copy of the lease without its tests, for reruns and the next iteration.
        let is_run = |test: &&Arc<LeasedTest>| test.listed.skip.is_none();
        let runnable_tests = lease.tests.iter().filter(is_run).count();
        let tests = std::mem::take(&mut lease.tests);
        let has_next = !iteration.is_last() && lease.repeat_until_ms.is_none();
        let kept = lease.clone();
        lease.tests = tests;
        // Run this iteration.
        let form = ProcessForm { iteration, has_pipes: false };
        let ready =
            match PreparedLease::start_process(lease, form, context, sink, orders, kept_processes).await {
                Ok(ready) => ready,
                Err(end) => {
                    let end = end_of_lease(earlier_end, end);
                    return LeaseRunEnd { end, start_us: first_start_us, handle: None };
                }
            };
        let mut ended = RunningProcess::new(ready, sink).run().await;
        first_start_us = first_start_us.or(ended.start_us);
        // Rerun tests with pipes, alone, if they could not open a standard stream by name.
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
                true => {
                    PreparedLease::start_process(lease, form, context, sink, orders, kept_processes).await
                }
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
        // Continue with the tests that passed, or end the lease.
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

/// Returns the iteration of a lease's first process. If tests repeat until a given time, the lease has one
/// process, whose files are named after the highest iteration of its tests.
fn first_iteration(lease: &WorkerLease) -> Iteration {
    match lease.repeat_until_ms {
        Some(_) => {
            let passed = lease.tests.iter().map(|test| test.passed_iterations).max();
            Iteration::after(passed.unwrap_or_default())
        }
        None => Iteration::first_of(lease.repeat),
    }
}
