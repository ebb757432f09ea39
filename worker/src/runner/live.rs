//! Event loop of one test process.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};
use wire::{
    control::{DebuggerDecision, Evidence, LeaseEnd, RawEnd, Report, TestIndex, ToGuard, TreeSample},
    mtp::LogLevel,
};

use super::{
    Order, Outlet, Ready, debugger::Debugging, keeper::Keeper, launch::Taken, memory::MemoryWatch,
    witness::Witness,
};
use crate::{
    adapter::{Event, Transcript},
    batch::{Batch, Chunk, Due, Gone},
    clock::Clock,
    conclusion::microseconds,
    guard_link::{Guard, News},
    pipe::{Pipe, Read},
};

/// The capacity of a pipe, so that one read empties it.
const CHUNK_BYTES: usize = 64 << 10;

/// Minimum time between two reads. Frameworks write each line by itself, and waking up for each would cost
/// more than the tests. A read does not wait if the pipe is filling up or the test writes to its standard
/// error.
const GATHER: Duration = Duration::from_millis(1);

/// A read of more than this means that the pipe is filling up.
const BUSY_BYTES: usize = CHUNK_BYTES / 8;

/// How long an output that is still open is read after the end of the process. No process should hold it any
/// more.
const LINGER: Duration = Duration::from_millis(500);

/// After the grace period, a guard has this long to end its process before the guard itself is killed.
const OVERDUE: Duration = Duration::from_secs(5);

/// One running test process and its state.
pub(super) struct Live<'a> {
    batch: Batch,
    transcript: Box<dyn Transcript + Send>,
    keeper: Keeper,
    output: Pipe,
    errors: Pipe,
    clock: Clock,
    outlet: &'a mut Outlet,
    orders: mpsc::Receiver<Order>,
    grace_ms: u64,
    is_output_shown: bool,
    is_paused: bool,
    /// Notified when the process is paused.
    pausing: Option<oneshot::Sender<()>>,
    /// When the guard is overdue and is killed.
    overdue: Option<Instant>,
    memory: MemoryWatch,
    debugging: Debugging,
    witness: Witness,
    /// The earliest time of the next read, unless there is a reason to read sooner.
    next_read: Instant,
    events: Vec<Event>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// An event of the event loop.
enum Happened {
    Order(Order),
    News(News),
    /// A debugger has launched the process.
    Launched(Box<Taken>),
    /// The result sender has room.
    Room,
    /// There is output to read.
    Output,
    /// A time limit of a test or of the process has passed.
    Deadline,
    /// The guard did not end its process in time.
    Overdue,
    /// The process's memory is to be sampled.
    Memory,
    /// Capturing a hung process takes the guard too long.
    Witness,
}

impl<'a> Live<'a> {
    pub(super) fn new(ready: Ready, outlet: &'a mut Outlet, orders: mpsc::Receiver<Order>) -> Self {
        let Ready {
            batch,
            transcript,
            guard: Guard { control, stdout, stderr },
            clock,
            is_output_shown,
            grace_ms,
            memory_bytes,
            is_debugged,
            offer,
            witness,
        } = ready;
        Self {
            batch,
            transcript,
            keeper: Keeper::Guard(control),
            output: stdout,
            errors: stderr,
            clock,
            outlet,
            orders,
            grace_ms,
            is_output_shown,
            is_paused: false,
            pausing: None,
            overdue: None,
            memory: MemoryWatch::new(memory_bytes),
            debugging: Debugging::new(is_debugged, offer),
            witness,
            next_read: Instant::now(),
            events: Vec::new(),
            stdout: vec![0; CHUNK_BYTES],
            stderr: vec![0; CHUNK_BYTES],
        }
    }

    /// Runs until the process has ended; returns how the lease ended, how long the process took to its first
    /// test, and the handle to the process, whose guard may take a moment more to exit.
    pub(super) async fn run(mut self) -> (LeaseEnd, Option<u64>, Keeper) {
        loop {
            let happened = self.next().await;
            if let Some(end) = self.handle(happened).await {
                let start_us = self.batch.first_begun().map(microseconds);
                return (end, start_us, self.keeper);
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let is_blocked = self.outlet.is_blocked();
        // While a slow client keeps the worker from reading, a test may block on its output: that time does
        // not count for the test. Neither does the time in which it waits for a debugger.
        self.clock.hold(self.is_paused || is_blocked || self.debugging.is_undecided());
        let deadline = self.batch.deadline().and_then(|running| self.clock.instant_of(running));
        let (stdout, stderr) = (&self.output, &self.errors);
        tokio::select! {
            biased;
            order = self.orders.recv() => Happened::Order(order.unwrap_or(Order::Kill)),
            news = self.keeper.next() => Happened::News(news),
            taken = self.debugging.taken() => Happened::Launched(Box::new(taken)),
            // An error means that the coordinator has disconnected; handing over then drops the update batch.
            _ = self.outlet.uplink.reserve(), if is_blocked => Happened::Room,
            () = output((stdout, stderr), self.next_read), if !is_blocked => Happened::Output,
            () = until(deadline.map(Into::into)) => Happened::Deadline,
            () = until(self.overdue) => Happened::Overdue,
            () = until(self.memory.next_look()) => Happened::Memory,
            () = until(self.witness.patience()) => Happened::Witness,
        }
    }

    async fn handle(&mut self, happened: Happened) -> Option<LeaseEnd> {
        match happened {
            Happened::Order(order) => self.obey(order).await,
            Happened::News(News::Started(root, is_limited)) => {
                if let Some((root, is_limited)) = self.debugging.started(root, is_limited) {
                    self.memory.begin(root, is_limited);
                }
            }
            Happened::News(News::Standing(is_program)) => self.stands_for_debugger(is_program),
            Happened::News(News::Deserted) => {
                let text = "its debugger is gone and had left the test standing; it goes on".to_owned();
                self.outlet.log(self.suspect(), LogLevel::Warning, text);
                self.outlet.try_hand_over();
            }
            // The worker never requests this.
            Happened::News(News::LetGone) => {}
            Happened::News(News::NotStarted(error)) => return Some(LeaseEnd::NotStarted { error }),
            Happened::News(News::Paused) => self.answer_pause(),
            Happened::News(News::Ended(end)) => return Some(self.end(end).await),
            Happened::Launched(taken) => self.launched(*taken).await,
            Happened::Room => self.outlet.try_hand_over(),
            Happened::Output => self.read(),
            Happened::Deadline => {
                // Tests that ended in time may still have output in the pipe.
                self.read();
                let now = self.clock.now();
                self.batch.tell_slow(now, &mut self.outlet.parcel);
                let due = self.batch.on_time(now);
                self.outlet.try_hand_over();
                self.is_due(due).await;
            }
            Happened::News(News::Untraced(reason)) => {
                let text = format!("a test process is not watched for crashes: {reason}");
                let test = self.suspect();
                self.outlet.log(test, LogLevel::Information, text);
            }
            Happened::News(News::Crashed(report)) => self.witness.crashed(*report),
            Happened::News(News::Sampled(sample)) => self.sampled(sample).await,
            Happened::News(News::Dumped(report)) => {
                self.witness.hung(*report);
                self.terminate(self.grace_ms).await;
            }
            Happened::Witness => self.terminate(self.grace_ms).await,
            Happened::Memory => {
                if let Some(used) = self.memory.look() {
                    self.batch.out_of_memory(used);
                    self.terminate(0).await;
                }
            }
            Happened::Overdue => {
                self.overdue = None;
                self.keeper.kill();
            }
        }
        None
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Cancel { grace_ms } => {
                // Tests that began or ended before the order may still have output in the pipe. From now on
                // no test begins.
                self.read();
                self.batch.cancel();
                self.terminate(grace_ms).await;
            }
            Order::Pause { paused } => {
                self.is_paused = true;
                self.pausing = Some(paused);
                self.keeper.tell(ToGuard::Pause).await;
            }
            Order::Resume => {
                self.is_paused = false;
                self.keeper.tell(ToGuard::Resume).await;
            }
            Order::Debugger { lease, decision } if lease == self.outlet.lease => {
                self.debugger_decided(decision).await;
            }
            // An order for an earlier lease.
            Order::Debugger { .. } => {}
            Order::Kill => {
                self.batch.abandon();
                self.terminate(0).await;
            }
        }
    }

    /// Reports that the process waits for a debugger.
    fn stands_for_debugger(&mut self, is_program: bool) {
        let Some((pid, test)) = self.debugging.root().zip(self.suspect()) else { return };
        let debuggee = self.debugging.debuggee();
        self.outlet.parcel.reports.push(Report::Standing { test, pid: pid.as_u32(), is_program, debuggee });
        self.outlet.try_hand_over();
    }

    async fn debugger_decided(&mut self, decision: DebuggerDecision) {
        let Some(root) = self.debugging.decide(decision) else { return };
        match decision {
            DebuggerDecision::HandOver => {
                self.batch.lift_limits();
                self.keeper.tell(ToGuard::HandOver).await;
            }
            DebuggerDecision::TakeBack => {
                self.memory.begin(root, false);
                self.keeper.tell(ToGuard::TakeBack).await;
            }
        }
    }

    /// Switches to the process that a debugger has launched, in place of the stopped one.
    async fn launched(&mut self, taken: Taken) {
        let Taken { process, stdout, stderr } = taken;
        self.debugging.was_launched();
        self.batch.was_launched();
        if let Some(test) = self.suspect() {
            self.outlet.parcel.reports.push(Report::Launched { test, pid: process.pid().as_u32() });
        }
        (self.output, self.errors) = (stdout, stderr);
        let keeper = Keeper::Debugger { process, owes_pause: self.pausing.is_some() };
        // It has run nothing, so none of its output is lost.
        std::mem::replace(&mut self.keeper, keeper).reap().await;
        self.outlet.try_hand_over();
    }

    /// Returns the test to blame for what the process does: the running one, or the only one.
    fn suspect(&self) -> Option<TestIndex> {
        let in_flight = self.batch.in_flight().map(|(test, _)| test);
        let only = self.batch.tests().first().filter(|_| self.batch.tests().len() == 1);
        in_flight.or(only).map(|test| test.test)
    }

    fn answer_pause(&mut self) {
        if let Some(paused) = self.pausing.take() {
            // The requester may be gone.
            paused.send(()).ok();
        }
    }

    async fn is_due(&mut self, due: Due) {
        match due {
            Due::Nothing => {}
            Due::Result => {
                self.batch.tell_kept(&mut self.outlet.parcel);
                self.outlet.write_ahead();
                self.outlet.try_hand_over();
            }
            Due::Silence => self.keeper.tell(ToGuard::Sample).await,
            // Two samples show what a hung process does; its stacks and dumps show why.
            Due::End if self.witness.begin() => self.keeper.tell(ToGuard::Sample).await,
            Due::End => self.terminate(self.grace_ms).await,
        }
    }

    async fn sampled(&mut self, sample: TreeSample) {
        if self.witness.patience().is_some() {
            self.witness.sampled(&sample);
            self.keeper.tell(ToGuard::Dump).await;
            return;
        }
        let starved = self.witness.starved(&sample);
        let due = self.batch.silence_checked(self.clock.now(), starved);
        self.is_due(due).await;
    }

    async fn terminate(&mut self, grace_ms: u64) {
        self.witness.give_up();
        if std::mem::take(&mut self.is_paused) {
            self.keeper.tell(ToGuard::Resume).await;
        }
        let message = if grace_ms == 0 { ToGuard::Kill } else { ToGuard::Terminate { grace_ms } };
        self.keeper.tell(message).await;
        self.overdue = Some(Instant::now() + Duration::from_millis(grace_ms) + OVERDUE);
    }

    /// Reads the available output, standard output first: what a test wrote to its standard error before its
    /// end marker is then already in the other pipe.
    fn read(&mut self) {
        let count = bytes_of(self.output.try_read(&mut self.stdout));
        let errors = bytes_of(self.errors.try_read(&mut self.stderr));
        if count > 0 {
            self.transcript.stdout(&self.stdout[..count], &mut self.events);
        }
        self.digest(errors);
        self.next_read = Instant::now() + if count > BUSY_BYTES { Duration::ZERO } else { GATHER };
    }

    /// Turns events and standard error into results, and hands them over.
    fn digest(&mut self, errors: usize) {
        if self.events.is_empty() && errors == 0 {
            return;
        }
        let stderr = &self.stderr[..errors];
        let parcel = &mut self.outlet.parcel;
        if self.is_output_shown {
            for event in &self.events {
                if let Event::Output(bytes) = event {
                    parcel.shown.extend_from_slice(bytes);
                }
            }
            parcel.shown_errors.extend_from_slice(stderr);
        }
        let chunk = Chunk { events: &mut self.events, stderr, now: self.clock.now() };
        self.batch.chunk(chunk, parcel);
        self.outlet.write_ahead();
        self.outlet.try_hand_over();
    }

    /// Logs which evidence of a crash or hang could not be kept, and why.
    fn tell_losses(&mut self, evidence: Option<&Evidence>, end: &RawEnd) {
        let test = self.suspect();
        for note in evidence.iter().flat_map(|evidence| &evidence.notes) {
            let text = format!("not all of its evidence could be kept: {note}");
            self.outlet.log(test, LogLevel::Warning, text);
        }
        if end.code.is_none() && end.signal.is_none() {
            self.witness.sweep();
        }
    }

    /// Reads the outputs to their ends and decides the tests that have no result.
    async fn end(&mut self, raw: RawEnd) -> LeaseEnd {
        self.clock.hold(false);
        let deadline = Instant::now() + LINGER;
        loop {
            self.read();
            let (stdout, stderr) = (&self.output, &self.errors);
            if stdout.is_at_end() && stderr.is_at_end() {
                break;
            }
            // A process that escaped its guard may hold an output open, and even write to it, forever.
            if timeout_at(deadline, either((stdout, stderr))).await.is_err() || Instant::now() >= deadline {
                tracing::warn!("a test process left its output open behind it");
                break;
            }
        }
        self.transcript.end(&mut self.events);
        self.digest(0);
        // A guard that was killed because it was overdue reports no signal.
        let is_own_death = self.witness.is_own_death(&raw, self.overdue.is_some());
        let (evidence, detail) = self.witness.conclude(self.batch.in_flight(), raw.core.as_ref());
        self.tell_losses(evidence.as_deref(), &raw);
        let is_explained =
            raw.signal.is_none() && raw.code.is_some_and(|code| self.transcript.explains(code));
        let gone = Gone {
            end: raw,
            is_complete: self.transcript.is_complete(),
            is_explained,
            is_after_end_marker: self.transcript.is_after_end_marker(),
            outside_failure: self.transcript.outside_failure().map(str::to_owned),
            is_out_of_memory: self.memory.was_kernel_short(),
            evidence,
            detail,
            is_own_death,
        };
        self.batch.finish(gone, self.clock.now(), &mut self.outlet.parcel)
    }
}

fn bytes_of(read: Read) -> usize {
    match read {
        Read::Some(count) => count,
        Read::Nothing | Read::End => 0,
    }
}

/// Waits until there is output to read, and a little longer for more to arrive.
async fn output((stdout, stderr): (&Pipe, &Pipe), next_read: Instant) {
    tokio::select! {
        () = stderr.readable() => return,
        () = stdout.readable() => {}
    }
    // The timer rounds up to a whole millisecond, even for a time that has passed: a pipe that fills up must
    // not wait for it.
    if next_read <= Instant::now() {
        return;
    }
    tokio::select! {
        () = stderr.readable() => {}
        () = sleep_until(next_read) => {}
    }
}

async fn either((stdout, stderr): (&Pipe, &Pipe)) {
    tokio::select! {
        () = stdout.readable() => {}
        () = stderr.readable() => {}
    }
}

pub(super) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
