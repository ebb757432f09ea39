//! Creates, lists and removes runs on disk.

use std::{fs, num::NonZeroU32};

use heeler_core::{FixturePhase, Outcome, ProgramFailure, RunRecord, SuiteFixture, TestId, TestResult};
use heeler_protocol::{
    journal::{self, RunEnd},
    manifest::{self, Manifest, ManifestHead, ManifestPlan, ManifestTest, RerunSet, RunOrigin},
};
use heeler_report::DetailSource;

use super::*;

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

fn manifest(run: &str, names: &[&str], left_before: RerunSet) -> Manifest {
    let test = |name: &&str| ManifestTest {
        uid: format!("s::{name}"),
        display_name: (*name).into(),
        ..ManifestTest::default()
    };
    let head = ManifestHead { tests: names.len(), ..ManifestHead::new(run, RunOrigin::default()) };
    Manifest {
        head,
        plan: ManifestPlan {
            tests: names.iter().map(test).collect(),
            earlier_rerun_set: left_before,
            ..ManifestPlan::default()
        },
    }
}

/// Returns a journal with these outcomes of tests, given by their index in the run.
fn journal(ends: &[(u32, Outcome)]) -> Vec<u8> {
    let mut bytes = journal::MAGIC.to_vec();
    for (test, outcome) in ends {
        journal::write_finished(&mut bytes, TestId(*test), &TestResult::new(*outcome));
    }
    bytes
}

#[test]
fn simultaneous_runs_with_equal_ids_have_own_directories() {
    let state = tempfile::tempdir().unwrap();
    let runs = state.path().join(DIR_NAME);
    let keep = NonZeroU32::new(99).unwrap();
    let made: Vec<_> =
        (0..20).map(|_| make_run_dir(&runs, "00000000-0000-0000-0001", keep).unwrap()).collect();
    let names: std::collections::BTreeSet<_> = made.iter().map(|run| run.path.clone()).collect();
    assert_eq!((names.len(), list_runs(state.path()).len()), (20, 20));
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 20, "nothing else is left");
}

#[test]
fn locked_run_is_never_removed() {
    let state = tempfile::tempdir().unwrap();
    let runs = state.path().join(DIR_NAME);
    let held = make_run_dir(&runs, "aaaa", TWO).unwrap();
    for id in ["bbbb", "cccc", "dddd"] {
        drop(make_run_dir(&runs, id, TWO).unwrap());
    }
    let ids = || {
        let all = list_runs(state.path());
        all.into_iter().map(|run| run.name.rsplit('-').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(), ["aaaa", "dddd"]);
    let found = list_runs(state.path());
    assert!(matches!(found[0].state, EarlierRunState::Running { settled: 0 }), "{found:?}");
    assert_eq!(prune_runs(&runs, 0).len(), 1);
    drop(held);
    assert_eq!((prune_runs(&runs, 0).len(), ids().len()), (1, 0));
}

#[test]
fn run_without_manifest_is_never_the_latest() {
    let state = tempfile::tempdir().unwrap();
    let runs = state.path().join(DIR_NAME);
    let known = make_run_dir(&runs, "aaaa", TWO).unwrap();
    write_manifest(&known.path, &manifest("aaaa", &["x"], RerunSet::default())).unwrap();
    drop(known);
    drop(make_run_dir(&runs, "bbbb", TWO).unwrap());
    let all = list_runs(state.path());
    assert_eq!(all[1].state, EarlierRunState::Interrupted { settled: 0 });
    assert!(resolve_run(&all, "latest", "d").unwrap().name.ends_with("-aaaa"));
    assert!(matches!(
        read_recorded_run(resolve_run(&all, "bb", "d").unwrap()),
        Err(RecordedRunError::NoManifest { .. })
    ));
    assert_eq!(resolve_run(&all, "b-b", "d").unwrap().name, all[1].name, "ids are written in several forms");
    assert_eq!(resolve_run(&all, "", "d").unwrap_err(), ResolveRunError::Unknown { word: String::new() });
    assert_eq!(resolve_run(&[], "latest", "d").unwrap_err(), ResolveRunError::None { dir: "d".into() });
}

#[test]
fn manifest_that_is_written_again_keeps_its_mark_in_between() {
    let state = tempfile::tempdir().unwrap();
    let run = make_run_dir(&state.path().join(DIR_NAME), "aaaa", TWO).unwrap();
    let path = run.path.join(manifest::MANIFEST_FILE_NAME);
    let ownership = || list_runs(state.path())[0].ownership;
    write_manifest(&run.path, &manifest("aaaa", &["x"], RerunSet::default())).unwrap();
    let first = fs::read(&path).unwrap();
    for names in [&["x", "y"][..], &["x", "y", "z"]] {
        let before = fs::read(&path).unwrap();
        write_manifest(&run.path, &manifest("aaaa", names, RerunSet::default())).unwrap();
        assert_eq!(ownership(), RunOwnership::Own);
        let after = fs::read(&path).unwrap();
        // Imitates a process that died between writing the mark and the manifest.
        fs::write(&path, before).unwrap();
        assert_eq!(ownership(), RunOwnership::Own);
        fs::write(&path, after).unwrap();
    }
    fs::write(&path, first).unwrap();
    assert_eq!(ownership(), RunOwnership::Copied, "an earlier manifest than the last two");
}

#[test]
fn rerun_set_includes_failed_and_missing_tests() {
    let state = tempfile::tempdir().unwrap();
    let run = make_run_dir(&state.path().join(DIR_NAME), "aaaa", TWO).unwrap();
    let names = ["passes", "skips", "fails", "hangs", "ends", "waits"];
    let before = |names: &[&str]| names.iter().map(|name| format!("s::{name}")).collect::<Vec<_>>();
    let left_before = RerunSet { failed: before(&["passes", "old"]), not_run: before(&["fails", "older"]) };
    fs::write(run.path.join(manifest::MANIFEST_FILE_NAME), manifest("aaaa", &names, left_before).to_bytes())
        .unwrap();
    let first = journal(&[(0, Outcome::Passed), (2, Outcome::Failed)]);
    let second = journal(&[(1, Outcome::Skipped), (3, Outcome::TimedOut), (4, Outcome::Cancelled)]);
    fs::write(run.path.join("worker-1.journal"), first).unwrap();
    fs::write(run.path.join("worker-2.journal"), second).unwrap();
    drop(run);
    let all = list_runs(state.path());
    assert_eq!(all[0].state, EarlierRunState::Interrupted { settled: 5 });
    let left = rerun_set(&read_recorded_run(&all[0]).unwrap());
    assert_eq!(left.failed, before(&["fails", "hangs", "old"]));
    assert_eq!(left.not_run, before(&["ends", "waits", "older"]));
    assert_eq!(
        (RerunSelector::Failed.select(&left).len(), RerunSelector::Run("x".into()).select(&left).len()),
        (3, 6)
    );
}

#[test]
fn truncated_journals_keep_complete_results() {
    let state = tempfile::tempdir().unwrap();
    let run = make_run_dir(&state.path().join(DIR_NAME), "aaaa", TWO).unwrap();
    let names = ["a", "b", "c"];
    fs::write(
        run.path.join(manifest::MANIFEST_FILE_NAME),
        manifest("aaaa", &names, RerunSet::default()).to_bytes(),
    )
    .unwrap();
    let ends = [(0, Outcome::Passed), (1, Outcome::Failed), (2, Outcome::Passed)];
    let whole = journal(&ends);
    let places: Vec<_> = (0..=3).map(|count| journal(&ends[..count]).len()).collect();
    let path = run.path.join("worker-1.journal");
    drop(run);
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let all = list_runs(state.path());
        let settled = places.iter().rposition(|place| *place <= cut).unwrap_or(0);
        assert_eq!(all[0].state, EarlierRunState::Interrupted { settled }, "cut at {cut}");
        let story = read_recorded_run(&all[0]).unwrap();
        assert_eq!((story.results.len(), story.losses.len()), (3, 0), "cut at {cut}");
    }
}

#[test]
fn finished_run_with_missing_results_reports_loss() {
    let state = tempfile::tempdir().unwrap();
    let run = make_run_dir(&state.path().join(DIR_NAME), "aaaa", TWO).unwrap();
    fs::write(
        run.path.join(manifest::MANIFEST_FILE_NAME),
        manifest("aaaa", &["a", "b"], RerunSet::default()).to_bytes(),
    )
    .unwrap();
    let mut finish = journal(&[(0, Outcome::Passed)]);
    journal::write_end(&mut finish, &RunEnd::default());
    fs::write(run.path.join(journal::SYNTHESIZED_JOURNAL_NAME), finish).unwrap();
    drop(run);
    let story = read_recorded_run(&list_runs(state.path())[0]).unwrap();
    assert_eq!(story.losses, ["1 test without a result in any journal"]);
    assert_eq!(rerun_set(&story).not_run, ["s::b"]);
}

#[test]
fn details_of_a_program_and_of_its_fixtures_are_apart() {
    let state = tempfile::tempdir().unwrap();
    let run = make_run_dir(&state.path().join(DIR_NAME), "aaaa", TWO).unwrap();
    let plan = manifest("aaaa", &["a"], RerunSet::default()).to_bytes();
    fs::write(run.path.join(manifest::MANIFEST_FILE_NAME), plan).unwrap();
    let mut bytes = journal(&[(0, Outcome::Passed)]);
    let tear_down = SuiteFixture { suite: "N/F".into(), phase: FixturePhase::TearDown };
    for (fixture, message) in [(None, "bad exit"), (Some(tear_down), "died")] {
        let (suite, program) = ("s".to_owned(), "/s".into());
        let failure = ProgramFailure { suite, program, fixture, message: message.to_owned() };
        journal::write(&mut bytes, &RunRecord::ProgramFailed(failure));
    }
    fs::write(run.path.join(journal::SYNTHESIZED_JOURNAL_NAME), bytes).unwrap();
    drop(run);
    let recorded = read_recorded_run(&list_runs(state.path())[0]).unwrap();
    let details = RecordedDetails::new([&recorded]);
    let message = |uid: &str| details.load_detail(uid).ok().and_then(|detail| detail.message);
    assert_eq!(message("s").as_deref(), Some("bad exit"));
    assert_eq!(message("s::N/F (tear-down)").as_deref(), Some("died"));
    assert_eq!(message("s::N/F"), None);
}
