//! The finish of a run: due updates, end of the attachments, completion, on the callback port or relayed.

use std::path::Path;

use bytes::Bytes;
use heeler_core::{Outcome, RunRecord, TestId, TestResult, WorkerId};
use heeler_protocol::{
    control::{
        CallbackAddress, ClientId, DueResult, FinishRequest, FromWatchdog, JournalResend, KnownResult,
        ProofLevel, RELAY_WINDOW, RelayedPart, RunKey, TestGroup, ToWatchdog, journal_name,
    },
    frame::FrameDecoder,
    journal::{MAGIC, write},
    manifest::{ManifestProgram, ManifestTest, TestDescriptions},
    mtp::Attachment,
    rpc,
};
use heeler_transport::{Inbox, LinkTask, Outbox, control::ReceivedPacket};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::{
    NamedTest,
    coordinator::{TestCoordinator, run_async},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    finish_without_callback_port_is_relayed_in_order,
    responding_client_gets_finish_on_callback_port,
    second_finish_reuses_the_connection,
    refused_callback_port_falls_back_to_relay,
    results_lost_from_journal_are_sent_as_known,
    silent_client_gets_everything_relayed_once,
    client_lost_before_completion_gets_everything_relayed,
    client_that_closes_behind_completion_gets_no_second_one,
    client_that_answers_no_log_requests_gets_completion_relayed,
    relayed_finish_is_sent_again_unless_it_was_written_before_coordinator_died,
    unread_client_delays_no_finish_of_another,
    worker_exit_is_reported_while_finish_waits,
];

const CLIENT: ClientId = ClientId(1);
const RUN: &str = "0199a9d8-0000-7000-8000-000000000001";

/// Returns the finish of a run with one worker and 1200 results, 100 of them proven, and with every other
/// part that a finish can have.
fn full_finish(run_dir: &Path) -> FinishRequest {
    let mut bytes = MAGIC.to_vec();
    for test in 1..=1200 {
        let result = TestResult::new(Outcome::Passed);
        write(&mut bytes, &RunRecord::Finished { test: TestId(test), result });
    }
    std::fs::write(run_dir.join(journal_name(WorkerId(1))), bytes).unwrap();
    let described = |test: u32, uid: String| {
        let description =
            ManifestTest { uid, display_name: "t".into(), group: Some(0), ..ManifestTest::default() };
        (TestId(test), description)
    };
    let lost = [(1201, "a"), (1202, "b"), (1203, "c"), (1204, "synthesized")];
    let lost = lost.map(|(test, name)| described(test, format!("s::{name}")));
    let group = TestGroup { uid: "s::".into(), name: "s".into(), ..TestGroup::default() };
    FinishRequest {
        descriptions: TestDescriptions {
            programs: vec![ManifestProgram { suite: "s".into(), path: "/bin/s".into() }],
            groups: vec![group],
            tests: (1..=1200).map(|test| described(test, format!("s::t{test}"))).chain(lost).collect(),
        },
        resend: vec![
            JournalResend { worker: WorkerId(1), proven: 100, known: Vec::new() },
            JournalResend { worker: WorkerId(2), proven: 0, known: Vec::new() },
        ],
        synthesized: vec![DueResult { test: TestId(1204), result: TestResult::new(Outcome::Crashed) }],
        attachments: vec![Attachment { uri: "file:///x".into(), ..Attachment::default() }],
        has_attachments_stream: true,
        ..empty_finish(run_dir)
    }
}

fn empty_finish(run_dir: &Path) -> FinishRequest {
    // The test coordinator sets its own route.
    FinishRequest { run: RunKey::new(CLIENT, RUN), run_dir: run_dir.into(), ..FinishRequest::default() }
}

/// Expected frames of [`full_finish`], in order.
const FULL_FINISH_FRAMES: [&str; 8] = [
    "updates 1: s::",
    "updates 500: s::t101",
    "updates 500: s::t601",
    "updates 100: s::t1101",
    "updates 1: s::synthesized",
    "attachments 1",
    "attachments end",
    "completion",
];

/// Summarizes a frame in a few words.
fn summarize_frame(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    let params = &body["params"];
    assert_eq!(params["runId"], RUN);
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

fn summarize_relayed(frames: &[(u64, Bytes)]) -> Vec<String> {
    frames
        .iter()
        .map(|(_, frame)| {
            let head = frame.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
            summarize_frame(&frame[head + 4..])
        })
        .collect()
}

/// A client's callback port with one connection.
struct CallbackClient {
    outbox: Outbox,
    inbox: Inbox<FrameDecoder>,
    _writer: LinkTask,
}

async fn callback_port() -> (TcpListener, Option<CallbackAddress>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Some(CallbackAddress::new("127.0.0.1", port, None)))
}

impl CallbackClient {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let (outbox, inbox, writer) = heeler_transport::open(stream, FrameDecoder::default());
        Self { outbox, inbox, _writer: writer }
    }

    /// Reads up to the next barrier, without answering it.
    async fn read_to_barrier(&mut self) -> (Vec<String>, rpc::RequestId) {
        let mut seen = Vec::new();
        loop {
            let body = self.inbox.next().await.unwrap().expect("the watchdog closed without a barrier");
            if let rpc::RpcMessage::Request { id, .. } = rpc::parse(&body).unwrap() {
                return (seen, id);
            }
            seen.push(summarize_frame(&body));
        }
    }

    /// Reads this number of frames, answering barriers before, between and after them.
    async fn read_frames(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let (frames, id) = self.read_to_barrier().await;
            seen.extend(frames);
            self.respond(&id).await;
        }
        seen
    }

    /// Reads and answers the barrier after a completion, or the question whether the client answers such
    /// barriers.
    async fn answer_log_request(&mut self) {
        let body = self.inbox.next().await.unwrap().expect("the watchdog closed without a request");
        let rpc::RpcMessage::Request { id, method, .. } = rpc::parse(&body).unwrap() else {
            panic!("{body:?}")
        };
        assert_eq!(method, "client/log", "a barrier behind a completion is no update");
        self.respond(&id).await;
    }

    async fn read_completion(&mut self) {
        let body = self.inbox.next().await.unwrap().expect("the watchdog closed without a completion");
        assert_eq!(summarize_frame(&body), "completion");
        self.answer_log_request().await;
    }

    async fn respond(&mut self, id: &rpc::RequestId) {
        let error = rpc::RpcError::new(rpc::code::METHOD_NOT_FOUND, "no such method");
        self.outbox.send(rpc::encode_error(id, &error)).await.unwrap();
        self.outbox.flush().await.unwrap();
    }
}

fn finished(message: FromWatchdog) -> (ProofLevel, Vec<String>) {
    match message {
        FromWatchdog::Finished { run, proof, soft_errors } => {
            assert_eq!(run.id, RUN);
            (proof, soft_errors)
        }
        other => panic!("{other:?}"),
    }
}

fn finish_without_callback_port_is_relayed_in_order() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let mut coordinator = TestCoordinator::start("exit", None).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES);
        let positions: Vec<u64> = frames.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [1, 2, 3, 4, 5, 6, 7, u64::MAX], "the frames of the finish are counted");
        assert_eq!(finished(end), (ProofLevel::Ordered, Vec::new()));
        assert_eq!(coordinator.announced, 0, "its order is the proof");
        coordinator.end_session().await;
    });
}

fn results_lost_from_journal_are_sent_as_known() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let mut coordinator = TestCoordinator::start("exit", None).await;
        let mut finish = full_finish(directory.path());
        let known =
            |position: u64, test: u32| KnownResult { position, test: TestId(test), outcome: Outcome::Passed };
        // Two results beyond the end of the first journal, and all results of the second journal, which does
        // not exist.
        finish.resend[0].known = vec![known(1200, 1200), known(1201, 1201), known(1202, 1202)];
        finish.resend[1].known = vec![known(1, 1203)];
        coordinator.send(ToWatchdog::Finish(Box::new(finish))).await;
        let (frames, end) = coordinator.next_relayed().await;
        let mut expected = FULL_FINISH_FRAMES.to_vec();
        // The results of one worker share frames.
        expected.splice(3..4, ["updates 102: s::t1101", "updates 1: s::c"]);
        assert_eq!(summarize_relayed(&frames), expected);
        let (_, soft_errors) = finished(end);
        let text = |count, worker| {
            format!(
                "{count} results of worker {worker} are missing from its journal and are sent again without details"
            )
        };
        assert_eq!(soft_errors, [text(2, 1), text(1, 2)]);
        coordinator.end_session().await;
    });
}

fn responding_client_gets_finish_on_callback_port() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start("exit", address).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let mut client = CallbackClient::accept(&listener).await;
        assert_eq!(client.read_frames(7).await, FULL_FINISH_FRAMES[..7]);
        client.answer_log_request().await;
        client.read_completion().await;
        assert_eq!(finished(coordinator.next_message().await), (ProofLevel::Handled, Vec::new()));
        coordinator.send(ToWatchdog::Exit).await;
        assert!(client.inbox.next().await.unwrap().is_none(), "nothing follows the completion");
        coordinator.stderr.wait_for_end();
    });
}

fn second_finish_reuses_the_connection() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start("exit", address).await;
        let finish = ToWatchdog::Finish(Box::new(empty_finish(directory.path())));
        coordinator.send(finish.clone()).await;
        coordinator.send(finish).await;
        let mut client = CallbackClient::accept(&listener).await;
        // With nothing to prove, the client is asked once, before the first completion, whether it answers.
        let (frames, id) = client.read_to_barrier().await;
        assert!(frames.is_empty(), "{frames:?}");
        client.respond(&id).await;
        client.answer_log_request().await;
        for _ in 0..2 {
            client.read_completion().await;
            assert_eq!(finished(coordinator.next_message().await), (ProofLevel::Handled, Vec::new()));
        }
        drop(client);
        assert_eq!(coordinator.announced, 2);
        coordinator.end_session().await;
    });
}

fn refused_callback_port_falls_back_to_relay() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        drop(listener);
        let mut coordinator = TestCoordinator::start("exit", address).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES);
        let (proof, soft_errors) = finished(end);
        assert_eq!((proof, soft_errors.len()), (ProofLevel::Ordered, 1));
        assert!(soft_errors[0].contains("refused"), "{soft_errors:?}");
        coordinator.end_session().await;
    });
}

fn silent_client_gets_everything_relayed_once() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start_impatient(address).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let mut client = CallbackClient::accept(&listener).await;
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES);
        let (proof, soft_errors) = finished(end);
        assert_eq!((proof, soft_errors.len()), (ProofLevel::Ordered, 1), "{soft_errors:?}");
        let mut seen = Vec::new();
        while let Ok(Some(body)) = client.inbox.next().await {
            if !matches!(rpc::parse(&body).unwrap(), rpc::RpcMessage::Request { .. }) {
                seen.push(summarize_frame(&body));
            }
        }
        assert!(seen.is_empty(), "nothing is sent on a connection that the client has not opened: {seen:?}");
        coordinator.end_session().await;
    });
}

fn client_lost_before_completion_gets_everything_relayed() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start("exit", address).await;
        let finish = ToWatchdog::Finish(Box::new(full_finish(directory.path())));
        coordinator.send(finish.clone()).await;
        drop(CallbackClient::accept(&listener).await);
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES);
        let (proof, soft_errors) = finished(end);
        assert_eq!((proof, soft_errors.len()), (ProofLevel::Ordered, 1), "{soft_errors:?}");
        // The port is dialled again for the next finish.
        coordinator.send(finish).await;
        let mut client = CallbackClient::accept(&listener).await;
        assert_eq!(client.read_frames(7).await, FULL_FINISH_FRAMES[..7]);
        client.answer_log_request().await;
        client.read_completion().await;
        assert_eq!(finished(coordinator.next_message().await), (ProofLevel::Handled, Vec::new()));
        drop(client);
        coordinator.end_session().await;
    });
}

fn client_that_closes_behind_completion_gets_no_second_one() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start("exit", address).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let mut client = CallbackClient::accept(&listener).await;
        assert_eq!(client.read_frames(7).await, FULL_FINISH_FRAMES[..7]);
        client.answer_log_request().await;
        let body = client.inbox.next().await.unwrap().expect("the watchdog closed without a completion");
        assert_eq!(summarize_frame(&body), "completion");
        drop(client);
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), [""; 0]);
        assert_eq!(finished(end), (ProofLevel::Handled, Vec::new()));
        coordinator.end_session().await;
    });
}

fn client_that_answers_no_log_requests_gets_completion_relayed() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start_impatient(address).await;
        for _ in 0..2 {
            coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
            let mut client = CallbackClient::accept(&listener).await;
            assert_eq!(client.read_frames(7).await, FULL_FINISH_FRAMES[..7]);
            let (frames, end) = coordinator.next_relayed().await;
            assert_eq!(summarize_relayed(&frames), ["completion"]);
            assert_eq!(finished(end), (ProofLevel::Ordered, Vec::new()));
        }
        coordinator.end_session().await;
    });
}

/// Relays a finish, then kills the coordinator after it has reported that part of the finish is written.
/// Returns the frames that the client receives on its callback port.
async fn frames_after_coordinator_death(written: &[RelayedPart]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (listener, address) = callback_port().await;
    let mut coordinator = TestCoordinator::start("exit", address).await;
    let finish = FinishRequest { is_relayed: true, ..full_finish(directory.path()) };
    let run = finish.run.clone();
    coordinator.send(ToWatchdog::Finish(Box::new(finish))).await;
    let (frames, end) = coordinator.next_relayed().await;
    assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES);
    assert_eq!(finished(end), (ProofLevel::Ordered, Vec::new()));
    for written in written {
        coordinator.send(ToWatchdog::RelayWritten { run: run.clone(), written: *written }).await;
    }
    coordinator.control.flush().await.unwrap();
    let (mut watchdog, mut stderr, _) = coordinator.cut_connection().await;
    let client = async {
        let mut client = CallbackClient::accept(&listener).await;
        let mut seen = Vec::new();
        while let Ok(Some(body)) = client.inbox.next().await {
            match rpc::parse(&body).unwrap() {
                rpc::RpcMessage::Request { id, .. } => client.respond(&id).await,
                _ => seen.push(summarize_frame(&body)),
            }
        }
        seen
    };
    // A watchdog with nothing to send exits without a connection.
    let ended = tokio::task::spawn_blocking(move || {
        stderr.wait_for_end();
        watchdog.wait().unwrap().code
    });
    let (seen, code) = tokio::select! {
        biased;
        seen = client => (seen, None),
        code = ended => (Vec::new(), code.unwrap()),
    };
    assert!(code.is_none_or(|code| code == 1), "{code:?}");
    seen
}

fn relayed_finish_is_sent_again_unless_it_was_written_before_coordinator_died() {
    run_async(async {
        assert_eq!(frames_after_coordinator_death(&[]).await, FULL_FINISH_FRAMES);
        let due = RelayedPart::Frames(7);
        // Each connection needs its own groups.
        let left = frames_after_coordinator_death(&[due]).await;
        assert_eq!(left, [FULL_FINISH_FRAMES[0], FULL_FINISH_FRAMES[7]]);
        let left = frames_after_coordinator_death(&[due, RelayedPart::Completion]).await;
        assert_eq!(left, [""; 0]);
    });
}

fn unread_client_delays_no_finish_of_another() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let mut coordinator = TestCoordinator::start("exit", None).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        // No frame is confirmed, so the watchdog sends no more.
        for _ in 0..RELAY_WINDOW {
            assert!(matches!(coordinator.next().await, ReceivedPacket::Forward { client: CLIENT, .. }));
        }
        let other = RunKey::new(ClientId(2), "other");
        let finish = FinishRequest { run: other.clone(), ..empty_finish(directory.path()) };
        coordinator.send(ToWatchdog::Finish(Box::new(finish))).await;
        let next = coordinator.next().await;
        assert!(matches!(next, ReceivedPacket::Forward { client: ClientId(2), .. }), "{next:?}");
        match coordinator.next_message().await {
            FromWatchdog::Finished { run, proof, .. } => {
                assert_eq!((run, proof), (other, ProofLevel::Ordered))
            }
            message => panic!("{message:?}"),
        }
        // The rest of the first finish continues as soon as its client reads.
        for _ in 0..RELAY_WINDOW {
            coordinator.send(ToWatchdog::FrameForwarded { client: CLIENT }).await;
        }
        let (frames, end) = coordinator.next_relayed().await;
        assert_eq!(summarize_relayed(&frames), FULL_FINISH_FRAMES[RELAY_WINDOW..]);
        assert_eq!(finished(end), (ProofLevel::Ordered, Vec::new()));
        coordinator.end_session().await;
    });
}

fn worker_exit_is_reported_while_finish_waits() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = callback_port().await;
        let mut coordinator = TestCoordinator::start("exit", address).await;
        coordinator.send(ToWatchdog::Finish(Box::new(full_finish(directory.path())))).await;
        let mut client = CallbackClient::accept(&listener).await;
        // The client answers nothing, so the finish waits.
        client.read_to_barrier().await;
        coordinator.send(ToWatchdog::StartWorker { worker: WorkerId(1) }).await;
        let expected = FromWatchdog::WorkerEnded { worker: WorkerId(1), code: Some(3), signal: None };
        assert_eq!(coordinator.next_message().await, expected);
        client.respond(&rpc::RequestId::number(1)).await;
        client.read_frames(7).await;
        client.answer_log_request().await;
        client.read_completion().await;
        assert!(matches!(coordinator.next_message().await, FromWatchdog::Finished { .. }));
        drop(client);
        coordinator.end_session().await;
    });
}
