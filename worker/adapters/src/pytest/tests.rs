//! Recorded reports and outputs of the fixture suite, parsed whole, and with each of the three streams cut at
//! every byte while the others are read before or after the cut.

use std::fmt::Write as _;

use heeler_protocol::control::ListedTest;
use proptest::prelude::*;

use super::{adapter::Pytest, transcript::PytestParser};
use crate::{
    Adapter as _, ListingOutput, TranscriptEvent, TranscriptParser as _, listing_output::AdapterListing,
};

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn recorded_listing() -> AdapterListing {
    let output = ListingOutput { channel: read("pytest.list"), code: Some(0), ..ListingOutput::default() };
    Pytest.read_listing(&heeler_protocol::control::TestProgram::default(), &[output]).unwrap()
}

/// Returns the tests of the recorded run: all that the listing does not skip.
fn recorded_tests() -> Vec<ListedTest> {
    recorded_listing().tests.into_iter().filter(|test| test.skip.is_none()).collect()
}

fn test(name: &str) -> ListedTest {
    ListedTest { name: name.to_owned(), ..ListedTest::default() }
}

fn parser_of(names: &[&str]) -> PytestParser {
    let tests: Vec<ListedTest> = names.iter().map(|name| test(name)).collect();
    PytestParser::new(&tests.iter().collect::<Vec<_>>())
}

/// Output and end of one test. Reading the streams in another order gives an equal value.
#[derive(Debug, Default, Clone, PartialEq)]
struct Parsed {
    events: Vec<String>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Feeds pieces of the three streams; returns the results before, in and after each test.
fn replay(tests: usize, pieces: &[[&[u8]; 3]]) -> Vec<Parsed> {
    let mut parser = parser_of(&vec![""; tests]);
    let mut events = Vec::new();
    for [channel, stdout, stderr] in pieces {
        parser.on_channel(channel, &mut events);
        parser.on_outputs(stdout, stderr, &mut events);
    }
    parser.on_output_end(&mut events);
    assert!(parser.is_complete() && parser.explains_exit(0), "{:?}", parser.outside_failure());
    let mut parsed = vec![Parsed::default()];
    for event in events {
        let current = parsed.last_mut().unwrap();
        match event {
            TranscriptEvent::Output(bytes) => current.stdout.extend(bytes),
            TranscriptEvent::ErrorOutput(bytes) => current.stderr.extend(bytes),
            TranscriptEvent::Part { part, .. } => current.events.push(format!("part {part:?}")),
            TranscriptEvent::Begun { place } => {
                parsed.push(Parsed { events: vec![format!("begun {place}")], ..Parsed::default() });
            }
            TranscriptEvent::Ended { place, verdict } => {
                current.events.push(format!("{} {place}: {verdict:?}", verdict.result.as_str()));
                parsed.push(Parsed::default());
            }
            other => panic!("{other:?}"),
        }
    }
    parsed
}

fn recording() -> [Vec<u8>; 3] {
    ["pytest.channel", "pytest.stdout", "pytest.stderr"].map(read)
}

#[test]
fn recorded_run_has_the_expected_events() {
    let tests = recorded_tests();
    let [channel, stdout, stderr] = recording();
    let mut text = String::new();
    for parsed in replay(tests.len(), &[[&channel, &stdout, &stderr]]) {
        for event in &parsed.events {
            match event.strip_prefix("begun ").map(|place| place.parse::<usize>().unwrap()) {
                Some(place) => writeln!(text, "begun {:?}", tests[place].name).unwrap(),
                None => writeln!(text, "  {event}").unwrap(),
            }
        }
        for (name, bytes) in [("stdout", &parsed.stdout), ("stderr", &parsed.stderr)] {
            if !bytes.is_empty() {
                writeln!(text, "  {name}: {:?}", String::from_utf8_lossy(bytes)).unwrap();
            }
        }
    }
    let golden = path("pytest.events");
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(golden).unwrap());
}

#[test]
fn recorded_run_is_the_same_wherever_it_is_cut() {
    let count = recorded_tests().len();
    let recording = recording();
    let streams = recording.each_ref().map(Vec::as_slice);
    let expected = replay(count, &[streams]);
    for cut_stream in 0..3 {
        for cut in 0..streams[cut_stream].len() {
            let (head, tail) = streams[cut_stream].split_at(cut);
            // Read the other streams completely before the rest, or with it.
            let (mut first, mut last) = (streams, [&b""[..]; 3]);
            if cut % 2 == 1 {
                (first, last) = ([&b""[..]; 3], streams);
            }
            first[cut_stream] = head;
            last[cut_stream] = tail;
            assert_eq!(replay(count, &[first, last]), expected, "cut at {cut} of {cut_stream}");
        }
    }
}

#[test]
fn recorded_listing_is_complete() {
    let listing = recorded_listing();
    let named = |name: &str| listing.tests.iter().find(|test| test.name == name).unwrap();
    assert_eq!(named("test_skipped.py").skip.as_deref(), Some("the whole file"));
    assert_eq!(
        named("test_broken.py").selector.as_deref(),
        Some("file\n/w/suite/test_broken.py\ntest_broken.py")
    );
    let method = named("test_ends.py::TestClass::test_method");
    assert_eq!(
        (method.traits[0].name.as_str(), method.file.as_deref()),
        ("slow", Some("/w/suite/test_ends.py"))
    );
    assert!(method.line.is_some());
    for name in ["calc.py::calc.add", "test_ends.py::test_parameter[new\\nline]"] {
        named(name);
    }
    for path in ["/w/suite", "/w/suite/conftest.py", "/w/suite/pytest.ini", "/w/suite/test_broken.py"] {
        assert!(
            listing.depends_on.iter().any(|one| one.to_text() == *path),
            "{path} is not in {:?}",
            listing.depends_on
        );
    }
}

#[test]
fn death_leaves_the_running_test_open_with_its_output() {
    let mut parser = parser_of(&["a", "b"]);
    let mut events = Vec::new();
    let opening = parser.opening_request(&mut events);
    assert_eq!(opening, b"{\"alone\":false,\"k\":\"run\",\"tests\":[\"a\",\"b\"],\"v\":1}\n");
    parser.on_channel(b"{\"k\":\"hello\",\"fence\":\"n\"}\n{\"k\":\"begin\",\"i\":0,\"f\":1}\n", &mut events);
    parser.on_outputs(b"\x1en 1\nlast words", b"\x1en 1\nFatal", &mut events);
    parser.on_output_end(&mut events);
    let said = |text: &[u8]| text.to_vec();
    assert_eq!(
        events,
        [
            TranscriptEvent::Begun { place: 0 },
            TranscriptEvent::Output(said(b"last words")),
            TranscriptEvent::ErrorOutput(said(b"Fatal"))
        ]
    );
    assert!(!parser.is_complete());
}

#[test]
fn process_takes_further_tests_when_its_own_have_been_passed_on() {
    let mut parser = parser_of(&["a"]);
    let mut events = Vec::new();
    parser.opening_request(&mut events);
    let run = b"{\"k\":\"hello\",\"fence\":\"n\"}\n{\"k\":\"begin\",\"i\":0,\"f\":1}\n\
        {\"k\":\"end\",\"i\":0,\"f\":2,\"state\":\"passed\"}\n{\"k\":\"done\",\"f\":2}\n";
    assert_eq!(parser.on_channel(run, &mut events), b"", "it is not stopped");
    parser.on_outputs(b"\x1en 1\nof a\x1en 2\n", b"\x1en 1\n", &mut events);
    assert!(parser.is_complete() && !parser.is_over() && !parser.takes_more_tests(), "a fence is missing");
    parser.on_outputs(b"", b"\x1en 2\n", &mut events);
    assert!(parser.is_over() && parser.takes_more_tests());
    let request = parser.add_tests(&[&test("b"), &test("c")], &mut events);
    assert_eq!(request, b"{\"alone\":false,\"k\":\"run\",\"tests\":[\"b\",\"c\"],\"v\":1}\n");
    assert!(!parser.is_complete() && !parser.is_over() && !parser.takes_more_tests());
    events.clear();
    parser.on_channel(b"{\"k\":\"begin\",\"i\":1,\"f\":3}\n", &mut events);
    parser.on_outputs(b"\x1en 3\nof c", b"\x1en 3\n", &mut events);
    assert_eq!(events, [TranscriptEvent::Begun { place: 2 }, TranscriptEvent::Output(b"of c".to_vec())]);
    parser.on_channel(b"{\"k\":\"done\",\"f\":4}\n", &mut events);
    assert!(parser.is_complete() && !parser.takes_more_tests(), "\"b\" has no end");
    assert_eq!(parser.closing_request(), b"{\"k\":\"stop\"}\n");
    assert_eq!(parser.closing_request(), b"", "once");
}

#[test]
fn fences_that_cannot_come_any_more_are_not_waited_for() {
    let mut parser = parser_of(&["a"]);
    let mut events = Vec::new();
    let run = b"{\"k\":\"hello\",\"fence\":\"n\"}\n{\"k\":\"begin\",\"i\":0,\"f\":1}\n\
        {\"k\":\"end\",\"i\":0,\"f\":2,\"state\":\"passed\"}\n{\"k\":\"done\",\"f\":2}\n";
    parser.on_channel(run, &mut events);
    parser.on_outputs(b"\x1en 1\n", b"\x1en 1\n", &mut events);
    assert!(!parser.is_over());
    for _ in 0..2 {
        parser.on_outputs(b"", b"", &mut events);
    }
    assert!(parser.is_over() && events.len() == 2, "{events:?}");
}

#[test]
fn failure_of_the_session_is_outside_of_tests() {
    let mut parser = parser_of(&["a"]);
    parser.on_channel(
        b"{\"k\":\"done\"}\n{\"k\":\"failure\",\"message\":\"m\",\"stack\":\"s\"}\n",
        &mut Vec::new(),
    );
    assert!(parser.is_complete() && !parser.explains_exit(0));
    assert_eq!(parser.outside_failure(), Some("m\ns"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_neither_panic_nor_get_lost(
        pieces in prop::collection::vec((0_usize..3, prop::collection::vec(prop::sample::select(PIECES), 0..4)), 0..20)
    ) {
        let mut parser = parser_of(&["a", "b"]);
        let (mut events, mut written) = (Vec::new(), 0);
        for (way, words) in &pieces {
            let bytes = words.concat();
            let mut ways = [&b""[..]; 3];
            ways[*way] = &bytes;
            written += ways[1].len() + ways[2].len();
            parser.on_channel(ways[0], &mut events);
            parser.on_outputs(ways[1], ways[2], &mut events);
        }
        parser.on_output_end(&mut events);
        let passed_on: usize = events.iter().map(|event| match event {
            TranscriptEvent::Output(bytes) | TranscriptEvent::ErrorOutput(bytes) => bytes.len(),
            _ => 0,
        }).sum();
        prop_assert!(passed_on <= written);
        // Each removed fence has six bytes in this test.
        prop_assert_eq!((written - passed_on) % FENCE_BYTES, 0);
    }
}

const FENCE_BYTES: usize = b"\x1en 1\n".len();
const PIECES: &[&[u8]] = &[
    b"\x1en 1\n",
    b"\x1en 2\n",
    b"\x1e",
    b"n 1\n",
    b"x",
    b"\n",
    b"\x1en 3",
    b"{\"k\":\"hello\",\"fence\":\"n\"}\n",
    b"{\"k\":\"begin\",\"i\":0,\"f\":1}\n",
    b"{\"k\":\"end\",\"i\":0,\"f\":2,\"state\":\"passed\"}\n",
    b"{\"k\":\"begin\",\"i\":1,\"f\":9}\n",
    b"{\"k\":\"done\",\"f\":2}\n",
    b"{\"k\":\"part\",\"i\":0,\"name\":\"p\"}\n",
];
