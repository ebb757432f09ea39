//! A worker's life: joins the coordinator, takes one job at a time and the coordinator's wishes in between, and leaves
//! when it is told to or when the coordinator is gone. How a job is done is known by `runner` and `discovery`.

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

/// A coordinator that is there answers at once.
const JOIN: Duration = Duration::from_secs(10);

/// How long a worker that leaves waits for its test process to be gone. Guards do without it, if need be.
const LEAVE: Duration = Duration::from_millis(300);

/// Why a worker could not work, or left without being told to.
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

/// Who this worker is and where it finds its coordinator.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) worker: WorkerId,
    /// The program that is a guard when told so.
    pub(crate) image: PathBuf,
}

/// Works until the coordinator is gone or says so.
///
/// Cancel safe: no, because jobs in hand are given up with the call: their guards end them.
pub(crate) async fn run(place: Place) -> Result<(), WorkerError> {
    let (mut worker, mut receiver, mut task) = join(place).await?;
    let left = worker.work(&mut receiver).await;
    worker.leave().await;
    // What was said is written if the coordinator still reads.
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
        // A coordinator that is gone is seen by the receiver.
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

/// Beside the socket is the session's own private directory.
fn scratch(socket: &Path, worker: WorkerId) -> PathBuf {
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    socket.with_file_name(format!("scratch-{worker}"))
}

struct Worker {
    setting: Arc<Setting>,
    control: ControlSender,
    uplink: mpsc::Sender<ToUplink>,
    /// The uplink, the job in hand, and answers on their way.
    tasks: JoinSet<Done>,
    in_hand: Option<InHand>,
    /// At most one is in hand and one ahead; the coordinator keeps to that.
    jobs: VecDeque<Job>,
    /// Runs to be proven, until the uplink takes them. One for each that the coordinator waits for.
    drains: VecDeque<String>,
    /// Answered when the job in hand stands still, or dropped when it ends.
    pausing: Option<oneshot::Receiver<()>>,
    is_paused: bool,
    /// By run, until it is drained: positions count on.
    journals: HashMap<String, Journal>,
}

/// The job that runs.
struct InHand {
    /// Where it takes orders.
    orders: mpsc::Sender<Order>,
    /// The run whose journal it has, if it is a lease.
    run: Option<String>,
    /// That run is being drained: the lease has said its last word, and its task is about to end.
    is_drained: bool,
}

enum Job {
    Discover(DiscoverJob),
    Lease(Box<Lease>),
}

/// What a task of the worker leaves behind.
enum Done {
    /// A lease gives the journal of its run back.
    Lease {
        run: String,
        journal: Journal,
    },
    Discovery,
    Other,
}

enum Happened {
    Message(ToWorker),
    /// The coordinator is gone.
    Gone,
    /// The job in hand stands still.
    Paused,
    Done(Done),
    /// The uplink takes more.
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
            // The uplink is always among the tasks, so this never ends for want of tasks.
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => Happened::Done(done),
                Err(error) => Happened::Failed(WorkerError::Panicked(error)),
            },
            _ = self.uplink.reserve(), if !self.drains.is_empty() => Happened::Room,
        }
    }

    fn hear(&mut self, message: ToWorker) -> Next {
        match message {
            // Only the first says something new.
            ToWorker::Welcome { .. } => {}
            ToWorker::Discover(job) => self.take(Job::Discover(job)),
            ToWorker::Lease(lease) => {
                host::fail::pass("worker.lease");
                self.take(Job::Lease(lease));
            }
            ToWorker::Cancel { grace_ms } => self.cancel(grace_ms),
            ToWorker::Pause => self.pause(),
            ToWorker::Resume => self.resume(),
            // An order that is given back comes too late: the process is gone.
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
                    // A coordinator that is gone is seen by the receiver.
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

    /// Gives an order to the job in hand; gives it back if there is none, or if the job has no process any more.
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
        // An order that is given back comes too late: the job's end is on its way.
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
        // An order that is given back drops the sender, which answers as well: nothing runs.
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

    /// Says something that waits for nobody's results, without waiting for room.
    fn answer(&mut self, answer: FromWorker) {
        let control = self.control.clone();
        self.tasks.spawn(async move {
            // A coordinator that is gone is seen by the receiver.
            drop(control.send(&answer).await);
            Done::Other
        });
    }

    fn forward_drain(&mut self) -> Next {
        while let Some(run) = self.drains.front() {
            let Ok(permit) = self.uplink.try_reserve() else { break };
            // Nothing more comes of the run; the file is closed, now or when the lease's task is joined.
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

    /// Kills what is in hand and waits a moment for its end.
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

/// Waits until the job in hand stands still or is gone; for ever if nobody asked.
async fn stands_still(pausing: &mut Option<oneshot::Receiver<()>>) {
    match pausing {
        Some(receiver) => {
            // An error says that the job is gone: nothing runs.
            drop(receiver.await);
            *pausing = None;
        }
        None => std::future::pending().await,
    }
}
