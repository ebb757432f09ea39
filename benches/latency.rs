//! Latency from a run's last result to its completion, as seen by a client: the real program, started as by
//! an editor, over TCP, with results on callback connections.
//!
//! `cargo bench --bench latency`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

mod support;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use heeler_client::{Client, ClientEvent, ClientOptions, EventStream, TestRequest};
use tokio::net::TcpListener;

const RUNS: usize = 50;
const TESTS: usize = 40;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let bodies = (0..TESTS).map(|number| format!("assert_eq!({number} + 1, {})", number + 1));
    let program = support::build_program(dir.path(), "tests", bodies);
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

async fn bench(dir: &Path, program: &Path) -> Vec<Duration> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = support::start_server(env!("CARGO_BIN_EXE_heeler"), dir, &[program], port);
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
