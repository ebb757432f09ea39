//! Tests with recorded output of real Go programs in both formats, and with hostile output. For all
//! frameworks, `tests/recorded.rs` compares the events of recorded transcripts, whole and cut at every byte.

use std::path::Path;

use heeler_protocol::control::ListedTest;
use proptest::prelude::*;

use super::{adapter::Go, death, goroutines::stack_text, transcript::GoParser};
use crate::{DeathCulprit, DeathEvidence, FrameworkResult, TranscriptEvent, TranscriptParser};

const VARIANTS: [(Go, &str); 2] = [(Go::Framed, "go"), (Go::Plain, "go-plain")];

fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn recorded_text(name: &str) -> String {
    String::from_utf8(recorded(name)).unwrap()
}

fn tests(names: &[&str]) -> Vec<ListedTest> {
    names.iter().map(|name| ListedTest { name: (*name).to_owned(), ..ListedTest::default() }).collect()
}

/// Returns a parser that has read the whole output, and its events.
fn parsed(variant: Go, names: &[&str], output: &[u8]) -> (GoParser, Vec<TranscriptEvent>) {
    let tests = tests(names);
    let mut parser = GoParser::new(variant, &tests.iter().collect::<Vec<_>>());
    let mut events = Vec::new();
    parser.on_stdout(output, &mut events);
    parser.on_output_end(&mut events);
    (parser, events)
}

/// Returns the result of each test that has ended.
fn ends(events: &[TranscriptEvent]) -> Vec<(usize, FrameworkResult)> {
    let end = |event: &TranscriptEvent| match event {
        TranscriptEvent::Ended { place, verdict } => Some((*place, verdict.result)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

const PARALLEL: [&str; 5] = ["TestFirst", "TestFails", "TestPanics", "TestSleeps", "TestSequential"];

#[test]
fn parallel_test_that_panics_is_named_by_standard_error() {
    for (variant, name) in VARIANTS {
        let output = recorded(&format!("{name}-parallel-died.stdout"));
        let (mut parser, mut events) = parsed(variant, &PARALLEL, &output);
        assert!(!parser.is_complete() && !parser.explains_exit(2));
        assert_eq!(parser.culprit(), DeathCulprit::RunningTests);
        let stderr = recorded_text(&format!("{name}-parallel-died.stderr"));
        parser.on_death(&DeathEvidence { stderr: &stderr, ..DeathEvidence::default() }, &mut events);
        assert_eq!(parser.culprit(), DeathCulprit::Test(2), "{name}");
        let detail = &parser.death_cause().unwrap().detail;
        assert_eq!(detail, "panic: in parallel, at /w/parallel/parallel_test.go:44");
        assert!(ends(&events).contains(&(4, FrameworkResult::Passed)), "{events:?}");
    }
}

#[test]
fn tests_that_wait_for_others_are_paused() {
    for (variant, name) in VARIANTS {
        let output = recorded(&format!("{name}-parallel.stdout"));
        let (parser, events) = parsed(variant, &PARALLEL, &output);
        let count = |is_it: &dyn Fn(&TranscriptEvent) -> bool| events.iter().filter(|one| is_it(one)).count();
        assert_eq!(count(&|one| matches!(one, TranscriptEvent::Paused { .. })), 3);
        assert_eq!(count(&|one| matches!(one, TranscriptEvent::Resumed { .. })), 3);
        assert!(parser.is_complete() && parser.explains_exit(1) && !parser.explains_exit(0));
        let written: Vec<u8> = events
            .iter()
            .filter_map(|event| match event {
                TranscriptEvent::TestOutput { place: 0, bytes, .. } => Some(bytes.as_slice()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .concat();
        let written = String::from_utf8(written).unwrap();
        assert!(written.contains("before the pause") && written.contains("after it"), "{written}");
        assert!(!written.contains("fails in parallel"), "{written}");
    }
}

#[test]
fn every_kind_of_death_is_described() {
    for (_, name) in VARIANTS {
        for (test, detail, is_named) in [
            (
                "TestNilPointer",
                "panic: runtime error: invalid memory address or nil pointer dereference, at /w/kinds/kinds.go:8",
                true,
            ),
            (
                "TestExits0",
                "panic: unexpected call to os.Exit(0) during test, at /w/kinds/kinds_test.go:69",
                true,
            ),
            ("Example_panics", "panic: in an example, at /w/kinds/kinds_test.go:154", true),
            ("TestMapRace", "fatal error: concurrent map writes, at /w/kinds/kinds_test.go:102", true),
            ("TestOverflows", "fatal error: stack overflow, at /w/kinds/kinds_test.go:109", true),
            ("TestDeadlocks", "fatal error: all goroutines are asleep - deadlock!", false),
            ("TestSegfaults", "segmentation violation", false),
        ] {
            let report = death::read(&recorded_text(&format!("{name}-{test}.stderr"))).unwrap();
            assert_eq!(report.cause.detail, detail, "{name} {test}");
            // Before Go 1.21, the outermost frames of an overflowed stack are left out.
            let is_named = is_named && (name, test) != ("go-plain", "TestOverflows");
            assert_eq!(report.functions.iter().any(|function| function == test), is_named, "{name} {test}");
        }
    }
}

#[test]
fn stack_of_a_hang_is_that_of_the_test() {
    for (_, name) in VARIANTS {
        let report = recorded_text(&format!("{name}-TestHangs.stderr"));
        let stack = stack_text(&report, "TestHangs").unwrap();
        assert!(stack.contains("kinds.TestHangs at ") && stack.contains(" other goroutine"), "{stack}");
        let divided = death::divide(&format!("before\n{report}"), &stack, "TestHangs").unwrap();
        assert_eq!((divided.stack, divided.stderr.as_str()), (stack, "before\n"));
    }
}

#[test]
fn panic_alone_is_no_ordinary_failure() {
    for (variant, name) in VARIANTS {
        let output = recorded(&format!("{name}-died.stdout"));
        let names = ["TestPasses", "TestFails", "TestSubPanics", "TestLast"];
        let (parser, events) = parsed(variant, &names, &output);
        assert_eq!(ends(&events), [(0, FrameworkResult::Passed), (1, FrameworkResult::Failed)], "{name}");
        assert!(!parser.is_after_end_marker(), "a panic's output is not an end marker");
    }
}

#[test]
fn example_that_panics_has_no_ordinary_failure() {
    let failed = "\x16=== RUN   ExampleA\n\x16--- FAIL: ExampleA (0.00s)\n\x16=== NAME   \n";
    let (parser, events) = parsed(Go::Framed, &["ExampleA", "ExampleB"], failed.as_bytes());
    assert_eq!(ends(&events), [], "the process may die of it");
    assert!(!parser.is_after_end_marker());
    for next in ["\x16=== RUN   ExampleB\n", "\x16FAIL\n"] {
        let (_, events) = parsed(Go::Framed, &["ExampleA", "ExampleB"], format!("{failed}{next}").as_bytes());
        assert_eq!(ends(&events), [(0, FrameworkResult::Failed)], "{next}");
    }
}

#[test]
fn further_executions_of_a_test_count() {
    let output = b"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== NAME  \n\x16=== RUN   TestA\n    a_test.go:1: x\n\x16--- FAIL: TestA (0.00s)\n\x16=== NAME  \n\x16FAIL\n";
    let (parser, events) = parsed(Go::Framed, &["TestA"], output);
    assert_eq!(ends(&events), [(0, FrameworkResult::Passed)]);
    assert_eq!(parser.outside_failure(), Some("TestA failed when repeated"));
    assert!(!parser.explains_exit(1) && !parser.explains_exit(0));
}

#[test]
fn tests_left_out_are_named_when_the_process_exits() {
    let output = b"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== NAME  \n\x16PASS\n";
    let (mut parser, _) = parsed(Go::Framed, &["TestA", "TestB"], output);
    let mut events = Vec::new();
    parser.on_exit(0, &mut events);
    assert_eq!(ends(&events), [(1, FrameworkResult::NotRun)]);
    let (mut parser, mut events) = parsed(Go::Framed, &["TestA", "TestB"], &output[..40]);
    parser.on_exit(0, &mut events);
    assert!(!ends(&events).iter().any(|(_, result)| *result == FrameworkResult::NotRun));
}

#[test]
fn markers_of_other_programs_are_output() {
    for (variant, frame) in [(Go::Framed, "\x16"), (Go::Plain, "")] {
        let inner = "=== RUN   TestOther\n--- PASS: TestOther (0.00s)\nPASS\n";
        let inner: String = inner.lines().map(|line| format!("{frame}{line}\n")).collect();
        let output = format!(
            "{frame}=== RUN   TestA\n{inner}{frame}--- PASS: TestA (0.00s)\n{frame}=== RUN   TestB\n{frame}--- SKIP: TestB (0.00s)\n{frame}PASS\n"
        );
        let (parser, events) = parsed(variant, &["TestA", "TestB"], output.as_bytes());
        assert_eq!(ends(&events), [(0, FrameworkResult::Passed), (1, FrameworkResult::Skipped)]);
        assert!(parser.is_complete() && parser.explains_exit(0) && parser.doubtful_since().is_none());
        let written: Vec<u8> = events
            .into_iter()
            .filter_map(|event| match event {
                TranscriptEvent::TestOutput { place: 0, bytes, .. } => Some(bytes),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(String::from_utf8(written).unwrap(), inner);
    }
}

#[test]
fn failures_are_outside_of_tests_or_contradict_the_output() {
    let run = |more: &str| {
        let text = format!("\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== NAME  \n{more}");
        parsed(Go::Framed, &["TestA", "TestB"], text.as_bytes()).0
    };
    let race = run("\x16testing: race detected outside of test execution\n\x16FAIL\n");
    assert_eq!(race.outside_failure(), Some("data race outside of any test"));
    assert!(!race.explains_exit(1) && !race.explains_exit(0));
    assert!(!run("\x16FAIL\n").explains_exit(1), "no test has failed");
    assert!(!run("\x16PASS\n").explains_exit(5), "TestMain has failed");
    assert_eq!(run("\x16--- PASS: TestB (0.00s)\n").doubtful_since(), Some(0), "it has not begun");
    assert_eq!(run("\x16PASS\n\x16--- FAIL: TestA (0.00s)\n").doubtful_since(), Some(0));
}

const HOSTILE_PIECES: [&str; 18] = [
    "=== RUN   TestA\n",
    "=== RUN   TestB\n",
    "=== RUN   TestA/b\n",
    "=== PAUSE TestA\n",
    "=== CONT  TestA\n",
    "=== NAME  TestB\n",
    "=== NAME  \n",
    "--- PASS: TestA (0.00s)\n",
    "--- FAIL: TestA (0.00s)\n",
    "--- FAIL: TestA/b (0.00s)\n",
    "    --- PASS: TestA/b (0.00s)\n",
    "--- SKIP: TestB (9.99s)\n",
    "PASS\n",
    "FAIL\n",
    "    a_test.go:3: text\n",
    "text",
    "\x16",
    "got:\n1\nwant:\n2\n",
];

proptest! {
    #[test]
    fn pieces_in_any_order_give_each_test_one_end_however_they_are_cut(
        pieces in prop::collection::vec((0..HOSTILE_PIECES.len(), any::<bool>()), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        for (variant, _) in VARIANTS {
            let mut output = Vec::new();
            for (piece, is_framed) in &pieces {
                if *is_framed && variant == Go::Framed {
                    output.push(0x16);
                }
                output.extend_from_slice(HOSTILE_PIECES[*piece].as_bytes());
            }
            let (whole, events) = parsed(variant, &["TestA", "TestB"], &output);
            let mut state = [0; 2];
            for event in &events {
                match event {
                    TranscriptEvent::Begun { place } => {
                        prop_assert_eq!(state[*place], 0);
                        state[*place] = 1;
                    }
                    TranscriptEvent::Paused { place }
                    | TranscriptEvent::Resumed { place } => prop_assert_eq!(state[*place], 1),
                    TranscriptEvent::Ended { place, .. } => {
                        prop_assert_eq!(state[*place], 1);
                        state[*place] = 2;
                    }
                    _ => {}
                }
            }
            let (head, tail) = output.split_at(cut.index(output.len() + 1));
            let tests = tests(&["TestA", "TestB"]);
            let mut parser = GoParser::new(variant, &tests.iter().collect::<Vec<_>>());
            let mut pieces = Vec::new();
            parser.on_stdout(head, &mut pieces);
            parser.on_stdout(tail, &mut pieces);
            parser.on_output_end(&mut pieces);
            prop_assert_eq!(crate::tests::merge(pieces), crate::tests::merge(events));
            prop_assert_eq!(parser.is_complete(), whole.is_complete());
        }
    }

    #[test]
    fn any_bytes_are_read_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        for (variant, _) in VARIANTS {
            let (parser, _) = parsed(variant, &["TestA"], &bytes);
            prop_assert!(parser.kept_bytes() <= bytes.len());
        }
        let text = String::from_utf8_lossy(&bytes);
        death::read(&text);
        stack_text(&text, "TestHangs");
        death::divide(&text, "", "TestHangs");
    }
}

#[test]
fn memory_is_bounded_whatever_is_written() {
    let block = b"    a_test.go:1: x\n        more\nplain\n".repeat(1000);
    for (variant, frame) in [(Go::Framed, "\x16"), (Go::Plain, "")] {
        for start in ["=== RUN   TestA\n", "=== RUN   ExampleA\n--- FAIL: ExampleA (0.00s)\n"] {
            let tests = tests(&["TestA", "ExampleA"]);
            let mut parser = GoParser::new(variant, &tests.iter().collect::<Vec<_>>());
            let mut events = Vec::new();
            let start: String = start.lines().map(|line| format!("{frame}{line}\n")).collect();
            parser.on_stdout(start.as_bytes(), &mut events);
            for _ in 0..200 {
                parser.on_stdout(&block, &mut events);
                events.clear();
            }
            assert!(parser.kept_bytes() < 2 << 20, "{}", parser.kept_bytes());
        }
    }
}
