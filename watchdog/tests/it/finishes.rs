//! The finish of a run: due updates, end of the attachments, completion; on the callback port or relayed.

use std::path::Path;

use bytes::Bytes;
use link::{Inbox, LinkTask, Outbox};
use serde_json::Value;
use tokio::net::TcpListener;
use wire::{
    control::{
        CallbackAddress, Finish, FromWatchdog, JournalledResult, KnownResult, Proof, Resend, TestIndex,
        ToWatchdog, WorkerId, journal_name,
    },
    frame::Frames,
    journal::{MAGIC, Record, write},
    mtp::{Attachment, ExecutionState, RawChange, TestNode, change_json, method},
    rpc,
};

use crate::{
    Test,
    coordinator::{Coordinator, run},
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    without_a_callback_port_all_is_relayed_in_order,
    a_client_that_answers_gets_all_on_its_callback_port,
    a_second_finish_uses_the_same_connection,
    a_refused_port_is_replaced_by_the_main_connection,
    what_a_journal_has_lost_is_told_as_it_is_known,
    a_client_that_answers_nothing_but_reads_to_the_end_gets_no_result_twice,
    a_client_that_vanishes_before_the_completion_gets_all_again_relayed,
    a_client_that_vanishes_at_the_completion_gets_only_that_again,
    a_worker_s_death_is_told_while_a_finish_waits_for_the_client,
];

const RUN: &str = "0199a9d8-0000-7000-8000-000000000001";

/// Returns the finish of a run of one worker with 1200 results, of which 100 are proven, with every other
/// part that a finish can have.
fn big(run_dir: &Path) -> Finish {
    let mut bytes = MAGIC.to_vec();
    for test in 1..=1200 {
        let node = TestNode::test(format!("s::t{test}"), "t", ExecutionState::Passed);
        let result =
            JournalledResult { test: TestIndex(test), state: ExecutionState::Passed, duration_us: 1 };
        write(&mut bytes, &Record::Settled { result, change: change_json(&node) });
    }
    std::fs::write(run_dir.join(journal_name(WorkerId(1))), bytes).unwrap();
    Finish {
        resend: vec![
            Resend { worker: WorkerId(1), proven: 100, known: Vec::new() },
            Resend { worker: WorkerId(2), proven: 0, known: Vec::new() },
        ],
        groups: vec![RawChange::group(None, "s::", "s")],
        told: vec![RawChange::new(
            Some("s::"),
            &TestNode::test("s::told", "told", ExecutionState::Error),
            None,
        )],
        attachments: vec![Attachment { uri: "file:///x".into(), ..Attachment::default() }],
        has_attachments_stream: true,
        ..plain(run_dir)
    }
}

fn plain(run_dir: &Path) -> Finish {
    Finish {
        run: RUN.into(),
        run_dir: run_dir.into(),
        resend: Vec::new(),
        groups: Vec::new(),
        told: Vec::new(),
        attachments: Vec::new(),
        has_attachments_stream: false,
    }
}

/// The expected frames of [`big`], in order.
const BIG: [&str; 8] = [
    "updates 1: s::",
    "updates 500: s::t101",
    "updates 500: s::t601",
    "updates 100: s::t1101",
    "updates 1: s::told",
    "attachments 1",
    "attachments end",
    "completion",
];

/// Summarizes one frame in a few words.
fn words(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    let params = &body["params"];
    match body["method"].as_str().unwrap() {
        method::BARRIER => return "barrier".into(),
        _ => assert_eq!(params["runId"], RUN),
    }
    match (params.get("changes"), params.get("attachments")) {
        (Some(Value::Null), None) => "completion".into(),
        (Some(Value::Array(changes)), None) => {
            format!("updates {}: {}", changes.len(), changes[0]["node"]["uid"].as_str().unwrap())
        }
        (None, Some(Value::Null)) => "attachments end".into(),
        (None, Some(Value::Array(attachments))) => format!("attachments {}", attachments.len()),
        other => panic!("{other:?}"),
    }
}

fn relayed_words(frames: &[(u64, Bytes)]) -> Vec<String> {
    frames
        .iter()
        .map(|(_, frame)| {
            let head = frame.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
            words(&frame[head + 4..])
        })
        .collect()
}

/// A client's callback port with one connection.
struct Client {
    outbox: Outbox,
    inbox: Inbox<Frames>,
    _writer: LinkTask,
}

async fn port() -> (TcpListener, Option<CallbackAddress>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Some(CallbackAddress { host: "127.0.0.1".into(), port, token: None }))
}

impl Client {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let (outbox, inbox, writer) = link::open(stream, Frames::default());
        Self { outbox, inbox, _writer: writer }
    }

    /// Reads up to the next barrier without a response to it.
    async fn read(&mut self) -> (Vec<String>, rpc::RequestId) {
        let mut seen = Vec::new();
        loop {
            let body = self.inbox.next().await.unwrap().expect("the watchdog closed without a barrier");
            if let rpc::Message::Request { id, .. } = rpc::parse(&body).unwrap() {
                return (seen, id);
            }
            seen.push(words(&body));
        }
    }

    async fn answer(&mut self, id: &rpc::RequestId) {
        let error = rpc::RpcError::new(rpc::code::METHOD_NOT_FOUND, "no such method");
        self.outbox.send(rpc::error(id, &error)).await.unwrap();
        self.outbox.flush().await.unwrap();
    }

    async fn read_and_answer(&mut self) -> Vec<String> {
        let (seen, id) = self.read().await;
        self.answer(&id).await;
        seen
    }
}

fn finished(message: FromWatchdog) -> (Proof, bool, Vec<String>) {
    match message {
        FromWatchdog::Finished { run, proof, is_relayed, soft_errors } => {
            assert_eq!(run, RUN);
            (proof, is_relayed, soft_errors)
        }
        other => panic!("{other:?}"),
    }
}

fn without_a_callback_port_all_is_relayed_in_order() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let mut coordinator = Coordinator::start("exit", None).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(big(directory.path())))).await;
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), BIG);
        let positions: Vec<u64> = frames.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [1, 501, 1001, 1101, 1102, 1102, 1102, 1102]);
        assert_eq!(finished(end), (Proof::Ordered, true, Vec::new()));
        assert_eq!(coordinator.announced, 0, "its order is the proof");
        coordinator.leave().await;
    });
}

fn what_a_journal_has_lost_is_told_as_it_is_known() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let mut coordinator = Coordinator::start("exit", None).await;
        let mut finish = big(directory.path());
        let known = |position: u64, uid: &str| {
            let change = RawChange::new(Some("s::"), &TestNode::test(uid, "t", ExecutionState::Passed), None);
            KnownResult { position, change }
        };
        // Two results beyond the end of the first journal, and all of the second one, which does not exist.
        finish.resend[0].known = vec![known(1200, "s::t1200"), known(1201, "s::a"), known(1202, "s::b")];
        finish.resend[1].known = vec![known(1, "s::c")];
        coordinator.tell(ToWatchdog::Finish(Box::new(finish))).await;
        let (frames, end) = coordinator.relayed().await;
        let mut expected = BIG.to_vec();
        expected.splice(4..4, ["updates 2: s::a", "updates 1: s::c"]);
        assert_eq!(relayed_words(&frames), expected);
        let (_, _, soft_errors) = finished(end);
        let text = |count, worker| {
            format!(
                "{count} results of worker {worker} are in no journal and are told again without their details"
            )
        };
        assert_eq!(soft_errors, [text(2, 1), text(1, 2)]);
        coordinator.leave().await;
    });
}

fn a_client_that_answers_gets_all_on_its_callback_port() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start("exit", address).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(big(directory.path())))).await;
        let mut client = Client::accept(&listener).await;
        assert_eq!(client.read_and_answer().await, BIG[..7]);
        assert_eq!(client.read_and_answer().await, BIG[7..]);
        assert_eq!(finished(coordinator.message().await), (Proof::Answered, false, Vec::new()));
        coordinator.tell(ToWatchdog::Leave).await;
        let (rest, id) = client.read().await;
        assert!(rest.is_empty());
        client.answer(&id).await;
        coordinator.feet.wait_for_end();
    });
}

fn a_second_finish_uses_the_same_connection() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start("exit", address).await;
        let finish = ToWatchdog::Finish(Box::new(plain(directory.path())));
        coordinator.tell(finish.clone()).await;
        coordinator.tell(finish).await;
        let mut client = Client::accept(&listener).await;
        for _ in 0..2 {
            assert_eq!(client.read_and_answer().await, ["completion"]);
            assert_eq!(finished(coordinator.message().await), (Proof::Answered, false, Vec::new()));
        }
        drop(client);
        assert_eq!(coordinator.announced, 2);
        coordinator.leave().await;
    });
}

fn a_refused_port_is_replaced_by_the_main_connection() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        drop(listener);
        let mut coordinator = Coordinator::start("exit", address).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(big(directory.path())))).await;
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), BIG);
        let (proof, is_relayed, soft_errors) = finished(end);
        assert_eq!((proof, is_relayed, soft_errors.len()), (Proof::Ordered, true, 1));
        assert!(soft_errors[0].contains("refused"), "{soft_errors:?}");
        coordinator.leave().await;
    });
}

fn a_client_that_answers_nothing_but_reads_to_the_end_gets_no_result_twice() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start_impatient(address).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(big(directory.path())))).await;
        let mut client = Client::accept(&listener).await;
        assert_eq!(client.read().await.0, BIG[..7]);
        while client.inbox.next().await.unwrap().is_some() {}
        drop(client);
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), ["completion"]);
        let (proof, is_relayed, soft_errors) = finished(end);
        assert_eq!((proof, is_relayed, soft_errors.len()), (Proof::Ordered, true, 1), "{soft_errors:?}");
        coordinator.leave().await;
    });
}

fn a_client_that_vanishes_before_the_completion_gets_all_again_relayed() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start("exit", address).await;
        let finish = ToWatchdog::Finish(Box::new(big(directory.path())));
        coordinator.tell(finish.clone()).await;
        drop(Client::accept(&listener).await);
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), BIG);
        let (proof, is_relayed, soft_errors) = finished(end);
        assert_eq!((proof, is_relayed, soft_errors.len()), (Proof::Ordered, true, 1), "{soft_errors:?}");
        // Once abandoned, the port is not dialled again in this session.
        coordinator.tell(finish).await;
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), BIG);
        assert_eq!(finished(end), (Proof::Ordered, true, Vec::new()));
        coordinator.leave().await;
    });
}

fn a_client_that_vanishes_at_the_completion_gets_only_that_again() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start("exit", address).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(big(directory.path())))).await;
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_zero_linger().unwrap();
        let (outbox, inbox, writer) = link::open(stream, Frames::default());
        let mut client = Client { outbox, inbox, _writer: writer };
        assert_eq!(client.read_and_answer().await, BIG[..7]);
        client.read().await;
        drop(client);
        let (frames, end) = coordinator.relayed().await;
        assert_eq!(relayed_words(&frames), ["completion"]);
        let (proof, is_relayed, soft_errors) = finished(end);
        assert_eq!((proof, is_relayed, soft_errors.len()), (Proof::Ordered, true, 1), "{soft_errors:?}");
        coordinator.leave().await;
    });
}

fn a_worker_s_death_is_told_while_a_finish_waits_for_the_client() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = port().await;
        let mut coordinator = Coordinator::start("exit", address).await;
        coordinator.tell(ToWatchdog::Finish(Box::new(plain(directory.path())))).await;
        let mut client = Client::accept(&listener).await;
        let (seen, id) = client.read().await;
        assert_eq!(seen, ["completion"]);
        coordinator.tell(ToWatchdog::StartWorker { worker: WorkerId(1) }).await;
        let expected = FromWatchdog::WorkerEnded { worker: WorkerId(1), code: Some(3), signal: None };
        assert_eq!(coordinator.message().await, expected);
        client.answer(&id).await;
        assert!(matches!(coordinator.message().await, FromWatchdog::Finished { .. }));
        drop(client);
        coordinator.leave().await;
    });
}
