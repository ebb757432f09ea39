//! Dialogues with servers of both eras, cut at every byte, and the verdicts of all kinds of answers.

use std::collections::BTreeMap;

use heeler_protocol::control::{ListedTest, TestProgram};
use serde_json::{Value, json};

use super::{adapter::Mcp, listing::McpListing, message::LINE_LIMIT_BYTES, transcript::McpParser};
use crate::{
    Adapter as _, AdapterListing, FrameworkResult, FrameworkVerdict, ListingDialogue as _, ListingError,
    ListingOutput, TranscriptEvent, TranscriptParser as _,
};

/// Recorded with the fixture server in each era, and with servers based on two libraries.
const RECORDINGS: [&str; 4] = ["mcp-modern", "mcp-legacy", "mcp-sdk-1", "mcp-sdk-2"];

fn recorded(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn program(arguments: &[(&str, Value)]) -> TestProgram {
    let arguments: BTreeMap<_, _> =
        arguments.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    TestProgram { suite: "s".into(), test_arguments: arguments, ..TestProgram::default() }
}

fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

fn well() -> ListingOutput {
    ListingOutput { code: Some(0), ..ListingOutput::default() }
}

/// The requests of a listing dialogue, and its listing.
struct Listed {
    requests: Vec<Value>,
    listing: Result<AdapterListing, ListingError>,
}

impl Listed {
    fn methods(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request["method"].as_str().unwrap_or("answer")).collect()
    }

    fn error(&self) -> String {
        self.listing.as_ref().unwrap_err().to_string()
    }

    fn names(&self) -> Vec<&str> {
        self.listing.as_ref().unwrap().tests.iter().map(|test| test.name.as_str()).collect()
    }
}

fn requests(bytes: &[u8]) -> Vec<Value> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn list_pieces(program: &TestProgram, pieces: &[&[u8]]) -> Listed {
    let mut dialogue = McpListing::new(program);
    let mut bytes = dialogue.opening_request();
    pieces.iter().for_each(|piece| bytes.extend(dialogue.on_reply(piece)));
    Listed { requests: requests(&bytes), listing: dialogue.finish(&well()) }
}

fn list(replies: &str) -> Listed {
    list_pieces(&program(&[]), &[replies.as_bytes()])
}

fn discovered() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": ["2026-07-28"]}})
}

fn page(id: u64, tools: &[Value], cursor: Option<&str>) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools, "nextCursor": cursor}})
}

fn error(id: u64, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn replay(tests: &[ListedTest], pieces: &[&[u8]]) -> (Vec<TranscriptEvent>, Vec<Value>, McpParser) {
    let mut parser = McpParser::new(&tests.iter().collect::<Vec<_>>());
    let mut bytes = parser.opening_request(&mut Vec::new());
    let mut events = Vec::new();
    pieces.iter().for_each(|piece| bytes.extend(parser.on_channel(piece, &mut events)));
    parser.on_output_end(&mut events);
    (events, requests(&bytes), parser)
}

#[test]
fn recorded_dialogues_are_the_same_wherever_they_are_cut() {
    for name in RECORDINGS {
        let listing = recorded(&format!("{name}.list"));
        let run = recorded(&format!("{name}.stdout"));
        let arguments = program(&[]);
        let whole = list_pieces(&arguments, &[&listing]);
        let listed = format!("{:#?}\n", whole.listing);
        // Servers list no variants and no other file names.
        let is_always = |line: &str| ["variant: None,", "reported_file: None,"].contains(&line.trim());
        let listed = listed.lines().filter(|line| !is_always(line));
        let listed: String = listed.map(|line| format!("{line}\n")).collect();
        let mut text = format!("{:?}\n{listed}", whole.methods());
        let tests: Vec<_> =
            whole.listing.unwrap().tests.into_iter().filter(|test| test.skip.is_none()).collect();
        for cut in 0..=listing.len() {
            let (head, tail) = listing.split_at(cut);
            let cut_listing = list_pieces(&arguments, &[head, tail]);
            assert_eq!(cut_listing.requests, whole.requests, "{name} cut at {cut}");
        }
        let (events, _, parser) = replay(&tests, &[&run]);
        assert!(parser.is_complete() && parser.explains_exit(0), "{name}");
        let mut parser = McpParser::new(&tests.iter().collect::<Vec<_>>());
        let mut bytes = parser.opening_request(&mut Vec::new());
        bytes.extend(parser.on_channel(&run, &mut Vec::new()));
        for event in &events {
            text.push_str(&format!("{event:#?}\n"));
        }
        let expected = format!("{name}.events");
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
            std::fs::write(dir.join(&expected), &text).unwrap();
        }
        assert!(text.as_bytes() == recorded(&expected), "{name} gives:\n{text}");
        for cut in 0..=run.len() {
            let (head, tail) = run.split_at(cut);
            let mut parser = McpParser::new(&tests.iter().collect::<Vec<_>>());
            let (mut asked, mut pieces) = (parser.opening_request(&mut Vec::new()), Vec::new());
            asked.extend(parser.on_channel(head, &mut pieces));
            // A server may die at any byte.
            assert!(!parser.is_complete() || cut == run.len(), "{name} is complete at {cut}");
            asked.extend(parser.on_channel(tail, &mut pieces));
            parser.on_output_end(&mut pieces);
            assert!(pieces == events && asked == bytes, "{name} differs when cut at {cut}");
        }
    }
}

#[test]
fn era_is_found_by_the_answer_to_discover() {
    let modern = list(&lines(&[discovered(), page(3, &[tool("mcp.test.a")], None)]));
    assert_eq!(modern.methods(), ["server/discover", "tools/list"]);
    assert_eq!(
        modern.requests[1]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    for reply in [
        error(1, -32601),
        error(1, -32602),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "", "data": {"supported": ["2025-06-18"]}}}),
    ] {
        let legacy = list(&lines(&[
            reply,
            json!({"jsonrpc": "2.0", "id": 2, "result": {"protocolVersion": "2025-11-25"}}),
            page(3, &[tool("mcp.test.a")], None),
        ]));
        let methods = ["server/discover", "initialize", "notifications/initialized", "tools/list"];
        assert_eq!(
            (legacy.methods().as_slice(), legacy.names().as_slice()),
            (&methods[..], &["mcp.test.a"][..])
        );
        assert_eq!(legacy.requests[3]["params"], json!({}));
    }
    let wrong_version = list(&lines(&[error(1, -32022), page(3, &[], None)]));
    assert_eq!(wrong_version.methods(), ["server/discover", "tools/list"], "it shows that it is modern");
    let later = json!({"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": ["2099-01-01"]}});
    assert_eq!(
        list(&lines(&[later])).error(),
        "invalid mcp listing: the server supports the versions [\"2099-01-01\"], not 2026-07-28"
    );
    assert!(list(&lines(&[error(1, -32601), error(2, -32603)])).error().contains("initialize failed"));
}

#[test]
fn silence_after_discover_opens_with_a_handshake_and_a_late_answer_still_counts() {
    let arguments = program(&[]);
    let mut dialogue = McpListing::new(&arguments);
    dialogue.opening_request();
    assert_eq!(dialogue.reply_timeout(), Some(std::time::Duration::from_secs(10)));
    let asked = requests(&dialogue.on_reply_timeout());
    assert_eq!((asked[0]["method"].as_str(), dialogue.reply_timeout()), (Some("initialize"), None));
    let late = lines(&[discovered(), error(2, -32022), page(3, &[tool("mcp.test.late")], None)]);
    let asked = requests(&dialogue.on_reply(late.as_bytes()));
    assert_eq!((asked.len(), asked[0]["method"].as_str()), (1, Some("tools/list")));
    assert!(asked[0]["params"]["_meta"].is_object(), "it is modern");
    assert_eq!(dialogue.awaited_reply(), None);
    assert_eq!(dialogue.finish(&well()).unwrap().tests.len(), 1);
}

#[test]
fn tools_are_ordered_by_priority_and_name_and_their_metadata_is_found_in_all_places() {
    let metadata = json!({"category": "c", "priority": 1, "timeout": 5000});
    let mut top = tool("mcp.test.z.top");
    top["testMetadata"] = metadata.clone();
    let mut meta = tool("mcp.test.y.meta");
    meta["_meta"] = json!({"testMetadata": metadata});
    let mut prefixed = tool("mcp.test.x.prefixed");
    prefixed["_meta"] = json!({"org.example/testMetadata": metadata});
    let mut wrong = tool("mcp.test.protocol.wrong");
    wrong["testMetadata"] = json!({"priority": "high", "timeout": 0, "category": 3});
    let first = page(3, &[tool("echo"), tool("mcp.test.capabilities"), top], Some("next"));
    let listed = list(&lines(&[discovered(), first, page(4, &[meta, prefixed, wrong], None)]));
    assert_eq!(listed.requests[2]["params"]["cursor"], "next");
    assert_eq!(
        listed.names(),
        [
            "mcp.test.x.prefixed",
            "mcp.test.y.meta",
            "mcp.test.z.top",
            "mcp.test.capabilities",
            "mcp.test.protocol.wrong"
        ]
    );
    let listing = listed.listing.unwrap();
    let tags = |place: usize| {
        let test: &ListedTest = &listing.tests[place];
        let tags: Vec<_> = test.traits.iter().map(|tag| format!("{}={}", tag.name, tag.value)).collect();
        (tags.join(" "), test.timeout_ms)
    };
    for place in 0..3 {
        assert_eq!(tags(place), ("category=c priority=1".to_owned(), Some(5000)));
    }
    assert_eq!(tags(3), ("category=capabilities priority=3".to_owned(), None));
    assert_eq!(tags(4), ("category=protocol priority=3".to_owned(), Some(1)));
    assert_eq!(
        listing.warnings,
        [
            "mcp.test.protocol.wrong: testMetadata.priority is not a number: \"high\"",
            "mcp.test.protocol.wrong: testMetadata.timeout is 0 ms; using 1 ms (allowed: 1 ms to 10 min)"
        ]
    );
}

#[test]
fn missing_tests_and_output_between_messages_are_warnings() {
    let text =
        format!("Listening\n{}", lines(&[discovered(), page(3, &[tool("mcp.test.protocol.a")], None)]));
    let arguments = program(&[("mcp.test.gone", json!({}))]);
    let listed = list_pieces(&arguments, &[text.as_bytes()]);
    assert_eq!(
        listed.listing.unwrap().warnings,
        [
            "does not list the required test mcp.test.capabilities",
            "writes non-MCP output to standard output: \"Listening\"",
            "has no tool \"mcp.test.gone\", although arguments are configured for it"
        ]
    );
    let none = list(&lines(&[discovered(), error(3, -32601)]));
    assert_eq!((none.names().len(), none.listing.unwrap().warnings.len()), (0, 2));
}

#[test]
fn arguments_come_from_the_suite_or_the_schema() {
    let mut takes = tool("mcp.test.takes");
    takes["inputSchema"] = json!({
        "required": ["a", "b", "c", "d", "e"],
        "properties": {
            "a": {"const": 1, "default": 2}, "b": {"default": null}, "c": {"enum": ["x", "y"]},
            "d": {"examples": [[3]]}, "e": {"type": "string"}, "optional": {"default": 1}
        }
    });
    let replies = lines(&[discovered(), page(3, &[takes], None)]);
    let without = list(&replies).listing.unwrap().tests.remove(0);
    assert_eq!(without.skip.as_deref(), Some("needs an argument: e"));
    let given = program(&[("mcp.test.takes", json!({"e": "E", "a": 9}))]);
    let test = list_pieces(&given, &[replies.as_bytes()]).listing.unwrap().tests.remove(0);
    assert_eq!(test.skip, None);
    let opened = lines(&[discovered()]);
    let (_, asked, _) = replay(&[test], &[opened.as_bytes()]);
    assert_eq!(asked[1]["params"]["arguments"], json!({"a": 9, "b": null, "c": "x", "d": [3], "e": "E"}));
    assert_eq!(asked[1]["params"]["_meta"]["progressToken"], 2);
}

#[test]
fn damaged_listings_are_one_error() {
    let end = |reply: Value| list(&lines(&[discovered(), reply])).error();
    for (reply, expected) in [
        (page(3, &[tool("mcp.test.a"), tool("mcp.test.a")], None), "duplicate tool name \"mcp.test.a\""),
        (json!({"jsonrpc": "2.0", "id": 3, "result": {}}), "the tools/list response has no list of tools"),
        (page(3, &[json!({"name": 3})], None), "the tools/list response has a tool without a name"),
        (error(3, -32000), "tools/list failed: error -32000: no"),
        (
            json!({"jsonrpc": "2.0", "id": "3", "result": {}}),
            "it exited with code 0 before answering tools/list",
        ),
    ] {
        assert_eq!(end(reply), format!("invalid mcp listing: {expected}"));
    }
    let looping = list(&lines(&[discovered(), page(3, &[], Some("a")), page(4, &[], Some("a"))]));
    assert!(looping.error().contains("returned the cursor \"a\" twice"), "{}", looping.error());
    let pages = (0..100).map(|number| page(3 + number, &[], Some(&number.to_string())));
    let endless = list(&lines(&[discovered()].into_iter().chain(pages).collect::<Vec<_>>()));
    assert!(endless.error().ends_with("tools/list returned more than 100 pages"), "{}", endless.error());
    let chatty = list("Hello\n");
    assert!(chatty.error().ends_with("; it wrote non-MCP output to standard output: \"Hello\""));
    let arguments = program(&[]);
    let died = ListingOutput { code: Some(3), stderr: b"no database".to_vec(), ..ListingOutput::default() };
    let error = Mcp.read_listing(&arguments, &[died]).unwrap_err().to_string();
    assert_eq!(error, "it exited with code 3; its output:\nno database");
}

#[test]
fn requests_of_the_server_are_answered() {
    let asked = lines(&[
        json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
        json!({"jsonrpc": "2.0", "id": 0, "method": "roots/list"}),
    ]);
    for answers in [list(&asked).requests[1..].to_vec(), replay(&[], &[asked.as_bytes()]).1[1..].to_vec()] {
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
        assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(0), &json!(-32601)));
    }
}

fn modern_test(name: &str) -> ListedTest {
    let replies = lines(&[discovered(), page(3, &[tool(name)], None)]);
    list(&replies).listing.unwrap().tests.remove(0)
}

/// Returns the verdict of the only test, given the text after the opening.
fn verdict_after(text: &str) -> FrameworkVerdict {
    let all = format!("{}{text}", lines(&[discovered()]));
    let (events, ..) = replay(&[modern_test("mcp.test.a")], &[all.as_bytes()]);
    match events.into_iter().find(|event| matches!(event, TranscriptEvent::Ended { .. })) {
        Some(TranscriptEvent::Ended { verdict, .. }) => verdict,
        other => panic!("{other:?}"),
    }
}

fn verdict(result: Value) -> (FrameworkResult, String) {
    let verdict = verdict_after(&lines(&[json!({"jsonrpc": "2.0", "id": 2, "result": result})]));
    let failures: Vec<_> = verdict.failures.into_iter().filter_map(|failure| failure.message).collect();
    (verdict.result, verdict.reason.unwrap_or(failures.join(" | ")))
}

#[test]
fn verdicts_of_all_answers() {
    use FrameworkResult::{Failed, Passed, Skipped};
    let structured = |value: Value| json!({"content": [], "structuredContent": value});
    let text =
        |value: Value| json!({"content": [{"type": "image"}, {"type": "text", "text": value.to_string()}]});
    let details = |passed: &[&str], failed: &[&str], skipped: &[&str]| json!({"passed": passed, "failed": failed, "skipped": skipped});
    for (answer, result, message) in [
        (structured(json!({"success": true, "duration": 1})), Passed, ""),
        (text(json!({"success": true})), Passed, ""),
        (
            structured(json!({"success": true, "details": details(&["a"], &["b", "c"], &[])})),
            Failed,
            "success is true, but 2 assertions failed: b; c",
        ),
        (
            structured(json!({"success": false, "message": "m", "details": details(&[], &["x"], &[])})),
            Failed,
            "m",
        ),
        (text(json!({"success": false, "details": details(&[], &["x", "y"], &[])})), Failed, "x | y"),
        (structured(json!({"success": false})), Failed, "success is false, without a message"),
        (
            structured(json!({"success": true, "details": details(&[], &[], &["net"])})),
            Skipped,
            "skipped all of its assertions: net",
        ),
        (structured(json!({"success": true, "details": details(&["a"], &[], &["net"])})), Passed, ""),
        (
            json!({"isError": true, "content": [{"type": "text", "text": "boom"}]}),
            Failed,
            "answered with an error: boom",
        ),
        (json!({"isError": true}), Failed, "answered with an error without text"),
        (
            json!({"isError": true, "structuredContent": {"success": true}}),
            Failed,
            "success is true, but isError is set",
        ),
        (
            structured(json!({"success": true, "details": {"passed": ["a"], "failed": "b is wrong"}})),
            Failed,
            "success is true, but 1 assertion failed: b is wrong",
        ),
        (
            structured(json!({"success": true, "details": {"failed": {"b": 1}}})),
            Failed,
            "success is true, but 1 assertion failed: {\"b\":1}",
        ),
        (
            structured(json!({"success": true, "failed": ["b"]})),
            Failed,
            "success is true, but 1 assertion failed: b",
        ),
        (structured(json!({"success": true, "details": {"failed": 0, "skipped": ""}})), Passed, ""),
        (
            json!({"structuredContent": {"success": true}, "content": [{"type": "text", "text": "{\"success\": false}"}]}),
            Failed,
            "contradictory results: success is both true and false",
        ),
        (json!({"content": [{"type": "text", "text": "hi"}]}), Failed, "answered with no test result: hi"),
        (structured(json!({"success": "yes"})), Failed, "answered with no test result"),
        (json!(null), Failed, "answered with no test result"),
        (
            json!({"resultType": "input_required", "inputRequests": {"who": {"params": {"message": "name?"}}}}),
            Skipped,
            "needs input: name?",
        ),
    ] {
        assert_eq!(verdict(answer.clone()), (result, message.to_owned()), "{answer}");
    }
}

#[test]
fn error_counts_beside_a_result() {
    let mut both = error(2, -32000);
    for (answer, message) in [
        (both.clone(), "answered with error -32000: no"),
        (
            {
                both["result"] = json!({"structuredContent": {"success": true}});
                both
            },
            "answered with error -32000: no (the response also has a result)",
        ),
    ] {
        let error = verdict_after(&lines(&[answer]));
        assert_eq!(error.failures[0].message.as_deref(), Some(message));
    }
    let null =
        json!({"jsonrpc": "2.0", "id": 2, "error": null, "result": {"structuredContent": {"success": true}}});
    assert_eq!(verdict_after(&lines(&[null])).result, FrameworkResult::Passed);
}

#[test]
fn other_output_fails_its_test_and_hides_no_answer() {
    let passed =
        lines(&[json!({"jsonrpc": "2.0", "id": 2, "result": {"structuredContent": {"success": true}}})]);
    for text in [
        format!("debug {{1}}\n{passed}"),
        format!("debug {{1}}{passed}"),
        format!("debug {{1}}\r\n\n{passed}"),
    ] {
        let verdict = verdict_after(&text);
        assert_eq!(verdict.result, FrameworkResult::Failed, "{text}");
        let message = verdict.failures[0].message.as_deref();
        assert_eq!(message, Some("wrote non-MCP output to standard output: \"debug {1}\""), "{text}");
    }
    // Output before the first test fails no test.
    let (events, ..) = replay(
        &[modern_test("mcp.test.a")],
        &[format!("hello\n{}{passed}", lines(&[discovered()])).as_bytes()],
    );
    assert!(
        matches!(
            &events[..],
            [
                TranscriptEvent::Output(_),
                TranscriptEvent::Begun { place: 0 },
                TranscriptEvent::Ended {
                    verdict: FrameworkVerdict { result: FrameworkResult::Passed, .. },
                    ..
                }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn line_without_end_fails_its_test_and_is_not_kept() {
    let mut parser = McpParser::new(&[&modern_test("mcp.test.a"), &modern_test("mcp.test.b")]);
    let mut events = Vec::new();
    parser.on_channel(lines(&[discovered()]).as_bytes(), &mut events);
    let piece = vec![b'x'; LINE_LIMIT_BYTES / 4];
    let mut requests = Vec::new();
    for _ in 0..6 {
        requests.extend(parser.on_channel(&piece, &mut events));
    }
    let late = format!("\n{}", lines(&[json!({"jsonrpc": "2.0", "id": 2, "result": {}})]));
    assert!(parser.on_channel(late.as_bytes(), &mut events).is_empty(), "the late answer is dropped");
    assert!(!requests.is_empty(), "the next tool is called");
    let summary: Vec<_> = events
        .iter()
        .map(|event| match event {
            TranscriptEvent::Begun { place } => format!("begun {place}"),
            TranscriptEvent::Ended { place, verdict } => format!("{} {place}", verdict.result.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(summary, ["begun 0", "failed 0", "begun 1"]);
}

#[test]
fn cancelled_call_has_no_end_and_nothing_follows() {
    let tests = [modern_test("mcp.test.a"), modern_test("mcp.test.b")];
    let mut parser = McpParser::new(&tests.iter().collect::<Vec<_>>());
    let mut events = Vec::new();
    assert!(parser.cancel_request("early").is_empty(), "nothing is open");
    parser.on_channel(lines(&[discovered()]).as_bytes(), &mut events);
    let cancelled = requests(&parser.cancel_request("too slow"));
    assert_eq!(cancelled[0]["method"], "notifications/cancelled");
    assert_eq!(
        (&cancelled[0]["params"]["requestId"], &cancelled[0]["params"]["reason"]),
        (&json!(2), &json!("too slow"))
    );
    assert!(cancelled[0]["params"]["_meta"].is_object());
    let late =
        lines(&[json!({"jsonrpc": "2.0", "id": 2, "result": {"structuredContent": {"success": true}}})]);
    assert!(parser.on_channel(late.as_bytes(), &mut events).is_empty());
    assert_eq!(events, [TranscriptEvent::Begun { place: 0 }]);
    assert!(parser.is_over() && !parser.is_complete() && parser.cancel_request("again").is_empty());
}

#[test]
fn answers_that_were_not_asked_for_end_no_test() {
    let result = json!({"structuredContent": {"success": true}});
    let text = lines(&[
        discovered(),
        json!({"jsonrpc": "2.0", "id": "2", "result": result}),
        json!({"jsonrpc": "2.0", "id": 7, "result": result}),
        json!({"jsonrpc": "2.0", "id": 2, "result": result}),
        json!({"jsonrpc": "2.0", "id": 2, "result": result}),
    ]);
    let (events, ..) = replay(&[modern_test("mcp.test.a"), modern_test("mcp.test.b")], &[text.as_bytes()]);
    let ends = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. })).count();
    let notes = events.iter().filter(|event| matches!(event, TranscriptEvent::Output(_))).count();
    assert_eq!((ends, notes, events.len()), (1, 2, 5), "{events:?}");
}

#[test]
fn second_answer_that_contradicts_the_first_is_a_fault_of_the_server() {
    let answer = |id: u64, success: bool| json!({"jsonrpc": "2.0", "id": id, "result": {"structuredContent": {"success": success}}});
    let tests = [modern_test("mcp.test.a"), modern_test("mcp.test.b")];
    for (second, fault) in [
        (answer(2, true), None),
        (answer(2, false), Some("the server answered the call to mcp.test.a twice with different results")),
        (error(2, -32000), Some("the server answered the call to mcp.test.a twice with different results")),
    ] {
        let text = lines(&[discovered(), answer(2, true), second, answer(3, false)]);
        let (events, _, parser) = replay(&tests, &[text.as_bytes()]);
        let ends = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. })).count();
        assert_eq!((ends, parser.outside_failure()), (2, fault));
        assert_eq!(parser.explains_exit(0), fault.is_none());
    }
}

#[test]
fn refused_opening_and_unknown_calls_are_faults_of_the_server() {
    let (events, _, parser) = replay(&[modern_test("mcp.test.a")], &[lines(&[error(1, -32603)]).as_bytes()]);
    assert!(events.is_empty() && parser.is_over() && !parser.is_complete() && !parser.explains_exit(0));
    assert_eq!(parser.outside_failure(), Some("server/discover failed: error -32603: no"));
    let unknown = lines(&[discovered(), error(2, -32601)]);
    let (_, _, parser) = replay(&[modern_test("mcp.test.a")], &[unknown.as_bytes()]);
    assert!(parser.is_complete() && !parser.explains_exit(0));
    assert_eq!(parser.outside_failure(), Some("the server does not support tools/call: error -32601: no"));
}

#[test]
fn command_that_runs_a_test_again_starts_its_server() {
    let mut program = program(&[]);
    (program.path, program.cwd) = ("/bin/node".into(), "/w x".into());
    program.args = vec!["a b.js".into()];
    program.env = vec![("KEY".into(), Some("v".into()))];
    let again = Mcp.reproduce_command(&program, &modern_test("mcp.test.a"));
    assert_eq!(
        again,
        r"(cd '/w x' && KEY=v heeler run --mcp '/bin/node '\''a b.js'\''' -E 'test(=mcp.test.a)')"
    );
    let args =
        std::mem::replace(&mut program.args, vec!["__mcp-http".into(), "http://localhost:1/mcp".into()]);
    let again = Mcp.reproduce_command(&program, &modern_test("mcp.test.a"));
    assert_eq!(
        again, "(cd '/w x' && KEY=v heeler run --mcp http://localhost:1/mcp -E 'test(=mcp.test.a)')",
        "a server that is reached at an address"
    );
    program.args = args;
    program.test_arguments.insert("mcp.test.a".into(), "{}".into());
    let again = Mcp.reproduce_command(&program, &modern_test("mcp.test.a"));
    assert_eq!(again, "(cd '/w x' && KEY=v heeler run -E 'test(=mcp.test.a) & suite(=s)')");
}
