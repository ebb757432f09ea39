//! Tests of the result sender over real sockets, with clients that read, close, never read, or do not exist.

use std::time::Duration;

use bytes::BytesMut;
use heeler_core::{Attempt, NextRun, Outcome, TestId, TestResult};
use heeler_protocol::{
    StreamDecoder as _,
    control::LeaseEvent,
    frame::FrameDecoder,
    mtp::{ExecutionState, GroupDescription, UpdateParams, render_group},
    rpc::{self, RpcError, RpcMessage},
};
use heeler_transport::control::{ControlReceiver, ReceivedPacket};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use super::*;

/// Long, because the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a simulated client treats its callback connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientBehaviour {
    /// Reads everything and replies to unknown requests with an error.
    RepliesToBarrier,
    /// Reads everything and replies to nothing.
    RepliesToNothing,
    /// Replies to the opening barrier, and closes after the first frame.
    ClosesEarly,
    /// Replies to everything before run `second`, and closes after that run's first frame.
    ClosesInSecondRun,
    /// Replies to everything, and closes after replying to the barrier that follows the first frame.
    ClosesBetweenRuns,
    /// Accepts and reads nothing.
    NeverReads,
}

/// A result sender between a simulated client and a simulated coordinator.
struct SenderHarness {
    to_sender: mpsc::Sender<SenderMessage>,
    coordinator: ControlReceiver,
    /// Both ends are kept, because dropping a link closes it.
    _links: (ControlSender, LinkTasks),
    tasks: JoinSet<()>,
    changes: mpsc::Receiver<String>,
    /// The client has closed a connection.
    closed: mpsc::Receiver<()>,
    sent: u32,
    position: u64,
}

type LinkTasks = (heeler_transport::LinkTask, heeler_transport::LinkTask);

const LIMITS: DeliveryLimits =
    DeliveryLimits { connect_ms: 5000, stall_ms: 200, drain_ms: 200, answer_ms: 2000, first_answer_ms: 200 };

impl SenderHarness {
    async fn with_client(habit: ClientBehaviour) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut bench = Self::new(Some(address(port)));
        let (changes_tx, changes) = mpsc::channel(1 << 20);
        bench.changes = changes;
        let (closed_tx, closed) = mpsc::channel(1 << 10);
        bench.closed = closed;
        bench.tasks.spawn(async move {
            // Connections that are not read must stay open.
            let mut kept = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match run_client(stream, habit, &changes_tx).await {
                    Some(stream) => kept.push(stream),
                    None => closed_tx.send(()).await.unwrap(),
                }
            }
        });
        bench
    }

    fn new(callback: Option<CallbackAddress>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (control, _, control_task) = heeler_transport::control::open(ours);
        let (unused, coordinator, coordinator_task) = heeler_transport::control::open(theirs);
        let (to_sender, inbox) = mpsc::channel(QUEUED_UPDATE_BATCHES);
        let route = ClientRoute { callback, limits: LIMITS, ..ClientRoute::default() };
        let sender = heeler_protocol::control::StreamSender::Worker(WorkerId(7));
        let uplink = ResultSender::new(
            control,
            WorkerId(7),
            StreamHolders { sender, client: ClientId(2), sockets: Vec::new() },
            route,
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { uplink.run(inbox).await.unwrap() });
        let _links = (unused, (control_task, coordinator_task));
        let (_, changes) = mpsc::channel(1);
        let (_, closed) = mpsc::channel(1);
        Self { to_sender, coordinator, _links, tasks, changes, closed, sent: 0, position: 0 }
    }

    /// Sends an update batch with `results` results of `text_bytes` of text each. Returns everything the
    /// coordinator receives up to and including its reports.
    async fn send_results(&mut self, run: &str, results: u32, text_bytes: usize) -> Vec<CoordinatorReceived> {
        let mut updates = UpdateBatch::at_position(self.position);
        for _ in 0..results {
            let uid = format!("{}-{}", self.sent, "x".repeat(text_bytes));
            let node = heeler_protocol::mtp::TestNode::test(uid, "name", ExecutionState::Passed);
            let result = TestResult::new(Outcome::Passed);
            updates.add_settled(TestId(self.sent), &result, |out| {
                out.extend_from_slice(&heeler_protocol::mtp::encode_change(&node))
            });
            self.sent += 1;
        }
        self.position = updates.position();
        self.send_batch(run, updates).await;
        self.receive_until(|received| {
            matches!(received, CoordinatorReceived::Message(FromWorker::LeaseEvents { .. }))
        })
        .await
    }

    async fn send_batch(&mut self, run: &str, updates: UpdateBatch) {
        let message =
            SenderMessage::Updates { run: run.into(), lease: LeaseId(1), updates: Box::new(updates) };
        self.to_sender.send(message).await.unwrap();
    }

    async fn drain(&mut self, run: &str) -> (ProofLevel, u64) {
        self.to_sender.send(SenderMessage::Drain { run: run.into() }).await.unwrap();
        let received = self
            .receive_until(|received| {
                matches!(received, CoordinatorReceived::Message(FromWorker::Drained { .. }))
            })
            .await;
        match received.last() {
            Some(CoordinatorReceived::Message(FromWorker::Drained { proof, position, .. })) => {
                (*proof, *position)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn receive_until(
        &mut self,
        is_last: impl Fn(&CoordinatorReceived) -> bool,
    ) -> Vec<CoordinatorReceived> {
        let mut all = Vec::new();
        loop {
            let next = timeout(DEADLINE, self.coordinator.next::<FromWorker>()).await;
            let next = next.unwrap_or_else(|_| panic!("nothing more after {all:?}")).unwrap();
            let received = match next.expect("the sender is connected") {
                ReceivedPacket::Message(message) => CoordinatorReceived::Message(message),
                ReceivedPacket::Forward { client, position, frame } => {
                    assert_eq!(client, ClientId(2));
                    CoordinatorReceived::Relay(position, uids(&frame).len())
                }
            };
            all.push(received);
            if is_last(all.last().unwrap()) {
                return all;
            }
        }
    }

    /// Returns the numbers of the first `count` tests whose changes the client reads.
    async fn read_test_numbers(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let uid = timeout(DEADLINE, self.changes.recv()).await.expect("the client reads").unwrap();
            seen.push(uid.split('-').next().unwrap().to_owned());
        }
        seen
    }
}

#[derive(Debug)]
enum CoordinatorReceived {
    Message(FromWorker),
    /// A relayed frame: its position and its number of changes.
    Relay(u64, usize),
}

fn address(port: u16) -> CallbackAddress {
    CallbackAddress::new("127.0.0.1", port, None)
}

/// Simulates a client. Returns the connection if it must stay open.
async fn run_client(
    mut stream: TcpStream,
    habit: ClientBehaviour,
    changes: &mpsc::Sender<String>,
) -> Option<TcpStream> {
    if habit == ClientBehaviour::NeverReads {
        return Some(stream);
    }
    let (mut frames, mut buffer) = (FrameDecoder::default(), BytesMut::new());
    let mut notifications = 0;
    loop {
        while let Some(body) = frames.decode(&mut buffer).unwrap() {
            match rpc::parse(&body).unwrap() {
                RpcMessage::Request { id, .. } if habit != ClientBehaviour::RepliesToNothing => {
                    let error = RpcError::new(rpc::code::METHOD_NOT_FOUND, "no such method");
                    stream.write_all(&rpc::encode_error(&id, &error)).await.unwrap();
                    if habit == ClientBehaviour::ClosesBetweenRuns && notifications > 0 {
                        return None;
                    }
                }
                RpcMessage::Notification { .. } => {
                    notifications += 1;
                    for uid in uids_of_body(&body) {
                        changes.send(uid).await.unwrap();
                    }
                    let is_second = memchr::memmem::find(&body, b"\"second\"").is_some();
                    match habit {
                        ClientBehaviour::ClosesEarly => return None,
                        ClientBehaviour::ClosesInSecondRun if is_second => return None,
                        _ => {}
                    }
                }
                RpcMessage::Request { .. } | RpcMessage::Response { .. } => {}
            }
        }
        if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn uids(frame: &[u8]) -> Vec<String> {
    let body = memchr::memmem::find(frame, b"\r\n\r\n").unwrap() + 4;
    uids_of_body(&frame[body..])
}

fn uids_of_body(body: &[u8]) -> Vec<String> {
    let RpcMessage::Notification { params, .. } = rpc::parse(body).unwrap() else { panic!() };
    let params: UpdateParams = serde_json::from_str(params.unwrap().get()).unwrap();
    params.changes.unwrap().into_iter().map(|change| change.node.uid).collect()
}

fn logs(received: &[CoordinatorReceived]) -> usize {
    received.iter().filter(|one| matches!(one, CoordinatorReceived::Message(FromWorker::Log { .. }))).count()
}

fn settled(received: &[CoordinatorReceived]) -> usize {
    let reports = received.iter().filter_map(|one| match one {
        CoordinatorReceived::Message(FromWorker::LeaseEvents { events: reports, .. }) => Some(reports),
        CoordinatorReceived::Message(_) | CoordinatorReceived::Relay(..) => None,
    });
    reports.flatten().filter(|report| matches!(report, LeaseEvent::Settled { .. })).count()
}

/// Returns a batch that introduces a group.
fn group_batch(uid: &str) -> UpdateBatch {
    let mut updates = UpdateBatch::at_position(0);
    let mut change = Vec::new();
    render_group(&mut change, &GroupDescription { uid, name: uid, ..GroupDescription::default() });
    updates.add_group(uid, &change);
    updates
}

/// Lets the runtime notice input on all sockets.
async fn turn_io() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    drop((connected.unwrap(), accepted.unwrap()));
}

fn is_relayed(received: &CoordinatorReceived) -> bool {
    matches!(received, CoordinatorReceived::Relay(..))
}

#[tokio::test]
async fn main_connection_receives_the_groups_of_a_broken_one_again() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::ClosesEarly).await;
    bench.send_batch("r", group_batch("r::")).await;
    // The client has closed, so results go through the coordinator from some point on.
    let relayed = loop {
        let received = bench.send_results("r", 1, 50_000).await;
        if received.iter().any(is_relayed) {
            break received;
        }
    };
    // The groups come first, in a frame without results.
    let first = relayed.iter().find(|received| is_relayed(received)).unwrap();
    assert!(matches!(first, CoordinatorReceived::Relay(0, 1)), "{first:?}");
}

#[tokio::test]
async fn results_of_a_broken_connection_go_through_the_coordinator_at_once() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::ClosesEarly).await;
    let mut relayed = 0;
    while relayed == 0 {
        relayed = bench.send_results("r", 1, 50_000).await.iter().filter(|one| is_relayed(one)).count();
    }
    // The client has handled at most the first result. All others are resent.
    assert!(relayed + 1 >= bench.sent as usize, "{relayed} of {}", bench.sent);
    assert_eq!(bench.drain("r").await, (ProofLevel::Ordered, u64::from(bench.sent)));
}

#[tokio::test]
async fn results_of_an_ended_run_are_not_sent_again_when_the_connection_breaks() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::ClosesInSecondRun).await;
    bench.send_results("first", 3, 10).await;
    assert_eq!(bench.drain("first").await, (ProofLevel::Handled, 3));
    let mut relayed = 0;
    while relayed == 0 {
        let received = bench.send_results("second", 1, 50_000).await;
        relayed = received
            .iter()
            .map(|one| match one {
                CoordinatorReceived::Relay(_, changes) => *changes,
                CoordinatorReceived::Message(_) => 0,
            })
            .sum();
    }
    assert!(relayed <= bench.sent as usize - 3, "{relayed} of {}", bench.sent);
}

#[tokio::test]
async fn reading_client_proves_delivery_in_order() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToBarrier).await;
    for _ in 0..20 {
        let received = bench.send_results("r", 50, 10_000).await;
        assert_eq!((logs(&received), settled(&received)), (0, 50));
    }
    assert_eq!(bench.drain("r").await, (ProofLevel::Handled, 1000));
    let expected: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(bench.read_test_numbers(1000).await, expected);
    // The connection stays usable.
    bench.send_results("r", 1, 0).await;
    assert_eq!(bench.drain("r").await, (ProofLevel::Handled, 1001));
}

#[tokio::test]
async fn run_without_results_is_proven() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToBarrier).await;
    assert_eq!(bench.drain("other").await, (ProofLevel::Handled, 0));
}

#[tokio::test]
async fn client_without_replies_receives_everything_over_the_main_connection() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToNothing).await;
    for expected in [1, 0] {
        let received = bench.send_results("r", 3, 0).await;
        assert_eq!(logs(&received), expected, "it is said once");
        assert!(received.iter().any(is_relayed));
    }
    assert_eq!(bench.drain("r").await, (ProofLevel::Ordered, 6));
    assert!(bench.changes.try_recv().is_err(), "nothing was sent on the connection that was not opened");
}

#[tokio::test]
async fn connection_that_the_client_closes_between_runs_is_dialled_again() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::ClosesBetweenRuns).await;
    for run in 0..2 * MAX_REDIALS {
        let run = format!("r{run}");
        let received = bench.send_results(&run, 3, 0).await;
        assert_eq!((logs(&received), received.iter().any(is_relayed)), (0, false), "{run}");
        assert_eq!(bench.drain(&run).await, (ProofLevel::Handled, u64::from(bench.sent)));
        assert_eq!(bench.read_test_numbers(3).await.len(), 3);
        // The client's close is noticed before the next run begins.
        bench.closed.recv().await.unwrap();
        turn_io().await;
    }
}

#[tokio::test]
async fn test_that_runs_again_is_reported_after_its_updates_are_handled() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToBarrier).await;
    let mut updates = UpdateBatch::at_position(0);
    let node = heeler_protocol::mtp::TestNode::test("0-x".to_owned(), "name", ExecutionState::InProgress);
    updates.add_started(TestId(0), |out| {
        out.extend_from_slice(&heeler_protocol::mtp::encode_change(&node));
    });
    bench.send_batch("r", updates).await;
    let end = Box::new(LeaseEnd::Complete);
    let message = SenderMessage::LeaseEnded { lease: LeaseId(1), end, start_us: None };
    bench.to_sender.send(message).await.unwrap();
    bench
        .receive_until(|received| {
            matches!(received, CoordinatorReceived::Message(FromWorker::LeaseEnded { .. }))
        })
        .await;
    assert!(
        bench.changes.try_recv().is_ok(),
        "the client has handled the start before the lease's end is known"
    );
}

#[tokio::test]
async fn crashed_test_without_a_journal_runs_again_after_its_start_is_handled() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToBarrier).await;
    let mut updates = UpdateBatch::at_position(0);
    updates.is_unjournalled = true;
    let node = heeler_protocol::mtp::TestNode::test("0-x".to_owned(), "name", ExecutionState::InProgress);
    updates.add_started(TestId(0), |out| {
        out.extend_from_slice(&heeler_protocol::mtp::encode_change(&node));
    });
    let attempt = Attempt::new(Outcome::Crashed, "");
    updates.add_provisional(TestId(0), attempt, NextRun::Isolated);
    bench.send_batch("r", updates).await;
    let is_crash = |event: &LeaseEvent| matches!(event, LeaseEvent::CrashedProvisionally { .. });
    let received = bench
        .receive_until(|received| match received {
            CoordinatorReceived::Message(FromWorker::LeaseEvents { events, .. }) => {
                events.iter().any(is_crash)
            }
            _ => false,
        })
        .await;
    assert!(bench.changes.try_recv().is_ok(), "the client has handled the start before: {received:?}");
}

#[tokio::test]
async fn client_closing_early_causes_one_log_message() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::ClosesEarly).await;
    let mut messages = 0;
    for _ in 0..40 {
        let received = bench.send_results("r", 10, 50_000).await;
        assert_eq!(settled(&received), 10);
        messages += logs(&received);
    }
    assert_eq!(messages, 1);
    assert_eq!(bench.drain("r").await, (ProofLevel::Ordered, 400));
}

#[tokio::test]
async fn client_that_never_reads_stalls_once() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::NeverReads).await;
    let mut messages = 0;
    // More than the outbox and the kernel's buffers hold.
    for _ in 0..40 {
        let received = bench.send_results("r", 10, 100_000).await;
        assert_eq!(settled(&received), 10);
        messages += logs(&received);
    }
    assert_eq!(messages, 1);
    // Whether all unhandled frames are still available depends on the kernel's buffers.
    let drained = bench.drain("r").await;
    assert!(drained == (ProofLevel::Ordered, 400) || drained.0 == ProofLevel::None, "{drained:?}");
}

#[tokio::test]
async fn unreachable_client_causes_one_log_message() {
    let port = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let mut bench = SenderHarness::new(Some(address(port)));
    let received = [bench.send_results("r", 1, 0).await, bench.send_results("r", 1, 0).await]
        .map(|received| logs(&received));
    assert_eq!(received, [1, 0]);
    assert_eq!(bench.drain("r").await, (ProofLevel::Ordered, 2), "its results went through the coordinator");
    // The next run dials again.
    let received = bench.send_results("next", 1, 0).await;
    assert_eq!((logs(&received), received.iter().filter(|one| is_relayed(one)).count()), (1, 1));
}

#[tokio::test]
async fn relayed_frames_precede_their_reports() {
    let mut bench = SenderHarness::new(None);
    bench.send_results("r", 2, 0).await;
    let received = bench.send_results("r", 5, 100_000).await;
    let relayed: Vec<_> = received
        .iter()
        .map_while(|one| match one {
            CoordinatorReceived::Relay(position, changes) => Some((*position, *changes)),
            CoordinatorReceived::Message(_) => None,
        })
        .collect();
    assert_eq!(relayed, [(4, 2), (6, 2), (7, 1)]);
    assert_eq!(bench.drain("r").await, (ProofLevel::Ordered, 7));
}

#[tokio::test]
async fn lease_end_follows_its_results() {
    let mut bench = SenderHarness::with_client(ClientBehaviour::RepliesToBarrier).await;
    bench.send_results("r", 1, 0).await;
    let end = Box::new(LeaseEnd::Complete);
    let message = SenderMessage::LeaseEnded { lease: LeaseId(4), end, start_us: Some(9) };
    bench.to_sender.send(message).await.unwrap();
    let received = bench.receive_until(|_| true).await;
    let CoordinatorReceived::Message(FromWorker::LeaseEnded { lease, end, start_us }) = &received[0] else {
        panic!()
    };
    assert_eq!((*lease, end, *start_us), (LeaseId(4), &LeaseEnd::Complete, Some(9)));
}
