//! Replays recorded sessions of real applications: every client request with the messages that followed it,
//! whole and cut at every byte.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use heeler_core::Outcome;
use heeler_protocol::{control::ListedTest, frame, rpc};
use serde_json::{Value, json};

use super::{listing::MtpListing, names::Selector, transcript::MtpParser};
use crate::{
    ConnectionInput, DeathEvidence, ListingDialogue as _, ListingOutput, TranscriptEvent,
    TranscriptParser as _,
};

/// Messages are read in two pieces: cut at every byte of their headers, and at every seventh byte of bodies
/// up to this size. Larger bodies are cut at every 97th byte. All messages are also read byte by byte.
const SMALL_BYTES: usize = 6 << 10;
/// Larger than the headers of any recorded message.
const HEADER_BYTES: usize = 120;

/// How messages are split into reads.
#[derive(Debug, Clone, Copy)]
enum Pieces {
    Two(usize),
    Bytes,
}

impl Pieces {
    fn of(self, frame: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Two(cut) => {
                let (head, tail) = frame.split_at(cut.min(frame.len()));
                vec![head, tail]
            }
            Self::Bytes => frame.chunks(1).collect(),
        }
    }
}

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/mtp")
}

/// A request of a recorded session and the replies.
struct RecordedRequest {
    is_run: bool,
    /// The selected tests; `None` for all.
    tests: Option<Vec<Value>>,
    /// Connection and message in order of arrival, with the ids that our parser uses.
    replies: Vec<(usize, Value)>,
}

struct RecordedSession {
    requests: Vec<RecordedRequest>,
    stderr: String,
    exit: Option<i64>,
}

fn read(path: &Path) -> RecordedSession {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut connections: Vec<String> = Vec::new();
    let index = |connections: &mut Vec<String>, line: &Value| {
        let name = line["conn"].as_str().unwrap_or_default().to_owned();
        connections.iter().position(|known| *known == name).unwrap_or_else(|| {
            connections.push(name);
            connections.len() - 1
        })
    };
    let is_from = |line: &Value, direction: &str| line["dir"] == direction && line["msg"].is_object();
    let mut initialize: HashMap<usize, Value> = HashMap::new();
    let mut opening = Vec::new();
    let mut requests = Vec::new();
    for line in lines.iter().filter(|line| line["msg"].is_object()) {
        let (connection, message) = (index(&mut connections, line), &line["msg"]);
        if is_from(line, "c2s") {
            match message["method"].as_str() {
                Some("initialize") => drop(initialize.insert(connection, message["id"].clone())),
                Some("testing/runTests" | "testing/discoverTests") => {
                    requests.push((connection, message.clone()));
                }
                _ => {}
            }
        } else if initialize.get(&connection) == Some(&message["id"]) && message["result"].is_object() {
            let mut message = message.clone();
            message["id"] = json!(1);
            opening.push((connection, message));
            initialize.insert(connection, Value::Null);
        }
    }
    let of = |(connection, request): (usize, Value)| {
        let run_id = request["params"]["runId"].as_str().unwrap_or_default().to_lowercase();
        let mut replies = opening.clone();
        for line in lines.iter().filter(|line| is_from(line, "s2c")) {
            let (from, mut message) = (index(&mut connections, line), line["msg"].clone());
            let of_run = message["params"]["runId"].as_str().map(str::to_lowercase);
            let is_response =
                message["method"].is_null() && message["id"] == request["id"] && from == connection;
            if is_response && opening.iter().all(|(_, known)| known["result"] != message["result"]) {
                message["id"] = json!(2);
            } else if message["method"].is_null() || of_run.is_some_and(|one| one != run_id) {
                continue;
            }
            replies.push((from, message));
        }
        RecordedRequest {
            is_run: request["method"] == "testing/runTests",
            tests: request["params"]["tests"].as_array().cloned(),
            replies,
        }
    };
    let requests = requests.into_iter().map(of).collect();
    let note = |begin: &str| {
        lines.iter().filter_map(|line| line["note"].as_str()).find(|note| note.starts_with(begin))
    };
    let stderr = lines.iter().find(|line| line["note"] == "stderr of the process");
    let stderr = stderr.and_then(|line| line["text"].as_str()).map(str::to_owned);
    let stderr = stderr.or_else(|| note("stderr text").map(|note| note.replace("\\n", "\n")));
    let exit = note("process ended: code ").and_then(|note| note.rsplit(' ').next()?.parse().ok());
    RecordedSession { requests, stderr: stderr.unwrap_or_default(), exit }
}

impl RecordedRequest {
    /// Returns the tests that the request selects. A run of all tests selects every reported test.
    fn listed(&self) -> Vec<ListedTest> {
        let mut nodes: BTreeMap<String, String> = BTreeMap::new();
        let changes = self.replies.iter().filter_map(|(_, message)| message["params"]["changes"].as_array());
        let reported = changes.flatten().map(|change| &change["node"]);
        for node in self.tests.iter().flatten().chain(reported.filter(|_| self.tests.is_none())) {
            let text = |member: &str| node[member].as_str().unwrap_or_default().to_owned();
            nodes.entry(text("uid")).or_insert_with(|| text("display-name"));
        }
        let test = |(uid, display_name): (String, String)| ListedTest {
            name: display_name.clone(),
            selector: Some(Selector { uid, display_name, function: None }.to_text()),
            ..ListedTest::default()
        };
        nodes.into_iter().map(test).collect()
    }

    fn frames(&self) -> Vec<(usize, Vec<u8>)> {
        let frame = |(connection, message): &(usize, Value)| {
            (*connection, frame::encode(message.to_string().as_bytes()).to_vec())
        };
        self.replies.iter().map(frame).collect()
    }
}

/// Returns the events of a replay with messages read in these pieces.
fn replay(request: &RecordedRequest, stderr: &str, pieces: Pieces) -> (Vec<TranscriptEvent>, MtpParser) {
    let listed = request.listed();
    let mut parser = MtpParser::new(&listed.iter().collect::<Vec<_>>());
    let mut events = Vec::new();
    let connections = request.replies.iter().map(|(connection, _)| connection + 1).max().unwrap_or(0);
    for connection in 0..connections {
        parser.on_connection(connection, ConnectionInput::Opened, &mut events);
    }
    for (connection, frame) in request.frames() {
        for piece in pieces.of(&frame) {
            parser.on_connection(connection, ConnectionInput::Bytes(piece), &mut events);
        }
    }
    parser.on_output_end(&mut events);
    if !parser.is_complete() {
        parser.on_death(&DeathEvidence { stderr, ..DeathEvidence::default() }, &mut events);
    }
    (events, parser)
}

fn describe(events: &[TranscriptEvent], listed: &[ListedTest]) -> String {
    let mut text = String::new();
    for event in events {
        let name = |place: &usize| format!("{:?}", listed[*place].name.chars().take(60).collect::<String>());
        match event {
            TranscriptEvent::Begun { place } => writeln!(text, "  begun {}", name(place)),
            TranscriptEvent::Ended { place, verdict } => {
                let outcome = Outcome::from(verdict.result);
                writeln!(text, "  {outcome:?} {}", name(place))
            }
            TranscriptEvent::Part { place, part } => {
                writeln!(text, "  part of {}: {:?} {:?}", name(place), part.name, part.result)
            }
            TranscriptEvent::File { place, path, .. } => writeln!(text, "  file of {}: {path}", name(place)),
            TranscriptEvent::Confirmed => writeln!(text, "  confirmed"),
            TranscriptEvent::TimeLimit { place, .. } => writeln!(text, "  limit of {}", name(place)),
            TranscriptEvent::Output(_)
            | TranscriptEvent::ErrorOutput(_)
            | TranscriptEvent::TestOutput { .. } => writeln!(text, "  output"),
            TranscriptEvent::Paused { place } => writeln!(text, "  paused {}", name(place)),
            TranscriptEvent::Resumed { place } => writeln!(text, "  resumed {}", name(place)),
        }
        .unwrap();
    }
    text
}

fn all_sessions() -> Vec<(String, RecordedSession)> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(transcripts()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let session = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        name.ends_with(".jsonl").then(|| (name, read(&path)))
    };
    paths.into_iter().filter_map(session).collect()
}

#[test]
fn every_recorded_session_is_read() {
    let mut text = String::new();
    let sessions = all_sessions();
    assert!(sessions.len() >= 70, "{}", sessions.len());
    for (name, session) in &sessions {
        for (number, request) in session.requests.iter().enumerate() {
            writeln!(text, "{name}, request {number}, exit {:?}", session.exit).unwrap();
            if !request.is_run {
                text.push_str(&describe_listing(request, Pieces::Two(0)));
                continue;
            }
            let (events, parser) = replay(request, &session.stderr, Pieces::Two(0));
            text.push_str(&describe(&events, &request.listed()));
            writeln!(
                text,
                "  complete: {}, culprit: {:?}, failure: {:?}",
                parser.is_complete(),
                parser.culprit(),
                parser.outside_failure().map(|failure| failure.chars().take(100).collect::<String>())
            )
            .unwrap();
            for failure in parser.fixture_failures() {
                writeln!(text, "  fixture {}", failure.fixture.suite).unwrap();
            }
        }
    }
    let golden = transcripts().with_file_name("mtp.events");
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&golden).unwrap(), text);
}

fn describe_listing(request: &RecordedRequest, pieces: Pieces) -> String {
    let mut dialogue = MtpListing::default();
    let connections = request.replies.iter().map(|(connection, _)| connection + 1).max().unwrap_or(0);
    for connection in 0..connections {
        dialogue.on_connection(connection, ConnectionInput::Opened);
    }
    for (connection, frame) in request.frames() {
        for piece in pieces.of(&frame) {
            dialogue.on_connection(connection, ConnectionInput::Bytes(piece));
        }
    }
    match dialogue.finish(&ListingOutput { code: Some(0), ..ListingOutput::default() }) {
        Ok(listing) => {
            let mut names: Vec<String> =
                listing.tests.iter().map(|test| format!("  {:?}\n", test.name)).collect();
            let listed = names.len();
            names.dedup();
            assert_eq!(names.len(), listed);
            names.concat()
        }
        Err(error) => format!("  {error}\n"),
    }
}

#[test]
fn messages_are_the_same_wherever_they_are_cut() {
    for (name, session) in all_sessions() {
        for request in session.requests.iter().filter(|request| request.is_run) {
            let (expected, _) = replay(request, &session.stderr, Pieces::Two(0));
            assert_eq!(replay(request, &session.stderr, Pieces::Bytes).0, expected, "{name} byte by byte");
            let longest = request.frames().iter().map(|(_, frame)| frame.len()).max().unwrap_or(0);
            // Headers are cut at every byte; a body is read as a whole, by its length.
            let step = if longest <= SMALL_BYTES { 7 } else { 97 };
            for cut in (1..longest).filter(|cut| *cut <= HEADER_BYTES || cut % step == 0) {
                let pieces = Pieces::Two(cut);
                assert_eq!(replay(request, &session.stderr, pieces).0, expected, "{name} cut at {cut}");
            }
        }
        for request in session.requests.iter().filter(|request| !request.is_run) {
            let whole = describe_listing(request, Pieces::Two(0));
            assert_eq!(describe_listing(request, Pieces::Bytes), whole, "{name} byte by byte");
        }
    }
}

#[test]
fn requests_are_in_ascii() {
    let selector = Selector { uid: "ü".into(), display_name: "𝄞 \"\n".into(), function: None };
    let test = ListedTest { selector: Some(selector.to_text()), ..ListedTest::default() };
    let mut parser = MtpParser::new(&[&test]);
    let opening = parser.on_connection(0, ConnectionInput::Opened, &mut Vec::new());
    let reply = json!({"jsonrpc": "2.0", "id": 1, "result": {"capabilities": {"testing": {"supportsDiscovery": true}}}});
    let frame = frame::encode(reply.to_string().as_bytes());
    let request = parser.on_connection(0, ConnectionInput::Bytes(&frame), &mut Vec::new());
    assert!(opening.is_ascii() && request.is_ascii());
    let text = String::from_utf8(request).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let message = rpc::parse(body.as_bytes()).unwrap();
    let rpc::RpcMessage::Request { id, params, .. } = message else { panic!("{body}") };
    let params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
    assert_eq!((id.to_string().as_str(), &params["tests"][0]["uid"]), ("2", &json!("ü")));
    assert_eq!(params["tests"][0]["display-name"], "𝄞 \"\n");
}

/// Runs three tests against an application that answers each request with `answer`. Returns the events, the
/// number of tests in each request, and whether the run is complete.
fn converse(answer: impl Fn(&[String]) -> Value) -> (Vec<TranscriptEvent>, Vec<usize>, bool) {
    let test = |uid: &str| {
        let selector = Selector { uid: uid.into(), display_name: uid.into(), function: None };
        ListedTest { name: uid.into(), selector: Some(selector.to_text()), ..ListedTest::default() }
    };
    let tests = ["a", "b", "c"].map(test);
    let mut parser = MtpParser::new(&tests.iter().collect::<Vec<_>>());
    let (mut events, mut sizes) = (Vec::new(), Vec::new());
    parser.on_connection(0, ConnectionInput::Opened, &mut events);
    let mut reply = json!({"id": 1, "result": {"capabilities": {"testing": {"supportsDiscovery": true}}}});
    loop {
        let frame = frame::encode(reply.to_string().as_bytes());
        let request = parser.on_connection(0, ConnectionInput::Bytes(&frame), &mut events);
        if request.is_empty() {
            return (events, sizes, parser.is_complete());
        }
        let text = String::from_utf8(request).unwrap();
        let body: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let uids = body["params"]["tests"].as_array().unwrap().iter();
        let uids: Vec<String> = uids.map(|node| node["uid"].as_str().unwrap().to_owned()).collect();
        sizes.push(uids.len());
        reply = answer(&uids);
        reply["id"] = body["id"].clone();
    }
}

#[test]
fn request_that_is_refused_because_of_one_test_is_halved() {
    let (events, sizes, is_complete) = converse(|uids| {
        if uids.contains(&"b".to_owned()) {
            return json!({"error": {"code": -32603, "message": "unexpected word"}});
        }
        json!({"result": {}})
    });
    assert_eq!((sizes, is_complete), (vec![3, 1, 2, 1, 1], true));
    let reasons: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            TranscriptEvent::Ended { place, verdict } => {
                Some((*place, verdict.reason.as_deref()?.len() > 60))
            }
            _ => None,
        })
        .collect();
    assert_eq!(reasons.len(), 3, "{events:?}");
    let refused = events.iter().any(|event| {
        matches!(event, TranscriptEvent::Ended { place: 1, verdict }
            if verdict.reason.as_deref().is_some_and(|reason| reason.contains("unexpected word")))
    });
    assert!(refused, "{events:?}");
}

/// Returns the body of the single request in these bytes.
fn request_body(request: &[u8]) -> Value {
    let text = std::str::from_utf8(request).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn process_that_has_listed_its_tests_goes_on_with_a_run() {
    let reply = |value: Value| frame::encode(value.to_string().as_bytes());
    let node = |uid: &str, state: &str| json!({"node": {"uid": uid, "display-name": uid, "node-type": "action", "execution-state": state}});
    let update = |number: u64, changes: Value| {
        let params = json!({"runId": format!("00000000-0000-4000-8000-{number:012x}"), "changes": changes});
        reply(json!({"method": "testing/testUpdates/tests", "params": params}))
    };
    let mut listing = MtpListing::default();
    listing.stay();
    listing.on_connection(0, ConnectionInput::Opened);
    let capabilities = json!({"capabilities": {"testing": {"supportsDiscovery": true}}});
    let mut send = |frame: &[u8]| listing.on_connection(0, ConnectionInput::Bytes(frame));
    let discover = request_body(&send(&reply(json!({"id": 1, "result": capabilities}))));
    assert_eq!((&discover["id"], &discover["method"]), (&json!(2), &json!("testing/discoverTests")));
    send(&update(2, json!([node("a", "discovered"), node("b", "discovered")])));
    assert_eq!(send(&reply(json!({"id": 2, "result": {}}))), b"", "it is not asked to exit");
    assert!(listing.is_waiting() && listing.awaited_reply().is_none());
    let listed = listing.finish(&ListingOutput { code: Some(0), ..ListingOutput::default() }).unwrap();
    let mut parser = Box::new(listing).continue_with(&listed.tests.iter().collect::<Vec<_>>()).unwrap();
    let mut events = Vec::new();
    let run = request_body(&parser.opening_request(&mut events));
    assert_eq!((&run["id"], &run["method"]), (&json!(3), &json!("testing/runTests")));
    for frame in [
        // A late update of the listing concerns no test of the run.
        update(2, Value::Null),
        update(3, json!([node("a", "passed"), node("b", "failed")])),
        reply(json!({"id": 3, "result": {}})),
    ] {
        parser.on_connection(0, ConnectionInput::Bytes(&frame), &mut events);
    }
    let text = describe(&events, &listed.tests);
    assert_eq!(text, "  begun \"a\"\n  Passed \"a\"\n  begun \"b\"\n  Failed \"b\"\n  confirmed\n");
    assert!(parser.is_complete() && parser.takes_more_tests());
}

#[test]
fn process_that_cannot_list_its_tests_does_not_wait() {
    let mut listing = MtpListing::default();
    listing.stay();
    listing.on_connection(0, ConnectionInput::Opened);
    let replies = [
        json!({"id": 1, "result": {"capabilities": {"testing": {"supportsDiscovery": true}}}}),
        json!({"id": 2, "error": {"code": -32603, "message": "no"}}),
    ];
    let requests = replies.map(|reply| {
        listing.on_connection(0, ConnectionInput::Bytes(&frame::encode(reply.to_string().as_bytes())))
    });
    assert_eq!(request_body(&requests[1])["method"], "exit");
    assert!(!listing.is_waiting());
    assert!(Box::new(listing).continue_with(&[]).is_none());
}
