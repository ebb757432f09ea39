//! Decoding and dispatch of small messages, compared with `lsp-server`. Both read the same 100,000 test
//! protocol messages of about 300 bytes from memory, and decode each into the parameter type of its method.
//!
//! `cargo bench --bench dispatch`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{fs, hint::black_box, time::Duration};

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    frame::FrameDecoder,
    mtp::{
        Attachment, AttachmentParams, CancelParams, ExecutionState, LogLevel, LogParams, RunResult, TestNode,
        TestsParams, UpdateParams, encode_change, key, method, updates_frame,
    },
    rpc::{self, BorrowedRpcMessage, RequestId},
};
use lsp_server::Message;

const MESSAGES: u64 = 100_000;
const ROUNDS: usize = 15;
/// The read size of a connection.
const CHUNK_BYTES: usize = 64 << 10;

/// Number of dispatched messages by kind; both sides must agree.
#[derive(Debug, Default, PartialEq, Eq)]
struct DispatchCounts {
    runs: u64,
    updates: u64,
    attachments: u64,
    logs: u64,
    cancels: u64,
    results: u64,
    errors: u64,
}

fn main() {
    let stream = message_stream();
    println!("{MESSAGES} messages of {} bytes on average", stream.len() as u64 / MESSAGES);
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| (timed(dispatch_with_heeler, &stream), timed(dispatch_with_lsp_server, &stream)))
        .collect();
    let ratio = |(ours, theirs): &(Duration, Duration)| theirs.as_secs_f64() / ours.as_secs_f64();
    rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let (ours, theirs) = &rounds[ROUNDS / 2];
    let nanoseconds = |time: &Duration| time.as_nanos() / u128::from(MESSAGES);
    println!("CPU time of a message: heeler {} ns, lsp-server {} ns", nanoseconds(ours), nanoseconds(theirs));
    println!(
        "ratio: median {:.2}, from {:.2} to {:.2} of {ROUNDS} rounds",
        ratio(&rounds[ROUNDS / 2]),
        ratio(&rounds[0]),
        ratio(&rounds[ROUNDS - 1])
    );
}

fn timed(side: fn(&[u8]) -> DispatchCounts, stream: &[u8]) -> Duration {
    let begun = thread_cpu_time();
    let seen = side(black_box(stream));
    let took = thread_cpu_time() - begun;
    assert_eq!(
        seen.runs + seen.updates + seen.attachments + seen.logs + seen.cancels + seen.results,
        MESSAGES
    );
    assert!(seen.errors == 0 && seen.runs > 0 && seen.results > 0, "{seen:?}");
    took
}

/// Returns the CPU time of this thread, which does not depend on other load on the machine.
fn thread_cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Returns the messages of one run, repeated: requests, notifications and responses.
fn message_stream() -> Vec<u8> {
    let run_id = "0b8b0a6e-64c5-4b5b-a4a5-2f7a4ea3b4f1";
    let node = |number: u64, state| {
        let name = format!("Suite.Case{number}");
        let mut node = TestNode::test(format!("suite::{name}"), name, state);
        node.location_file = Some("/home/user/project/tests/suite_test.cc".into());
        node.location_line_start = u32::try_from(number).ok();
        node.members.set_own(key::WORKER, 1);
        node
    };
    let attachment =
        Attachment::file(&"/home/user/project/.heeler/runs/r/evidence/suite.dmp".into(), "minidump");
    let frame = |number: u64| match number % 10 {
        0 => {
            let tests = Some(vec![node(number, ExecutionState::Discovered)]);
            let params = TestsParams { run_id: run_id.into(), tests, ..TestsParams::default() };
            rpc::encode_request(&RequestId::number(number), method::RUN, &params)
        }
        1 => {
            let message = format!("suite::Suite.Case{number}: {}", "left processes behind, ".repeat(8));
            rpc::encode_notification(method::LOG, &LogParams { level: LogLevel::Warning, message })
        }
        2 => rpc::encode_notification(method::CANCEL, &CancelParams { id: RequestId::number(number) }),
        3 => {
            let attachments = Some(vec![attachment.clone()]);
            rpc::encode_notification(
                method::ATTACHMENTS,
                &AttachmentParams { run_id: run_id.into(), attachments },
            )
        }
        4 => {
            let result = RunResult { attachments: vec![attachment.clone()], ..RunResult::default() };
            rpc::encode_result(&RequestId::number(number), &result)
        }
        _ => {
            let mut node = node(number, ExecutionState::Passed);
            node.duration_ms = Some(0.25);
            updates_frame(run_id, [encode_change(&node).as_slice()])
        }
    };
    (0..MESSAGES).flat_map(frame).collect()
}

fn dispatch_with_heeler(stream: &[u8]) -> DispatchCounts {
    let mut seen = DispatchCounts::default();
    let (mut frames, mut buffer) = (FrameDecoder::default(), BytesMut::new());
    for chunk in stream.chunks(CHUNK_BYTES) {
        buffer.extend_from_slice(chunk);
        while let Some(body) = frames.decode(&mut buffer).unwrap() {
            match rpc::parse_borrowed(&body).unwrap() {
                BorrowedRpcMessage::Request { method, params, .. }
                | BorrowedRpcMessage::Notification { method, params } => {
                    let params = params.unwrap().get();
                    match method.as_ref() {
                        method::RUN => seen.run(serde_json::from_str(params)),
                        method::UPDATES => seen.update(serde_json::from_str(params)),
                        method::ATTACHMENTS => seen.attachment(serde_json::from_str(params)),
                        method::LOG => seen.log(serde_json::from_str(params)),
                        method::CANCEL => seen.cancel(serde_json::from_str(params)),
                        _ => seen.errors += 1,
                    }
                }
                BorrowedRpcMessage::Response { outcome, .. } => {
                    seen.result(serde_json::from_str(outcome.unwrap().unwrap().get()));
                }
            }
        }
    }
    seen
}

fn dispatch_with_lsp_server(mut stream: &[u8]) -> DispatchCounts {
    use serde_json::from_value;
    let mut seen = DispatchCounts::default();
    while let Some(message) = Message::read(&mut stream).unwrap() {
        let (method, params) = match message {
            Message::Request(request) => (request.method, request.params),
            Message::Notification(notification) => (notification.method, notification.params),
            Message::Response(response) => {
                seen.result(from_value(response.response_result.unwrap()));
                continue;
            }
        };
        match method.as_str() {
            method::RUN => seen.run(from_value(params)),
            method::UPDATES => seen.update(from_value(params)),
            method::ATTACHMENTS => seen.attachment(from_value(params)),
            method::LOG => seen.log(from_value(params)),
            method::CANCEL => seen.cancel(from_value(params)),
            _ => seen.errors += 1,
        }
    }
    seen
}

type DecodeResult<T> = Result<T, serde_json::Error>;

/// Handlers that each read the parameters they receive.
impl DispatchCounts {
    fn run(&mut self, params: DecodeResult<TestsParams>) {
        self.runs += black_box(params.unwrap()).tests.map_or(0, |tests| tests.len() as u64);
    }

    fn update(&mut self, params: DecodeResult<UpdateParams>) {
        self.updates += black_box(params.unwrap()).changes.map_or(0, |changes| changes.len() as u64);
    }

    fn attachment(&mut self, params: DecodeResult<AttachmentParams>) {
        self.attachments += black_box(params.unwrap()).attachments.map_or(0, |all| all.len() as u64);
    }

    fn log(&mut self, params: DecodeResult<LogParams>) {
        self.logs += u64::from(black_box(params.unwrap()).level == LogLevel::Warning);
    }

    fn cancel(&mut self, params: DecodeResult<CancelParams>) {
        self.cancels += u64::from(black_box(params.unwrap()).id != RequestId::Null);
    }

    fn result(&mut self, result: DecodeResult<RunResult>) {
        self.results += black_box(result.unwrap()).attachments.len() as u64;
    }
}
