//! Main loop of a worker: joins the coordinator, runs one job at a time, handles control messages in between,
//! and exits when it is ordered to or when the coordinator disconnects. `runner` and `discovery` run the
//! jobs.

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use link::{
    Closed, LinkTask,
    control::{ControlReceiver, ControlSender, ReceiveError, Received},
    local,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use wire::control::{DiscoverJob, FromWorker, Join, Lease, LeaseEnd, ToWorker, WorkerId};

use crate::{
    discovery,
    guards::Guards,
    journal::Journal,
    runner::{self, Order, QUEUED_ORDERS, Tools},
    setting::Setting,
    uplink::{QUEUED_PARCELS, ToUplink, Uplink},
};

/// How long joining may take. A live coordinator replies at once.
const JOIN: Duration = Duration::from_secs(10);

/// How long an exiting worker waits for its test process to end. After that the guard ends it without the
/// worker.
const LEAVE: Duration = Duration::from_millis(300);

/// Why a worker could not start, or exited without an order to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("join the coordinator")]
    Connect(#[source] local::ConnectError),
    #[error("introduce itself to the coordinator")]
    Join(#[source] Closed),
    #[error("hear the coordinator")]
    Receive(#[source] ReceiveError),
    #[error("hear a welcome from the coordinator within {} s", JOIN.as_secs())]
    NoWelcome,
    #[error("do a job: its task panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Identity of this worker, and how it reaches its coordinator.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) worker: WorkerId,
    /// The executable that becomes a guard when started with the guard's role argument.
    pub(crate) image: PathBuf,
}

/// Runs until the coordinator disconnects or orders the worker to exit.
///
/// Cancel safe: no, because running jobs are abandoned with the call: their guards end them.
pub(crate) async fn run(place: Place) -> Result<(), WorkerError> {
    let (mut worker, mut receiver, mut task) = join(place).await?;
    let left = worker.work(&mut receiver).await;
    worker.leave().await;
    // Queued messages are still written if the coordinator reads them.
    let Worker { control, .. } = worker;
    control.close();
    drop(timeout(LEAVE, task.join()).await);
    left
}

async fn join(place: Place) -> Result<(Worker, ControlReceiver, LinkTask), WorkerError> {
    let Place { socket, worker, image } = place;
    host::fail::pass("worker.join");
    let deadline = Instant::now() + JOIN;
    let stream = local::connect(&socket, deadline).await.map_err(WorkerError::Connect)?;
    let (control, mut receiver, task) = link::control::open(stream);
    let join = Join::Worker { worker, pid: std::process::id() };
    control.send(&join).await.map_err(WorkerError::Join)?;
    let first = timeout_at(deadline, receiver.next::<ToWorker>()).await;
    let first = first.map_err(|_| WorkerError::NoWelcome)?.map_err(WorkerError::Receive)?;
    let Some(Received::Message(ToWorker::Welcome { callback, limits })) = first else {
        return Err(WorkerError::NoWelcome);
    };
    let (uplink, inbox) = mpsc::channel(QUEUED_PARCELS);
    let mut tasks = JoinSet::new();
    let way_out = Uplink::new(control.clone(), worker, callback, limits);
    tasks.spawn(async move {
        // The receiver notices that the coordinator has disconnected.
        drop(way_out.run(inbox).await);
        Done::Other
    });
    let setting = Arc::new(Setting { worker, guards: Guards::of(image), scratch: scratch(&socket, worker) });
    let worker = Worker {
        setting,
        control,
        uplink,
        tasks,
        in_hand: None,
        jobs: VecDeque::new(),
        drains: VecDeque::new(),
        pausing: None,
        is_paused: false,
        journals: HashMap::new(),
    };
    Ok((worker, receiver, task))
}

/// Returns the scratch directory, beside the socket in the session's own private directory.
fn scratch(socket: &Path, worker: WorkerId) -> PathBuf {
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    socket.with_file_name(format!("scratch-{worker}"))
}

struct Worker {
    setting: Arc<Setting>,
    control: ControlSender,
    uplink: mpsc::Sender<ToUplink>,
    /// The result sender, the running job, and replies being sent.
    tasks: JoinSet<Done>,
    in_hand: Option<InHand>,
    /// Waiting jobs. The coordinator sends at most one beyond the running job.
    jobs: VecDeque<Job>,
    /// Runs whose delivery is to be proven, until the result sender accepts them. One for each that the
    /// coordinator waits for.
    drains: VecDeque<String>,
    /// Resolves when the running job is paused; its sender is dropped when the job ends.
    pausing: Option<oneshot::Receiver<()>>,
    is_paused: bool,
    /// By run, until the run is drained: positions continue across leases.
    journals: HashMap<String, Journal>,
}

/// The running job.
struct InHand {
    /// Channel for its orders.
    orders: mpsc::Sender<Order>,
    /// The run whose journal the job holds, if it is a lease.
    run: Option<String>,
    /// That run is being drained: the lease has sent its last report, and its task is about to end.
    is_drained: bool,
}

enum Job {
    Discover(DiscoverJob),
    Lease(Box<Lease>),
}

/// Result of a finished worker task.
enum Done {
    /// A lease returns the journal of its run.
    Lease {
        run: String,
        journal: Journal,
    },
    Discovery,
    Other,
}

enum Happened {
    Message(ToWorker),
    /// The coordinator has disconnected.
    Gone,
    /// The running job is paused.
    Paused,
    Done(Done),
    /// The result sender has room.
    Room,
    Failed(WorkerError),
}

enum Next {
    GoOn,
    Leave,
}

impl Worker {
    async fn work(&mut self, receiver: &mut ControlReceiver) -> Result<(), WorkerError> {
        loop {
            let next = match self.next(receiver).await {
                Happened::Message(message) => self.hear(message),
                Happened::Gone => return Ok(()),
                Happened::Paused => self.paused(),
                Happened::Done(done) => self.done(done),
                Happened::Room => self.forward_drain(),
                Happened::Failed(error) => return Err(error),
            };
            match next {
                Next::GoOn => {}
                Next::Leave => return Ok(()),
            }
        }
    }

    async fn next(&mut self, receiver: &mut ControlReceiver) -> Happened {
        tokio::select! {
            biased;
            received = receiver.next::<ToWorker>() => match received {
                Ok(Some(Received::Message(message))) => Happened::Message(message),
                Ok(Some(Received::Relay { .. }) | None) => Happened::Gone,
                Err(error) => Happened::Failed(WorkerError::Receive(error)),
            },
            () = stands_still(&mut self.pausing) => Happened::Paused,
            // The result sender is always among the tasks, so `join_next` never returns `None` here.
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => Happened::Done(done),
                Err(error) => Happened::Failed(WorkerError::Panicked(error)),
            },
            _ = self.uplink.reserve(), if !self.drains.is_empty() => Happened::Room,
        }
    }

    fn hear(&mut self, message: ToWorker) -> Next {
        match message {
            // A repeated welcome carries nothing new.
            ToWorker::Welcome { .. } => {}
            ToWorker::Discover(job) => self.take(Job::Discover(job)),
            ToWorker::Lease(lease) => {
                host::fail::pass("worker.lease");
                self.take(Job::Lease(lease));
            }
            ToWorker::Cancel { grace_ms } => self.cancel(grace_ms),
            ToWorker::Pause => self.pause(),
            ToWorker::Resume => self.resume(),
            // An order that comes back is too late: the process has ended.
            ToWorker::Debugger { lease, decision } => drop(self.order(Order::Debugger { lease, decision })),
            ToWorker::Drain { run } => {
                self.drains.push_back(run);
                return self.forward_drain();
            }
            ToWorker::Leave => return Next::Leave,
        }
        Next::GoOn
    }

    fn take(&mut self, job: Job) {
        self.jobs.push_back(job);
        self.start_next();
    }

    fn start_next(&mut self) {
        if self.in_hand.is_some() || self.is_paused {
            return;
        }
        let Some(job) = self.jobs.pop_front() else { return };
        let (orders_tx, orders) = mpsc::channel(QUEUED_ORDERS);
        let run = match &job {
            Job::Discover(_) => None,
            Job::Lease(lease) => Some(lease.run.clone()),
        };
        self.in_hand = Some(InHand { orders: orders_tx, run, is_drained: false });
        let setting = Arc::clone(&self.setting);
        match job {
            Job::Discover(job) => {
                let control = self.control.clone();
                self.tasks.spawn(async move {
                    let answer = discovery::discover(job, setting, orders).await;
                    // The receiver notices that the coordinator has disconnected.
                    drop(control.send(&answer).await);
                    Done::Discovery
                });
            }
            Job::Lease(lease) => {
                let run = lease.run.clone();
                let journal = self.journals.remove(&run);
                let journal =
                    journal.unwrap_or_else(|| Journal::new(lease.run_dir.as_path(), setting.worker));
                let tools = Tools { setting, uplink: self.uplink.clone(), orders, journal };
                self.tasks.spawn(async move {
                    let journal = runner::run(*lease, tools).await;
                    Done::Lease { run, journal }
                });
            }
        }
    }

    fn done(&mut self, done: Done) -> Next {
        match done {
            Done::Lease { run, journal } => {
                if self.in_hand.take().is_some_and(|job| !job.is_drained) {
                    self.journals.insert(run, journal);
                }
            }
            Done::Discovery => self.in_hand = None,
            Done::Other => {}
        }
        self.start_next();
        Next::GoOn
    }

    /// Sends an order to the running job; returns it if there is no job, or if the job's process has ended.
    fn order(&self, order: Order) -> Option<Order> {
        let Some(in_hand) = &self.in_hand else { return Some(order) };
        match in_hand.orders.try_send(order) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(order) | mpsc::error::TrySendError::Closed(order)) => {
                Some(order)
            }
        }
    }

    fn cancel(&mut self, grace_ms: u64) {
        // An order that comes back is too late: the job is ending.
        drop(self.order(Order::Cancel { grace_ms }));
        for job in std::mem::take(&mut self.jobs) {
            self.answer(match job {
                Job::Lease(lease) => {
                    FromWorker::LeaseEnded { lease: lease.lease, end: LeaseEnd::Cancelled, start_us: None }
                }
                Job::Discover(job) => {
                    let error = "the run was cancelled before the program was asked".to_owned();
                    FromWorker::NotDiscovered { job: job.job, error }
                }
            });
        }
    }

    fn pause(&mut self) {
        self.is_paused = true;
        let (paused, pausing) = oneshot::channel();
        // An order that comes back drops the sender, which also confirms the pause: nothing runs.
        drop(self.order(Order::Pause { paused }));
        self.pausing = Some(pausing);
    }

    fn resume(&mut self) {
        self.is_paused = false;
        drop(self.order(Order::Resume));
        self.start_next();
    }

    fn paused(&mut self) -> Next {
        self.answer(FromWorker::Paused);
        Next::GoOn
    }

    /// Sends a reply that depends on no results, without waiting for room.
    fn answer(&mut self, answer: FromWorker) {
        let control = self.control.clone();
        self.tasks.spawn(async move {
            // The receiver notices that the coordinator has disconnected.
            drop(control.send(&answer).await);
            Done::Other
        });
    }

    fn forward_drain(&mut self) -> Next {
        while let Some(run) = self.drains.front() {
            let Ok(permit) = self.uplink.try_reserve() else { break };
            // The run has no more results. The file is closed here, or when the lease's task is joined.
            drop(self.journals.remove(run));
            if let Some(in_hand) = self.in_hand.as_mut().filter(|job| job.run.as_ref() == Some(run)) {
                in_hand.is_drained = true;
            }
            if let Some(run) = self.drains.pop_front() {
                permit.send(ToUplink::Drain { run });
            }
        }
        Next::GoOn
    }

    /// Kills the running job and waits briefly for its end.
    async fn leave(&mut self) {
        drop(self.order(Order::Kill));
        let deadline = Instant::now() + LEAVE;
        while self.in_hand.is_some() {
            match timeout_at(deadline, self.tasks.join_next()).await {
                Ok(Some(Ok(Done::Lease { .. } | Done::Discovery))) => self.in_hand = None,
                Ok(Some(Ok(Done::Other) | Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.tasks.shutdown().await;
    }
}

/// Waits until the running job is paused or has ended; forever if no pause was requested.
async fn stands_still(pausing: &mut Option<oneshot::Receiver<()>>) {
    match pausing {
        Some(receiver) => {
            // An error means that the job has ended: nothing runs.
            drop(receiver.await);
            *pausing = None;
        }
        None => std::future::pending().await,
    }
}
