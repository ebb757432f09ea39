//! A recording of the real conformance suite: its requests for some cases, and the answers of its reference
//! client. `heeler connect relay` must pass on both unchanged. Go is not needed.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use super::connect::{name_of, real_suite, world};
use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

/// One case in this many is recorded, in the order of their names.
const RECORDED_SHARE: usize = 40;
/// Cases with longer messages are not recorded.
const MESSAGE_LIMIT_BYTES: usize = 4 << 10;

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/frameworks/connect_recording.bin")
}

/// Lets the real suite judge a client that `play` simulates on a connection.
fn judge_played_client(suite: &Path, play: impl FnOnce(UnixStream) + Send) -> FinishedCommand {
    let world = TestWorld::with_fake("connect-bridge");
    let socket = world.path("client.socket");
    world.env("HEELER_FIXTURE_SOCKET", &socket.display().to_string());
    let words = ["--mode", "client", "--", "./connect-bridge"];
    let suite = world.command(Command::new(suite.join("connectconformance")), &words);
    let listener = UnixListener::bind(&socket).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || play(listener.accept().unwrap().0));
        let ran = run_with_separate_outputs(suite);
        // If the suite did not start a client, this connection ends `accept`. Otherwise it is refused.
        drop(UnixStream::connect(&socket));
        ran
    })
}

/// Reads a message with its length prefix; `None` at the end.
fn read_message(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut message).unwrap();
    Some(message)
}

/// Writes a message with its length prefix.
fn write_message(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    to.write_all(&[&length, message].concat())
}

/// Lets the real suite judge its reference client; returns the request and the answer of each case.
fn recorded(programs: &Path) -> BTreeMap<String, (Vec<u8>, Vec<u8>)> {
    let mut recorded = BTreeMap::new();
    let ran = judge_played_client(programs, |mut connection| {
        let mut client = Command::new(programs.join("referenceclient"));
        client.args(["-p", "1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.spawn().unwrap();
        let (mut requests, mut answers) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        while let Some(request) = read_message(&mut connection) {
            write_message(&mut requests, &request).unwrap();
            let answer = read_message(&mut answers).unwrap();
            write_message(&mut connection, &answer).unwrap();
            recorded.insert(name_of(&request), (request, answer));
        }
        drop(requests);
        client.wait().unwrap();
    });
    assert!(ran.stdout.contains(" passed, 0 failed"), "{ran:?}");
    recorded
}

/// Records some of the cases: each request, followed by its answer.
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
    let named =
        |answers: &[Vec<u8>]| -> Vec<String> { answers.iter().map(|answer| name_of(answer)).collect() };
    assert_eq!(named(&answered), named(&expected), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(answered == expected, "an answer is not the recorded one");
}
