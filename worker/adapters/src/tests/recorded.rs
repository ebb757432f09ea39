//! Recorded outputs of real programs: replayed whole against the expected events, and cut at every byte.

use std::fmt::Write;

use heeler_core::Failure;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{merge, replay, transcript};
use crate::{ListingOutput, OutputStream, TranscriptEvent, by_name};

struct TranscriptRecording {
    name: &'static str,
    framework: &'static str,
    listings: &'static [&'static str],
    /// Exit code of the program, and whether the transcript explains it.
    exit: Option<(i32, bool)>,
}

const GTEST: &[&str] = &["gtest.list.xml"];
const LIBTEST: &[&str] = &["libtest.list.json"];
const PLAIN: &[&str] = &["libtest-plain.list", "libtest-plain.ignored.list"];

const DOCTEST: &[&str] = &["doctest.list"];

const RUSTDOC: &[&str] = &["rustdoc.list", "rustdoc.ignored.list"];

const CATCH2: &[&str] = &["catch2.list"];
const CATCH2_V2: &[&str] = &["catch2-v2.list", "catch2-v2.tags.list"];

const BOOST: &[&str] = &["boost.dot"];

const RECORDINGS: [TranscriptRecording; 31] = [
    // Failures in set-up and tear-down of suites are in no test's result.
    TranscriptRecording { name: "gtest", framework: "gtest", listings: GTEST, exit: Some((1, true)) },
    TranscriptRecording { name: "gtest-died", framework: "gtest", listings: GTEST, exit: None },
    TranscriptRecording { name: "gtest-forging", framework: "gtest", listings: GTEST, exit: None },
    TranscriptRecording { name: "libtest", framework: "libtest", listings: LIBTEST, exit: Some((101, true)) },
    TranscriptRecording { name: "libtest-died", framework: "libtest", listings: LIBTEST, exit: None },
    TranscriptRecording { name: "libtest-forging", framework: "libtest", listings: LIBTEST, exit: None },
    TranscriptRecording {
        name: "libtest-plain",
        framework: "libtest-plain",
        listings: PLAIN,
        exit: Some((101, true)),
    },
    TranscriptRecording {
        name: "libtest-plain-died",
        framework: "libtest-plain",
        listings: PLAIN,
        exit: None,
    },
    TranscriptRecording { name: "doctest", framework: "doctest", listings: DOCTEST, exit: Some((1, true)) },
    TranscriptRecording { name: "rustdoc", framework: "rustdoc", listings: RUSTDOC, exit: Some((101, true)) },
    TranscriptRecording { name: "doctest-died", framework: "doctest", listings: DOCTEST, exit: None },
    TranscriptRecording { name: "doctest-forging", framework: "doctest", listings: DOCTEST, exit: None },
    // Only the exit code of a command decides, which is not in the transcript.
    TranscriptRecording { name: "command", framework: "command", listings: &[], exit: None },
    TranscriptRecording { name: "tap-perl", framework: "tap", listings: &[], exit: None },
    TranscriptRecording { name: "tap-node", framework: "tap", listings: &[], exit: None },
    TranscriptRecording { name: "catch2", framework: "catch2", listings: CATCH2, exit: Some((42, true)) },
    TranscriptRecording { name: "catch2-died", framework: "catch2", listings: CATCH2, exit: None },
    TranscriptRecording {
        name: "catch2-forging",
        framework: "catch2",
        listings: &["catch2-forging.list"],
        exit: None,
    },
    TranscriptRecording {
        name: "catch2-v2",
        framework: "catch2-v2",
        listings: CATCH2_V2,
        exit: Some((7, true)),
    },
    TranscriptRecording { name: "catch2-v2-died", framework: "catch2-v2", listings: CATCH2_V2, exit: None },
    TranscriptRecording {
        name: "catch2-v2-forging",
        framework: "catch2-v2",
        listings: &["catch2-v2-forging.list"],
        exit: None,
    },
    TranscriptRecording { name: "go", framework: "go", listings: &["go.list"], exit: Some((1, true)) },
    TranscriptRecording { name: "go-died", framework: "go", listings: &["go.list"], exit: None },
    TranscriptRecording {
        name: "go-parallel",
        framework: "go",
        listings: &["go-parallel.list"],
        exit: Some((1, true)),
    },
    TranscriptRecording {
        name: "go-parallel-died",
        framework: "go",
        listings: &["go-parallel.list"],
        exit: None,
    },
    TranscriptRecording {
        name: "go-plain",
        framework: "go-plain",
        listings: &["go-plain.list"],
        exit: Some((1, true)),
    },
    TranscriptRecording {
        name: "go-plain-died",
        framework: "go-plain",
        listings: &["go-plain.list"],
        exit: None,
    },
    TranscriptRecording {
        name: "go-plain-parallel",
        framework: "go-plain",
        listings: &["go-plain-parallel.list"],
        exit: Some((1, true)),
    },
    TranscriptRecording {
        name: "go-plain-parallel-died",
        framework: "go-plain",
        listings: &["go-plain-parallel.list"],
        exit: None,
    },
    TranscriptRecording { name: "boost", framework: "boost", listings: BOOST, exit: Some((201, true)) },
    TranscriptRecording { name: "boost-died", framework: "boost", listings: BOOST, exit: None },
];

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name)
}

pub(super) fn read(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn listed(recording: &TranscriptRecording) -> Vec<ListedTest> {
    let program = TestProgram {
        suite: "s".into(),
        path: "/p".into(),
        args: Vec::new(),
        tool_env: Vec::new(),
        env: Vec::new(),
        cwd: "/".into(),
        framework: None,
        test_arguments: std::collections::BTreeMap::new(),
        entries: Vec::new(),
        unbuilt: None,
        reproduction: Default::default(),
        resources: Default::default(),
    };
    let output = |name: &&str| {
        let bytes = read(name);
        let file = name.ends_with(".xml").then(|| bytes.clone());
        let stderr = if name.ends_with(".dot") { bytes.clone() } else { Vec::new() };
        // Catch2 2 exits with the number of tests.
        let tests = memchr::memmem::find_iter(&bytes, b"\t@").count();
        ListingOutput {
            stdout: bytes,
            stderr,
            file,
            code: i32::try_from(tests).ok(),
            ..ListingOutput::default()
        }
    };
    let outputs: Vec<ListingOutput> = recording.listings.iter().map(output).collect();
    by_name(recording.framework).unwrap().read_listing(&program, &outputs).unwrap().tests
}

fn selected(recording: &TranscriptRecording) -> (Vec<ListedTest>, Vec<u8>) {
    let tests = listed(recording).into_iter().filter(|test| test.skip.is_none()).collect();
    (tests, read(&format!("{}.stdout", recording.name)))
}

fn format_events(tests: &[ListedTest], events: &[TranscriptEvent]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            TranscriptEvent::Begun { place } => writeln!(text, "begun {:?}", tests[*place].name).unwrap(),
            TranscriptEvent::Output(bytes) => {
                writeln!(text, "  {:?}", String::from_utf8_lossy(bytes)).unwrap()
            }
            TranscriptEvent::File { path, .. } => writeln!(text, "  file {path:?}").unwrap(),
            TranscriptEvent::Confirmed => text.push_str("confirmed\n"),
            TranscriptEvent::TestOutput { place, stream, bytes } => {
                let name = &tests[*place].name;
                let label = if *stream == OutputStream::Output { "" } else { "error " };
                writeln!(text, "  {label}of {name:?}: {:?}", String::from_utf8_lossy(bytes)).unwrap();
            }
            TranscriptEvent::Paused { place } => writeln!(text, "paused {:?}", tests[*place].name).unwrap(),
            TranscriptEvent::Resumed { place } => {
                writeln!(text, "resumed {:?}", tests[*place].name).unwrap();
            }
            TranscriptEvent::ErrorOutput(bytes) => {
                writeln!(text, "  error {:?}", String::from_utf8_lossy(bytes)).unwrap();
            }
            TranscriptEvent::Part { part, .. } => {
                writeln!(text, "  part {:?}: {:?}", part.name, part.result).unwrap();
            }
            TranscriptEvent::TimeLimit { place, limit } => {
                writeln!(text, "limit of {:?}: {limit:?}", tests[*place].name).unwrap();
            }
            TranscriptEvent::Ended { place, verdict } => {
                write!(text, "{} {:?}", verdict.result.as_str(), tests[*place].name).unwrap();
                if let Some(duration) = verdict.duration {
                    write!(text, " in {duration:?}").unwrap();
                }
                text.push('\n');
                for (name, value) in [("reason", &verdict.reason), ("stdout", &verdict.stdout)] {
                    if let Some(value) = value {
                        writeln!(text, "  {name}: {value:?}").unwrap();
                    }
                }
                verdict.failures.iter().for_each(|failure| format_failure(&mut text, failure));
            }
        }
    }
    text
}

fn format_failure(text: &mut String, failure: &Failure) {
    text.push_str("  failure");
    if let (Some(file), Some(line)) = (&failure.file, failure.line) {
        write!(text, " at {file}:{line}").unwrap();
    }
    text.push('\n');
    for (name, value) in [
        ("message", &failure.message),
        ("expected", &failure.expected),
        ("actual", &failure.actual),
        ("stack", &failure.stack),
    ] {
        if let Some(value) = value {
            writeln!(text, "    {name}: {value:?}").unwrap();
        }
    }
}

#[test]
fn recorded_listings_and_runs_give_the_recorded_events() {
    for recording in &RECORDINGS {
        let (tests, stdout) = selected(recording);
        let (events, transcript) = replay(recording.framework, &tests, [stdout.as_slice()]);
        let mut text = format!("{:#?}\n", listed(recording));
        // No framework lists broken tests, variants or other file names.
        for member in ["broken", "variant", "reported_file", "report_name"] {
            text = text.replace(&format!("        {member}: None,\n"), "");
        }
        if recording.exit.is_none() {
            text.clear();
        }
        text.push_str(&format_events(&tests, &events));
        writeln!(text, "complete: {}", transcript.is_complete()).unwrap();
        writeln!(text, "after an end marker: {}", transcript.is_after_end_marker()).unwrap();
        for failure in transcript.fixture_failures() {
            writeln!(text, "failed in {}: {:?}", failure.fixture, failure.message).unwrap();
        }
        writeln!(text, "failed outside: {:?}", transcript.outside_failure()).unwrap();
        let expected = path(&format!("{}.events", recording.name));
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            std::fs::write(&expected, &text).unwrap();
        }
        let expected = std::fs::read_to_string(expected).unwrap();
        assert!(text == expected, "{} gives:\n{text}", recording.name);
        assert_eq!(transcript.is_complete(), recording.exit.is_some());
        if let Some((code, is_explained)) = recording.exit {
            assert_eq!(transcript.explains_exit(code), is_explained, "{}", recording.name);
            assert!(!transcript.explains_exit(0), "{}", recording.name);
            // Users of a C++ framework may have a `main` with its own exit codes for failures.
            let has_own_codes =
                ["gtest", "catch2", "catch2-v2", "boost", "go", "go-plain"].contains(&recording.framework);
            assert_eq!(transcript.explains_exit(3), has_own_codes, "{}", recording.name);
        }
    }
}

#[test]
fn bytewise_input_gives_the_same_events() {
    for recording in &RECORDINGS {
        let (tests, stdout) = selected(recording);
        let (whole, _) = replay(recording.framework, &tests, [stdout.as_slice()]);
        let mut transcript = transcript(recording.framework, &tests);
        let mut events = Vec::new();
        for (at, byte) in stdout.iter().enumerate() {
            let before = events.len();
            transcript.on_stdout(std::slice::from_ref(byte), &mut events);
            for event in &events[before..] {
                if let TranscriptEvent::Ended { place, verdict } = event {
                    let name = &tests[*place].name;
                    let has_marker =
                        has_end_marker(recording.framework, &stdout[..=at], name, verdict.result.as_str());
                    assert!(has_marker, "{}: {name} ended at byte {at}", recording.name);
                }
            }
        }
        transcript.on_output_end(&mut events);
        assert!(merge(events) == whole, "{} differs byte by byte", recording.name);
    }
}

fn has_end_marker(framework: &str, so_far: &[u8], name: &str, state: &str) -> bool {
    let finds = |marker: String| {
        memchr::memmem::rfind(so_far, marker.as_bytes()).is_some_and(|at| so_far[at..].contains(&b'\n'))
    };
    match (framework, state) {
        // Names that are not UTF-8 occur unchanged in the bytes.
        ("gtest", _) if name.contains('\u{fffd}') => true,
        ("gtest", "passed") => finds(format!("[       OK ] {name} (")),
        ("gtest", "skipped") => finds(format!("[  SKIPPED ] {name} (")),
        ("gtest", _) => finds(format!("[  FAILED  ] {name}")),
        ("boost", "skipped") => finds(format!("Test case \"{name}\" is skipped because ")),
        ("boost", _) => {
            let local = name.rsplit_once('/').map_or(name, |(_, local)| local);
            finds(format!("Leaving test case \"{local}\""))
        }
        ("catch2" | "catch2-v2", "failed") => finds_word(so_far, name, b"<OverallResult success=\"false\""),
        ("catch2" | "catch2-v2", _) => finds_word(so_far, name, b"<OverallResult success=\"true\""),
        ("go" | "go-plain", "passed") => finds(format!("--- PASS: {name} (")),
        ("go" | "go-plain", "failed") => finds(format!("--- FAIL: {name} (")),
        ("go" | "go-plain", _) => finds(format!("--- SKIP: {name} (")),
        ("doctest", "passed") => finds_word(so_far, name, b"test_case_success=\"true\""),
        ("doctest", _) => finds_word(so_far, name, b"test_case_success=\"false\""),
        ("libtest", "passed") => finds(format!("\"name\": \"{name}\", \"event\": \"ok\"")),
        ("libtest", _) => finds(format!("\"name\": \"{name}\", \"event\": \"failed\"")),
        ("rustdoc", "skipped") => finds_word(so_far, name, b"ignored\n"),
        (_, "passed") => finds_word(so_far, name, b"ok\n"),
        _ => finds_word(so_far, name, b"FAILED\n"),
    }
}

fn finds_word(so_far: &[u8], name: &str, word: &[u8]) -> bool {
    let begin = memchr::memmem::find(so_far, format!("test {name} ").as_bytes()).or_else(|| {
        memchr::memmem::find(so_far, format!("<TestCase name=\"{}", name.replace('<', "&lt;")).as_bytes())
    });
    begin.is_some_and(|at| memchr::memmem::find(&so_far[at..], word).is_some())
}

/// Distance of the cuts in one replay. Each byte is cut off once, between pieces long enough to contain whole
/// lines.
const CUT_DISTANCE: usize = 251;

#[test]
fn split_input_gives_the_same_events() {
    for recording in &RECORDINGS {
        let (tests, stdout) = selected(recording);
        let (whole, _) = replay(recording.framework, &tests, [stdout.as_slice()]);
        for first in 0..=CUT_DISTANCE.min(stdout.len()) {
            let (head, tail) = stdout.split_at(first);
            let pieces = std::iter::once(head).chain(tail.chunks(CUT_DISTANCE));
            let (events, _) = replay(recording.framework, &tests, pieces);
            let name = recording.name;
            assert!(events == whole, "{name} differs when cut at {first} and each {CUT_DISTANCE} bytes");
        }
    }
}
