//! Cost of discovering 100,000 tests in a real GoogleTest program. The real server is started as by an
//! editor, and the client reads every update. Measures the time from the request to the completion, and the
//! growth of the coordinator's memory.
//!
//! `cargo bench --bench discovery` (needs g++ and GoogleTest)

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{
    fs,
    io::{PipeReader, PipeWriter, Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use heeler_protocol::{
    StreamDecoder as _,
    frame::FrameDecoder,
    mtp::{InitializeParams, TestsParams, UpdateParams, method},
    rpc::{self, BorrowedRpcMessage, RequestId},
};
use heeler_sys::spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn};

const ROUNDS: usize = 5;
const TESTS: usize = 100_000;

/// Measurements of one round. Each round starts its own server, because a second discovery would find the
/// tests already known.
struct DiscoveryRound {
    took: Duration,
    /// CPU time of all server processes, including start and exit, and of this client. On a busy machine,
    /// compare these instead of `took`.
    server: Duration,
    client: Duration,
    /// Growth of the coordinator's resident memory in KiB: after the discovery, and at its peak.
    grown_kib: u64,
    peak_kib: u64,
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let program = build_program(dir.path());
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| run_round(dir.path(), &program)).collect();
    rounds.sort_by_key(|round| round.took);
    let (median, worst) = (&rounds[ROUNDS / 2], &rounds[ROUNDS - 1]);
    println!(
        "{TESTS} tests from the request to the completion: median {:.2} s, worst {:.2} s of {ROUNDS} rounds",
        median.took.as_secs_f64(),
        worst.took.as_secs_f64()
    );
    println!(
        "CPU of that round: server {:.2} s, client {:.2} s",
        median.server.as_secs_f64(),
        median.client.as_secs_f64()
    );
    let most = |kib: fn(&DiscoveryRound) -> u64| rounds.iter().map(kib).max().unwrap() * 1024 / TESTS as u64;
    println!(
        "coordinator, bytes for each test, most of the rounds: {} afterwards, {} at the peak",
        most(|round| round.grown_kib),
        most(|round| round.peak_kib)
    );
}

/// Builds a real GoogleTest program.
fn build_program(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gtest/big.cc");
    let program = dir.join("big");
    let mut args =
        vec!["-std=c++17".into(), "-O1".into(), "-o".into(), program.clone().into(), source.into()];
    args.extend(["-lgtest_main", "-lgtest", "-lpthread"].map(Into::into));
    let ended =
        spawn(SpawnOptions { args, ..SpawnOptions::new(found_in_path("g++")) }).unwrap().wait().unwrap();
    assert_eq!(ended.code, Some(0));
    program
}

fn found_in_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists()).unwrap()
}

fn run_round(dir: &Path, program: &Path) -> DiscoveryRound {
    let mut server = DiscoveryServer::start(dir, program);
    server.request(method::INITIALIZE, &InitializeParams::default());
    while !matches!(rpc::parse_borrowed(&server.next()), Ok(BorrowedRpcMessage::Response { .. })) {}
    let before = server.memory_kib("VmRSS");
    let all: TestsParams =
        TestsParams { run_id: "0b8b0a6e-64c5-4b5b-a4a5-2f7a4ea3b4f1".into(), ..TestsParams::default() };
    let (begun, cpu) = (Instant::now(), thread_cpu_time());
    server.request(method::DISCOVER, &all);
    let mut found = 0;
    while let Some(changes) = server.read_changes() {
        found += changes;
    }
    let (took, client) = (begun.elapsed(), thread_cpu_time() - cpu);
    assert_eq!(found, TESTS);
    let grown = |name| server.memory_kib(name).saturating_sub(before);
    let (grown_kib, peak_kib) = (grown("VmRSS"), grown("VmHWM"));
    DiscoveryRound { took, server: server.exit(), client, grown_kib, peak_kib }
}

/// Returns the CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// A server on standard streams, with its measurements.
struct DiscoveryServer {
    child: SpawnedChild,
    stdin: PipeWriter,
    stdout: PipeReader,
    frames: FrameDecoder,
    buffer: BytesMut,
    requests: u64,
}

impl DiscoveryServer {
    fn start(dir: &Path, program: &Path) -> Self {
        let ((stdin_end, stdin), (stdout, stdout_end)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let env = std::env::vars_os().chain([("HEELER_FIXTURE_CASES".into(), TESTS.to_string().into())]);
        let child = spawn(SpawnOptions {
            args: vec!["serve".into(), "--stdio".into(), program.into()],
            cwd: Some(dir.to_owned()),
            env: Some(env.collect()),
            stdin: ChildStdio::Fd(stdin_end.into()),
            stdout: ChildStdio::Fd(stdout_end.into()),
            ..SpawnOptions::new(env!("CARGO_BIN_EXE_heeler"))
        });
        let (child, frames) = (child.unwrap(), FrameDecoder::default());
        Self { child, stdin, stdout, frames, buffer: BytesMut::new(), requests: 0 }
    }

    fn request<P>(&mut self, method: &str, params: &P)
    where
        P: serde::Serialize,
    {
        self.requests += 1;
        self.stdin
            .write_all(&rpc::encode_request(&RequestId::number(self.requests), method, params))
            .unwrap();
    }

    fn next(&mut self) -> Bytes {
        loop {
            if let Some(body) = self.frames.decode(&mut self.buffer).unwrap() {
                return body;
            }
            let mut chunk = [0; 64 << 10];
            let count = self.stdout.read(&mut chunk).unwrap();
            assert!(count > 0, "the server goes on");
            self.buffer.extend_from_slice(&chunk[..count]);
        }
    }

    /// Reads one update and returns the number of tests in it; `None` for the completion.
    fn read_changes(&mut self) -> Option<usize> {
        loop {
            let body = self.next();
            let Ok(BorrowedRpcMessage::Notification { method, params: Some(params) }) =
                rpc::parse_borrowed(&body)
            else {
                panic!("the completion comes before the response")
            };
            if method == method::UPDATES {
                let params: UpdateParams = serde_json::from_str(params.get()).unwrap();
                return params
                    .changes
                    .map(|changes| changes.iter().filter(|one| one.node.state.is_some()).count());
            }
        }
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn exit(mut self) -> Duration {
        self.stdin.write_all(&rpc::encode_notification(method::EXIT, &serde_json::json!({}))).unwrap();
        drop(self.stdin);
        drop(self.stdout);
        let ended = self.child.wait().unwrap();
        assert_eq!(ended.code, Some(0));
        ended.cpu
    }
}
