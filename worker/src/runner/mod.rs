//! Runs one lease in one test process: starts it, reads its output, measures its running time, forwards the
//! coordinator's orders to its guard, and passes on the results. `batch` decides what all of it means for the
//! tests.

mod debugger;
mod keeper;
mod launch;
mod live;
mod memory;
mod witness;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use wire::{
    control::{Command, DebuggerDecision, Lease, LeaseEnd, LeaseId, ListedTest, LogLine, Program, TestIndex},
    mtp::LogLevel,
};

use crate::{
    adapter::{self, Adapter, CommandError, Invocation, Transcript, Verdict},
    batch::{Batch, Framework},
    chain::chain,
    clock::Clock,
    guard_link::Guard,
    journal::Journal,
    parcel::Parcel,
    setting::Setting,
    uplink::ToUplink,
};
use launch::Offer;
use live::Live;
use witness::Witness;

/// An order from the coordinator for the running process.
#[derive(Debug)]
pub(crate) enum Order {
    /// End the process; the running test becomes cancelled.
    Cancel { grace_ms: u64 },
    /// Pause the process. The sender is used or dropped when nothing runs any more.
    Pause { paused: oneshot::Sender<()> },
    /// Resume the process.
    Resume,
    /// Continue a process that was stopped for a debugger.
    Debugger { lease: LeaseId, decision: DebuggerDecision },
    /// Kill the process, because this worker exits.
    Kill,
}

/// Orders queue only during one step of the runner, and the coordinator waits for the replies to most of
/// them.
pub(crate) const QUEUED_ORDERS: usize = 16;

/// Resources that a lease runs with.
pub(crate) struct Tools {
    pub(crate) setting: Arc<Setting>,
    pub(crate) uplink: mpsc::Sender<ToUplink>,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) journal: Journal,
}

/// Destination of one lease's results: first the journal, then the result sender.
struct Outlet {
    run: Arc<str>,
    lease: LeaseId,
    journal: Journal,
    uplink: mpsc::Sender<ToUplink>,
    /// Updates that are not handed over yet.
    parcel: Parcel,
}

/// Runs one lease to its end, and returns the journal.
///
/// Cancel safe: no, because the test process is abandoned with the call: its guard ends it.
pub(crate) async fn run(lease: Lease, tools: Tools) -> Journal {
    let Tools { setting, uplink, orders, journal } = tools;
    let mut journal = journal;
    let mut parcel = Parcel::behind(journal.position());
    parcel.told_groups = std::mem::take(&mut journal.told_groups);
    let mut outlet = Outlet { run: lease.run.as_str().into(), lease: lease.lease, journal, uplink, parcel };
    match prepare(lease, &setting, &mut outlet).await {
        Ok(ready) => {
            let (end, start_us, keeper) = Live::new(ready, &mut outlet, orders).run().await;
            // The coordinator does not have to wait for the guard's own exit.
            outlet.finish(end, start_us).await;
            keeper.reap().await;
        }
        Err(end) => {
            // Nothing runs, so dropping the receiver confirms a requested pause.
            drop(orders);
            outlet.finish(end, None).await;
        }
    }
    outlet.journal.told_groups = outlet.parcel.told_groups;
    outlet.journal
}

/// A process that has just been started.
struct Ready {
    batch: Batch,
    transcript: Box<dyn Transcript + Send>,
    guard: Guard,
    clock: Clock,
    is_output_shown: bool,
    grace_ms: u64,
    memory_bytes: Option<u64>,
    is_debugged: bool,
    /// Another process, for a debugger to launch instead.
    offer: Option<Offer>,
    witness: Witness,
}

/// Settles the tests that need no process, and starts a process for the others.
async fn prepare(lease: Lease, setting: &Setting, outlet: &mut Outlet) -> Result<Ready, LeaseEnd> {
    let not_started = |error: String| LeaseEnd::NotStarted { error };
    let name = lease.program.framework.as_deref().unwrap_or_default();
    let Some(adapter) = adapter::by_name(name) else {
        return Err(not_started(format!("there is no framework {name:?}")));
    };
    let program = lease.program.clone();
    let (is_output_shown, grace_ms) = (lease.is_output_shown, lease.limits.grace_ms);
    let (memory_bytes, is_debugged) = (lease.limits.memory_bytes, lease.is_debugged);
    let witness = Witness::new(&lease, setting.worker, adapter.doomed_words());
    let framework = Box::new(Asked { adapter, program: program.clone() });
    let mut batch = Batch::new(lease, setting.worker, &mut outlet.parcel, framework);
    setting.sweep().map_err(|error| not_started(chain(&error)))?;
    let Some(invocation) = select(adapter, &program, setting, (&mut batch, &mut outlet.parcel)) else {
        return Err(LeaseEnd::Complete);
    };
    outlet.write_ahead();
    outlet.try_hand_over();
    let transcript = adapter.transcript(&listed(&batch));
    let command = setting.prepare(&program, &invocation, Some(&outlet.run));
    let mut command = command.map_err(|error| not_started(chain(&error)))?;
    // A process under a debugger has no limits; if no debugger takes it, this worker samples its memory
    // instead.
    command.memory_bytes = memory_bytes.filter(|_| !is_debugged);
    command.is_held = is_debugged;
    command.trace = witness.plan(&mut outlet.parcel.logs);
    let offer = if is_debugged { offer(setting, &command, &mut outlet.parcel) } else { None };
    let clock = Clock::start();
    let guard = Guard::start(&setting.guards, command).await.map_err(|error| not_started(chain(&error)))?;
    Ok(Ready {
        batch,
        transcript,
        guard,
        clock,
        is_output_shown,
        grace_ms,
        memory_bytes,
        is_debugged,
        offer,
        witness,
    })
}

/// Offers a process for a debugger to launch. Without the offer a debugger can still attach.
fn offer(setting: &Setting, command: &Command, parcel: &mut Parcel) -> Option<Offer> {
    match Offer::make(&setting.scratch, command) {
        Ok(offer) => Some(offer),
        Err(error) => {
            let message = format!("no debugger can launch the test: failed to {}", chain(&error));
            parcel.logs.push(LogLine { test: None, level: LogLevel::Warning, message });
            None
        }
    }
}

/// Returns the command for the batch, without the tests that no command can select; `None` if no test
/// remains.
fn select(
    adapter: &'static dyn Adapter,
    program: &Program,
    setting: &Setting,
    (batch, parcel): (&mut Batch, &mut Parcel),
) -> Option<Invocation> {
    let mut budget = adapter.selection_budget();
    let fitting = batch.tests().iter().take_while(|test| {
        let cost = adapter.selection_cost(&test.listed);
        let is_fitting = cost <= budget;
        budget = budget.saturating_sub(cost);
        is_fitting
    });
    // A test that is too long by itself is left to the adapter, which refuses it.
    let fitting = fitting.count().max(1);
    batch.cut_at(fitting);
    while !batch.tests().is_empty() {
        match adapter.command(program, &listed(batch), &setting.scratch) {
            Ok(invocation) => return Some(invocation),
            Err(CommandError::Unselectable { place, reason }) => batch.refuse(place, &reason, parcel),
        }
    }
    None
}

fn listed(batch: &Batch) -> Vec<&ListedTest> {
    batch.tests().iter().map(|test| &test.listed).collect()
}

/// The framework of one lease.
struct Asked {
    adapter: &'static dyn Adapter,
    program: Program,
}

impl Framework for Asked {
    fn reproduce(&self, test: &ListedTest) -> String {
        self.adapter.reproduce(&self.program, test)
    }

    fn complete(&self, verdict: &mut Verdict, stderr: &str) {
        self.adapter.complete_verdict(verdict, stderr);
    }
}

impl Outlet {
    /// Writes new records to the journal, before any result is sent.
    fn write_ahead(&mut self) {
        let written = self.journal.append(&self.parcel.journal, self.parcel.position());
        self.parcel.journal.clear();
        self.parcel.is_unjournalled = self.journal.is_given_up();
        if let Err(error) = written {
            let message = format!("failed to {}; results go on to the client without it", chain(&error));
            self.log(None, LogLevel::Error, message);
        }
    }

    /// Adds a line to the client's log, sent with the next update batch.
    fn log(&mut self, test: Option<TestIndex>, level: LogLevel, message: String) {
        self.parcel.logs.push(LogLine { test, level, message });
    }

    /// Hands the update batch over if there is room; otherwise it is kept and grows.
    fn try_hand_over(&mut self) {
        if self.parcel.is_empty() {
            return;
        }
        match self.uplink.try_reserve() {
            Ok(permit) => permit.send(ToUplink::Parcel {
                run: Arc::clone(&self.run),
                lease: self.lease,
                parcel: Box::new(self.parcel.take()),
            }),
            Err(mpsc::error::TrySendError::Full(())) => {}
            // The coordinator has disconnected, and this worker is about to exit.
            Err(mpsc::error::TrySendError::Closed(())) => drop(self.parcel.take()),
        }
    }

    /// Returns whether an update batch waits for room.
    fn is_blocked(&self) -> bool {
        !self.parcel.is_empty()
    }

    /// Hands over the remaining updates and the end of the lease.
    async fn finish(&mut self, end: LeaseEnd, start_us: Option<u64>) {
        self.write_ahead();
        let lease = self.lease;
        if !self.parcel.is_empty() {
            let parcel = Box::new(self.parcel.take());
            // Sending fails only when the coordinator has disconnected, and this worker is about to exit.
            drop(self.uplink.send(ToUplink::Parcel { run: Arc::clone(&self.run), lease, parcel }).await);
        }
        drop(self.uplink.send(ToUplink::LeaseEnded { lease, end: Box::new(end), start_us }).await);
    }
}
