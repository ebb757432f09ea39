//! The fuzz seeds for journals and manifests in their current versions, whole and damaged.

use heeler_core::{
    Failure, LeaseId, LogLine, Outcome, ProcessStart, RunRecord, TestId, TestResult, TestStart,
};
use heeler_protocol::{
    journal::{self, RunEnd},
    manifest::{Manifest, ManifestHead, ManifestPlan, ManifestProgram, ManifestTest, RerunSet, RunOrigin},
};

use crate::check_file;

#[track_caller]
fn check_seed(name: &str, bytes: &[u8]) {
    check_file(&format!("tests/fuzz/seeds/{name}"), bytes);
}

#[test]
fn seeds_of_journals_are_of_this_version() {
    let test = TestId(3);
    let mut whole = journal::MAGIC.to_vec();
    journal::write(&mut whole, &RunRecord::Started(TestStart { test, started_ms: 5, is_again: false }));
    let first = whole.len();
    journal::write(&mut whole, &RunRecord::Log(LogLine::warning(Some(test), "w".into())));
    let second = whole.len();
    let failures = vec![Failure { line: Some(7), ..Failure::default() }];
    journal::write_finished(&mut whole, test, &TestResult { failures, ..TestResult::new(Outcome::Failed) });
    check_seed("journal/whole", &whole);
    check_seed("journal/torn", &whole[..second - 3]);
    check_seed("journal/zeros", &[&whole[..first], &[0; 52]].concat());
    let mut damaged = whole[..second].to_vec();
    damaged[first] ^= 1;
    check_seed("journal/damaged", &damaged);

    let mut finish = journal::MAGIC.to_vec();
    let start = ProcessStart { pid: 9, lease: LeaseId(4), suite: "s".into(), tests: 2, started_ms: 1 };
    journal::write(&mut finish, &RunRecord::ProcessStarted(start));
    journal::write_end(&mut finish, &RunEnd { duration_ms: 7, ..RunEnd::default() });
    check_seed("journal/finish", &finish);
}

#[test]
fn seeds_of_manifests_are_of_this_version() {
    let origin = RunOrigin {
        command: vec!["heeler".into(), "run".into()],
        cwd: "/w".into(),
        continues: Some("r0".into()),
        ..RunOrigin::default()
    };
    let head = ManifestHead {
        began_utc: "2026-11-20T00:00:00Z".into(),
        pid: 7,
        tests: 1,
        ..ManifestHead::new("r", origin)
    };
    let test = ManifestTest { uid: "s::a".into(), display_name: "a".into(), ..ManifestTest::default() };
    let plan = ManifestPlan {
        programs: vec![ManifestProgram { suite: "s".into(), path: "/w/s".into() }],
        tests: vec![test],
        groups: Vec::new(),
        earlier_rerun_set: RerunSet { failed: vec!["s::b".into()], not_run: Vec::new() },
        schedule: None,
    };
    let whole = Manifest { head, plan }.to_bytes();
    let head = 1 + whole.iter().position(|byte| *byte == b'\n').unwrap();
    check_seed("manifest/whole", &whole);
    check_seed("manifest/head", &whole[..head]);
    check_seed("manifest/torn", &whole[..head + 40]);
}
