//! One lease, one test process: starts it, reads what it writes, keeps its clocks, tells its guard what the
//! coordinator wishes, and hands on what comes of it. What all that means for the tests is decided in `batch`.

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

/// What the coordinator wishes of the process in hand.
#[derive(Debug)]
pub(crate) enum Order {
    /// An end: the test in flight becomes cancelled.
    Cancel { grace_ms: u64 },
    /// To stand still. The sender is used, or dropped, when nothing runs any more.
    Pause { paused: oneshot::Sender<()> },
    /// To go on.
    Resume,
    /// To go on after it stood for a debugger.
    Debugger { lease: LeaseId, decision: DebuggerDecision },
    /// To die, because this worker leaves.
    Kill,
}

/// Orders wait only while one step of the runner is done; the coordinator waits for the answers to most of them.
pub(crate) const QUEUED_ORDERS: usize = 16;

/// What a lease is run with.
pub(crate) struct Tools {
    pub(crate) setting: Arc<Setting>,
    pub(crate) uplink: mpsc::Sender<ToUplink>,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) journal: Journal,
}

/// Where the results of one lease go: journal first, then the uplink.
struct Outlet {
    run: Arc<str>,
    lease: LeaseId,
    journal: Journal,
    uplink: mpsc::Sender<ToUplink>,
    /// What is not handed over yet.
    parcel: Parcel,
}

/// Runs one lease to its end, and gives the journal back.
///
/// Cancel safe: no, because the test process is given up with the call: its guard ends it.
pub(crate) async fn run(lease: Lease, tools: Tools) -> Journal {
    let Tools { setting, uplink, orders, journal } = tools;
    let mut journal = journal;
    let mut parcel = Parcel::behind(journal.position());
    parcel.told_groups = std::mem::take(&mut journal.told_groups);
    let mut outlet = Outlet { run: lease.run.as_str().into(), lease: lease.lease, journal, uplink, parcel };
    match prepare(lease, &setting, &mut outlet).await {
        Ok(ready) => {
            let (end, start_us, keeper) = Live::new(ready, &mut outlet, orders).run().await;
            // The coordinator need not wait for the guard's own end.
            outlet.finish(end, start_us).await;
            keeper.reap().await;
        }
        Err(end) => {
            // Nothing runs: whoever waits for a pause has it.
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
    /// Another process in its place, for a debugger to launch.
    offer: Option<Offer>,
    witness: Witness,
}

/// Settles what needs no process, and starts one for the rest.
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
    // A debugger's process has no limits; if no debugger takes it, its memory is looked at from here.
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

/// Offers a process to a debugger that launches it. Without the offer it can still be attached to.
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

/// Finds the command for the batch, without the tests that none can select; `None` if no test is left.
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
    // One that is too long by itself is left for the adapter to refuse.
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
    /// Writes what is new to the journal: before anyone is told.
    fn write_ahead(&mut self) {
        let written = self.journal.append(&self.parcel.journal, self.parcel.position());
        self.parcel.journal.clear();
        self.parcel.is_unjournalled = self.journal.is_given_up();
        if let Err(error) = written {
            let message = format!("failed to {}; results go on to the client without it", chain(&error));
            self.log(None, LogLevel::Error, message);
        }
    }

    /// Notes something for the client's log, to go with the next parcel.
    fn log(&mut self, test: Option<TestIndex>, level: LogLevel, message: String) {
        self.parcel.logs.push(LogLine { test, level, message });
    }

    /// Hands the parcel over if there is room; else it is kept and grows.
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
            // The coordinator is gone, and this worker is about to leave.
            Err(mpsc::error::TrySendError::Closed(())) => drop(self.parcel.take()),
        }
    }

    /// Returns whether a parcel waits for room.
    fn is_blocked(&self) -> bool {
        !self.parcel.is_empty()
    }

    /// Hands over what is left, and the end.
    async fn finish(&mut self, end: LeaseEnd, start_us: Option<u64>) {
        self.write_ahead();
        let lease = self.lease;
        if !self.parcel.is_empty() {
            let parcel = Box::new(self.parcel.take());
            // Sending fails only when the coordinator is gone, and this worker is about to leave.
            drop(self.uplink.send(ToUplink::Parcel { run: Arc::clone(&self.run), lease, parcel }).await);
        }
        drop(self.uplink.send(ToUplink::LeaseEnded { lease, end: Box::new(end), start_us }).await);
    }
}
