//! Tests of the result sender over real sockets: clients that read, that close, that never read, that are
//! absent.

use std::time::Duration;

use bytes::BytesMut;
use link::control::{ControlReceiver, Received};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use wire::{
    Decode as _,
    control::{JournalledResult, Report, TestIndex},
    frame::Frames,
    mtp::{ExecutionState, UpdateParams},
    rpc::{self, Message, RpcError},
};

use super::*;

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a simulated client treats its callback connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Reads everything and replies to unknown requests with an error.
    Answers,
    /// Reads everything, replies to nothing, and closes at the end.
    ClosesAtEnd,
    /// Closes after the first frame.
    ClosesEarly,
    /// Accepts and reads nothing.
    NeverReads,
}

/// A result sender between a client and a coordinator, both simulated by the test.
struct Bench {
    to_uplink: mpsc::Sender<ToUplink>,
    coordinator: ControlReceiver,
    /// Dropping a link closes it, so both ends are kept.
    _links: (ControlSender, LinkTasks),
    tasks: JoinSet<()>,
    changes: mpsc::Receiver<String>,
    sent: u32,
    position: u64,
}

type LinkTasks = (link::LinkTask, link::LinkTask);

const LIMITS: DeliveryLimits = DeliveryLimits { connect_ms: 5000, stall_ms: 200, drain_ms: 200 };

impl Bench {
    async fn with_client(habit: Habit) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut bench = Self::new(Some(address(port)));
        let (changes_tx, changes) = mpsc::channel(1 << 20);
        bench.changes = changes;
        bench.tasks.spawn(async move {
            // Connections that are not read must stay open.
            let mut kept = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                kept.extend(client(stream, habit, &changes_tx).await);
            }
        });
        bench
    }

    fn new(callback: Option<CallbackAddress>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (control, _, control_task) = link::control::open(ours);
        let (unused, coordinator, coordinator_task) = link::control::open(theirs);
        let (to_uplink, inbox) = mpsc::channel(QUEUED_PARCELS);
        let uplink = Uplink::new(control, WorkerId(7), callback, LIMITS);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { uplink.run(inbox).await.unwrap() });
        let _links = (unused, (control_task, coordinator_task));
        let (_, changes) = mpsc::channel(1);
        Self { to_uplink, coordinator, _links, tasks, changes, sent: 0, position: 0 }
    }

    /// Sends an update batch with `results` results of `text_bytes` text each; returns what the coordinator
    /// receives up to its reports.
    async fn parcel(&mut self, run: &str, results: u32, text_bytes: usize) -> Vec<Heard> {
        let mut parcel = Parcel::behind(self.position);
        for _ in 0..results {
            let state = ExecutionState::Passed;
            let result = JournalledResult { test: TestIndex(self.sent), state, duration_us: 1 };
            let uid = format!("{}-{}", self.sent, "x".repeat(text_bytes));
            let node = wire::mtp::TestNode::test(uid, "name", state);
            parcel.settled(result, |out| out.extend_from_slice(&wire::mtp::change_json(&node)));
            self.sent += 1;
        }
        self.position = parcel.position();
        self.hand(run, parcel).await;
        self.heard_until(|heard| matches!(heard, Heard::Message(FromWorker::Reports { .. }))).await
    }

    async fn hand(&mut self, run: &str, parcel: Parcel) {
        let message = ToUplink::Parcel { run: run.into(), lease: LeaseId(1), parcel: Box::new(parcel) };
        self.to_uplink.send(message).await.unwrap();
    }

    async fn drain(&mut self, run: &str) -> (Proof, u64) {
        self.to_uplink.send(ToUplink::Drain { run: run.into() }).await.unwrap();
        let heard =
            self.heard_until(|heard| matches!(heard, Heard::Message(FromWorker::Drained { .. }))).await;
        match heard.last() {
            Some(Heard::Message(FromWorker::Drained { proof, position, .. })) => (*proof, *position),
            other => panic!("{other:?}"),
        }
    }

    async fn heard_until(&mut self, is_last: impl Fn(&Heard) -> bool) -> Vec<Heard> {
        let mut all = Vec::new();
        loop {
            let next = timeout(DEADLINE, self.coordinator.next::<FromWorker>()).await;
            let next = next.unwrap_or_else(|_| panic!("nothing more after {all:?}")).unwrap();
            let heard = match next.expect("the uplink goes on") {
                Received::Message(message) => Heard::Message(message),
                Received::Relay { position, frame } => Heard::Relay(position, uids(&frame).len()),
            };
            all.push(heard);
            if is_last(all.last().unwrap()) {
                return all;
            }
        }
    }

    /// Returns the numbers of the first `count` tests whose changes the client reads.
    async fn read(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let uid = timeout(DEADLINE, self.changes.recv()).await.expect("the client reads").unwrap();
            seen.push(uid.split('-').next().unwrap().to_owned());
        }
        seen
    }
}

#[derive(Debug)]
enum Heard {
    Message(FromWorker),
    /// A relayed frame: its position and its number of changes.
    Relay(u64, usize),
}

fn address(port: u16) -> CallbackAddress {
    CallbackAddress { host: "127.0.0.1".into(), port, token: None }
}

/// Simulates a client; returns the connection if it is to stay open.
async fn client(mut stream: TcpStream, habit: Habit, changes: &mpsc::Sender<String>) -> Option<TcpStream> {
    if habit == Habit::NeverReads {
        return Some(stream);
    }
    let (mut frames, mut buffer) = (Frames::default(), BytesMut::new());
    loop {
        while let Some(body) = frames.decode(&mut buffer).unwrap() {
            match rpc::parse(&body).unwrap() {
                Message::Request { id, .. } if habit == Habit::Answers => {
                    let error = RpcError::new(rpc::code::METHOD_NOT_FOUND, "no such method");
                    stream.write_all(&rpc::error(&id, &error)).await.unwrap();
                }
                Message::Notification { .. } => {
                    for uid in uids_of_body(&body) {
                        changes.send(uid).await.unwrap();
                    }
                    if habit == Habit::ClosesEarly {
                        return None;
                    }
                }
                Message::Request { .. } | Message::Response { .. } => {}
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
    let Message::Notification { params, .. } = rpc::parse(body).unwrap() else { panic!() };
    let params: UpdateParams = serde_json::from_str(params.unwrap().get()).unwrap();
    params.changes.unwrap().into_iter().map(|change| change.node.uid).collect()
}

fn logs(heard: &[Heard]) -> usize {
    heard.iter().filter(|one| matches!(one, Heard::Message(FromWorker::Log { .. }))).count()
}

fn settled(heard: &[Heard]) -> usize {
    let reports = heard.iter().filter_map(|one| match one {
        Heard::Message(FromWorker::Reports { reports, .. }) => Some(reports),
        Heard::Message(_) | Heard::Relay(..) => None,
    });
    reports.flatten().filter(|report| matches!(report, Report::Settled { .. })).count()
}

#[tokio::test]
async fn a_further_connection_is_told_the_groups_again() {
    let mut bench = Bench::with_client(Habit::ClosesAtEnd).await;
    for run in ["first", "second"] {
        let mut parcel = Parcel::behind(0);
        let group = wire::mtp::RawChange::group(None, &format!("{run}::"), run);
        parcel.group(&format!("{run}::"), group.as_bytes());
        bench.hand(run, parcel).await;
    }
    // The end of one run is proven by the end of the connection that both share.
    assert_eq!(bench.drain("first").await.0, Proof::Closed);
    bench.parcel("second", 1, 0).await;
    assert_eq!(bench.drain("second").await.0, Proof::Closed);
    let mut uids = Vec::new();
    while let Ok(uid) = bench.changes.try_recv() {
        uids.push(uid.trim_end_matches('-').to_owned());
    }
    assert_eq!(uids, ["first::", "second::", "second::", "0"]);
}

#[tokio::test]
async fn a_client_that_reads_gets_everything_in_order_and_proves_it() {
    let mut bench = Bench::with_client(Habit::Answers).await;
    for _ in 0..20 {
        let heard = bench.parcel("r", 50, 10_000).await;
        assert_eq!((logs(&heard), settled(&heard)), (0, 50));
    }
    assert_eq!(bench.drain("r").await, (Proof::Answered, 1000));
    let expected: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(bench.read(1000).await, expected);
    // The connection stays usable.
    bench.parcel("r", 1, 0).await;
    assert_eq!(bench.drain("r").await, (Proof::Answered, 1001));
}

#[tokio::test]
async fn a_run_of_which_nothing_was_sent_is_proven() {
    let mut bench = Bench::with_client(Habit::Answers).await;
    assert_eq!(bench.drain("other").await, (Proof::Answered, 0));
}

#[tokio::test]
async fn a_client_that_only_closes_at_the_end_proves_by_that_and_is_dialled_again() {
    let mut bench = Bench::with_client(Habit::ClosesAtEnd).await;
    for round in 1..=2 {
        let heard = bench.parcel("r", 3, 0).await;
        assert_eq!(logs(&heard), 0);
        assert_eq!(bench.drain("r").await, (Proof::Closed, round * 3));
        assert_eq!(bench.read(3).await.len(), 3);
    }
}

#[tokio::test]
async fn a_client_that_closes_in_the_middle_costs_one_message_and_no_report() {
    let mut bench = Bench::with_client(Habit::ClosesEarly).await;
    let mut messages = 0;
    for _ in 0..40 {
        let heard = bench.parcel("r", 10, 50_000).await;
        assert_eq!(settled(&heard), 10);
        messages += logs(&heard);
    }
    assert_eq!(messages, 1);
    assert_eq!(bench.drain("r").await, (Proof::None, 0));
}

#[tokio::test]
async fn a_client_that_never_reads_costs_its_stall_limit_once() {
    let mut bench = Bench::with_client(Habit::NeverReads).await;
    let mut messages = 0;
    // More than the outbox and the kernel's buffers hold.
    for _ in 0..40 {
        let heard = bench.parcel("r", 10, 100_000).await;
        assert_eq!(settled(&heard), 10);
        messages += logs(&heard);
    }
    assert_eq!(messages, 1);
    assert_eq!(bench.drain("r").await, (Proof::None, 0));
}

#[tokio::test]
async fn a_client_that_never_answers_a_small_run_is_told_of_in_the_log() {
    let mut bench = Bench::with_client(Habit::NeverReads).await;
    bench.parcel("r", 1, 0).await;
    bench.to_uplink.send(ToUplink::Drain { run: "r".into() }).await.unwrap();
    let heard = bench.heard_until(|heard| matches!(heard, Heard::Message(FromWorker::Drained { .. }))).await;
    assert_eq!(logs(&heard), 1);
    let Some(Heard::Message(FromWorker::Drained { proof, .. })) = heard.last() else { panic!() };
    assert!(!proof.is_enough());
}

#[tokio::test]
async fn a_client_that_is_not_there_costs_one_message() {
    let port = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let mut bench = Bench::new(Some(address(port)));
    let heard = [bench.parcel("r", 1, 0).await, bench.parcel("r", 1, 0).await].map(|heard| logs(&heard));
    assert_eq!(heard, [1, 0]);
    assert_eq!(bench.drain("r").await, (Proof::None, 0));
}

#[tokio::test]
async fn without_a_callback_port_frames_go_through_the_coordinator_before_their_reports() {
    let mut bench = Bench::new(None);
    bench.parcel("r", 2, 0).await;
    let heard = bench.parcel("r", 5, 100_000).await;
    let relayed: Vec<_> = heard
        .iter()
        .map_while(|one| match one {
            Heard::Relay(position, changes) => Some((*position, *changes)),
            Heard::Message(_) => None,
        })
        .collect();
    assert_eq!(relayed, [(4, 2), (6, 2), (7, 1)]);
    assert_eq!(bench.drain("r").await, (Proof::Ordered, 7));
}

#[tokio::test]
async fn the_end_of_a_lease_comes_behind_its_results() {
    let mut bench = Bench::with_client(Habit::Answers).await;
    bench.parcel("r", 1, 0).await;
    let end = Box::new(LeaseEnd::Complete);
    let message = ToUplink::LeaseEnded { lease: LeaseId(4), end, start_us: Some(9) };
    bench.to_uplink.send(message).await.unwrap();
    let heard = bench.heard_until(|_| true).await;
    let Heard::Message(FromWorker::LeaseEnded { lease, end, start_us }) = &heard[0] else { panic!() };
    assert_eq!((*lease, end, *start_us), (LeaseId(4), &LeaseEnd::Complete, Some(9)));
}
