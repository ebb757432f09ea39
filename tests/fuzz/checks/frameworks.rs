//! Output of test programs. Whatever the bytes, parsers never panic, never report an event of an unknown
//! test, and report the same events wherever the bytes are split. Every listed test can be selected.

use std::path::Path;

use heeler_adapters::{
    Adapter, BatchSelection, ConnectionInput, DeathEvidence, ListingOutput, SelectionScope, TranscriptEvent,
    by_name,
};
use heeler_protocol::{
    connect::{
        JudgeFinding, JudgeReport, case_tags, decode_request, decode_response, encode_response,
        parse_judge_report,
    },
    control::{CommandRules, CommandTest, ListedTest, TestProgram, TimeoutAfterMatch},
    ctest::read_ctest_listing,
};

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

/// Checks the parsers of a Go program's output, with and without frames, and of its standard error after a
/// crash. Several tests may run at once.
pub fn go_transcript(bytes: &[u8]) {
    for framework in ["go", "go-plain"] {
        let (whole, pieces) = pieces(bytes);
        let events = replay(framework, &[whole]);
        let mut states = [0; NAMES.len()];
        for event in &events {
            let (place, expected, next) = match event {
                TranscriptEvent::Begun { place } => (place, 0, 1),
                TranscriptEvent::Part { .. } | TranscriptEvent::Output(_) => continue,
                TranscriptEvent::TestOutput { place, .. } => (place, 1, 1),
                TranscriptEvent::Paused { place } => (place, 1, 1),
                TranscriptEvent::Resumed { place } => (place, 1, 1),
                TranscriptEvent::Ended { place, .. } => (place, 1, 2),
                TranscriptEvent::ErrorOutput(_)
                | TranscriptEvent::TimeLimit { .. }
                | TranscriptEvent::File { .. }
                | TranscriptEvent::Confirmed => panic!("{event:?}"),
            };
            assert_eq!(states[*place], expected, "{framework}: {event:?}");
            states[*place] = next;
        }
        assert_eq!(replay(framework, &pieces), events, "cut otherwise, {framework}");
        let tests = NAMES.map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
        let mut parser = adapter(framework).transcript_parser(&tests.iter().collect::<Vec<_>>());
        let stderr = String::from_utf8_lossy(bytes);
        let evidence = DeathEvidence { stderr: &stderr, ..DeathEvidence::default() };
        parser.on_death(&evidence, &mut Vec::new());
        adapter(framework).read_crash_report(bytes, tests.first());
    }
}

/// Checks the parser of a report in the Test Anything Protocol.
pub fn tap_transcript(bytes: &[u8]) {
    command_run("tap", None, bytes);
}

/// Checks the parser of a command's output. The first line is a regular expression that all rules use.
pub fn command_transcript(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let expressions = vec![String::from_utf8_lossy(&bytes[..end]).into_owned()];
    let rules = CommandRules {
        pass_expressions: expressions.clone(),
        fail_expressions: expressions.clone(),
        skip_expressions: expressions.clone(),
        timeout_after_match: Some(TimeoutAfterMatch { timeout_ms: 5, expressions }),
        ..CommandRules::default()
    };
    let command = CommandTest { rules, ..CommandTest::default() };
    command_run("command", Some(command.to_selector()), &bytes[end..]);
}

/// Checks the parser of CTest's list of tests.
pub fn ctest_listing(bytes: &[u8]) {
    if let Err(error) = read_ctest_listing(bytes) {
        assert!(error.to_string().len() < 1 << 16, "an error that nobody reads to its end");
    }
}

/// Checks that a command begins once and ends once, wherever its output is split.
fn command_run(framework: &str, selector: Option<String>, bytes: &[u8]) {
    let test = ListedTest { name: "c".to_owned(), selector, ..ListedTest::default() };
    let program = TestProgram { path: "/p".into(), cwd: "/".into(), ..TestProgram::default() };
    let selection = BatchSelection {
        tests: &[&test],
        scope: SelectionScope::SomeTests,
        runs_ignored: false,
        follows_unclear_death: false,
    };
    let _refused = adapter(framework).run_command(&program, &selection, Path::new("/scratch"));
    let run = |pieces: &[&[u8]], code| {
        let mut transcript = adapter(framework).transcript_parser(&[&test]);
        let mut events = Vec::new();
        assert_eq!(transcript.opening_request(&mut events), b"");
        pieces.iter().for_each(|piece| transcript.on_stdout(piece, &mut events));
        transcript.on_output_end(&mut events);
        assert!(!transcript.is_complete() && !transcript.explains_exit(code));
        transcript.on_exit(code, &mut events);
        merge(events)
    };
    let (whole, pieces) = pieces(bytes);
    for code in [0, 7] {
        let events = run(&[whole], code);
        assert!(matches!(events.first(), Some(TranscriptEvent::Begun { place: 0 })));
        assert!(matches!(events.last(), Some(TranscriptEvent::Ended { place: 0, .. })));
        let ends = events
            .iter()
            .filter(|event| matches!(event, TranscriptEvent::Begun { .. } | TranscriptEvent::Ended { .. }));
        assert_eq!(ends.count(), 2);
        assert_eq!(run(&pieces, code), events, "cut otherwise, {framework}");
    }
}

/// Checks the parser of a Boost.Test program's output during a run.
pub fn boost_transcript(bytes: &[u8]) {
    transcript("boost", bytes);
}

/// Checks the parsers of a Catch2 program's output during a run, for several tests and for one.
pub fn catch2_transcript(bytes: &[u8]) {
    transcript("catch2", bytes);
    let test = ListedTest { name: NAMES[0].to_owned(), ..ListedTest::default() };
    let (whole, pieces) = pieces(bytes);
    let replay_one = |pieces: &[&[u8]]| {
        let mut transcript = adapter("catch2").transcript_parser(&[&test]);
        let mut events = Vec::new();
        transcript.opening_request(&mut events);
        pieces.iter().for_each(|piece| transcript.on_stdout(piece, &mut events));
        transcript.on_output_end(&mut events);
        merge(events)
    };
    let events = replay_one(&[whole]);
    let ends = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. })).count();
    assert!(matches!(events.first(), Some(TranscriptEvent::Begun { place: 0 })) && ends <= 1);
    assert_eq!(replay_one(&pieces), events, "cut otherwise");
}

/// Checks the parsers of JSON Lines reports, on a channel and on standard output. Several tests may run at
/// once. Each test begins at most once and then ends at most once.
pub fn json_lines_transcript(bytes: &[u8]) {
    for framework in ["json-lines", "json-lines-stdio"] {
        let (whole, pieces) = pieces(bytes);
        let (events, requests) = replay_dialogue(framework, &[whole]);
        let mut states = [0; NAMES.len()];
        for event in &events {
            let (place, state) = match event {
                TranscriptEvent::Begun { place } => (place, 0),
                TranscriptEvent::Part { place, .. }
                | TranscriptEvent::TestOutput { place, .. }
                | TranscriptEvent::File { place, .. }
                | TranscriptEvent::Ended { place, .. } => (place, 1),
                TranscriptEvent::Output(_)
                | TranscriptEvent::ErrorOutput(_)
                | TranscriptEvent::Paused { .. }
                | TranscriptEvent::Resumed { .. }
                | TranscriptEvent::TimeLimit { .. }
                | TranscriptEvent::Confirmed => continue,
            };
            assert_eq!(states[*place], state, "{framework}: {event:?}");
            states[*place] = if matches!(event, TranscriptEvent::Ended { .. }) { 2 } else { 1 };
        }
        assert_eq!(replay_dialogue(framework, &pieces), (events, requests), "cut otherwise, {framework}");
    }
}

/// Checks the parser of the pytest plugin's reports. Two bits of the first byte select one of three inputs
/// for each line: reports, standard output or standard error.
pub fn pytest_transcript(bytes: &[u8]) {
    let Some((ways, bytes)) = bytes.split_first() else { return };
    let mut ends = [0; NAMES.len()];
    let (whole, _) = pieces(bytes);
    let tests = NAMES.map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
    let mut parser = adapter("pytest").transcript_parser(&tests.iter().collect::<Vec<_>>());
    let (mut events, mut written, mut passed_on) = (Vec::new(), 0, 0);
    for (place, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let (mut stdout, mut stderr) = (&b""[..], &b""[..]);
        match (ways >> (place % 4 * 2)) & 3 {
            0 | 1 => drop(parser.on_channel(line, &mut events)),
            2 => stdout = line,
            _ => stderr = line,
        }
        written += stdout.len() + stderr.len();
        assert!(parser.on_outputs(stdout, stderr, &mut events));
    }
    parser.on_output_end(&mut events);
    for event in events {
        match event {
            TranscriptEvent::Begun { place } => assert_eq!(ends[place], 0),
            TranscriptEvent::Part { place, .. } => assert_eq!(ends[place], 0),
            TranscriptEvent::Ended { place, .. } => ends[place] += 1,
            TranscriptEvent::Output(bytes) | TranscriptEvent::ErrorOutput(bytes) => passed_on += bytes.len(),
            // The plugin does not send these by itself, but a fuzzed report may contain them.
            TranscriptEvent::TestOutput { .. } | TranscriptEvent::File { .. } => {}
            TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::Confirmed => panic!("{event:?}"),
        }
    }
    assert!(
        ends.iter().all(|count| *count <= 1) && passed_on <= written,
        "{ends:?}, {passed_on} of {written}"
    );
}

/// Checks the parser of a conformance client's answers and the messages themselves. One case runs at a time,
/// each case begins once, and no request follows the last case.
pub fn connect_client(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let (events, requests) = replay_dialogue("connect", &[whole]);
    let other = replay_dialogue("connect", &pieces);
    check_connect_dialogue(&events, &requests);
    check_connect_dialogue(&other.0, &other.1);
    // Extra bytes after an answer are an error only if they arrive before the next request, so the split
    // matters.
    if !events.iter().any(is_unasked) {
        assert_eq!(other, (events, requests), "cut otherwise");
    }
    if let Ok(request) = decode_request(whole) {
        assert!(case_tags(&request).len() <= 6);
    }
    if let Ok(response) = decode_response(whole) {
        assert_eq!(decode_response(&encode_response(&response)), Ok(response));
    }
}

fn is_unasked(event: &TranscriptEvent) -> bool {
    let TranscriptEvent::Ended { verdict, .. } = event else { return false };
    let mut messages = verdict.failures.iter().filter_map(|failure| failure.message.as_deref());
    messages.any(|message| message.starts_with("unexpected output after its answer"))
}

fn check_connect_dialogue(events: &[TranscriptEvent], requests: &[u8]) {
    let mut running = None;
    let mut begun = 0;
    for event in events {
        match event {
            TranscriptEvent::Begun { place } => {
                assert_eq!((running.replace(*place), *place), (None, begun));
                begun += 1;
            }
            TranscriptEvent::Ended { place, .. } => assert_eq!(running.take(), Some(*place)),
            TranscriptEvent::Part { .. }
            | TranscriptEvent::Output(_)
            | TranscriptEvent::ErrorOutput(_)
            | TranscriptEvent::TestOutput { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Confirmed => panic!("{event:?}"),
        }
    }
    assert!(begun <= NAMES.len());
    assert_eq!(requests.len(), 4 * begun, "a request for each case, and each is empty");
}

/// Checks the parser of a conformance suite's verdicts: if an accepted report is printed again, it parses to
/// the same verdicts, and it is rejected if its end is missing.
pub fn judge_report(bytes: &[u8]) {
    let Ok(report) = parse_judge_report(&String::from_utf8_lossy(bytes)) else { return };
    let text = printed_report(&report);
    assert_eq!(parse_judge_report(&text), Ok(report), "{text}");
    let cut = text.floor_char_boundary(text.len() - 1);
    assert!(parse_judge_report(&text[..cut]).is_err(), "{text}");
}

/// Returns a report as the suite prints it.
fn printed_report(report: &JudgeReport) -> String {
    let mut text = String::new();
    let mut expected = 0;
    for (case, finding) in &report.findings {
        let reason = match finding {
            JudgeFinding::UnexpectedPass => {
                text.push_str(&format!("FAILED: {case} was expected to fail but did not\n"));
                continue;
            }
            JudgeFinding::Failed(reason) => {
                text.push_str(&format!("FAILED: {case}:\n"));
                reason
            }
            JudgeFinding::FailedAsExpected(reason) => {
                expected += 1;
                text.push_str(&format!("INFO: {case} failed (as expected):\n"));
                reason
            }
        };
        text.extend(reason.split('\n').map(|line| format!("\t{line}\n")));
    }
    let (failed, passed) = (report.findings.len() - expected, report.passed);
    let total = report.findings.len() + passed;
    text.push_str(&format!("\nTotal cases: {total}\n{passed} passed, {failed} failed\n"));
    if report.not_run > 0 {
        text.push_str(&format!(
            "Another {} could not be run due to client timing out or exiting prematurely.\n",
            report.not_run
        ));
    }
    if expected > 0 {
        let end = "failed as expected due to being known failures/flakes.)";
        text.push_str(&format!("(Another {expected} {end}\n"));
    }
    text
}

/// Checks the parser of an MCP server's messages during a run: tests run one at a time, in order.
pub fn mcp_transcript(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let (events, requests) = replay_dialogue("mcp", &[whole]);
    let (mut running, mut next) = (None, 0);
    for event in &events {
        match event {
            TranscriptEvent::Begun { place } => {
                assert_eq!((running.replace(*place), *place), (None, next), "one test at a time, in order");
                next += 1;
            }
            TranscriptEvent::Part { place, .. } => assert_eq!(running, Some(*place)),
            TranscriptEvent::Ended { place, .. } => assert_eq!(running.take(), Some(*place)),
            TranscriptEvent::Output(_)
            | TranscriptEvent::ErrorOutput(_)
            | TranscriptEvent::TestOutput { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Confirmed => {}
        }
    }
    assert_eq!(replay_dialogue("mcp", &pieces), (events, requests), "cut otherwise");
}

fn replay_dialogue(framework: &str, pieces: &[&[u8]]) -> (Vec<TranscriptEvent>, Vec<u8>) {
    let tests = NAMES.map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
    let mut transcript = adapter(framework).transcript_parser(&tests.iter().collect::<Vec<_>>());
    let mut events = Vec::new();
    let mut requests = transcript.opening_request(&mut events);
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
            TranscriptEvent::Output(_)
            | TranscriptEvent::ErrorOutput(_)
            | TranscriptEvent::TestOutput { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Confirmed => {}
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

/// Merges adjacent output events, because the boundaries between them have no meaning.
fn merge(events: Vec<TranscriptEvent>) -> Vec<TranscriptEvent> {
    let mut merged: Vec<TranscriptEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(TranscriptEvent::Output(before)), TranscriptEvent::Output(bytes)) => before.extend(bytes),
            (
                Some(TranscriptEvent::TestOutput { place, stream, bytes: before }),
                TranscriptEvent::TestOutput { place: other, stream: other_stream, bytes },
            ) if *place == other && *stream == other_stream => before.extend(bytes),
            (_, event) => merged.push(event),
        }
    }
    merged
}

/// Checks GoogleTest's listings: the file, and the text output of old versions.
pub fn gtest_listing(bytes: &[u8]) {
    listing("gtest", &[ListingOutput { file: Some(bytes.to_vec()), ..printed(bytes) }]);
    listing("gtest", &[printed(bytes)]);
}

/// Checks libtest's listings: JSON, and the two terse formats.
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

/// Checks the listing of a Go program.
pub fn go_listing(bytes: &[u8]) {
    listing("go", &[printed(bytes)]);
}

/// Checks Boost.Test's listing, which is printed on standard error.
pub fn boost_listing(bytes: &[u8]) {
    listing("boost", &[ListingOutput { stderr: bytes.to_vec(), ..printed(b"") }]);
}

/// Checks Catch2's listings: JSON, XML, and the text formats of version 2.
pub fn catch2_listing(bytes: &[u8]) {
    listing("catch2", &[printed(bytes)]);
    listing("catch2", &[printed(b""), printed(bytes)]);
    let (_, pieces) = pieces(bytes);
    let tests = bytes.windows(2).filter(|pair| pair == b"\t@").count();
    let names = ListingOutput { code: i32::try_from(tests).ok(), ..printed(pieces[0]) };
    listing("catch2-v2", &[names, printed(pieces[pieces.len() - 1])]);
}

/// Checks JSON Lines listings, on a channel and on standard output.
pub fn json_lines_listing(bytes: &[u8]) {
    listing("json-lines", &[ListingOutput { channel: bytes.to_vec(), ..printed(b"") }]);
    listing("json-lines-stdio", &[printed(bytes)]);
}

/// Checks the listing of pytest's plugin.
pub fn pytest_listing(bytes: &[u8]) {
    listing("pytest", &[ListingOutput { channel: bytes.to_vec(), ..printed(b"") }]);
}

/// Checks the listing dialogue with an MCP server: it ends, and does not depend on how the responses are
/// split.
pub fn mcp_listing(bytes: &[u8]) {
    const MOST_REQUESTS: usize = 110;
    let program = TestProgram { path: "/p".into(), cwd: "/".into(), ..TestProgram::default() };
    let (whole, pieces) = pieces(bytes);
    let ask = |replies: &[&[u8]]| {
        let mut dialogue = adapter("mcp").listing_dialogue(&program).expect("it is a dialogue");
        let mut requests = dialogue.opening_request();
        replies.iter().for_each(|reply| requests.extend(dialogue.on_reply(reply)));
        let is_open = dialogue.awaited_reply().is_some();
        (requests, is_open, dialogue.finish(&printed(b"")))
    };
    let (requests, is_open, listed) = ask(&[whole]);
    assert!(!(is_open && listed.is_ok()), "a listing without its last page");
    let methods = requests.split(|byte| *byte == b'\n').filter(|line| is_request(line)).count();
    assert!(methods <= MOST_REQUESTS, "{methods} requests");
    assert_eq!(ask(&pieces), (requests, is_open, listed), "cut otherwise");
    listing("mcp", &[printed(bytes)]);
}

/// Checks the listing dialogue with an application of Microsoft Testing Platform: the result does not depend
/// on how messages are split, and a listing is complete.
pub fn mtp_listing(bytes: &[u8]) {
    let program = TestProgram { path: "/p".into(), cwd: "/".into(), ..TestProgram::default() };
    let (whole, pieces) = pieces(bytes);
    let ask = |pieces: &[&[u8]]| {
        let mut dialogue = adapter("mtp").listing_dialogue(&program).expect("it is a dialogue");
        let mut requests = dialogue.on_connection(0, ConnectionInput::Opened);
        for piece in pieces {
            requests.extend(dialogue.on_connection(0, ConnectionInput::Bytes(piece)));
        }
        let is_open = dialogue.awaited_reply().is_some();
        (requests, is_open, dialogue.finish(&printed(b"")))
    };
    let (requests, is_open, listed) = ask(&[whole]);
    assert!(requests.is_ascii());
    assert!(!(is_open && listed.is_ok()), "a listing without its end");
    assert_eq!(ask(&pieces), (requests, is_open, listed), "cut otherwise");
}

/// Checks the run dialogue with an application: the result does not depend on how messages are split, tests
/// end only after they have begun, and in a complete run each test ends.
pub fn mtp_transcript(bytes: &[u8]) {
    let test = |number: usize| ListedTest {
        name: format!("t{number}"),
        selector: Some(format!("[\"u{number}\",\"t{number}\",\"N.T.t{number}\"]")),
        ..ListedTest::default()
    };
    let tests: Vec<ListedTest> = (0..3).map(test).collect();
    let tests: Vec<&ListedTest> = tests.iter().collect();
    let (whole, pieces) = pieces(bytes);
    let run = |pieces: &[&[u8]]| {
        let mut parser = adapter("mtp").transcript_parser(&tests);
        let mut events = Vec::new();
        let mut requests = parser.on_connection(0, ConnectionInput::Opened, &mut events);
        for piece in pieces {
            requests.extend(parser.on_connection(0, ConnectionInput::Bytes(piece), &mut events));
        }
        parser.on_output_end(&mut events);
        let evidence = DeathEvidence { stderr: "   at N.T.t1()", crash_report: bytes, journal: bytes };
        parser.on_death(&evidence, &mut events);
        (events, requests, parser.is_complete(), parser.culprit())
    };
    let found = run(&[whole]);
    let (mut begun, mut ended) = ([false; 3], [false; 3]);
    for event in &found.0 {
        match event {
            TranscriptEvent::Begun { place } => assert!(!std::mem::replace(&mut begun[*place], true)),
            TranscriptEvent::Ended { place, .. } => ended[*place] = begun[*place],
            _ => {}
        }
    }
    assert!(!found.2 || ended == [true; 3], "{found:?}");
    assert!(found.1.is_ascii());
    assert_eq!(run(&pieces), found, "cut otherwise");
}

/// Returns whether a line is a request from Heeler, not a response to the server.
fn is_request(line: &[u8]) -> bool {
    let message: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    message["method"].is_string()
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
        let selection =
            BatchSelection { tests: &tests, scope, runs_ignored: false, follows_unclear_death: false };
        let _selected = adapter.run_command(&program, &selection, Path::new("/scratch"));
    }
    let mut events = Vec::new();
    adapter.transcript_parser(&tests).on_output_end(&mut events);
    assert!(events.is_empty());
}
