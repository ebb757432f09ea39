//! `heeler connect run --native` against `heeler connect run` with the real judge, case by case: the
//! reference client, one that makes twenty kinds of mistakes, and the sample client. The ordinary tests
//! compare a few cases; with `$HEELER_ALL_CASES` they compare all that the native judge judges:
//!
//! ```console
//! $ HEELER_ALL_CASES=1 scripts/test -- connect_all_cases
//! ```

use std::{
    collections::BTreeMap,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread,
};

use super::{
    connect::real_suite,
    connect_native::NativeWorld,
    connect_verdicts::{make_mistake, play_reference_client},
};
use crate::support::world::FinishedCommand;

/// The cases that the native judge judges, and some that it skips, which are not compared.
const ALL_CASES: &str = "all()";
/// A few of them.
const FEW_CASES: &str = "tag(http=2) & tag(codec=proto) & test(Duplicate)";
/// Long enough for a busy machine: the real judge waits for 20 s.
const WORDS: [&str; 6] = ["--format", "json", "--timeout", "18s", "-j", "4"];

/// The outcome of each case with its message.
type Verdicts = BTreeMap<String, (String, String)>;

fn verdicts(ran: &FinishedCommand) -> Verdicts {
    let events = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let text =
        |event: &serde_json::Value, member: &str| event[member].as_str().unwrap_or_default().to_owned();
    let ends = events.filter(|event| event["type"] == "test" && event["outcome"].is_string());
    ends.map(|event| (text(&event, "name"), (text(&event, "outcome"), text(&event, "message")))).collect()
}

/// Has both judges judge a client, and asserts that they agree about each case; returns the number of cases
/// of each outcome.
#[track_caller]
fn compare(native: &NativeWorld, client: &str) -> BTreeMap<String, usize> {
    let is_whole = std::env::var_os("HEELER_ALL_CASES").is_some();
    let (cases, count) = if is_whole { (ALL_CASES, 3596) } else { (FEW_CASES, 224) };
    let words = [&WORDS[..], &["-E", cases]].concat();
    let mut ours = verdicts(&native.run_judge_of(&native.native(), &words, client));
    ours.retain(|_, (outcome, _)| outcome != "skipped");
    let real = verdicts(&native.run_judge_of(&["--judge", &native.judge], &words, client));
    let mut counts = BTreeMap::new();
    let mut differences = Vec::new();
    for (case, own) in &ours {
        *counts.entry(own.0.clone()).or_default() += 1;
        if real.get(case).is_none_or(|verdict| verdict.0 != own.0) {
            differences.push(format!("{case}:\n  native {own:?}\n  real   {:?}", real.get(case)));
        }
    }
    let shown = differences.join("\n");
    assert!(differences.is_empty(), "{} of {} cases: {shown}", differences.len(), ours.len());
    assert_eq!(ours.len(), count);
    counts
}

#[test]
fn judges_agree_about_the_reference_client() {
    let Some(native) = NativeWorld::new("passes") else { return };
    let counts = compare(&native, "./connect-client");
    assert!(counts.keys().eq(["passed"]), "{counts:?}");
}

/// Each process of the client is connected to the test, which plays a client that makes mistakes.
#[test]
fn judges_agree_about_a_mistaken_client() {
    let (Some(native), Some(programs)) = (NativeWorld::new("passes"), real_suite()) else { return };
    native.world.fake("connect-bridge");
    let socket = native.world.path("client.socket");
    native.world.env("HEELER_FIXTURE_SOCKET", &socket.display().to_string());
    let listener = UnixListener::bind(&socket).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for connection in listener.incoming() {
                if is_closed(&stopped) {
                    break;
                }
                let programs = &programs;
                let connection = connection.unwrap();
                let mistake = |request: &mut _| {
                    make_mistake(request);
                };
                scope.spawn(move || play_reference_client(programs, &connection, mistake, |_| {}));
            }
        });
        // Also where the judges do not agree: the listener would wait forever.
        let _end = EndedListener { stop: Some(stop), socket: &socket };
        let counts = compare(&native, "./connect-bridge");
        assert!(counts["passed"] > 50 && counts["failed"] > 50, "{counts:?}");
    });
}

/// Ends the thread that accepts the connections when it is dropped.
struct EndedListener<'a> {
    stop: Option<UnixStream>,
    socket: &'a Path,
}

impl Drop for EndedListener<'_> {
    fn drop(&mut self) {
        self.stop = None;
        drop(UnixStream::connect(self.socket));
    }
}

fn is_closed(connection: &UnixStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    matches!(std::io::Read::read(&mut { connection }, &mut [0]), Ok(0))
}

#[test]
fn judges_agree_about_the_sample_client() {
    let Some(native) = NativeWorld::new("passes") else { return };
    let Some(client) = std::env::var_os("HEELER_CONNECT_CLIENT") else {
        return eprintln!("the sample client is not built: not tried");
    };
    compare(&native, client.to_str().unwrap());
}
