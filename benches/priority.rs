//! How soon the test of a small run starts while the same client has a big run in progress. The real program
//! is started as by an editor; the start time comes from the test's result.
//!
//! `cargo bench --bench priority`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

mod support;

use std::{cell::RefCell, collections::BTreeMap, fs, path::Path, time::Duration};

use heeler_client::{Client, ClientEvent, ClientOptions, EventStream, TestRequest};
use jiff::Timestamp;
use tokio::net::TcpListener;

const SMALL_RUNS: usize = 60;
const BIG_TESTS: usize = 6_000;
const BIG_TEST_MS: usize = 5;
const SMALL: &str = "small::case_0";

/// Start and end of a test.
#[derive(Debug, Clone, Copy)]
struct TestSpan {
    start: Timestamp,
    end: Timestamp,
}

/// Waiting times of one small run in milliseconds.
#[derive(Debug, Clone, Copy)]
struct SmallRunWait {
    /// From the request to the start of the run's test.
    start: f64,
    /// From the end of the big run's preceding test, when the slot became free. Known only with one slot.
    slot: f64,
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let sleep = format!("std::thread::sleep(std::time::Duration::from_millis({BIG_TEST_MS}))");
    let big = support::build_program(dir.path(), "big", std::iter::repeat_n(sleep, BIG_TESTS));
    let small = support::build_program(dir.path(), "small", std::iter::once(String::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for jobs in [1, 2] {
        for history in ["no", "a"] {
            let waits = runtime.block_on(bench(dir.path(), &[&big, &small], jobs));
            let starts = sorted(&waits, |wait| wait.start);
            println!(
                "{jobs} slots, {history} history, from the request to the start of its test: median {:.0} ms, 90 % \
                 {:.0} ms, worst {:.0} ms of {} small runs",
                starts[starts.len() / 2],
                starts[starts.len() * 9 / 10],
                starts[starts.len() - 1],
                starts.len(),
            );
            if jobs == 1 {
                let slots = sorted(&waits, |wait| wait.slot);
                println!(
                    "    from the end of the test before it in the slot: median {:.0} ms, 90 % {:.0} ms, worst {:.0} ms",
                    slots[slots.len() / 2],
                    slots[slots.len() * 9 / 10],
                    slots[slots.len() - 1],
                );
            }
        }
        fs::remove_dir_all(dir.path().join(".heeler")).unwrap();
    }
}

fn sorted(waits: &[SmallRunWait], of: impl Fn(&SmallRunWait) -> f64) -> Vec<f64> {
    let mut values: Vec<_> = waits.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

async fn bench(dir: &Path, programs: &[&Path], jobs: usize) -> Vec<SmallRunWait> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    fs::write(dir.join("heeler.toml"), format!("[profile.default]\njobs = {jobs}\n")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = support::start_server(env!("CARGO_BIN_EXE_heeler"), dir, programs, port);
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (client, events) = Client::connect(stream, ClientOptions::default()).await.unwrap();
    let spans = RefCell::default();
    let small_runs = async {
        let big = TestRequest::for_uids((0..BIG_TESTS).map(|number| format!("big::case_{number}")));
        let big_id = big.run_id.clone();
        let runs = async {
            let mut waits = Vec::new();
            for round in 0..SMALL_RUNS {
                // Spread the requests over all phases of a batch.
                tokio::time::sleep(Duration::from_millis(100 + (round * 37 % 200) as u64)).await;
                let requested = Timestamp::now();
                client.run(TestRequest::for_uids([SMALL])).await.unwrap();
                waits.push(requested);
            }
            client.cancel(&big_id).await.unwrap();
            waits
        };
        let (_cancelled, requested) = tokio::join!(client.run(big), runs);
        requested
    };
    let requested = tokio::select! {
        requested = small_runs => requested,
        () = record_spans(events, &spans) => panic!("the server has gone"),
    };
    client.exit(tokio::time::Instant::now() + Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.wait().unwrap().code, Some(0));
    let spans = spans.into_inner();
    let small = spans.get(SMALL).unwrap();
    assert_eq!(small.len(), requested.len());
    let big_ends: Vec<_> = spans.iter().filter(|(uid, _)| *uid != SMALL).flat_map(|(_, all)| all).collect();
    requested
        .iter()
        .zip(small)
        .map(|(requested, small)| {
            let before = big_ends.iter().map(|span| span.end).filter(|end| *end <= small.start).max();
            SmallRunWait {
                start: milliseconds_between(*requested, small.start),
                // No slot was taken before the request.
                slot: before.map_or(0.0, |end| milliseconds_between(end.max(*requested), small.start)),
            }
        })
        .collect()
}

fn milliseconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// Records when each test ran, until the session ends.
async fn record_spans(mut events: EventStream, spans: &RefCell<BTreeMap<String, Vec<TestSpan>>>) {
    while let Some(event) = events.next().await {
        let ClientEvent::Changes { changes, .. } = event else { continue };
        for change in changes {
            let (Some(start), Some(ms)) = (&change.node.start_utc, change.node.duration_ms) else { continue };
            if change.node.state.is_none_or(|state| !state.is_terminal()) {
                continue;
            }
            let start: Timestamp = start.parse().unwrap();
            let end = start + Duration::from_secs_f64(ms / 1000.0);
            spans.borrow_mut().entry(change.node.uid.clone()).or_default().push(TestSpan { start, end });
        }
    }
}
