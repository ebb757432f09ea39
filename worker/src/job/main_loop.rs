//! Main loop of a worker: joins the coordinator, runs one job at a time, and handles control messages in
//! between. Exits when ordered to, or when the coordinator disconnects. `lease` and `discovery` run the jobs.

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use heeler_protocol::control::{
    ClientId, DiscoveryJob, FromWorker, JoinMessage, LeaseEnd, ProofLevel, RunKey, StreamSender, TestProgram,
    ToWorker, WorkerId, WorkerLease,
};
use heeler_transport::{
    LinkClosed, LinkTask,
    callback::{StreamHolder, StreamHolders},
    control::{ControlReceiver, ControlSender, ReceiveError, ReceivedPacket},
    local,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    lease::{EndedLease, LeaseResources, run_lease},
    warm_process::WarmProcesses,
};
use crate::{
    discovery::{self, WaitingProcess},
    process::{
        guard_spawner::GuardSpawner,
        job_order::{JobOrder, QUEUED_ORDERS},
        process_clock::sleep_until_deadline,
        worker_context::{UnclearDeaths, WorkerContext},
    },
    results::{
        journal::Journal,
        uplink::{QUEUED_UPDATE_BATCHES, ResultSender, SenderMessage},
    },
};

/// Time limit for joining. A live coordinator replies at once.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that an exiting worker waits for its test process to end. After that, the guard ends the process
/// without the worker.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);

/// Why a worker could not start, or exited without being ordered to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("connect to the coordinator")]
    Connect(#[source] local::ConnectError),
    #[error("send the first message to the coordinator")]
    Join(#[source] LinkClosed),
    #[error("receive from the coordinator")]
    Receive(#[source] ReceiveError),
    #[error("join the coordinator: no answer within {} s", JOIN_TIMEOUT.as_secs())]
    NotAccepted,
    #[error("run a job: the task panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Identity of this worker, and the socket of its coordinator.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) socket: PathBuf,
    pub(crate) worker: WorkerId,
    /// Executable that acts as a guard when started with the guard's role argument.
    pub(crate) executable: PathBuf,
}

/// Runs until the coordinator disconnects or orders the worker to exit.
///
/// Cancel safe: no, because cancelling abandons the running jobs, which their guards then end.
pub(crate) async fn run_worker(config: WorkerConfig) -> Result<(), WorkerError> {
    let (mut worker, mut receiver, mut task) = join(config).await?;
    let left = worker.run(&mut receiver).await;
    worker.shut_down().await;
    // Give queued messages a chance to be written.
    let WorkerMainLoop { control, .. } = worker;
    control.close();
    drop(timeout(EXIT_TIMEOUT, task.join()).await);
    left
}

async fn join(config: WorkerConfig) -> Result<(WorkerMainLoop, ControlReceiver, LinkTask), WorkerError> {
    let WorkerConfig { socket, worker, executable: image } = config;
    heeler_sys::fail::pass("worker.join");
    let deadline = Instant::now() + JOIN_TIMEOUT;
    let stream = local::connect(&socket, deadline).await.map_err(WorkerError::Connect)?;
    let (control, mut receiver, task) = heeler_transport::control::open(stream);
    let join = JoinMessage::Worker { worker, pid: std::process::id() };
    control.send(&join).await.map_err(WorkerError::Join)?;
    let guards = GuardSpawner::for_executable(image);
    guards.start_fork_server();
    let first = timeout_at(deadline, receiver.next::<ToWorker>()).await;
    let first = first.map_err(|_| WorkerError::NotAccepted)?.map_err(WorkerError::Receive)?;
    let Some(ReceivedPacket::Message(ToWorker::Accepted)) = first else {
        return Err(WorkerError::NotAccepted);
    };
    let context = Arc::new(WorkerContext {
        worker,
        guards,
        test_directories: test_directories(&socket),
        scratch: scratch_dir(&socket, worker),
        unclear_deaths: UnclearDeaths::default(),
    });
    let worker = WorkerMainLoop {
        context,
        control_socket: socket,
        control,
        result_senders: HashMap::new(),
        tasks: JoinSet::new(),
        running_job: None,
        jobs: VecDeque::new(),
        pause_confirmation: None,
        is_paused: false,
        program: Arc::default(),
        waiting: None,
        warm: WarmProcesses::default(),
        journals: HashMap::new(),
    };
    Ok((worker, receiver, task))
}

/// Returns the scratch directory, next to the socket in the session's private directory.
fn scratch_dir(socket: &Path, worker: WorkerId) -> PathBuf {
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    socket.with_file_name(format!("scratch-{worker}"))
}

/// Returns the parent of the test processes' temporary directories.
fn test_directories(socket: &Path) -> PathBuf {
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    socket.parent().map(heeler_sys::dirs::session_temporary_dir).unwrap_or_default()
}

struct WorkerMainLoop {
    context: Arc<WorkerContext>,
    /// The coordinator's socket.
    control_socket: PathBuf,
    control: ControlSender,
    /// One result sender per client whose runs this worker has served, until the client leaves.
    result_senders: HashMap<ClientId, mpsc::Sender<SenderMessage>>,
    /// Tasks: result senders, the running job, and replies being sent.
    tasks: JoinSet<FinishedTask>,
    running_job: Option<RunningJob>,
    /// Waiting jobs. The coordinator sends at most one beyond the running job.
    jobs: VecDeque<WorkerJob>,
    /// Resolves when the running job is paused, or when it ends and drops its sender.
    pause_confirmation: Option<oneshot::Receiver<()>>,
    is_paused: bool,
    /// Program of the next leases.
    program: Arc<TestProgram>,
    /// Process of the last listing, if it waits for the first lease of its program.
    waiting: Option<WaitingProcess>,
    /// Processes to fork for leases of their program, unless a lease is using them.
    warm: WarmProcesses,
    /// Journal of each run until the run is drained. Positions continue across leases.
    journals: HashMap<RunKey, Journal>,
}

struct RunningJob {
    orders: mpsc::Sender<JobOrder>,
    /// Run whose journal the job is using, if the job is a lease.
    run: Option<RunKey>,
    /// That run is being drained: the lease has sent its last report, and its task is about to end.
    is_drained: bool,
}

enum WorkerJob {
    Discover(Box<DiscoveryJob>),
    Lease(Box<WorkerLease>),
}

/// Result of a finished worker task.
enum FinishedTask {
    /// A lease returns the journal of its run, and the processes kept for forking.
    Lease {
        run: RunKey,
        ended: Box<EndedLease>,
    },
    /// A listing returns its process if the process waits for a lease.
    Discovery(Option<Box<WaitingProcess>>),
    Other,
}

enum MainLoopEvent {
    Message(ToWorker),
    Disconnected,
    Paused,
    TaskFinished(FinishedTask),
    /// The waiting process has waited too long.
    WaitLimit,
    /// The processes kept for forking have waited too long.
    WarmLimit,
    Failed(WorkerError),
}

enum LoopControl {
    Continue,
    Exit,
}

impl WorkerMainLoop {
    async fn run(&mut self, receiver: &mut ControlReceiver) -> Result<(), WorkerError> {
        loop {
            let next = match self.next_event(receiver).await {
                MainLoopEvent::Message(message) => self.handle_message(message),
                MainLoopEvent::Disconnected => return Ok(()),
                MainLoopEvent::Paused => self.on_paused(),
                MainLoopEvent::TaskFinished(done) => self.on_task_finished(done),
                MainLoopEvent::WaitLimit => {
                    self.end_waiting_process();
                    LoopControl::Continue
                }
                MainLoopEvent::WarmLimit => {
                    self.end_warm_processes();
                    LoopControl::Continue
                }
                MainLoopEvent::Failed(error) => return Err(error),
            };
            match next {
                LoopControl::Continue => {}
                LoopControl::Exit => return Ok(()),
            }
        }
    }

    async fn next_event(&mut self, receiver: &mut ControlReceiver) -> MainLoopEvent {
        tokio::select! {
            biased;
            received = receiver.next::<ToWorker>() => match received {
                Ok(Some(ReceivedPacket::Message(message))) => MainLoopEvent::Message(message),
                Ok(Some(ReceivedPacket::Forward { .. }) | None) => MainLoopEvent::Disconnected,
                Err(error) => MainLoopEvent::Failed(WorkerError::Receive(error)),
            },
            () = wait_until_paused(&mut self.pause_confirmation) => MainLoopEvent::Paused,
            () = sleep_until_deadline(self.waiting.as_ref().map(WaitingProcess::until)) => MainLoopEvent::WaitLimit,
            () = sleep_until_deadline(self.warm.until()) => MainLoopEvent::WarmLimit,
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => MainLoopEvent::TaskFinished(done),
                Err(error) => MainLoopEvent::Failed(WorkerError::Panicked(error)),
            },
        }
    }

    fn handle_message(&mut self, message: ToWorker) -> LoopControl {
        match message {
            // Already handled when joining.
            ToWorker::Accepted => {}
            ToWorker::Discover(job) => self.enqueue_job(WorkerJob::Discover(job)),
            ToWorker::Program(program) => self.program = program,
            ToWorker::Lease(lease) => {
                heeler_sys::fail::pass("worker.lease");
                let program = Arc::clone(&self.program);
                self.enqueue_job(WorkerJob::Lease(Box::new(WorkerLease { program, ..*lease })));
            }
            // A returned order is too late: the process has ended.
            ToWorker::ExtendLease(lease) => drop(self.send_order(JobOrder::Extend(lease))),
            ToWorker::EndLease { lease } => drop(self.send_order(JobOrder::EndIdle { lease })),
            ToWorker::Cancel { grace_ms } => self.cancel(JobOrder::Cancel { grace_ms }),
            ToWorker::ReturnTests { grace_ms } => self.cancel(JobOrder::ReturnTests { grace_ms }),
            ToWorker::CancelAfterRunningTests { grace_ms } => {
                self.cancel(JobOrder::CancelAfterRunningTests { grace_ms })
            }
            ToWorker::Pause => self.pause(),
            ToWorker::Resume => self.resume(),
            // A returned order is too late: the process has ended.
            ToWorker::Debugger { lease, decision } => {
                drop(self.send_order(JobOrder::Debugger { lease, decision }))
            }
            ToWorker::Drain { run } => self.drain(run),
            // The sender task, and with it the connection, ends when the last lease stops using it.
            ToWorker::EndClient { client } => drop(self.result_senders.remove(&client)),
            ToWorker::Exit => return LoopControl::Exit,
        }
        LoopControl::Continue
    }

    fn enqueue_job(&mut self, job: WorkerJob) {
        self.jobs.push_back(job);
        self.start_next_job();
    }

    fn start_next_job(&mut self) {
        if self.running_job.is_some() || self.is_paused {
            return;
        }
        let Some(job) = self.jobs.pop_front() else { return };
        let (orders_tx, orders) = mpsc::channel(QUEUED_ORDERS);
        let run = match &job {
            WorkerJob::Discover(_) => None,
            WorkerJob::Lease(lease) => Some(lease.run.clone()),
        };
        self.running_job = Some(RunningJob { orders: orders_tx, run, is_drained: false });
        let context = Arc::clone(&self.context);
        let waiting = self.waiting.take();
        match job {
            WorkerJob::Discover(job) => {
                let control = self.control.clone();
                self.tasks.spawn(async move {
                    if let Some(waiting) = waiting {
                        waiting.end(&context.guards).await;
                    }
                    let (answer, waiting) = discovery::discover(*job, context, orders).await;
                    // If the coordinator has disconnected, the receiver notices.
                    drop(control.send(&answer).await);
                    FinishedTask::Discovery(waiting.map(Box::new))
                });
            }
            WorkerJob::Lease(lease) => {
                let run = lease.run.clone();
                let journal = self.journals.remove(&run);
                let new = || Journal::new(lease.run_dir.as_path(), context.worker, lease.journal_limit_bytes);
                let journal = journal.unwrap_or_else(new);
                let result_sender = self.result_sender(&lease);
                let warm = std::mem::take(&mut self.warm);
                let resources = LeaseResources { context, result_sender, orders, journal, waiting, warm };
                self.tasks.spawn(async move {
                    let ended = Box::new(run_lease(*lease, resources).await);
                    FinishedTask::Lease { run, ended }
                });
            }
        }
    }

    /// Returns the processes that complete the stream to a client if this worker dies.
    fn stream_holders(&self, client: ClientId) -> StreamHolders {
        let watchdog = std::os::unix::process::parent_id();
        let holders = [StreamHolder::Coordinator, StreamHolder::Watchdog];
        let sockets = holders.map(|holder| holder.socket_path(&self.control_socket, watchdog)).into();
        StreamHolders { sender: StreamSender::Worker(self.context.worker), client, sockets }
    }

    /// Returns the result sender for the client of a lease. Started for the client's first lease.
    fn result_sender(&mut self, lease: &WorkerLease) -> mpsc::Sender<SenderMessage> {
        let client = lease.run.client;
        if let Some(sender) = self.result_senders.get(&client) {
            return sender.clone();
        }
        let (sender, inbox) = mpsc::channel(QUEUED_UPDATE_BATCHES);
        let task = ResultSender::new(
            self.control.clone(),
            self.context.worker,
            self.stream_holders(client),
            lease.route.clone(),
        );
        self.tasks.spawn(async move {
            // If the coordinator has disconnected, the receiver notices.
            drop(task.run(inbox).await);
            FinishedTask::Other
        });
        self.result_senders.insert(client, sender.clone());
        sender
    }

    fn on_task_finished(&mut self, done: FinishedTask) -> LoopControl {
        match done {
            FinishedTask::Lease { run, ended } => {
                let EndedLease { journal, warm } = *ended;
                self.warm = warm;
                if self.running_job.take().is_some_and(|job| !job.is_drained) {
                    self.journals.insert(run, journal);
                }
            }
            FinishedTask::Discovery(waiting) => {
                self.running_job = None;
                self.waiting = waiting.map(|waiting| *waiting);
            }
            FinishedTask::Other => {}
        }
        self.start_next_job();
        LoopControl::Continue
    }

    /// Sends an order to the running job. Returns the order if no job runs, or if the job's process has
    /// ended.
    fn send_order(&self, order: JobOrder) -> Option<JobOrder> {
        let Some(in_hand) = &self.running_job else { return Some(order) };
        match in_hand.orders.try_send(order) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(order) | mpsc::error::TrySendError::Closed(order)) => {
                Some(order)
            }
        }
    }

    /// Ends the process that waits for a lease, if any.
    fn end_waiting_process(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let context = Arc::clone(&self.context);
        self.tasks.spawn(async move {
            waiting.end(&context.guards).await;
            FinishedTask::Other
        });
    }

    /// Ends the processes kept for forking, unless a lease is using them.
    fn end_warm_processes(&mut self) {
        if self.warm.until().is_none() {
            return;
        }
        let mut ending = self.warm.take_processes();
        let context = Arc::clone(&self.context);
        self.tasks.spawn(async move {
            ending.end(&context.guards).await;
            FinishedTask::Other
        });
    }

    fn cancel(&mut self, order: JobOrder) {
        self.end_waiting_process();
        self.end_warm_processes();
        // A returned order is too late: the job is ending.
        drop(self.send_order(order));
        for job in std::mem::take(&mut self.jobs) {
            self.send_reply(match job {
                WorkerJob::Lease(lease) => {
                    FromWorker::LeaseEnded { lease: lease.lease, end: LeaseEnd::Cancelled, start_us: None }
                }
                WorkerJob::Discover(job) => {
                    let error = "the run was cancelled before the program listed its tests".to_owned();
                    FromWorker::NotDiscovered { job: job.job, error }
                }
            });
        }
    }

    fn pause(&mut self) {
        self.is_paused = true;
        let (paused, pausing) = oneshot::channel();
        // Dropping a returned order drops its sender, which also confirms the pause: nothing runs.
        drop(self.send_order(JobOrder::Pause { paused }));
        self.pause_confirmation = Some(pausing);
    }

    fn resume(&mut self) {
        self.is_paused = false;
        drop(self.send_order(JobOrder::Resume));
        self.start_next_job();
    }

    fn on_paused(&mut self) -> LoopControl {
        self.send_reply(FromWorker::Paused);
        LoopControl::Continue
    }

    /// Sends a reply that need not wait for results, and does not wait for room in the queue.
    fn send_reply(&mut self, answer: FromWorker) {
        let control = self.control.clone();
        self.tasks.spawn(async move {
            // If the coordinator has disconnected, the receiver notices.
            drop(control.send(&answer).await);
            FinishedTask::Other
        });
    }

    /// Starts the proof that a run's results were delivered. The client's sender already has all of them,
    /// because the coordinator has received the end of the run's last lease.
    fn drain(&mut self, run: RunKey) {
        self.end_waiting_process();
        // The run has no more results. Its journal is closed here, or when the lease's task is joined.
        drop(self.journals.remove(&run));
        if let Some(in_hand) = self.running_job.as_mut().filter(|job| job.run.as_ref() == Some(&run)) {
            in_hand.is_drained = true;
        }
        let Some(sender) = self.result_senders.get(&run.client).cloned() else {
            // No results were sent, so none can be missing.
            return self.send_reply(FromWorker::Drained { run, proof: ProofLevel::Handled, position: 0 });
        };
        self.tasks.spawn(async move {
            // If the coordinator has disconnected, the receiver notices.
            drop(sender.send(SenderMessage::Drain { run: run.id }).await);
            FinishedTask::Other
        });
    }

    /// Kills the running job and waits briefly for it to end.
    async fn shut_down(&mut self) {
        drop(self.send_order(JobOrder::Kill));
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while self.running_job.is_some() {
            match timeout_at(deadline, self.tasks.join_next()).await {
                Ok(Some(Ok(FinishedTask::Lease { .. } | FinishedTask::Discovery(_)))) => {
                    self.running_job = None
                }
                Ok(Some(Ok(FinishedTask::Other) | Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.tasks.shutdown().await;
    }
}

/// Waits until the running job is paused or has ended. Waits forever if no pause was requested.
async fn wait_until_paused(pausing: &mut Option<oneshot::Receiver<()>>) {
    match pausing {
        Some(receiver) => {
            // An error means that the job has ended, so nothing runs.
            drop(receiver.await);
            *pausing = None;
        }
        None => std::future::pending().await,
    }
}
