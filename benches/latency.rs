//! Latency from the last result to the completion of a run as a client sees it: the real program, started as
//! an editor starts it, over TCP, with results on callback connections.
//!
//! `cargo bench --bench latency`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_client::{Client, ClientEvent, ClientOptions, EventStream, TestRequest};
use heeler_sys::spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn};
use tokio::net::TcpListener;

const RUNS: usize = 50;
const TESTS: usize = 40;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let program = build_program(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut waits = runtime.block_on(bench(dir.path(), &program));
    waits.sort();
    let milliseconds = |wait: Duration| wait.as_secs_f64() * 1000.0;
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "last result to completion: median {:.2} ms, worst {:.2} ms of {} runs",
        milliseconds(median),
        milliseconds(worst),
        waits.len()
    );
}

/// Builds a real Rust test program with a few milliseconds of work.
fn build_program(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("tests.rs"), dir.join("tests"));
    let test =
        |number| format!("#[test] fn case_{number}() {{ assert_eq!({number} + 1, {}); }}\n", number + 1);
    fs::write(&source, (0..TESTS).map(test).collect::<String>()).unwrap();
    let rustc = std::env::var_os("RUSTC").map_or_else(|| found_in_path("rustc"), PathBuf::from);
    let args = vec!["--test".into(), "-o".into(), program.clone().into(), source.into()];
    let ended = spawn(SpawnOptions { args, ..SpawnOptions::new(rustc) }).unwrap().wait().unwrap();
    assert_eq!(ended.code, Some(0));
    program
}

fn found_in_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists()).unwrap()
}

async fn bench(dir: &Path, program: &Path) -> Vec<Duration> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut server = start(dir, program, listener.local_addr().unwrap().port());
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (client, mut events) = Client::connect(stream, ClientOptions::default()).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..RUNS {
        let request = TestRequest { run_id: uuid::Uuid::new_v4().to_string(), ..TestRequest::default() };
        let (answer, wait) = tokio::join!(client.run(request), completion_latency(&mut events));
        answer.unwrap();
        waits.push(wait);
    }
    drop(events);
    client.exit(tokio::time::Instant::now() + Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.wait().unwrap().code, Some(0));
    waits
}

fn start(dir: &Path, program: &Path, port: u16) -> SpawnedChild {
    let args = vec![program.into(), "--server".into(), "--client-port".into(), port.to_string().into()];
    let heeler = env!("CARGO_BIN_EXE_heeler");
    spawn(SpawnOptions {
        args,
        cwd: Some(dir.to_owned()),
        stdout: ChildStdio::Null,
        ..SpawnOptions::new(heeler)
    })
    .unwrap()
}

/// Follows one run; returns the time from its last result to its completion.
async fn completion_latency(events: &mut EventStream) -> Duration {
    let mut ended = 0;
    let mut last = None;
    loop {
        match events.next().await.unwrap() {
            ClientEvent::Changes { changes, .. } => {
                let is_end = |state: heeler_protocol::mtp::ExecutionState| state.is_terminal();
                let ends = changes.iter().filter(|change| change.node.state.is_some_and(is_end)).count();
                if ends > 0 {
                    ended += ends;
                    last = Some(Instant::now());
                }
            }
            ClientEvent::Completed { .. } => {
                assert_eq!(ended, TESTS, "every test has its result before the completion");
                return last.unwrap().elapsed();
            }
            ClientEvent::Attachments { .. }
            | ClientEvent::AttachmentsEnded { .. }
            | ClientEvent::Log { .. }
            | ClientEvent::Telemetry { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
