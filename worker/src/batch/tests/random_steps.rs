//! Random sequences of events: each test gets at most one result, and no result is lost.

use proptest::prelude::*;

use super::*;

fn event() -> impl Strategy<Value = TranscriptEvent> {
    let state = prop_oneof![
        Just(FrameworkResult::Passed),
        Just(FrameworkResult::Failed),
        Just(FrameworkResult::Skipped)
    ];
    prop_oneof![
        3 => (0_usize..6).prop_map(begun),
        3 => (0_usize..6, state).prop_map(|(place, state)| ended(place, state)),
        1 => Just(output("other output")),
    ]
}

fn step() -> impl Strategy<Value = BatchStep> {
    prop_oneof![
        8 => (proptest::collection::vec(event(), 0..8), any::<bool>()).prop_map(|(events, has)| BatchStep::Chunk(events, has)),
        1 => (0_u64..4000).prop_map(BatchStep::Time),
        1 => Just(BatchStep::Cancel),
    ]
}

proptest! {
    #[test]
    fn every_event_order_settles_tests_at_most_once(
        steps in proptest::collection::vec(step(), 0..12),
        held in proptest::collection::vec(any::<bool>(), 5),
        end in prop_oneof![Just(exit(0)), Just(exit(1)), Just(signal(11)), Just(ProcessExit::default())],
        is_complete: bool,
        is_explained: bool,
    ) {
        let mut lease = lease(5);
        for (test, is_held) in lease.tests.iter_mut().zip(held) {
            Arc::make_mut(test).is_failure_provisional = is_held;
        }
        let mut bench = BatchHarness::with_lease(lease);
        let mut now = 0;
        for step in steps {
            now += 1;
            match step {
                BatchStep::Chunk(events, has_errors) => bench.chunk(now, events, if has_errors { "e" } else { "" }),
                BatchStep::Time(more) => {
                    now += more;
                    bench.batch.on_deadline(at(now), false);
                }
                BatchStep::Cancel => bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled),
            }
        }
        let ended = bench.finish(now + 1, end, (is_complete, is_explained));

        let mut started: HashMap<TestId, usize> = HashMap::new();
        let mut decided: HashMap<TestId, usize> = HashMap::new();
        let mut position = 0;
        for report in &bench.updates().reports {
            match report {
                LeaseEvent::Started(test) => *started.entry(*test).or_default() += 1,
                LeaseEvent::Settled { test, position: at, .. } => {
                    position += 1;
                    prop_assert_eq!(*at, position);
                    *decided.entry(*test).or_default() += 1;
                }
                LeaseEvent::StoppedForDebugger { .. }
                | LeaseEvent::LaunchedByDebugger { .. }
                | LeaseEvent::Held(_)
                | LeaseEvent::IterationPassed { .. }
                | LeaseEvent::FilesAttached { .. }
                | LeaseEvent::SetUp { .. }
                | LeaseEvent::FixtureFailed { .. }
                | LeaseEvent::ProcessesLeaked { .. }
                | LeaseEvent::ProcessEnded { .. } => {}
                LeaseEvent::FailedProvisionally { test, .. } | LeaseEvent::CrashedProvisionally { test, .. } => {
                    *decided.entry(*test).or_default() += 1;
                }
            }
        }
        for (test, times) in &decided {
            prop_assert_eq!(*times, 1, "{:?} is decided once", test);
            prop_assert_eq!(started.get(test), Some(&1), "{:?} is started once", test);
        }
        // Every started test has a result, unless its process was ended because of another test.
        let is_undecided = started.keys().any(|test| !decided.contains_key(test));
        if is_undecided {
            let is_in_test = matches!(ended, LeaseEnd::DiedInTest { .. });
            prop_assert!(is_in_test);
        }
        let is_reported = |record: &&RunRecord| !matches!(record, RunRecord::Log(_));
        prop_assert_eq!(bench.records().iter().filter(is_reported).count(), bench.updates().reports.len());
        let results = bench.results();
        prop_assert_eq!(results.len() as u64, position);
        // No test died in a complete lease.
        if ended == LeaseEnd::Complete {
            let has_died = bench.updates().reports.iter().any(|report| matches!(report, LeaseEvent::CrashedProvisionally { .. }));
            prop_assert!(!has_died && is_complete && is_explained);
        }
    }
}
