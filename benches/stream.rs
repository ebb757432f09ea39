//! Throughput of updates from two workers to one reading client: real worker processes and guards, a test
//! program that prints a GoogleTest transcript as fast as it can, real callback connections, and the client
//! library with its aggregate. Only the coordinator is simulated, because it merely receives reports.
//!
//! `cargo bench --bench stream`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_client::{Client, ClientEvent, ClientOptions, EventStream, RunAggregate};
use heeler_protocol::{
    control::{
        CallbackAddress, ClientId, ClientRoute, DeliveryLimits, FromWorker, JoinMessage, LeaseEnd, LeaseId,
        LeasedTest, ListedTest, OutputDisplay, RunKey, TestId, TestLimits, TestProgram, ToWorker, WorkerId,
        WorkerLease,
    },
    frame::FrameDecoder,
    mtp::{InitializeParams, InitializeResult},
    rpc::{self, BorrowedRpcMessage},
};
use heeler_sys::spawn::{SpawnOptions, SpawnedChild, spawn};
use heeler_transport::{
    control::{ControlReceiver, ControlSender, ReceivedPacket},
    local,
};
use tokio::{
    io::DuplexStream,
    sync::{mpsc, oneshot},
};

const WORKERS: u32 = 2;
/// Tests of each worker in each round. Each test has two updates: in progress and passed.
const TESTS: u32 = 50_000;
const ROUNDS: u32 = 7;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("__guard") => heeler_guard::main(),
        Some("__fork-server") => heeler_guard::fork_server::main(),
        Some("__worker") => heeler_worker::main(Path::new(&args[2]), WorkerId(args[3].parse().unwrap())),
        _ => {
            bench();
            ExitCode::SUCCESS
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn bench() {
    let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let program = write_program(dir.path());
    let socket = dir.path().join("control");
    let (addresses, address) = oneshot::channel();
    let (rounds, orders) = mpsc::channel(1);
    let (bound, is_bound) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime().block_on(async {
                let listener = local::LocalListener::bind(&socket).unwrap();
                bound.send(()).unwrap();
                let coordinator = SimulatedCoordinator::accept_worker(listener, address.await.unwrap()).await;
                coordinator.assign((dir.path(), &program), orders).await;
            });
        });
        is_bound.recv().unwrap();
        // Start workers on this thread, because processes die with the thread that started them.
        let workers: Vec<_> = (1..=WORKERS).map(|number| start(&socket, WorkerId(number))).collect();
        runtime().block_on(run_client(addresses, rounds));
        for mut worker in workers {
            worker.wait().unwrap();
        }
    });
}

fn start(socket: &Path, worker: WorkerId) -> SpawnedChild {
    let args = vec!["__worker".into(), socket.into(), worker.to_string().into()];
    spawn(SpawnOptions { args, ..SpawnOptions::new(heeler_sys::process::own_program_path()) }).unwrap()
}

/// Writes a script that prints the output of a GoogleTest program for all tests.
fn write_program(dir: &Path) -> PathBuf {
    let mut out = format!(
        "[==========] Running {TESTS} tests from 1 test suite.\n[----------] {TESTS} tests from Suite\n"
    );
    for number in 0..TESTS {
        out.push_str(&format!("[ RUN      ] Suite.Case{number}\n[       OK ] Suite.Case{number} (0 ms)\n"));
    }
    out.push_str(&format!("[----------] {TESTS} tests from Suite (0 ms total)\n\n"));
    out.push_str("[----------] Global test environment tear-down\n");
    out.push_str(&format!("[==========] {TESTS} tests from 1 test suite ran. (0 ms total)\n"));
    out.push_str(&format!("[  PASSED  ] {TESTS} tests.\n"));
    let (transcript, script) = (dir.join("transcript"), dir.join("program"));
    fs::write(&transcript, out).unwrap();
    fs::write(&script, format!("#!/bin/sh\nexec cat {}\n", transcript.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    script
}

/// The client: reads and aggregates all rounds, and prints their rates.
async fn run_client(addresses: oneshot::Sender<CallbackAddress>, rounds: mpsc::Sender<u32>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(respond_to_initialize(theirs, addresses));
    let (client, mut events) = Client::connect(ours, ClientOptions::default()).await.unwrap();
    let mut rates = Vec::new();
    for round in 0..ROUNDS {
        rounds.send(round).await.unwrap();
        let (updates, took) = read_round(&mut events).await;
        let rate = updates as f64 / took.as_secs_f64();
        println!("round {}: {updates} updates in {took:.3?}: {rate:.0} a second", round + 1);
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    println!("stream: median {:.0} updates a second", rates[rates.len() / 2]);
    drop((rounds, client));
}

/// Reads one round; the time runs from the first to the last update.
async fn read_round(events: &mut EventStream) -> (usize, Duration) {
    let mut aggregate = RunAggregate::default();
    let mut began = None;
    let mut updates = 0;
    while aggregate.counts().passed < (WORKERS * TESTS) as usize {
        match events.next().await.unwrap() {
            ClientEvent::Changes { changes, .. } => {
                began.get_or_insert_with(Instant::now);
                updates += changes.len();
                for change in changes {
                    assert!(!aggregate.apply(change).is_protocol_violation());
                }
            }
            other => panic!("{other:?}"),
        }
    }
    (updates, began.unwrap().elapsed())
}

/// The server's side of the main connection: responds to `initialize` and reads the callback port from it.
async fn respond_to_initialize(stream: DuplexStream, addresses: oneshot::Sender<CallbackAddress>) {
    let (outbox, mut inbox, _task) = heeler_transport::open(stream, FrameDecoder::default());
    let body = inbox.next().await.unwrap().unwrap();
    let Ok(BorrowedRpcMessage::Request { id, params: Some(params), .. }) = rpc::parse_borrowed(&body) else {
        panic!("the first message is a request");
    };
    let params: InitializeParams = serde_json::from_str(params.get()).unwrap();
    let provider = params.capabilities.testing.callback_provider.unwrap();
    let address = CallbackAddress::new("127.0.0.1", provider.port, provider.token);
    addresses.send(address).unwrap();
    outbox.send(rpc::encode_result(&id, &InitializeResult::default())).await.unwrap();
    // Runs until the client disconnects.
    while let Ok(Some(_)) = inbox.next().await {}
}

/// Assigns leases and receives reports.
struct SimulatedCoordinator {
    workers: Vec<(WorkerId, ControlSender, ControlReceiver, heeler_transport::LinkTask)>,
    route: ClientRoute,
}

impl SimulatedCoordinator {
    async fn accept_worker(mut listener: local::LocalListener, callback: CallbackAddress) -> Self {
        let limits = DeliveryLimits {
            connect_ms: 10_000,
            stall_ms: 10_000,
            drain_ms: 10_000,
            answer_ms: 30_000,
            first_answer_ms: 2_000,
        };
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let (sender, mut receiver, task) =
                heeler_transport::control::open(listener.accept().await.unwrap());
            let Some(ReceivedPacket::Message(JoinMessage::Worker { worker, .. })) =
                receiver.next().await.unwrap()
            else {
                panic!("a worker introduces itself");
            };
            sender.send(&ToWorker::Accepted).await.unwrap();
            workers.push((worker, sender, receiver, task));
        }
        Self { workers, route: ClientRoute { callback: Some(callback), limits, ..ClientRoute::default() } }
    }

    async fn assign(mut self, (dir, program): (&Path, &Path), mut orders: mpsc::Receiver<u32>) {
        while let Some(round) = orders.recv().await {
            let route = &self.route;
            let lease = |worker| WorkerLease { route: route.clone(), ..lease(worker, round, (dir, program)) };
            let leases: Vec<_> = self.workers.iter().map(|(worker, ..)| lease(*worker)).collect();
            for ((_, sender, ..), lease) in self.workers.iter().zip(leases) {
                sender.send(&ToWorker::Program(lease.program.clone())).await.unwrap();
                sender.send(&ToWorker::Lease(Box::new(lease))).await.unwrap();
            }
            let mut open = WORKERS;
            let [(_, _, first, _), (_, _, second, _)] = &mut self.workers[..] else {
                panic!("there are two workers");
            };
            while open > 0 {
                let received = tokio::select! {
                    received = first.next() => received,
                    received = second.next() => received,
                };
                match received.unwrap() {
                    Some(ReceivedPacket::Message(FromWorker::LeaseEvents { .. })) => {}
                    Some(ReceivedPacket::Message(FromWorker::LeaseEnded {
                        end: LeaseEnd::Complete, ..
                    })) => open -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

fn lease(worker: WorkerId, round: u32, (dir, program): (&Path, &Path)) -> WorkerLease {
    let test = |number| {
        let name = format!("Suite.Case{number}");
        LeasedTest {
            test: TestId(number),
            uid: format!("suite {worker}::{name}"),
            listed: ListedTest {
                name,
                file: Some("/home/user/project/tests/suite_test.cc".into()),
                line: Some(number + 1),
                ..ListedTest::default()
            },
            group: None,
            timeout_ms: None,
            idle_timeout_ms: None,
            slow_ms: None,
            attempts: Vec::new(),
            crashed_attempt: None,
            ran_beside: Vec::new(),
            is_failure_provisional: false,
            is_flaky_failure: false,
            passed_iterations: 0,
        }
    };
    let program = TestProgram {
        suite: format!("suite {worker}"),
        path: program.into(),
        cwd: dir.into(),
        framework: Some("gtest".into()),
        ..TestProgram::default()
    };
    WorkerLease {
        lease: LeaseId(round),
        run: RunKey::new(ClientId(1), uuid::Uuid::from_u128(u128::from(round)).to_string()),
        // The coordinator sets the route.
        route: ClientRoute { callback: None, limits: DeliveryLimits::default(), ..ClientRoute::default() },
        run_dir: dir.into(),
        program: program.into(),
        tests: (0..TESTS).map(test).map(std::sync::Arc::new).collect(),
        groups: Vec::new(),
        client_members: heeler_protocol::mtp::ClientMembers::default(),
        journal_limit_bytes: u64::MAX,
        limits: TestLimits {
            timeout_ms: None,
            grace_ms: 100,
            output_bytes: 1 << 20,
            startup_ms: 60_000,
            memory_bytes: None,
        },
        slot: 1,
        unit_variables: Vec::new(),
        is_whole_program: false,
        has_private_tmpdir: false,
        repeat: std::num::NonZeroU32::MIN,
        repeat_until_ms: None,
        crash_capture: heeler_protocol::control::CrashCapturePlan::default(),
        is_isolated: false,
        is_debugged: false,
        output_display: OutputDisplay::Hidden,
        is_output_live: false,
        is_environment_shown: false,
        runs_ignored: false,
    }
}
