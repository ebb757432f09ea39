//! Tests of a batch: results from events, times and process exits.

mod process;

use std::collections::HashMap;

use proptest::prelude::*;
use wire::{
    control::{Attempt, Death, LeaseEnd, Report, TestIndex},
    journal::{self, Reading, Record},
    mtp::{Change, TestNode},
};

use super::{flight::SHARED_NOTE, *};
use crate::samples::{lease, verdict};

/// The state of a transcript: (complete, explains the exit code).
type Word = (bool, bool);

const COMPLETE: Word = (true, true);
const CUT_OFF: Word = (false, false);

fn gone(end: RawEnd, (is_complete, is_explained): Word) -> Gone {
    Gone {
        end,
        is_complete,
        is_explained,
        is_after_end_marker: false,
        outside_failure: None,
        is_out_of_memory: false,
        evidence: None,
        detail: None,
        is_own_death: false,
    }
}

struct Fake;

impl Framework for Fake {
    fn reproduce(&self, test: &ListedTest) -> String {
        format!("run {}", test.name)
    }

    fn complete(&self, verdict: &mut Verdict, stderr: &str) {
        verdict.message.get_or_insert_with(|| format!("said: {stderr}"));
    }
}

fn at(milliseconds: u64) -> Moment {
    let running = Duration::from_millis(milliseconds);
    Moment { running, utc: Utc::at(running), since_boot: running }
}

fn begun(place: usize) -> Event {
    Event::Begun { place }
}

fn ended(place: usize, state: ExecutionState) -> Event {
    Event::Ended { place, verdict: verdict(state) }
}

fn passed(place: usize) -> Event {
    ended(place, ExecutionState::Passed)
}

fn output(text: &str) -> Event {
    Event::Output(text.as_bytes().to_vec())
}

fn exit(code: i32) -> RawEnd {
    RawEnd { code: Some(code), ..RawEnd::default() }
}

fn signal(number: i32) -> RawEnd {
    RawEnd { signal: Some(number), ..RawEnd::default() }
}

/// A batch and its updates.
struct Bench {
    batch: Batch,
    parcel: Parcel,
}

impl Bench {
    fn of(lease: Lease) -> Self {
        let mut parcel = Parcel::default();
        let batch = Batch::new(lease, WorkerId(1), &mut parcel, Box::new(Fake));
        Self { batch, parcel }
    }

    fn with_tests(count: u32) -> Self {
        Self::of(lease(count))
    }

    fn chunk(&mut self, milliseconds: u64, events: impl Into<Vec<Event>>, stderr: &str) {
        let events = &mut events.into();
        let chunk = Chunk { events, stderr: stderr.as_bytes(), now: at(milliseconds) };
        self.batch.chunk(chunk, &mut self.parcel);
        assert!(events.is_empty());
    }

    fn finish(&mut self, milliseconds: u64, end: RawEnd, word: Word) -> LeaseEnd {
        self.finish_as(milliseconds, gone(end, word))
    }

    fn finish_as(&mut self, milliseconds: u64, gone: Gone) -> LeaseEnd {
        self.batch.finish(gone, at(milliseconds), &mut self.parcel)
    }

    /// Returns the nodes sent to the client.
    fn nodes(&self) -> Vec<TestNode> {
        let changes = self.parcel.loads().flat_map(|load| load.changes);
        changes.map(|change| serde_json::from_slice::<Change>(change).unwrap().node).collect()
    }

    /// Returns the terminal nodes sent to the client.
    fn results(&self) -> Vec<TestNode> {
        self.nodes().into_iter().filter(|node| node.state.unwrap().is_terminal()).collect()
    }

    fn states(&self) -> Vec<(String, ExecutionState)> {
        self.results().into_iter().map(|node| (node.display_name, node.state.unwrap())).collect()
    }

    fn records(&self) -> Vec<Record> {
        let Reading { records, damage, .. } = journal::read(&[journal::MAGIC, &self.parcel.journal].concat());
        assert_eq!(damage, None);
        records
    }
}

#[test]
fn a_test_that_passes_is_started_and_settled_everywhere() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    assert_eq!(bench.batch.first_begun(), Some(Duration::from_millis(5)));
    bench.chunk(9, [output("hello"), passed(0)], "oops");
    let nodes = bench.nodes();
    assert_eq!(nodes[0].state, Some(ExecutionState::InProgress));
    assert_eq!(nodes[1].standard_output.as_deref(), Some("hello"));
    assert_eq!(nodes[1].standard_error.as_deref(), Some("oops"));
    assert_eq!(nodes[1].start_utc.as_deref(), Some("1970-01-01T00:00:00.005Z"));
    assert_eq!(nodes[1].stop_utc.as_deref(), Some("1970-01-01T00:00:00.009Z"));
    assert_eq!(nodes[1].duration_ms, Some(4.0));
    assert!(matches!(bench.records()[..], [Record::Started(TestIndex(0)), Record::Settled { .. }]));
    assert!(matches!(
        bench.parcel.reports[..],
        [Report::Started(TestIndex(0)), Report::Settled { duration_us: 4000, position: 1, .. }]
    ));
}

#[test]
fn skipped_tests_are_settled_without_a_process() {
    let mut lease = lease(3);
    lease.tests[1].listed.skip = Some("ignored: needs net".into());
    let bench = Bench::of(lease);
    let names: Vec<_> = bench.batch.tests().iter().map(|test| test.listed.name.as_str()).collect();
    assert_eq!(names, ["A.t0", "A.t2"]);
    let node = &bench.results()[0];
    assert_eq!((node.display_name.as_str(), node.state), ("A.t1", Some(ExecutionState::Skipped)));
    assert_eq!(node.error_message.as_deref(), Some("ignored: needs net"));
    assert!(matches!(bench.parcel.reports[..], [Report::Settled { position: 1, .. }]));
}

#[test]
fn durations_come_from_the_framework_and_below_a_millisecond_from_us() {
    let with = |place, milliseconds| Event::Ended {
        place,
        verdict: Verdict {
            duration: Some(Duration::from_millis(milliseconds)),
            ..verdict(ExecutionState::Passed)
        },
    };
    let mut bench = Bench::with_tests(8);
    bench.chunk(10, [begun(0)], "");
    bench.chunk(500, [with(0, 7), begun(1)], "");
    // Two ends in one chunk of one millisecond: half a millisecond each.
    bench.chunk(501, [with(1, 0), begun(2), with(2, 0), begun(3)], "");
    // A test with a reported duration of zero milliseconds is counted as one millisecond at most.
    bench.chunk(600, [with(3, 0), begun(4)], "");
    // Without a reported duration the worker's clock decides.
    bench.chunk(650, [passed(4)], "");
    let durations: Vec<_> = bench.results().iter().map(|node| node.duration_ms.unwrap()).collect();
    assert_eq!(durations, [7.0, 0.5, 0.5, 1.0, 50.0]);
}

#[test]
fn output_between_tests_belongs_to_none() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(1, [output("before"), begun(0), output("a"), passed(0), output("between")], "");
    bench.chunk(2, [begun(1), output("b"), passed(1), output("after")], "");
    let outputs: Vec<_> = bench.results().into_iter().map(|node| node.standard_output.unwrap()).collect();
    assert_eq!(outputs, ["a", "b"]);
    let LeaseEnd::BadExit { message, .. } = bench.finish(3, exit(3), CUT_OFF) else { panic!() };
    assert!(message.contains("exit code 3 after its last test"), "{message}");
    assert!(message.ends_with("beforebetweenafter"), "{message}");
}

#[test]
fn errors_of_several_tests_within_one_chunk_are_marked() {
    let mut bench = Bench::with_tests(3);
    bench.chunk(1, [begun(0), passed(0), begun(1), ended(1, ExecutionState::Failed), begun(2)], "who?");
    bench.chunk(2, [passed(2)], "me");
    let errors: Vec<_> = bench.results().into_iter().map(|node| node.standard_error).collect();
    assert_eq!(errors[0], None);
    let note = String::from_utf8(SHARED_NOTE.to_vec()).unwrap();
    assert_eq!(errors[1], Some(format!("{note}who?")));
    assert_eq!(errors[2], Some(format!("{note}who?me")));
}

#[test]
fn output_is_capped_and_what_a_framework_captured_is_the_tests_output_too() {
    let mut bench = Bench::with_tests(2);
    let captured = Event::Ended {
        place: 0,
        verdict: Verdict { stdout: Some("captured".into()), ..verdict(ExecutionState::Passed) },
    };
    bench.chunk(1, [begun(0), captured, begun(1), output(&"x".repeat(5000)), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].standard_output.as_deref(), Some("captured"));
    let capped = results[1].standard_output.as_deref().unwrap();
    assert!(capped.contains("[... 4000 bytes cut ...]") && capped.len() < 1100);
}

#[test]
fn only_what_did_not_pass_says_how_to_run_it_alone() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(1, [begun(0), ended(0, ExecutionState::Failed), begun(1), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].text("heeler.reproduce"), Some("run A.t0"));
    assert_eq!(results[1].text("heeler.reproduce"), None);
}

#[test]
fn a_crash_costs_the_test_in_flight_alone() {
    let mut bench = Bench::with_tests(3);
    bench.chunk(1, [begun(0), passed(0), begun(1), output("last words")], "");
    assert_eq!(bench.finish(5, signal(11), CUT_OFF), LeaseEnd::DiedInTest { end: signal(11) });
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    let Some(Report::Died { test: TestIndex(1), attempt }) = bench.parcel.reports.last() else { panic!() };
    assert_eq!(attempt.message, "crashed with SIGSEGV");
    assert_eq!(attempt.stdout, "last words");
    assert_eq!(attempt.duration_us, 4000);
    assert!(
        matches!(&bench.records()[..], [.., Record::Held { test: TestIndex(1), attempt: held }] if held == &**attempt)
    );
}

#[test]
fn a_failure_is_completed_from_what_the_test_wrote() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(1, [begun(0), ended(0, ExecutionState::Failed)], "panicked");
    assert_eq!(bench.results()[0].error_message.as_deref(), Some("said: panicked"));
}

#[test]
fn a_test_that_can_not_be_selected_is_told_and_the_others_move_up() {
    let mut bench = Bench::with_tests(3);
    bench.batch.refuse(1, "its name has a newline", &mut bench.parcel);
    bench.chunk(1, [begun(1), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].display_name, "A.t1");
    assert_eq!(results[0].outcome_kind.as_deref(), Some("not-run"));
    assert_eq!(results[0].error_message.as_deref(), Some("not run: its name has a newline"));
    assert_eq!(results[1].display_name, "A.t2");
}

#[test]
fn a_failure_outside_tests_is_told_with_the_exit() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(1, [begun(0), passed(0)], "");
    let gone = Gone { outside_failure: Some("SetUp failed\n".into()), ..gone(exit(1), (true, false)) };
    let LeaseEnd::BadExit { message, .. } = bench.finish_as(2, gone) else { panic!() };
    assert!(message.ends_with("--- failed outside tests ---\nSetUp failed"), "{message}");
}

#[test]
fn a_death_behind_an_unconfirmed_end_marker_says_so() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(1, [begun(0)], "");
    bench.finish_as(2, Gone { is_after_end_marker: true, ..gone(signal(11), CUT_OFF) });
    let message = bench.results()[0].error_message.clone().unwrap();
    assert!(message.starts_with("crashed with SIGSEGV after its end marker"), "{message}");
}

#[test]
fn exit_code_zero_under_a_test_is_a_death() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(1, [begun(0)], "");
    let end = bench.finish(2, exit(0), (false, true));
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }));
    let Some(Report::Died { attempt, .. }) = bench.parcel.reports.last() else { panic!() };
    assert_eq!(attempt.message, "the process left with exit code 0 before the test ended");
    assert_eq!(attempt.death, Some(Death { code: Some(0), ..Death::default() }));
}

#[test]
fn a_crash_alone_is_final() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(1, [begun(0)], "");
    bench.finish(2, signal(6), CUT_OFF);
    let node = &bench.results()[0];
    assert_eq!((node.state, node.outcome_kind.as_deref()), (Some(ExecutionState::Error), Some("crashed")));
    assert_eq!(node.text("heeler.signal"), Some("SIGABRT"));
    assert_eq!(node.error_message.as_deref(), Some("crashed with SIGABRT"));
}

#[test]
fn a_test_that_runs_too_long_is_timed_out_when_its_process_is_gone() {
    let mut bench = Bench::with_tests(3);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(2100)));
    assert_eq!(bench.batch.on_time(at(2099)), Due::Nothing);
    assert_eq!(bench.batch.on_time(at(2100)), Due::End);
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(bench.batch.on_time(at(9000)), Due::Nothing, "it is told to end once");
    // Output in its grace period changes nothing, and no other test begins.
    bench.chunk(2150, [passed(0), begun(1), passed(1)], "");
    assert!(bench.results().is_empty());
    assert!(matches!(bench.finish(2200, exit(0), COMPLETE), LeaseEnd::DiedInTest { .. }));
    let node = &bench.results()[0];
    assert_eq!(node.state, Some(ExecutionState::TimedOut));
    assert_eq!(node.error_message.as_deref(), Some("timed out after 2 s"));
    assert_eq!(bench.parcel.reports.len(), 2);
}

#[test]
fn a_crash_that_is_looked_into_until_its_limit_has_passed_is_a_crash() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.on_time(at(2100)), Due::End);
    let end = bench.finish_as(2900, Gone { is_own_death: true, ..gone(signal(11), CUT_OFF) });
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
    let Some(Report::Died { attempt, .. }) = bench.parcel.reports.last() else { panic!() };
    assert_eq!(attempt.message, "crashed with SIGSEGV");
}

#[test]
fn a_test_that_ended_too_late_is_not_blamed_for_the_crash_of_the_next() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.on_time(at(2100)), Due::End);
    bench.chunk(2150, [passed(0), begun(1)], "");
    bench.finish_as(2900, Gone { is_own_death: true, ..gone(signal(11), CUT_OFF) });
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::TimedOut)]);
}

#[test]
fn a_crash_before_the_first_test_is_no_idleness() {
    let mut bench = Bench::with_tests(1);
    assert_eq!(bench.batch.on_time(at(60_000)), Due::End);
    let end = bench.finish_as(60_900, Gone { is_own_death: true, ..gone(signal(11), CUT_OFF) });
    let LeaseEnd::DiedOutside { message, .. } = end else { panic!("{end:?}") };
    assert!(message.starts_with("the process died of SIGSEGV before its first test"), "{message}");
}

#[test]
fn a_timeout_that_a_retry_may_replace_is_held() {
    let mut lease = lease(2);
    lease.tests[0].is_failure_held = true;
    let mut bench = Bench::of(lease);
    bench.chunk(0, [begun(0)], "");
    assert_eq!(bench.batch.on_time(at(2000)), Due::End);
    bench.finish(2001, signal(15), CUT_OFF);
    let Some(Report::Failed { attempt, .. }) = bench.parcel.reports.last() else { panic!() };
    assert_eq!((attempt.state, attempt.death.clone()), (ExecutionState::TimedOut, None));
    assert!(bench.results().is_empty());
}

#[test]
fn a_failure_that_a_retry_may_replace_is_held() {
    let mut lease = lease(2);
    lease.tests[0].is_failure_held = true;
    let mut bench = Bench::of(lease);
    bench.chunk(0, [begun(0), ended(0, ExecutionState::Failed), begun(1), passed(1)], "");
    assert!(matches!(bench.parcel.reports[1], Report::Failed { test: TestIndex(0), .. }));
    assert_eq!(bench.states(), [("A.t1".to_owned(), ExecutionState::Passed)]);
    assert_eq!(bench.finish(1, exit(1), COMPLETE), LeaseEnd::Complete);
}

#[test]
fn a_second_attempt_tells_the_first() {
    let mut lease = lease(1);
    lease.tests[0].attempts.push(Attempt {
        state: ExecutionState::Failed,
        message: "1 is not 2".into(),
        death: None,
        stdout: String::new(),
        stderr: String::new(),
        evidence: None,
        duration_us: 0,
    });
    let mut bench = Bench::of(lease);
    bench.chunk(0, [begun(0), passed(0)], "");
    bench.finish(1, exit(0), COMPLETE);
    let node = &bench.results()[0];
    assert_eq!(node.outcome_kind.as_deref(), Some("passed-with-retries"));
    assert_eq!(node.other["retry.attempt"], 2);
    assert_eq!(node.standard_output.as_deref(), Some("attempt 1 (failed): 1 is not 2\n"));
}

#[test]
fn a_cancel_ends_the_test_in_flight_and_leaves_the_rest() {
    let mut bench = Bench::with_tests(3);
    bench.chunk(0, [begun(0), passed(0), begun(1)], "");
    bench.batch.cancel();
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(bench.finish(9, signal(15), CUT_OFF), LeaseEnd::Cancelled);
    assert_eq!(
        bench.states(),
        [("A.t0".to_owned(), ExecutionState::Passed), ("A.t1".to_owned(), ExecutionState::Cancelled)]
    );
}

#[test]
fn a_test_that_ended_before_the_cancel_reached_it_keeps_its_result() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(0, [begun(0)], "");
    bench.batch.cancel();
    bench.chunk(1, [passed(0), begun(1)], "");
    assert_eq!(bench.finish(9, signal(15), CUT_OFF), LeaseEnd::Cancelled);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
}

#[test]
fn a_cancel_between_tests_settles_nothing() {
    let mut bench = Bench::with_tests(2);
    bench.batch.cancel();
    assert_eq!(bench.finish(9, signal(15), CUT_OFF), LeaseEnd::Cancelled);
    assert!(bench.parcel.reports.is_empty());
}

#[test]
fn a_worker_that_leaves_decides_about_nothing_that_still_runs() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(0, [begun(0), passed(0), begun(1)], "");
    bench.batch.abandon();
    assert_eq!(bench.finish(1, signal(9), CUT_OFF), LeaseEnd::Cancelled);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    assert!(matches!(bench.parcel.reports.last(), Some(Report::Started(TestIndex(1)))));
}

#[test]
fn a_process_that_begins_nothing_is_ended_and_says_so() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(5, [output("loading")], "warning");
    assert_eq!(bench.batch.on_time(at(59_999)), Due::Nothing);
    assert_eq!(bench.batch.on_time(at(60_000)), Due::End);
    let LeaseEnd::DiedOutside { message, .. } = bench.finish(60_100, signal(15), CUT_OFF) else { panic!() };
    assert!(message.starts_with("the process began no test within 60 s and was ended"), "{message}");
    assert!(message.contains("loading") && message.ends_with("warning"), "{message}");
}

#[test]
fn a_process_that_does_not_leave_is_ended_and_says_so() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    bench.batch.tell_kept(&mut bench.parcel);
    assert_eq!(bench.batch.on_time(at(60_005)), Due::End);
    let LeaseEnd::BadExit { message, .. } = bench.finish(60_100, exit(0), COMPLETE) else { panic!() };
    assert_eq!(message, "the process did not leave within 60 s after its last test and was ended");
}

#[test]
fn a_death_with_tests_waiting_and_none_in_flight_is_outside() {
    let mut bench = Bench::with_tests(2);
    let LeaseEnd::DiedOutside { message, .. } = Bench::with_tests(1).finish(1, signal(11), CUT_OFF) else {
        panic!()
    };
    assert_eq!(message, "the process died of SIGSEGV before its first test");
    bench.chunk(1, [begun(0), passed(0)], "");
    let LeaseEnd::DiedOutside { message, .. } = bench.finish(2, exit(0), CUT_OFF) else { panic!() };
    assert_eq!(message, "the process left with exit code 0 after A.t0, with tests still waiting");
}

#[test]
fn an_exit_that_the_results_do_not_explain_is_told_beside_them() {
    for (end, word) in [(exit(1), (true, false)), (exit(0), (false, true)), (signal(11), (true, false))] {
        let mut bench = Bench::with_tests(1);
        bench.chunk(1, [begun(0), passed(0)], "");
        assert!(matches!(bench.finish(2, end, word), LeaseEnd::BadExit { .. }));
        assert_eq!(bench.results().len(), 1);
    }
}

#[test]
fn a_complete_run_without_some_tests_leaves_them_to_the_coordinator() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(1, [begun(0), passed(0)], "");
    assert_eq!(bench.finish(2, exit(0), COMPLETE), LeaseEnd::Complete);
    assert_eq!(bench.results().len(), 1);
}

#[test]
fn a_slow_test_without_a_limit_is_waited_for() {
    let mut lease = lease(1);
    lease.limits.timeout_ms = None;
    let mut bench = Bench::of(lease);
    bench.chunk(1, [begun(0)], "");
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(bench.batch.on_time(at(u64::from(u32::MAX))), Due::Nothing);
}

#[derive(Debug, Clone)]
enum Step {
    Chunk(Vec<Event>, bool),
    Time(u64),
    Cancel,
}

fn event() -> impl Strategy<Value = Event> {
    let state = prop_oneof![
        Just(ExecutionState::Passed),
        Just(ExecutionState::Failed),
        Just(ExecutionState::Skipped)
    ];
    prop_oneof![
        3 => (0_usize..6).prop_map(begun),
        3 => (0_usize..6, state).prop_map(|(place, state)| ended(place, state)),
        1 => Just(output("noise")),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (proptest::collection::vec(event(), 0..8), any::<bool>()).prop_map(|(events, has)| Step::Chunk(events, has)),
        1 => (0_u64..4000).prop_map(Step::Time),
        1 => Just(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn no_test_is_lost_or_settled_twice_whatever_the_order_of_events_and_end(
        steps in proptest::collection::vec(step(), 0..12),
        held in proptest::collection::vec(any::<bool>(), 5),
        end in prop_oneof![Just(exit(0)), Just(exit(1)), Just(signal(11)), Just(RawEnd::default())],
        is_complete: bool,
        is_explained: bool,
    ) {
        let mut lease = lease(5);
        for (test, is_held) in lease.tests.iter_mut().zip(held) {
            test.is_failure_held = is_held;
        }
        let mut bench = Bench::of(lease);
        let mut now = 0;
        for step in steps {
            now += 1;
            match step {
                Step::Chunk(events, has_errors) => bench.chunk(now, events, if has_errors { "e" } else { "" }),
                Step::Time(more) => {
                    now += more;
                    bench.batch.on_time(at(now));
                }
                Step::Cancel => bench.batch.cancel(),
            }
        }
        let ended = bench.finish(now + 1, end, (is_complete, is_explained));

        let mut started: HashMap<TestIndex, usize> = HashMap::new();
        let mut decided: HashMap<TestIndex, usize> = HashMap::new();
        let mut position = 0;
        for report in &bench.parcel.reports {
            match report {
                Report::Started(test) => *started.entry(*test).or_default() += 1,
                Report::Settled { test, position: at, .. } => {
                    position += 1;
                    prop_assert_eq!(*at, position);
                    *decided.entry(*test).or_default() += 1;
                }
                Report::Standing { .. }
                | Report::Launched { .. }
                | Report::Attached { .. }
                | Report::Leaked { .. }
                | Report::Ended { .. } => {}
                Report::Failed { test, .. } | Report::Died { test, .. } => {
                    *decided.entry(*test).or_default() += 1;
                }
            }
        }
        for (test, times) in &decided {
            prop_assert_eq!(*times, 1, "{:?} is decided once", test);
            prop_assert_eq!(started.get(test), Some(&1), "{:?} is started once", test);
        }
        // Every started test has its result, except those whose process was ended because of another test.
        let is_undecided = started.keys().any(|test| !decided.contains_key(test));
        if is_undecided {
            let is_in_test = matches!(ended, LeaseEnd::DiedInTest { .. });
            prop_assert!(is_in_test);
        }
        prop_assert_eq!(bench.records().len(), bench.parcel.reports.len());
        let results = bench.results();
        prop_assert_eq!(results.len() as u64, position);
        // A complete lease is one in which no test died.
        if ended == LeaseEnd::Complete {
            let has_died = bench.parcel.reports.iter().any(|report| matches!(report, Report::Died { .. }));
            prop_assert!(!has_died && is_complete && is_explained);
        }
    }
}
