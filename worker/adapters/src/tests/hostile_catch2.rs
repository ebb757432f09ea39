//! Hostile outputs of Catch2 programs: forged, cut and endless elements, and unselected tests.

use super::{output, replay, summary, tests, transcript};
use crate::{TranscriptEvent, TranscriptParser, catch2};

fn begin(name: &str, line: u32) -> String {
    format!("  <TestCase name=\"{name}\" filename=\"t.cc\" line=\"{line}\">\n")
}

fn end(is_success: bool) -> String {
    format!(
        "    <OverallResult success=\"{is_success}\" skips=\"0\" durationInSeconds=\"0.1\"/>\n  </TestCase>\n"
    )
}

const LAST: &str = "  <OverallResults successes=\"1\" failures=\"0\" expectedFailures=\"0\" skips=\"0\"/>\n  <OverallResultsCases successes=\"1\" failures=\"0\" expectedFailures=\"0\" skips=\"0\"/>\n</Catch2TestRun>\n";

fn run(text: &str) -> (Vec<TranscriptEvent>, Box<dyn TranscriptParser + Send>) {
    let mut given = tests(["a", "b", "b"]);
    for (line, test) in (1..).zip(&mut given) {
        (test.file, test.line) = (Some("t.cc".to_owned()), Some(line));
    }
    replay("catch2", &given, [text.as_bytes()])
}

#[test]
fn tests_of_one_name_are_told_apart_by_their_places_in_any_order() {
    let text = [begin("b", 3), end(false), begin("b", 2), end(true), begin("a", 1), end(true)].concat();
    let (events, transcript) = run(&format!("{text}{LAST}"));
    assert_eq!(summary(&events), ["begun 2", "failed 2", "begun 1", "passed 1", "begun 0", "passed 0"]);
    assert!(transcript.is_complete() && transcript.explains_exit(42) && !transcript.explains_exit(0));
}

#[test]
fn unselected_test_affects_no_result_and_its_output_is_no_test_s() {
    let text = [begin("a", 1), end(true), begin("A", 9), "noise\n".to_owned(), end(false), LAST.to_owned()];
    let (events, transcript) = run(&text.concat());
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(transcript.explains_exit(42) && !transcript.explains_exit(0));
    let ended = events.iter().position(|event| matches!(event, TranscriptEvent::Ended { .. })).unwrap();
    assert!(output(&events[..ended]).is_empty() && output(&events[ended..]).contains("noise"));
}

#[test]
fn test_that_no_pattern_has_selected_is_named() {
    let others = [begin("c", 9), end(false), LAST.to_owned()].concat();
    for text in [format!("{}{}{others}", begin("a", 1), end(true)), others.clone()] {
        let (events, transcript) = run(&text);
        assert_eq!(transcript.unselected_test(), Some("c"), "{text}");
        assert!(!summary(&events).iter().any(|one| one.starts_with("failed")), "{events:?}");
    }
    // A name that compares equal, the same name at another location, and a test selected by a wildcard.
    let (_, transcript) =
        run(&[begin("a", 1), end(true), begin("A", 9), end(true), begin("b", 9), end(true)].concat());
    assert_eq!(transcript.unselected_test(), None);
    let mut wild = tests(["*x", "y*"]);
    wild.iter_mut().for_each(|test| test.selector = Some("~".to_owned()));
    for (other, is_named) in [("1*x", false), ("Y*2", false), ("x", true), ("*xy", true)] {
        let (_, transcript) = replay("catch2", &wild, [[begin(other, 9), end(true)].concat().as_bytes()]);
        assert_eq!(transcript.unselected_test().is_some(), is_named, "{other}");
    }
}

#[test]
fn document_closed_by_the_signal_handler_proves_nothing() {
    let crash =
        "    <FatalErrorCondition filename=\"t.cc\" line=\"1\">\n      SIGSEGV\n    </FatalErrorCondition>\n";
    for crash in [
        crash,
        &format!(
            "    <Expression success=\"false\" type=\"CHECK\" filename=\"t.cc\" line=\"1\">\n      <Original>\n        x\n      </Original>\n      <Expanded>\n        x\n      </Expanded>\n{crash}    </Expression>\n"
        ),
    ] {
        let text = [begin("a", 1), crash.to_owned(), end(false), LAST.to_owned()].concat();
        let (events, transcript) = run(&text);
        assert_eq!(summary(&events), ["begun 0"], "{crash}");
        assert!(!transcript.is_complete() && !transcript.is_after_end_marker());
    }
}

#[test]
fn captured_output_is_the_test_s_output_byte_for_byte() {
    let written = "a &lt;b> &amp;lt; \u{fc}\n\n  indented\n";
    let result = format!(
        "    <OverallResult success=\"true\" skips=\"0\">\n      <StdOut>\n{written}      </StdOut>\n    </OverallResult>\n  </TestCase>\n"
    );
    let text = [begin("a", 1), result, LAST.to_owned()].concat();
    let (events, _) = run(&text);
    assert_eq!(summary(&events), ["begun 0", "passed 0"]);
    assert!(output(&events).starts_with("a <b> &lt; \u{fc}\n\n  indented\n"), "{:?}", output(&events));
    for cut in 0..text.len() {
        let mut transcript = transcript("catch2", &tests(["a"]));
        let mut events = Vec::new();
        transcript.on_stdout(&text.as_bytes()[..cut], &mut events);
        transcript.on_output_end(&mut events);
        assert!(!summary(&events).contains(&"failed 0".to_owned()));
    }
}

#[test]
fn floods_are_not_buffered() {
    let given = tests(["a", "b"]);
    let given: Vec<_> = given.iter().collect();
    let begin = "  <TestCase name=\"a\" filename=\"\" line=\"0\">\n";
    for (head, piece) in [
        ("", "x"),
        ("", " "),
        ("", "<"),
        ("", "<Expression success=\""),
        ("<Expression success=\"true\">\n", "<Original>\n"),
        ("<OverallResult success=\"true\">\n<StdOut>\n", "x"),
        ("<OverallResult success=\"true\">\n<StdOut>\n", " "),
        ("<OverallResult success=\"true\">\n<StdOut>\n", "&"),
        ("<Catch2TestRun ", "x"),
        ("<Info>\n", "\n"),
    ] {
        let mut parser = catch2::catch2_parser(&given);
        let mut events = Vec::new();
        parser.on_stdout(format!("{begin}{head}").as_bytes(), &mut events);
        let flood = piece.repeat(65_536 / piece.len());
        for _ in 0..16 {
            events.clear();
            parser.on_stdout(flood.as_bytes(), &mut events);
            assert!(parser.buffered_bytes() < 1 << 19, "{head}{piece} holds {}", parser.buffered_bytes());
        }
    }
    let mut parser = catch2::console_parser(given[0]);
    let mut events = Vec::new();
    parser.opening_request(&mut events);
    for piece in ["x", "9", "\n", "f.cc:3: FAILED:\n", "====================\n"] {
        for _ in 0..16 {
            events.clear();
            parser.on_stdout(piece.repeat(65_536 / piece.len()).as_bytes(), &mut events);
            assert!(parser.buffered_bytes() < 1 << 19, "{piece} holds {}", parser.buffered_bytes());
        }
    }
}
