//! Failures whose combined output does not fit into memory: they are displayed and reported one at a time,
//! and recorded up to a limit.

use std::{collections::BTreeMap, process::Stdio};

use crate::support::{
    process::{self, wait_until},
    world::{TestWorld, read_all},
};

/// Number of failures, each with about 3 MiB of text.
const CASES: usize = 30;
/// Maximum memory of a command: two thirds of the combined output. Memory must not depend on the number of
/// failures, even on a busy machine, where more of them wait in queues.
const PEAK_KIB: u64 = 60 << 10;

/// Returns a world with a program whose tests fail with large outputs.
fn world_with_loud_tests(cases: usize) -> TestWorld {
    let world = TestWorld::with_gtest("loud");
    world.env("HEELER_FIXTURE_CASES", &cases.to_string());
    world
}

/// Runs a command that exits with this code; returns its peak memory without its children.
#[track_caller]
fn peak_kib(world: &TestWorld, words: &[&str], code: i32) -> u64 {
    let mut command = world.heeler(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let outputs = (read_all(child.stdout.take().unwrap()), read_all(child.stderr.take().unwrap()));
    let (mut peak, mut ended) = (0, None);
    wait_until("the command has ended", || {
        peak = peak.max(process::peak_kib(child.id()).unwrap_or_default());
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    let (stdout, stderr) = (outputs.0.recv().unwrap(), outputs.1.recv().unwrap());
    assert_eq!(ended.and_then(|ended| ended.code()), Some(code), "{stdout}{stderr}");
    assert!(peak > 0, "the peak was read");
    peak
}

/// Checks that a report has the output and message of each test. Truncated output keeps at least its first
/// and last half MiB.
#[track_caller]
fn check_texts(report: &str, name: &str) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, _) in report.match_indices(" of case ") {
        // The words are `output`, `errors` and `message`; six bytes cut `message` to `essage`.
        let what = &report[place - 6..];
        let end = what.match_indices(' ').nth(3).unwrap().0;
        *lines.entry(&what[..end]).or_default() += 1;
    }
    for case in 0..CASES {
        for what in ["output", "errors", "essage"] {
            let found = lines.get(format!("{what} of case {case}").as_str()).copied().unwrap_or_default();
            assert!(found > 5_000, "{what} of case {case} is {found} times in {name}");
        }
    }
}

#[test]
fn memory_does_not_grow_with_the_outputs_of_failures() {
    let world = world_with_loud_tests(CASES);
    for (words, code) in [
        (&["run", "loud", "-j2", "--report", "junit=live.xml"][..], 2),
        (&["run", "loud", "-j2", "--format", "json", "--failure-output", "final"], 2),
        (&["report", "latest", "--format", "json"], 0),
        (&["report", "latest"], 0),
        (&["report", "latest", "--report", "junit=again.xml"], 0),
        (&["report", "latest", "--report", "ctrf=again.json"], 0),
    ] {
        let peak = peak_kib(&world, words, code);
        assert!(peak < PEAK_KIB, "{words:?} used {peak} KiB");
    }
    for name in ["live.xml", "again.xml", "again.json"] {
        check_texts(&world.read(name), name);
    }
    world.check_tidy();
}

#[test]
fn full_journals_keep_every_result_and_say_what_is_missing() {
    const RECORDED_CASES: usize = 12;
    let world = world_with_loud_tests(RECORDED_CASES);
    world.env("HEELER_FIXTURE_KIB", "200");
    world.write("heeler.toml", "[profile.default]\nisolate = true\njournal-limit = \"1MiB\"\n");
    let ran = world.run(&["run", "loud", "-j2", "--junit", "live.xml"]).assert_code(2);
    let warnings = ran.stdout.matches("the journals of this run have reached journal-limit");
    assert_eq!(warnings.count(), 1, "{ran}");
    // The live report has every output, because the command line received all of them.
    assert_eq!(world.read("live.xml").matches("<system-out>output of case").count(), RECORDED_CASES);
    world.run(&["report", "latest", "--junit", "again.xml"]).assert_code(0);
    let again = world.read("again.xml");
    assert_eq!(again.matches("<failure message=\"").count(), RECORDED_CASES);
    let missing = again.matches("<system-out>[heeler: ").count();
    let recorded = again.matches("<system-out>output of case").count();
    // The results of a whole process are recorded together.
    assert!(missing >= 6 && recorded >= 1 && missing + recorded == RECORDED_CASES, "{missing} {recorded}");
    assert!(again.contains("bytes dropped: journal-limit was reached]"), "{again}");
}
