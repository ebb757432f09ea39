//! `heeler connect relay` between a conformance suite and many processes of a client under test. The test
//! plays the suite and a fake plays the client; if the real suite is installed, both are real.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::support::{
    process::{children, signal, state, wait_until},
    requirement,
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// Returns the request of a case that uses HTTP/2 and the gRPC protocol.
fn request(name: &str) -> Vec<u8> {
    framed(&[&[0x0a][..], &varint(name.len()), name.as_bytes(), &[0x10, 2, 0x18, 2]].concat())
}

/// A client's answer to the request of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Response,
    Error(String),
}

/// Reads the answers; each case must have exactly one.
fn answers(mut output: &[u8]) -> BTreeMap<String, Answer> {
    let mut answers = BTreeMap::new();
    while !output.is_empty() {
        let (length, rest) = output.split_first_chunk::<4>().expect("a length");
        let (message, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        output = rest;
        let (1, name, rest) = field(message) else { panic!("{message:?}") };
        let answer = match field(rest) {
            (2, _, _) => Answer::Response,
            (3, error, _) => Answer::Error(String::from_utf8(field(error).1.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        };
        let name = String::from_utf8(name.to_vec()).unwrap();
        assert_eq!(answers.insert(name, answer), None, "answered twice");
    }
    answers
}

/// Splits off a length-delimited field; returns its number, its bytes and the rest.
fn field(message: &[u8]) -> (u8, &[u8], &[u8]) {
    assert_eq!(message[0] & 7, 2, "a field with a length");
    let end = message[1..].iter().position(|byte| *byte < 0x80).unwrap() + 2;
    let length = message[1..end].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
    (message[0] >> 3, &message[end..end + length], &message[end + length..])
}

/// Returns the name of the case in a request or an answer.
pub(super) fn name_of(message: &[u8]) -> String {
    let (1, name, _) = field(message) else { panic!("{message:?}") };
    String::from_utf8(name.to_vec()).unwrap()
}

struct Suite {
    world: TestWorld,
    relay: Child,
}

pub(super) fn world() -> TestWorld {
    let world = TestWorld::with_fake("connect-client");
    world.note_starts();
    world
}

impl Suite {
    fn start(world: TestWorld, words: &[&str]) -> Self {
        let mut relay = world.heeler(&[&["connect", "relay"], words, &["--", "./connect-client"]].concat());
        relay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let relay = relay.spawn().unwrap();
        Self { world, relay }
    }

    fn ask(&mut self, names: &[&str]) {
        let requests: Vec<u8> = names.iter().flat_map(|name| request(name)).collect();
        self.relay.stdin.as_mut().unwrap().write_all(&requests).unwrap();
    }

    /// Closes standard input, which ends the requests, and waits until the relay exits.
    fn finish(mut self) -> Finished {
        drop(self.relay.stdin.take());
        let output = self.relay.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        self.world.check_tidy();
        Finished { answers: answers(&output.stdout), stderr, starts: self.world.starts().len() }
    }
}

struct Finished {
    answers: BTreeMap<String, Answer>,
    stderr: String,
    /// Number of client processes.
    starts: usize,
}

/// Behaviours that fail only the current case: the behaviour, the beginning of the error, and another part of
/// it.
const COSTS_ITS_OWN_CASE: [(&str, &str, &str); 8] = [
    ("aborts", "the client under test: crashed: ", "SIGABRT"),
    ("exits", "the client under test: exited early: ", "exited with code 0 before the test ended"),
    ("hangs", "the client under test: timed out: timed out after 2", "files ---"),
    (
        "prints",
        "the client under test: failed: ",
        "invalid answer on standard output: \"connecting to the server",
    ),
    ("answers-half", "the client under test: exited early: ", "exited with code 0"),
    (
        "answers-other",
        "the client under test: failed: ",
        "answered \"another/case\", which was not requested",
    ),
    ("answers-nothing", "the client under test: failed: ", "neither a response nor an error"),
    ("says-error", "no", "no"),
];

#[test]
fn cases_behind_slow_ones_are_taken_back_for_an_idle_process() {
    // Heeler's estimated case duration assigns all these cases to one process.
    let names: Vec<_> = (0..10).map(|number| format!("Slow/{number}/takes-200ms")).collect();
    let mut suite = Suite::start(world(), &["-j", "2"]);
    suite.ask(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let Finished { answers, stderr, starts } = suite.finish();
    assert_eq!(answers.into_values().collect::<Vec<_>>(), vec![Answer::Response; names.len()], "{stderr}");
    // One process starts, and others take over part of its cases.
    assert!(starts >= 2, "{starts} process");
}

#[test]
fn whatever_a_client_does_costs_its_own_case() {
    let mut names = Vec::new();
    for (place, (behaviour, ..)) in COSTS_ITS_OWN_CASE.iter().enumerate() {
        names.push(format!("Suite {place}/HTTPVersion:2/{behaviour}"));
        names.extend((0..5).map(|number| format!("Suite {place}/{number}/passes")));
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut suite = Suite::start(world(), &["-j", "3", "--timeout", "2s"]);
    suite.ask(&names);
    let Finished { mut answers, stderr, .. } = suite.finish();
    assert_eq!(answers.len(), names.len());
    for (place, (behaviour, start, part)) in COSTS_ITS_OWN_CASE.iter().enumerate() {
        let name = format!("Suite {place}/HTTPVersion:2/{behaviour}");
        let Some(Answer::Error(error)) = answers.remove(&name) else { panic!("{name}") };
        assert!(error.starts_with(start) && error.contains(part), "{behaviour}: {error}");
        let is_crash = *behaviour == "aborts";
        let has_stack = is_crash || *behaviour == "hangs";
        assert_eq!(error.contains("heeler_fake::connect::answer_to at "), has_stack, "{error}");
        assert_eq!(error.contains("standard error ---\nabout to abort"), is_crash, "{error}");
    }
    assert!(answers.values().all(|answer| *answer == Answer::Response), "{answers:#?}");
    assert!(stderr.contains("about to abort"), "{stderr}");
}

#[test]
fn client_that_writes_garbage_and_stays_costs_one_case_and_no_time() {
    for behaviour in ["prints-and-stays", "announces-too-much", "prints-after-answer"] {
        let name = |place: usize| match place {
            20 => format!("Suite/{place}/{behaviour}"),
            _ => format!("Suite/{place}/passes"),
        };
        let names: Vec<_> = (0..80).map(name).collect();
        // No process is killed for being slow. A case that needs such a kill would not get an answer.
        let mut suite = Suite::start(world(), &["-j", "2", "--timeout", "1h"]);
        suite.ask(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let Finished { answers, stderr, .. } = suite.finish();
        assert_eq!(answers.len(), names.len());
        let failed: Vec<_> = answers.iter().filter(|(_, answer)| **answer != Answer::Response).collect();
        let [(name, Answer::Error(error))] = failed[..] else { panic!("{failed:#?}\n{stderr}") };
        assert!(error.contains("output"), "{behaviour}: {error}");
        // Garbage after an answer fails that case or the current case, depending on when Heeler reads it.
        assert!(behaviour == "prints-after-answer" || *name == names[20], "{behaviour}: {name}: {error}");
    }
}

#[test]
fn time_limit_of_a_case_begins_when_its_request_is_taken() {
    let names = ["Suite/0/reads-late", "Suite/1/takes-3s"];
    let mut suite = Suite::start(world(), &["-j", "1", "--timeout", "6s"]);
    suite.ask(&names);
    let Finished { answers, stderr, .. } = suite.finish();
    assert_eq!(answers.into_values().collect::<Vec<_>>(), vec![Answer::Response; 2], "{stderr}");
}

#[test]
fn answer_is_sent_while_requests_still_come() {
    let mut suite = Suite::start(world(), &[]);
    suite.ask(&["first/passes"]);
    let mut answer = vec![0; 4 + 2 + "first/passes".len() + 2];
    suite.relay.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    assert_eq!(answers(&answer), BTreeMap::from([("first/passes".to_owned(), Answer::Response)]));
    suite.ask(&["second/answers-twice", "third/passes", "fourth/exits-after-answer"]);
    let Finished { answers, stderr, .. } = suite.finish();
    assert_eq!(answers.len(), 3);
    assert!(answers.values().all(|answer| *answer == Answer::Response), "{answers:#?}");
    for message in ["answered \"second/answers-twice\" more than once", "exited with code 7"] {
        assert!(stderr.contains(message), "{message}: {stderr}");
    }
}

#[test]
fn one_process_answers_what_the_suite_hands_out_one_after_the_other() {
    let mut suite = Suite::start(world(), &["-j", "1"]);
    let names: Vec<_> = (10..40).map(|number| format!("Suite/{number}/passes")).collect();
    for (number, name) in names.iter().enumerate() {
        suite.ask(&[name]);
        let mut answer = vec![0; 4 + 2 + name.len() + 2];
        suite.relay.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(answers(&answer), BTreeMap::from([(name.clone(), Answer::Response)]));
        if number == 20 {
            // The client dies between two requests of the suite. Only the current case fails.
            suite.ask(&["Suite/20/aborts"]);
            let mut length = [0; 4];
            let output = suite.relay.stdout.as_mut().unwrap();
            output.read_exact(&mut length).unwrap();
            let mut message = vec![0; u32::from_be_bytes(length) as usize];
            output.read_exact(&mut message).unwrap();
            let answer = answers(&framed(&message)).into_values().next();
            assert!(matches!(&answer, Some(Answer::Error(error)) if error.contains("SIGABRT")), "{answer:?}");
        }
    }
    let Finished { answers, stderr, starts } = suite.finish();
    assert_eq!((answers.len(), starts), (0, 2), "{stderr}");
}

#[test]
fn client_that_exits_after_an_answer_costs_no_case() {
    // When the client exits, the next request is already in its pipe. The relay must send it again.
    let names: Vec<_> = (0..8)
        .map(|number| {
            format!("Suite/{number}/{}", if number % 2 == 0 { "exits-after-answer" } else { "passes" })
        })
        .collect();
    let mut suite = Suite::start(world(), &["-j", "1"]);
    suite.ask(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let Finished { answers, stderr, .. } = suite.finish();
    assert_eq!(answers.into_values().collect::<Vec<_>>(), vec![Answer::Response; names.len()], "{stderr}");
    assert!(stderr.contains("exited with code 7"), "{stderr}");
}

#[test]
fn thousands_of_cases_take_few_processes() {
    let names: Vec<_> = (0..3000).map(|number| format!("Suite/{number}/passes")).collect();
    let mut suite = Suite::start(world(), &["-j", "4"]);
    suite.ask(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let Finished { answers, stderr, starts } = suite.finish();
    assert!(starts < 40, "{starts} processes");
    assert_eq!(answers.len(), 3000);
    assert!(answers.values().all(|answer| *answer == Answer::Response), "{stderr}");
}

#[test]
fn suite_without_cases_gets_no_answers() {
    let Finished { answers, stderr, .. } = Suite::start(world(), &[]).finish();
    assert_eq!((answers.len(), stderr.as_str()), (0, ""));
}

#[test]
fn input_of_something_else_is_refused() {
    let cut = request("b/passes");
    let whole = request("a/passes");
    for (input, message, answered) in [
        (b"hello, world".to_vec(), "standard input is not a sequence of conformance requests", 0),
        (
            framed(b"\x0a\x05a"),
            "conformance requests, as connectconformance sends them to its client: a request",
            0,
        ),
        (framed(b""), "a request has no name", 0),
        ([&whole[..], &cut[..9]].concat(), "ends in the middle of a request", 1),
    ] {
        let mut suite = Suite::start(world(), &[]);
        let mut stdin = suite.relay.stdin.take().unwrap();
        stdin.write_all(&input).unwrap();
        drop(stdin);
        let output = suite.relay.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(message), "{message}: {stderr}");
        assert_eq!((output.status.code(), answers(&output.stdout).len()), (Some(3), answered), "{stderr}");
    }
}

#[test]
fn relay_that_a_signal_ends_before_its_last_answer_says_so() {
    let mut suite = Suite::start(world(), &["--timeout", "1h"]);
    suite.ask(&["a/hangs"]);
    wait_until("the client runs", || !suite.world.starts().is_empty());
    signal(suite.relay.id(), "TERM");
    assert_eq!(suite.relay.wait().unwrap().code(), Some(3));
    suite.world.check_tidy();
}

#[test]
fn missing_client_is_named() {
    let world = world();
    let ran = world.run_with_separate_outputs(&["connect", "relay", "--", "no-such-client", "-p", "1"]);
    let expected = "error: client under test not found: no-such-client\n";
    assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.as_str()), (Some(4), expected, ""));
}

#[test]
fn killed_suite_leaves_nothing() {
    let world = world();
    let relay = format!("{} connect relay -- ./connect-client; exit", crate::support::heeler().display());
    let mut shell = world.shell(&relay);
    let mut suite = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    suite.stdin.as_mut().unwrap().write_all(&request("a/hangs")).unwrap();
    wait_until("the client runs", || !world.starts().is_empty());
    let client = world.starts()[0].pid;
    let relay = children(suite.id())[0];
    signal(suite.id(), "KILL");
    // The relay's standard input stays open, so the relay notices only by the suite's death that no answers
    // are needed.
    wait_until("nothing is left", || {
        state(client).is_none() && state(relay.as_u32()).is_none_or(|state| state == 'Z')
    });
    suite.wait().unwrap();
}

/// Returns the directory of the real suite and its clients, which `scripts/test` installs.
pub(super) fn real_suite() -> Option<PathBuf> {
    requirement::directory_of("HEELER_CONFORMANCE", "Connect's conformance suite")
}

/// Lets the real suite judge its reference client. The fake starts each client process.
fn judge(behaviour: &str) -> Option<FinishedCommand> {
    let programs = real_suite()?;
    let world = world();
    world.env("HEELER_FIXTURE_CLIENT", &format!("{} -p 1", programs.join("referenceclient").display()));
    world.env("HEELER_FIXTURE_CASE", CASE);
    world.env("HEELER_FIXTURE_BEHAVIOUR", behaviour);
    let heeler = crate::support::heeler();
    let relay = [heeler.to_str().unwrap(), "connect", "relay", "--timeout", "5s", "--", "./connect-client"];
    let words = ["--mode", "client", "--run", "Basic/**", "--run", CASE, "--"];
    let suite =
        world.command(Command::new(programs.join("connectconformance")), &[&words[..], &relay].concat());
    let ran = run_with_separate_outputs(suite);
    world.check_tidy();
    Some(ran)
}

pub(super) const CASE: &str = "Basic/HTTPVersion:1/Protocol:PROTOCOL_CONNECT/Codec:CODEC_PROTO/Compression:COMPRESSION_GZIP/TLS:false/unary/success";

#[test]
pub(super) fn real_suite_passes_the_reference_client() {
    let Some(ran) = judge("passes") else { return };
    let totals = ran.stdout.lines().last().unwrap_or_default();
    assert!(totals.ends_with(" passed, 0 failed") && !totals.starts_with("0 "), "{ran:?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
pub(super) fn real_suite_charges_only_the_case_whose_client_dies() {
    for (behaviour, message) in [
        ("aborts", "SIGABRT"),
        ("hangs", "timed out"),
        ("prints-and-stays", "invalid answer on standard output"),
    ] {
        let Some(ran) = judge(behaviour) else { return };
        let failed: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("FAILED: ")).collect();
        assert_eq!(failed, [format!("FAILED: {CASE}:")], "{ran:?}");
        assert!(ran.stdout.contains(message), "{behaviour}: {ran:?}");
        assert!(ran.stdout.trim_end().ends_with(" passed, 1 failed"), "{ran:?}");
    }
}
