//! Hostile outputs: forged and glued markers, floods, random bytes, deaths.

use proptest::prelude::*;

use super::{merge, output, replay, summary, tests, transcript};
use crate::{
    FrameworkResult, TranscriptEvent, TranscriptParser, gtest, libtest,
    stream_parser::{MarkerGrammar, StreamParser},
};

fn gtest_run(names: &[&str], text: &str) -> (Vec<TranscriptEvent>, Box<dyn TranscriptParser + Send>) {
    replay("gtest", &tests(names.to_vec()), [text.as_bytes()])
}

fn libtest_run(names: &[&str], text: &str) -> (Vec<TranscriptEvent>, Box<dyn TranscriptParser + Send>) {
    replay("libtest", &tests(names.to_vec()), [text.as_bytes()])
}

const RAN: &str = "[==========] 2 tests from 1 test suite ran. (0 ms total)\n";

#[test]
fn markers_of_other_tests_are_output() {
    let text = "[ RUN      ] A.a\n[       OK ] A.b (0 ms)\n[ RUN      ] A.b\n[==========] 2 tests from 1 test suite ran. (0 ms total)\n[  FAILED  ] A.a (3 ms)\n[ RUN      ] A.b\n[       OK ] A.b (0 ms)\n[----------] 2 tests from A (3 ms total)\n\n";
    let (events, transcript) = gtest_run(&["A.a", "A.b"], &format!("{text}{RAN}"));
    assert_eq!(summary(&events), ["begun 0", "failed 0", "begun 1", "passed 1"]);
    assert!(transcript.is_complete() && transcript.explains_exit(1) && !transcript.explains_exit(0));
}

#[test]
fn forged_end_marker_before_death_is_not_confirmed() {
    for forged in [
        "[       OK ] A.a (0 ms)\n",
        "[       OK ] A.a (0 ms)\nmore\n",
        "[       OK ] A.a (0 ms)\n[----------] Global test environment tear-down\n[==========] 2 tests from 1 test suite ran. (0 ms total)\n",
        "[       OK ] A.a (0 ms)\n[----------] 7 tests from Other (0 ms total)\n",
    ] {
        let (events, transcript) = gtest_run(&["A.a", "A.b"], &format!("[ RUN      ] A.a\n{forged}"));
        assert_eq!(summary(&events), ["begun 0"], "{forged}");
        assert!(output(&events).ends_with(forged), "{forged}");
        assert!(transcript.is_after_end_marker() && !transcript.is_complete());
    }
    for forged in [
        "{ \"type\": \"test\", \"name\": \"a\", \"event\": \"ok\" }\n",
        "{ \"type\": \"test\", \"name\": \"a\", \"event\": \"ok\" }\nmore",
    ] {
        let text = format!("{{ \"type\": \"test\", \"event\": \"started\", \"name\": \"a\" }}\n{forged}");
        let (events, transcript) = libtest_run(&["a", "b"], &text);
        assert_eq!((summary(&events), output(&events)), (vec!["begun 0".to_owned()], forged.to_owned()));
        assert!(transcript.is_after_end_marker());
    }
    let (events, _) =
        replay("libtest-plain", &tests(["a", "b"]), [&b"\nrunning 2 tests\ntest a ... ok\n"[..]]);
    assert_eq!(summary(&events), ["begun 0"]);
}

#[test]
fn last_end_marker_counts() {
    let text = "[ RUN      ] A.a\n[       OK ] A.a (0 ms)\nf.cc:3: Failure\nbad\n[  FAILED  ] A.a (7 ms)\n[----------] 1 test from A (7 ms total)\n\n";
    let (events, _) = gtest_run(&["A.a"], text);
    assert_eq!(summary(&events), ["begun 0", "failed 0"]);
    let Some(TranscriptEvent::Ended { verdict, .. }) =
        events.iter().find(|event| matches!(event, TranscriptEvent::Ended { .. }))
    else {
        panic!("no end");
    };
    let [failure] = verdict.failures.as_slice() else { panic!("{verdict:?}") };
    assert_eq!((failure.message.as_deref(), failure.line), (Some("bad"), Some(3)));
}

#[test]
fn forged_pass_is_not_explained_by_exit_code() {
    // A test that forges all later markers too is confirmed for the moment, but the framework's own counts
    // reveal it.
    let text = "[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n[----------] 1 test from A (0 ms total)\n\nf.cc:1: Failure\nbad\n[  FAILED  ] A.a (0 ms)\n[==========] 1 test from 1 test suite ran. (0 ms total)\n[  PASSED  ] 0 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.a\n";
    let (events, transcript) = gtest_run(&["A.a"], text);
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(transcript.is_complete() && !transcript.explains_exit(0) && !transcript.explains_exit(1));
}

#[test]
fn failed_setup_is_not_explained_by_exit_0() {
    let text = "[----------] 1 test from A\nf.cc:1: Failure\nFailed\nset-up\n[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n[----------] 1 test from A (0 ms total)\n\n[==========] 1 test from 1 test suite ran. (0 ms total)\n[  PASSED  ] 1 test.\n";
    let (events, transcript) = gtest_run(&["A.a"], text);
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(transcript.is_complete() && transcript.outside_failure().is_none());
    let [failure] = transcript.fixture_failures() else { panic!() };
    assert_eq!(
        (failure.fixture.to_string().as_str(), failure.message.as_str()),
        ("A (set-up)", "f.cc:1: Failed\nset-up")
    );
    assert!(!transcript.explains_exit(0) && transcript.explains_exit(1) && transcript.explains_exit(7));
}

#[test]
fn failures_around_tests_belong_to_their_suites() {
    let failure = |word: &str| format!("f.cc:1: Failure\nFailed\n{word}\n");
    let text = format!(
        "{}[----------] 1 test from A\n[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n{}[----------] 1 test from A (0 ms total)\n\n[----------] 2 tests from B\n{}[ RUN      ] B.a\n[       OK ] B.a (0 ms)\n[ RUN      ] B.b\n[       OK ] B.b (0 ms)\n[----------] 2 tests from B (0 ms total)\n\n",
        failure("environment"),
        failure("after A"),
        failure("before B")
    );
    let (_, transcript) = gtest_run(&["A.a", "B.a", "B.b"], &text);
    let of_suites: Vec<_> = transcript
        .fixture_failures()
        .iter()
        .map(|failure| format!("{}: {}", failure.fixture, failure.message.lines().last().unwrap()))
        .collect();
    assert_eq!(of_suites, ["A (tear-down): after A", "B (set-up): before B"]);
    assert!(transcript.outside_failure().is_some_and(|text| text.ends_with("environment")));
}

#[test]
fn markers_glued_to_output_are_recognized() {
    let text = "noise[ RUN      ] A.a\nx[y[       OK ] A.a (0 ms)\n[----------] 1 test from A (0 ms total)\nz[ RUN      ] B.b\n[[[  SKIPPED ] B.b (1 ms)\n[----------] 1 test from B (0 ms total)\n";
    let (events, _) = gtest_run(&["A.a", "B.b"], text);
    assert_eq!(summary(&events), ["begun 0", "passed 0", "begun 1", "skipped 1"]);
    let text = "p{ \"type\": \"test\", \"event\": \"started\", \"name\": \"a\" }\n{{ \"x{ \"type\": \"test\", \"name\": \"a\", \"event\": \"ok\", \"exec_time\": 0.5 }\n{ \"type\": \"suite\", \"event\": \"ok\", \"passed\": 1, \"failed\": 0, \"ignored\": 0 }\n";
    let (events, transcript) = libtest_run(&["a"], text);
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(transcript.is_complete() && transcript.explains_exit(0));
}

#[test]
fn tests_that_never_begin_are_skipped() {
    let text = "[ RUN      ] A.c\n[       OK ] A.c (0 ms)\n[ RUN      ] A.e\n[       OK ] A.e (0 ms)\n[----------] 2 tests from A (0 ms total)\n\n";
    let (events, transcript) = gtest_run(&["A.a", "A.b", "A.c", "A.d", "A.e"], &format!("{text}{RAN}"));
    assert_eq!(summary(&events), ["begun 2", "passed 2", "begun 4", "passed 4"]);
    assert!(transcript.is_complete());
}

#[test]
fn unselected_test_affects_no_result() {
    let text = "[ RUN      ] S.a*b\n[       OK ] S.a*b (0 ms)\n[ RUN      ] S.axb\nf.cc:1: Failure\nbad\n[  FAILED  ] S.axb (0 ms)\n[----------] 2 tests from S (0 ms total)\n\n[==========] 2 tests from 1 test suite ran. (0 ms total)\n[  PASSED  ] 1 test.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] S.axb\n";
    let (events, transcript) = gtest_run(&["S.a*b"], text);
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(transcript.explains_exit(1) && transcript.outside_failure().is_none());
}

#[test]
fn parameter_value_does_not_hide_end_marker() {
    let value = "\"(3 ms) [ RUN      ] P.b/1\"\nline (x ms)\n";
    let text = format!(
        "[ RUN      ] P.b/0\n[  FAILED  ] P.b/0, where GetParam() = {value} (12 ms)\n[----------] 1 test from P (0 ms total)\n"
    );
    let (events, _) = gtest_run(&["P.b/0"], &text);
    assert_eq!(summary(&events), ["begun 0", "failed 0"]);
}

#[test]
fn output_without_times_is_parsed() {
    let text = "[ RUN      ] A.a\n[       OK ] A.a\n[ RUN      ] A.b\n[  FAILED  ] A.b\n[----------] Global test environment tear-down\n";
    let (events, transcript) = gtest_run(&["A.a", "A.b"], &format!("{text}{RAN}"));
    assert_eq!(summary(&events), ["begun 0", "passed 0", "begun 1", "failed 1"]);
    assert!(transcript.is_complete());
}

#[test]
fn filter_note_is_dropped() {
    let note = format!("Running main() from x\nNote: Google Test filter = {}\n", "A.a:".repeat(100_000));
    let (events, _) = gtest_run(&["A.a"], &format!("{note}[==========] Running 1 test\n[ RUN      ] A.a\n"));
    assert_eq!(output(&events), "Running main() from x\n[==========] Running 1 test\n");
}

#[test]
fn megabyte_name_is_parsed() {
    let name = format!("L.{}", "n".repeat(1 << 20));
    let text =
        format!("[ RUN      ] {name}\n[       OK ] {name} (0 ms)\n[----------] 1 test from L (0 ms total)\n");
    let (events, _) = replay("gtest", &tests([name]), text.as_bytes().chunks(65_536));
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
}

/// Feeds a flood of output after the test began; returns the maximum number of buffered bytes.
fn flood<G: MarkerGrammar>(mut follower: StreamParser<G>, head: &str, piece: &[u8], total: usize) -> usize {
    let mut events = Vec::new();
    follower.on_stdout(head.as_bytes(), &mut events);
    let (mut fed, mut emitted, mut most) = (0, 0, 0);
    while fed < total {
        events.clear();
        follower.on_stdout(piece, &mut events);
        fed += piece.len();
        most = most.max(follower.buffered_bytes());
        emitted += output_bytes(&events);
    }
    events.clear();
    follower.on_output_end(&mut events);
    assert!(emitted <= fed + head.len());
    assert!(!events.iter().any(|event| matches!(event, TranscriptEvent::Ended { .. })));
    most
}

fn output_bytes(events: &[TranscriptEvent]) -> usize {
    let bytes =
        |event: &TranscriptEvent| if let TranscriptEvent::Output(bytes) = event { bytes.len() } else { 0 };
    events.iter().map(bytes).sum()
}

#[test]
fn flood_without_newline_is_not_buffered() {
    let given = tests(["A.a", "A.b"]);
    let given: Vec<_> = given.iter().collect();
    let piece = vec![b'x'; 1 << 16];
    let begin = "[ RUN      ] A.a\n";
    assert!(flood(gtest::gtest_parser(&given), begin, &piece, 200 << 20) < 1 << 18);
    let started = "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"A.a\" }\n";
    assert!(flood(libtest::follow_events(&given), started, &piece, 200 << 20) < 1 << 18);
    assert!(flood(libtest::follow_plain(&given), "test A.a ... ", &piece, 200 << 20) < 1 << 18);
}

#[test]
fn flood_of_partial_markers_is_not_buffered() {
    let given = tests(["A.a", "A.b"]);
    let given: Vec<_> = given.iter().collect();
    let begin = "[ RUN      ] A.a\n";
    for piece in ["[", "[       OK ] A.a (", "[  FAILED  ] A.a (1234567890123456789", "\n[ RUN      ] "] {
        let most = flood(gtest::gtest_parser(&given), begin, piece.repeat(4000).as_bytes(), 2 << 20);
        assert!(most < 1 << 19, "{piece} holds {most}");
    }
    let where_value = format!("{begin}[  FAILED  ] A.a, where GetParam() = ");
    assert!(flood(gtest::gtest_parser(&given), &where_value, &[b'v'; 65_536], 8 << 20) < 1 << 19);
    let started = "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"A.a\" }\n";
    let failed = "{ \"type\": \"test\", \"name\": \"A.a\", \"event\": \"failed\", \"stdout\": \"";
    for (head, piece, total) in [
        ("", "{", 2 << 20),
        ("", "{ \"type\": \"test\", ", 2 << 20),
        (failed, "all that it wrote\\n", 16 << 20),
    ] {
        let text = format!("{started}{head}");
        let most = flood(libtest::follow_events(&given), &text, piece.repeat(4000).as_bytes(), total);
        assert!(most < 8 << 20, "{piece} holds {most}");
    }
    for piece in ["o", "ok", "FAILE", "ignored, x"] {
        let most =
            flood(libtest::follow_plain(&given), "test A.a ... ", piece.repeat(4000).as_bytes(), 2 << 20);
        assert!(most < 1 << 19, "{piece} holds {most}");
    }
}

#[test]
fn long_failure_output_keeps_head_tail_and_reason() {
    let begin = "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"a\" }\n";
    let panic = "\\nthread 'a' (1) panicked at src/l.rs:5:1:\\nassertion `left == right` failed\\n  left: 1\\n right: 2\\n";
    for (lines, is_cut) in [(10_000, false), (1_000_000, true)] {
        let flood = "a \\\"line\\\" \\u0001\\n".repeat(lines);
        let text = format!(
            "{begin}{{ \"type\": \"test\", \"name\": \"a\", \"event\": \"failed\", \"exec_time\": 1.5, \"stdout\": \"first\\n{flood}{panic}\" }}\n{{ \"type\": \"suite\", \"event\": \"failed\", \"passed\": 0, \"failed\": 1, \"ignored\": 0 }}\n"
        );
        let (events, transcript) = replay("libtest", &tests(["a"]), text.as_bytes().chunks(65_536));
        assert!(transcript.is_complete() && transcript.explains_exit(101));
        let Some(TranscriptEvent::Ended { verdict, .. }) = events.get(1) else {
            panic!("no end: {:?}", summary(&events))
        };
        let [failure] = verdict.failures.as_slice() else { panic!("{verdict:?}") };
        assert_eq!((verdict.result, failure.line), (FrameworkResult::Failed, Some(5)));
        assert_eq!((failure.actual.as_deref(), failure.expected.as_deref()), (Some("1"), Some("2")));
        assert_eq!(verdict.duration, Some(std::time::Duration::from_millis(1500)));
        let stdout = verdict.stdout.as_ref().unwrap();
        assert!(stdout.starts_with("first\na \"line\" \u{1}\n") && stdout.ends_with(" right: 2\n"));
        assert_eq!(stdout.contains("bytes omitted"), is_cut);
    }
}

const FRAGMENTS: [&str; 24] = [
    "[ RUN      ] A.a\n",
    "[ RUN      ] A.b\n",
    "[ RUN      ] A.c\n",
    "[       OK ] A.a (0 ms)\n",
    "[       OK ] A.b (0 ms)\n",
    "[  FAILED  ] A.a (1 ms)\n",
    "[  FAILED  ] A.b, where GetParam() = ",
    "[  SKIPPED ] A.c (1 ms)\n",
    "[----------] 3 tests from A (0 ms total)\n",
    "[==========] 3 tests from 1 test suite ran.",
    "[       OK ] ",
    "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"A.a\" }\n",
    "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"A.b\" }\n",
    "{ \"type\": \"test\", \"name\": \"A.a\", \"event\": \"ok\" }\n",
    "{ \"type\": \"test\", \"name\": \"A.b\", \"event\": \"failed\", \"stdout\": \"",
    "{ \"type\": \"suite\", \"event\": \"ok\", \"passed\": 2, \"failed\": 0, \"ignored\": 0 }\n",
    "test A.a ... ",
    "test A.b - should panic ... ",
    "ok\n",
    "FAILED\n",
    "\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n",
    "f.cc:3: Failure\n",
    "ignored, why\n",
    " }\n",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let fragment = proptest::sample::select(&FRAGMENTS[..]).prop_map(|text| text.as_bytes().to_vec());
    let torn = (proptest::sample::select(&FRAGMENTS[..]), 0_usize..40)
        .prop_map(|(text, length)| text.as_bytes()[..length.min(text.len())].to_vec());
    let random_bytes = proptest::collection::vec(any::<u8>(), 0..20);
    proptest::collection::vec(prop_oneof![6 => fragment, 1 => torn, 1 => random_bytes], 0..20)
        .prop_map(|pieces| pieces.concat())
}

fn pass_marker(framework: &str, name: &str) -> String {
    match framework {
        "gtest" => format!("[       OK ] {name}"),
        "libtest" => format!("{{ \"type\": \"test\", \"name\": \"{name}\", \"event\": \"ok\""),
        _ => "ok\n".to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_stream_never_panics_or_forges_pass(
        bytes in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let given = tests(["A.a", "A.b", "A.c"]);
        for framework in ["gtest", "libtest", "libtest-plain"] {
            let (whole, _) = replay(framework, &given, [bytes.as_slice()]);
            let mut in_flight = None;
            for event in &whole {
                match event {
                    TranscriptEvent::Begun { place } => prop_assert!(in_flight.replace(*place).is_none()),
                    TranscriptEvent::Ended { place, verdict } => {
                        prop_assert_eq!(in_flight.take(), Some(*place));
                        let marker = pass_marker(framework, &given[*place].name);
                        let is_there = memchr::memmem::find(&bytes, marker.as_bytes()).is_some();
                        prop_assert!(verdict.result != FrameworkResult::Passed || is_there);
                    }
                    TranscriptEvent::Output(_)
                    | TranscriptEvent::ErrorOutput(_)
                    | TranscriptEvent::TestOutput { .. }
                    | TranscriptEvent::Paused { .. }
                    | TranscriptEvent::Resumed { .. }
                    | TranscriptEvent::Part { .. }
                    | TranscriptEvent::TimeLimit { .. }
                    | TranscriptEvent::File { .. }
                    | TranscriptEvent::Confirmed => {}
                }
            }
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.sort_unstable();
            let mut transcript = transcript(framework, &given);
            let mut events = Vec::new();
            let mut done = 0;
            for place in places.into_iter().chain([bytes.len()]) {
                transcript.on_stdout(&bytes[done..place], &mut events);
                done = place;
            }
            transcript.on_output_end(&mut events);
            prop_assert_eq!(merge(events), whole, "{}", framework);
        }
    }
}
