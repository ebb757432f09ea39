//! Micro benchmarks of the pure crates: framing, batching, the decisions of a whole run, and parsing of
//! transcripts and listings.
//!
//! `cargo bench --bench micro`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{collections::VecDeque, time::Duration};

use bytes::BytesMut;
use divan::{
    Bencher, black_box,
    counter::{BytesCount, ItemsCount},
};
use heeler_adapters::ListingOutput;
use heeler_core::{
    LeaseOutcome, Outcome, ProgramId, Slots, TestId, WorkerId,
    batching::{ProgramCosts, QueuedTest, SlotLoads, TestQueue},
    run::{RunAction, RunEvent, RunState, ScheduledTest, SchedulingPlan},
};
use heeler_protocol::{
    StreamDecoder as _,
    control::{ListedTest, TestProgram},
    frame::{FrameDecoder, encode},
    mtp::{ExecutionState, TestNode, UpdateParams, encode_change, key, updates_frame},
    rpc::{BorrowedRpcMessage, parse_borrowed},
};

fn main() {
    divan::main();
}

/// Changes per chunk: about 256 KiB, the chunk size of a worker.
const CHANGES: u32 = 600;

fn changes() -> Vec<Vec<u8>> {
    let change = |number| {
        let name = format!("Suite.Case{number}");
        let mut node = TestNode::test(format!("suite::{name}"), name, ExecutionState::Passed);
        node.duration_ms = Some(0.25);
        node.location_file = Some("/home/user/project/tests/suite_test.cc".into());
        node.location_line_start = Some(number);
        node.start_utc = Some("2026-01-01T00:00:00.000Z".into());
        node.stop_utc = Some("2026-01-01T00:00:00.001Z".into());
        node.members.insert(key::SUITE.into(), "suite".into());
        node.members.insert(key::PROGRAM.into(), "/home/user/project/build/suite".into());
        node.members.insert(key::WORKER.into(), 1.into());
        encode_change(&node)
    };
    (0..CHANGES).map(change).collect()
}

fn frame() -> bytes::Bytes {
    updates_frame("0b8b0a6e-64c5-4b5b-a4a5-2f7a4ea3b4f1", changes().iter().map(Vec::as_slice))
}

#[divan::bench]
fn frame_encode(bencher: Bencher<'_, '_>) {
    let body = frame();
    bencher.counter(BytesCount::new(body.len())).bench(|| encode(black_box(&body)));
}

#[divan::bench]
fn frame_decode(bencher: Bencher<'_, '_>) {
    let frame = frame();
    bencher
        .counter(BytesCount::new(frame.len()))
        .with_inputs(|| BytesMut::from(&frame[..]))
        .bench_values(|mut buffer| FrameDecoder::default().decode(&mut buffer).unwrap().unwrap());
}

/// Encodes the changes of one chunk as a frame.
#[divan::bench]
fn updates_encode(bencher: Bencher<'_, '_>) {
    let changes = changes();
    bencher
        .counter(ItemsCount::new(changes.len()))
        .bench(|| updates_frame("run", black_box(&changes).iter().map(Vec::as_slice)));
}

/// Decodes a frame to nodes, like the client.
#[divan::bench]
fn updates_decode(bencher: Bencher<'_, '_>) {
    let body = FrameDecoder::default().decode(&mut BytesMut::from(&frame()[..])).unwrap().unwrap();
    bencher.counter(ItemsCount::new(CHANGES)).bench(|| {
        let Ok(BorrowedRpcMessage::Notification { params: Some(params), .. }) =
            parse_borrowed(black_box(&body))
        else {
            panic!("an update is a notification");
        };
        serde_json::from_str::<UpdateParams>(params.get()).unwrap()
    });
}

/// Returns a realistic duration: most are short, some are long.
fn test_duration(test: u32) -> Option<Duration> {
    (!test.is_multiple_of(7))
        .then(|| Duration::from_micros(u64::from(test.wrapping_mul(2_654_435_761) % 20_000)))
}

/// Computes all batches of 100,000 tests of ten programs for eight workers.
#[divan::bench]
fn split_100_000_tests(bencher: Bencher<'_, '_>) {
    const TESTS: u32 = 100_000;
    bencher.counter(ItemsCount::new(TESTS)).bench(|| {
        let costs = ProgramCosts { start: Some(Duration::from_millis(3)), ..ProgramCosts::default() };
        let mut queue = TestQueue::new(vec![costs; 10]);
        queue.add((0..TESTS).map(|test| {
            let item = QueuedTest {
                test: TestId(test),
                weight: test_duration(test),
                is_isolated: false,
                bond: None,
                selection_bytes: 0,
            };
            (ProgramId(test % 10), item)
        }));
        let mut batches = 0;
        while let Some(batch) = queue.next_batch(&SlotLoads::idle(Slots(8))) {
            batches += 1;
            black_box(batch);
        }
        batches
    });
}

/// Runs 20,000 tests on two simulated workers, from the plan to the end, without any process.
#[divan::bench]
fn run_20_000_tests(bencher: Bencher<'_, '_>) {
    const TESTS: u32 = 20_000;
    let plan = SchedulingPlan {
        capacities: Vec::new(),
        programs: vec![ProgramCosts { start: Some(Duration::from_millis(50)), ..ProgramCosts::default() }],
        tests: (0..TESTS)
            .map(|_| ScheduledTest { selection_bytes: 10, ..ScheduledTest::new(ProgramId(0)) })
            .collect(),
        batch_limit: None,
        is_open: false,
        slots: 2,
        failure_limit: None,
        max_startup_crashes: 3,
        retry_seed: 0,
    };
    bencher.counter(ItemsCount::new(TESTS)).with_inputs(|| plan.clone()).bench_values(simulate_run);
}

fn simulate_run(plan: SchedulingPlan) -> RunState {
    let mut workers = [WorkerId(1), WorkerId(2)].into_iter();
    let mut positions = [0_u64; 2];
    let mut run = RunState::new(plan);
    let mut actions = VecDeque::from(run.begin());
    let mut is_complete = false;
    while let Some(action) = actions.pop_front() {
        let more = match action {
            // Run every test of the lease, then end the lease.
            RunAction::Lease(lease) => {
                let position = &mut positions[usize::try_from(lease.worker.0).unwrap() - 1];
                let mut more = Vec::new();
                for test in &lease.batch.tests {
                    more.extend(run.handle(RunEvent::Started { lease: lease.lease, test: *test }));
                    *position += 1;
                    more.extend(run.handle(RunEvent::Settled {
                        worker: lease.worker,
                        test: *test,
                        outcome: Outcome::Passed,
                        duration: Duration::from_micros(20),
                        position: *position,
                    }));
                }
                let (worker, lease) = (lease.worker, lease.lease);
                let end = LeaseOutcome::Complete;
                let start = Some(Duration::from_millis(50));
                more.extend(run.handle(RunEvent::LeaseEnded { worker, lease, end, start }));
                more
            }
            RunAction::Drain(worker) => {
                let proven = positions[usize::try_from(worker.0).unwrap() - 1];
                run.handle(RunEvent::Drained { worker, proven })
            }
            // Answer everything else in the simplest way; an action that this run cannot return is a bug.
            RunAction::KillFinisher | RunAction::ReleaseWorker(_) => Vec::new(),
            RunAction::StartWorker => {
                let worker = workers.next().expect("one request for each slot");
                run.handle(RunEvent::WorkerGranted(worker))
            }
            RunAction::Finish { .. } => run.handle(RunEvent::Finished),
            RunAction::Complete => {
                is_complete = true;
                Vec::new()
            }
            RunAction::CancelLease { .. }
            | RunAction::ExtendLease(_)
            | RunAction::EndLease { .. }
            | RunAction::DelayRetry { .. }
            | RunAction::LimitSetUp { .. }
            | RunAction::ReturnTests { .. }
            | RunAction::DelayStarts { .. } => {
                panic!("not in this run: {action:?}")
            }
        };
        actions.extend(more);
    }
    assert!(is_complete);
    run
}

/// Parses the output of a GoogleTest process with 20,000 tests, in pieces the size of a pipe buffer.
#[divan::bench]
fn transcript_of_20_000_tests(bencher: Bencher<'_, '_>) {
    const TESTS: u32 = 20_000;
    let name = |number| format!("Suite.Case{number}");
    let tests: Vec<_> =
        (0..TESTS).map(|number| ListedTest { name: name(number), ..ListedTest::default() }).collect();
    let tests: Vec<_> = tests.iter().collect();
    let mut out = format!("[==========] Running {TESTS} tests from 1 test suite.\n");
    for number in 0..TESTS {
        let name = name(number);
        out.push_str(&format!("[ RUN      ] {name}\n[       OK ] {name} (0 ms)\n"));
    }
    out.push_str(&format!("[==========] {TESTS} tests from 1 test suite ran. (0 ms total)\n"));
    let gtest = heeler_adapters::by_name("gtest").unwrap();
    bencher
        .counter(ItemsCount::new(TESTS))
        .counter(BytesCount::new(out.len()))
        .with_inputs(|| gtest.transcript_parser(&tests))
        .bench_values(|mut transcript| {
            let mut events = Vec::new();
            let mut seen = 0;
            for chunk in out.as_bytes().chunks(64 << 10) {
                transcript.on_stdout(chunk, &mut events);
                seen += events.len();
                events.clear();
            }
            transcript.on_output_end(&mut events);
            assert!(seen >= 2 * TESTS as usize);
            transcript
        });
}

/// Parses GoogleTest listings of 20,000 tests each, like a worker for each program.
#[divan::bench(args = [1, 8])]
fn listings_of_20_000_tests(bencher: Bencher<'_, '_>, programs: usize) {
    let outputs = listing_outputs(programs);
    bencher.bench(|| outputs.iter().map(read_listing).sum::<usize>());
}

/// As above, but in the thread pool, as if one process parsed the listings of all programs.
#[divan::bench(args = [1, 8])]
fn listings_of_20_000_tests_in_a_pool(bencher: Bencher<'_, '_>, programs: usize) {
    let outputs = listing_outputs(programs);
    bencher.bench(|| {
        heeler_sys::cpu_pool::map(outputs.iter().collect(), read_listing).into_iter().sum::<usize>()
    });
}

fn listing_outputs(programs: usize) -> Vec<ListingOutput> {
    const TESTS: u32 = 20_000;
    let mut file = format!("<?xml version=\"1.0\"?>\n<testsuites tests=\"{TESTS}\" name=\"AllTests\">\n");
    file.push_str(&format!("<testsuite name=\"Suite\" tests=\"{TESTS}\">\n"));
    for number in 0..TESTS {
        file.push_str(&format!(
            "<testcase name=\"Case{number}\" file=\"/home/user/project/tests/suite_test.cc\" line=\"{number}\" />\n"
        ));
    }
    file.push_str("</testsuite>\n</testsuites>\n");
    let output =
        || ListingOutput { file: Some(file.clone().into_bytes()), code: Some(0), ..ListingOutput::default() };
    (0..programs).map(|_| output()).collect()
}

fn read_listing(output: &ListingOutput) -> usize {
    let program = TestProgram::default();
    let gtest = heeler_adapters::by_name("gtest").unwrap();
    gtest.read_listing(&program, std::slice::from_ref(output)).unwrap().tests.len()
}
