//! A recording of the real conformance suite: what it sends for some of its cases, and what its reference
//! client answers. `heeler connect relay` passes both on as they are, also where Go is not installed.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use heeler_connect_judge::message::{CaseRequest, CaseResponse};
use prost::Message as _;

use super::{
    connect::{real_suite, world},
    connect_cases::{judge_played_client, read_message, write_message},
};

/// One of this number of cases is recorded, in the order of their names.
const RECORDED_SHARE: usize = 40;
/// Cases with longer messages are not recorded.
const MESSAGE_LIMIT_BYTES: usize = 4 << 10;

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/frameworks/connect_recording.bin")
}

/// Has the real suite judge its reference client; returns the requests and the answers of all cases.
fn recorded(programs: &Path) -> BTreeMap<String, (Vec<u8>, Vec<u8>)> {
    let mut recorded = BTreeMap::new();
    let ran = judge_played_client(programs, "", |mut connection| {
        let mut client = Command::new(programs.join("referenceclient"));
        client.args(["-p", "1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.spawn().unwrap();
        let (mut requests, mut answers) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        while let Some(request) = read_message(&mut connection) {
            write_message(&mut requests, &request).unwrap();
            let answer = read_message(&mut answers).unwrap();
            write_message(&mut connection, &answer).unwrap();
            let name = CaseRequest::decode(&request[..]).unwrap().test_name;
            recorded.insert(name, (request, answer));
        }
        drop(requests);
        client.wait().unwrap();
    });
    assert!(ran.stdout.contains(" passed, 0 failed"), "{ran:?}");
    recorded
}

/// Records a part of the cases: each request is followed by its answer.
fn update(path: &Path) {
    let Some(programs) = real_suite() else { return };
    let mut bytes = Vec::new();
    for (request, answer) in recorded(&programs).values().step_by(RECORDED_SHARE) {
        if request.len().max(answer.len()) <= MESSAGE_LIMIT_BYTES {
            write_message(&mut bytes, request).unwrap();
            write_message(&mut bytes, answer).unwrap();
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn relay_passes_recorded_requests_and_answers_as_they_are() {
    let path = recording();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        update(&path);
    }
    let bytes = fs::read(&path).unwrap();
    let mut rest = &bytes[..];
    let messages: Vec<_> = std::iter::from_fn(|| read_message(&mut rest)).collect();
    let pairs: Vec<_> = messages.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect();
    assert!(pairs.len() > 100, "{}", pairs.len());

    let world = world();
    world.env("HEELER_FIXTURE_RECORDING", path.to_str().unwrap());
    let mut relay = world.heeler(&["connect", "relay", "-j", "2", "--", "./connect-client"]);
    relay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut relay = relay.spawn().unwrap();
    let mut input = Vec::new();
    for (request, _) in &pairs {
        write_message(&mut input, request).unwrap();
    }
    relay.stdin.take().unwrap().write_all(&input).unwrap();
    let output = relay.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    world.check_tidy();

    let mut rest = &output.stdout[..];
    let mut answered: Vec<_> = std::iter::from_fn(|| read_message(&mut rest)).collect();
    let mut expected: Vec<_> = pairs.iter().map(|(_, answer)| (*answer).clone()).collect();
    answered.sort();
    expected.sort();
    let named = |answers: &[Vec<u8>]| -> Vec<String> {
        answers.iter().map(|answer| CaseResponse::decode(&answer[..]).unwrap().test_name).collect()
    };
    assert_eq!(named(&answered), named(&expected), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(answered == expected, "an answer is not the recorded one");
}

#[test]
fn recorded_requests_are_encoded_again_as_the_real_suite_does() {
    let bytes = fs::read(recording()).unwrap();
    let mut rest = &bytes[..];
    while let Some(request) = read_message(&mut rest) {
        let decoded = CaseRequest::decode(&request[..]).unwrap();
        assert!(decoded.encode_to_vec() == request, "{}", decoded.test_name);
        let answer = CaseResponse::decode(&read_message(&mut rest).unwrap()[..]).unwrap();
        assert_eq!(answer.test_name, decoded.test_name);
    }
}
