//! Output of test programs. No bytes cause a panic, an event of a nonexistent test, or events that depend on
//! how the bytes were split; and everything listed can be selected.

use std::path::Path;

use heeler_adapters::{Adapter, BatchSelection, ListingOutput, SelectionScope, TranscriptEvent, by_name};
use heeler_protocol::control::{ListedTest, TestProgram};

use super::pieces::pieces;

const NAMES: [&str; 4] = ["A.a", "A.b", "P/C.t/0", "m::c"];

/// Checks the parser of a GoogleTest program's output during a run.
pub fn gtest_transcript(bytes: &[u8]) {
    transcript("gtest", bytes);
}

/// Checks the parser of a libtest program's output during a run, in both forms.
pub fn libtest_transcript(bytes: &[u8]) {
    transcript("libtest", bytes);
    transcript("libtest-plain", bytes);
    transcript("rustdoc", bytes);
}

/// Checks the parser of a doctest program's output during a run.
pub fn doctest_transcript(bytes: &[u8]) {
    transcript("doctest", bytes);
}

/// Checks the parsers of reports as JSON lines, on a channel and on standard output. Several tests may run at
/// once; each begins at most once, and ends at most once after that.
pub fn json_lines_transcript(bytes: &[u8]) {
    for framework in ["json-lines", "json-lines-stdio"] {
        let (whole, pieces) = pieces(bytes);
        let (events, requests) = replay_dialogue(framework, &[whole]);
        let mut states = [0; NAMES.len()];
        for event in &events {
            let (place, state) = match event {
                TranscriptEvent::Begun { place } => (place, 0),
                TranscriptEvent::Part { place, .. } | TranscriptEvent::Ended { place, .. } => (place, 1),
                TranscriptEvent::Output(_) => continue,
            };
            assert_eq!(states[*place], state, "{framework}: {event:?}");
            states[*place] = if matches!(event, TranscriptEvent::Ended { .. }) { 2 } else { 1 };
        }
        assert_eq!(replay_dialogue(framework, &pieces), (events, requests), "cut otherwise, {framework}");
    }
}

fn replay_dialogue(framework: &str, pieces: &[&[u8]]) -> (Vec<TranscriptEvent>, Vec<u8>) {
    let tests = NAMES.map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
    let mut transcript = adapter(framework).transcript_parser(&tests.iter().collect::<Vec<_>>());
    let (mut events, mut requests) = (Vec::new(), transcript.opening_request());
    pieces.iter().for_each(|piece| requests.extend(transcript.on_channel(piece, &mut events)));
    transcript.on_output_end(&mut events);
    assert!(!(transcript.explains_exit(0) && transcript.outside_failure().is_some()));
    (merge(events), requests)
}

fn adapter(framework: &str) -> &'static dyn Adapter {
    by_name(framework).expect("one of ours")
}

fn transcript(framework: &str, bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let events = replay(framework, &[whole]);
    let mut in_flight = None;
    for event in &events {
        match event {
            TranscriptEvent::Begun { place } => {
                assert!(*place < NAMES.len());
                assert_eq!(in_flight.replace(*place), None, "a test begins while another one runs");
            }
            TranscriptEvent::Ended { place, .. } => {
                assert_eq!(in_flight.take(), Some(*place), "the test that ends is the one that runs");
            }
            TranscriptEvent::Part { place, .. } => assert_eq!(in_flight, Some(*place)),
            TranscriptEvent::Output(_) => {}
        }
    }
    assert_eq!(replay(framework, &pieces), events, "cut otherwise, {framework}");
}

fn replay(framework: &str, pieces: &[&[u8]]) -> Vec<TranscriptEvent> {
    let tests = NAMES.map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
    let mut transcript = adapter(framework).transcript_parser(&tests.iter().collect::<Vec<_>>());
    let mut events = Vec::new();
    pieces.iter().for_each(|piece| transcript.on_stdout(piece, &mut events));
    transcript.on_output_end(&mut events);
    assert!(!(transcript.explains_exit(0) && transcript.outside_failure().is_some()));
    merge(events)
}

/// Merges output events, because their splitting has no meaning.
fn merge(events: Vec<TranscriptEvent>) -> Vec<TranscriptEvent> {
    let mut merged: Vec<TranscriptEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(TranscriptEvent::Output(before)), TranscriptEvent::Output(bytes)) => before.extend(bytes),
            (_, event) => merged.push(event),
        }
    }
    merged
}

/// Checks GoogleTest's listings: the file, and the text of old versions.
pub fn gtest_listing(bytes: &[u8]) {
    listing("gtest", &[ListingOutput { file: Some(bytes.to_vec()), ..printed(bytes) }]);
    listing("gtest", &[printed(bytes)]);
}

/// Checks libtest's listings: JSON, and the two terse ones.
pub fn libtest_listing(bytes: &[u8]) {
    let (_, pieces) = pieces(bytes);
    listing("libtest", &[printed(bytes)]);
    let refused = ListingOutput { code: Some(101), ..printed(b"") };
    listing("libtest", &[refused, printed(pieces[0]), printed(pieces[pieces.len() - 1])]);
}

/// Checks doctest's listing.
pub fn doctest_listing(bytes: &[u8]) {
    listing("doctest", &[printed(bytes)]);
}

/// Checks listings as JSON lines, on a channel and on standard output.
pub fn json_lines_listing(bytes: &[u8]) {
    listing("json-lines", &[ListingOutput { channel: bytes.to_vec(), ..printed(b"") }]);
    listing("json-lines-stdio", &[printed(bytes)]);
}

fn printed(bytes: &[u8]) -> ListingOutput {
    ListingOutput { stdout: bytes.to_vec(), code: Some(0), ..ListingOutput::default() }
}

fn listing(framework: &str, outputs: &[ListingOutput]) {
    let program = TestProgram { path: "/p".into(), cwd: "/".into(), ..TestProgram::default() };
    let _more = adapter(framework).next_listing(&program, outputs, Path::new("/scratch"));
    let listing = match adapter(framework).read_listing(&program, outputs) {
        Ok(listing) => listing,
        Err(error) => {
            assert!(error.to_string().len() < 1 << 16, "an error that nobody reads to its end");
            return;
        }
    };
    let adapter = adapter(listing.framework);
    for test in &listing.tests {
        let _words = adapter.reproduce_command(&program, test);
    }
    let tests: Vec<_> = listing.tests.iter().collect();
    assert!(adapter.selectable_together(&tests) <= tests.len());
    for scope in [SelectionScope::SomeTests, SelectionScope::WholeProgram] {
        let selection = BatchSelection { tests: &tests, scope, runs_ignored: false };
        let _selected = adapter.run_command(&program, &selection, Path::new("/scratch"));
    }
    let mut events = Vec::new();
    adapter.transcript_parser(&tests).on_output_end(&mut events);
    assert!(events.is_empty());
}
