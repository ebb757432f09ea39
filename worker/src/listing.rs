//! Runs one listing command to its end and captures its outputs. They are parsed elsewhere.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};
use wire::control::{Command, RawEnd, ToGuard};

use crate::{
    chain::chain,
    guard_link::{Guard, News},
    guards::Guards,
    pipe::{Pipe, Read},
    runner::Order,
};

/// A listing of 100,000 tests with long names is about 20 MB.
const STDOUT_LIMIT_BYTES: usize = 64 << 20;
/// Standard error of a listing is only shown to users.
const STDERR_LIMIT_BYTES: usize = 1 << 20;
/// How long an output that is still open is read after the end of the process. No process should hold it any
/// more.
const LINGER: Duration = Duration::from_millis(500);
/// After its order, a guard has this long to end its process before the guard itself is killed.
const OVERDUE: Duration = Duration::from_secs(5);

/// Why a listing command has no outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("start it: {0}")]
    NotStarted(String),
    #[error("list its tests within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("keep more than {STDOUT_LIMIT_BYTES} bytes of its listing")]
    TooLong,
    #[error("list its tests: the run was cancelled")]
    Cancelled,
}

/// The output of a listing command and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: RawEnd,
}

/// How long a listing may take: the limit, and the resulting deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) limit: Duration,
    pub(crate) deadline: Instant,
}

struct Listing<'a> {
    guard: Guard,
    orders: &'a mut mpsc::Receiver<Order>,
    budget: Budget,
    buffer: Vec<u8>,
    captured: Captured,
    failure: Option<CaptureError>,
    overdue: Option<Instant>,
    pausing: Option<oneshot::Sender<()>>,
}

enum Happened {
    Order(Order),
    News(News),
    Output,
    Deadline,
    Overdue,
}

/// Runs one command and captures its outputs.
///
/// Cancel safe: no, because the process is abandoned with the call: its guard ends it.
pub(crate) async fn capture(
    guards: &Guards,
    command: Command,
    budget: Budget,
    orders: &mut mpsc::Receiver<Order>,
) -> Result<Captured, CaptureError> {
    let guard = Guard::start(guards, command).await;
    let guard = guard.map_err(|error| CaptureError::NotStarted(chain(&error)))?;
    let mut listing = Listing {
        guard,
        orders,
        budget,
        buffer: vec![0; 64 << 10],
        captured: Captured::default(),
        failure: None,
        overdue: None,
        pausing: None,
    };
    loop {
        let happened = listing.next().await;
        if listing.handle(happened).await {
            break;
        }
    }
    let Listing { guard, captured, failure, .. } = listing;
    guard.control.reap().await;
    failure.map_or(Ok(captured), Err)
}

impl Listing<'_> {
    async fn next(&mut self) -> Happened {
        let Guard { control, stdout, stderr } = &mut self.guard;
        tokio::select! {
            biased;
            order = self.orders.recv() => Happened::Order(order.unwrap_or(Order::Kill)),
            news = control.next() => Happened::News(news),
            () = readable(stdout, stderr) => Happened::Output,
            () = sleep_until(self.budget.deadline), if self.failure.is_none() => Happened::Deadline,
            () = sleep_until(self.overdue.unwrap_or(self.budget.deadline)), if self.overdue.is_some() => Happened::Overdue,
        }
    }

    /// Handles an event; returns whether it was the end.
    async fn handle(&mut self, happened: Happened) -> bool {
        match happened {
            Happened::Order(Order::Cancel { .. } | Order::Kill) => self.fail(CaptureError::Cancelled).await,
            Happened::Order(Order::Pause { paused }) => {
                self.pausing = Some(paused);
                self.guard.control.tell(ToGuard::Pause).await;
            }
            Happened::Order(Order::Resume) => self.guard.control.tell(ToGuard::Resume).await,
            Happened::News(News::Untraced(_) | News::Crashed(_) | News::Sampled(_) | News::Dumped(_)) => {}
            Happened::News(News::Started(..)) => {}
            // Listings are not debugged.
            Happened::Order(Order::Debugger { .. }) => {}
            Happened::News(News::LetGone | News::Standing(_) | News::Deserted) => {}
            Happened::News(News::NotStarted(error)) => {
                self.failure = Some(CaptureError::NotStarted(error));
                return true;
            }
            Happened::News(News::Paused) => {
                if let Some(paused) = self.pausing.take() {
                    // The requester may be gone.
                    paused.send(()).ok();
                }
            }
            Happened::News(News::Ended(end)) => {
                self.captured.end = end;
                self.read_to_end().await;
                return true;
            }
            Happened::Output => {
                if self.read() {
                    self.fail(CaptureError::TooLong).await;
                }
            }
            Happened::Deadline => self.fail(CaptureError::TimedOut(self.budget.limit)).await,
            Happened::Overdue => {
                self.overdue = None;
                self.guard.control.kill();
            }
        }
        false
    }

    async fn fail(&mut self, failure: CaptureError) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.overdue = Some(Instant::now() + OVERDUE);
            self.guard.control.tell(ToGuard::Kill).await;
        }
    }

    /// Reads the available output; returns whether it exceeds the limit.
    fn read(&mut self) -> bool {
        let Guard { stdout, stderr, .. } = &mut self.guard;
        if let Read::Some(count) = stdout.try_read(&mut self.buffer)
            && self.captured.stdout.len() <= STDOUT_LIMIT_BYTES
        {
            self.captured.stdout.extend_from_slice(&self.buffer[..count]);
        }
        if let Read::Some(count) = stderr.try_read(&mut self.buffer) {
            let room = STDERR_LIMIT_BYTES.saturating_sub(self.captured.stderr.len());
            self.captured.stderr.extend_from_slice(&self.buffer[..count.min(room)]);
        }
        self.captured.stdout.len() > STDOUT_LIMIT_BYTES
    }

    async fn read_to_end(&mut self) {
        let deadline = Instant::now() + LINGER;
        loop {
            if self.read() {
                self.failure.get_or_insert(CaptureError::TooLong);
            }
            let Guard { stdout, stderr, .. } = &self.guard;
            if stdout.is_at_end() && stderr.is_at_end() {
                return;
            }
            if timeout_at(deadline, readable(stdout, stderr)).await.is_err() || Instant::now() >= deadline {
                return;
            }
        }
    }
}

async fn readable(stdout: &Pipe, stderr: &Pipe) {
    tokio::select! {
        () = stdout.readable() => {}
        () = stderr.readable() => {}
    }
}
