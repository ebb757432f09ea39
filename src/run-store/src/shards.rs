//! Runs of all partitions of one selection: checks that they are disjoint and complete, and sums them up.
//! Set-ups and clean-ups of fixtures may run in several partitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use heeler_protocol::{
    control::{FIXTURE_CLEANUP_TRAIT, FIXTURE_SETUP_TRAIT},
    manifest::ManifestTest,
    mtp::RunShard,
};
use heeler_report::RunSummary;

use super::{RecordedRun, RecordedRunError, index::run_at, read_recorded_run};

/// Run of one partition.
#[derive(Debug)]
pub struct ShardRun {
    /// Directory of the run.
    pub dir: PathBuf,
    pub run: RecordedRun,
}

impl ShardRun {
    /// Reads the run of one partition, wherever its directory is.
    ///
    /// # Errors
    /// Same as [`read_recorded_run`].
    pub fn read(dir: &Path) -> Result<Self, RecordedRunError> {
        let run = read_recorded_run(&run_at(dir))?;
        Ok(Self { dir: dir.to_owned(), run })
    }
}

/// Checks that the runs are the partitions of one selection, with each test in exactly one run. Returns the
/// problems found.
#[must_use]
pub fn check_shards(shards: &[ShardRun]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known: Vec<KnownShard<'_>> = Vec::new();
    for ShardRun { dir, run } in shards {
        match &run.manifest.head.shard {
            Some(shard) => known.push(KnownShard { dir, shard }),
            None => problems.push(format!("{} is not a run with --partition", dir.display())),
        }
    }
    let Some(first) = known.first() else { return problems };
    for other in &known[1..] {
        if (&other.shard.digest, other.shard.count) != (&first.shard.digest, first.shard.count) {
            problems.push(format!(
                "{} is {} of {} and {} is {} of {}: they were split from different tests or durations",
                first.dir.display(),
                first.shard.partition,
                first.shard.digest,
                other.dir.display(),
                other.shard.partition,
                other.shard.digest
            ));
        }
    }
    if problems.is_empty() {
        check_numbers(&known, &mut problems);
        check_tests(shards, first.shard, &mut problems);
    }
    problems
}

#[derive(Clone, Copy)]
struct KnownShard<'a> {
    dir: &'a Path,
    shard: &'a RunShard,
}

fn check_numbers(known: &[KnownShard<'_>], problems: &mut Vec<String>) {
    let mut by_number: BTreeMap<u32, &Path> = BTreeMap::new();
    for KnownShard { dir, shard } in known {
        if let Some(other) = by_number.insert(shard.index, dir) {
            let (one, other) = (other.display(), dir.display());
            problems.push(format!("{one} and {other} are both partition {}", shard.partition));
        }
    }
    let count = known[0].shard.count;
    let missing: Vec<_> =
        (1..=count).filter(|index| !by_number.contains_key(index)).map(|index| index.to_string()).collect();
    if !missing.is_empty() {
        problems.push(format!("missing partitions: {} (of {count})", missing.join(", ")));
    }
}

fn check_tests(shards: &[ShardRun], shard: &RunShard, problems: &mut Vec<String>) {
    let mut all = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for ShardRun { run, .. } in shards {
        let tests = run.manifest.plan.selected_tests().filter(|(_, test)| !belongs_to_fixture(test));
        for uid in tests.map(|(_, test)| test.uid.as_str()).collect::<BTreeSet<_>>() {
            if !all.insert(uid) {
                twice.insert(uid);
            }
        }
    }
    if let Some(uid) = twice.first() {
        let others = twice.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        problems.push(format!("tests in more than one partition: {uid}{more}"));
    }
    // Tests that a run only added for fixtures belong to another partition or to none.
    let of_run = |one: &ShardRun| {
        let uids: BTreeSet<_> = one.run.manifest.plan.selected_tests().map(|(_, test)| &test.uid).collect();
        let added = one.run.manifest.head.shard.as_ref().map_or(0, |shard| shard.fixture_tests);
        uids.len().saturating_sub(added)
    };
    let found = shards.iter().map(of_run).sum::<usize>().saturating_sub(twice.len());
    if found < shard.selected {
        let missing = shard.selected - found;
        problems.push(format!("{missing} of {} tests are not in any partition", shard.selected));
    }
}

fn belongs_to_fixture(test: &ManifestTest) -> bool {
    test.traits.iter().any(|one| [FIXTURE_SETUP_TRAIT, FIXTURE_CLEANUP_TRAIT].contains(&one.name.as_str()))
}

/// Returns the combined summary of all runs.
#[must_use]
pub fn summarise_shards(shards: &[ShardRun]) -> RunSummary {
    let selected = shards.iter().map(|shard| shard.run.selected_count()).sum();
    let mut summary = RunSummary::new(Some(selected));
    for ShardRun { run, .. } in shards {
        run.add_to(&mut summary);
    }
    summary
}

#[cfg(test)]
mod tests {
    use heeler_core::{Outcome, TestResult};
    use heeler_protocol::control::TraitPair;
    use heeler_protocol::manifest::{Manifest, ManifestHead, ManifestPlan, ManifestTest, RunOrigin};

    use super::*;
    use crate::{RecordedResult, RecordedTestResult, RunOwnership};

    fn shard(index: u32, digest: &str, names: &[&str]) -> ShardRun {
        let shard = RunShard {
            partition: format!("hash:{index}/2"),
            index,
            count: 2,
            digest: digest.to_owned(),
            selected: 3,
            fixture_tests: 0,
        };
        let head = ManifestHead { shard: Some(shard), ..ManifestHead::new("r", RunOrigin::default()) };
        let test = |name: &&str| ManifestTest { uid: format!("s::{name}"), ..ManifestTest::default() };
        let plan = ManifestPlan { tests: names.iter().map(test).collect(), ..ManifestPlan::default() };
        let result = |(test, _)| {
            let result = TestResult::new(Outcome::Passed);
            RecordedResult::Test(RecordedTestResult::kept(heeler_core::TestId(test), result))
        };
        let results = (0..).zip(names).map(result).collect();
        let manifest = Manifest { head, plan };
        let (losses, journal_paths) = (Vec::new(), Vec::new());
        let ownership = RunOwnership::Copied;
        let run = RecordedRun {
            manifest,
            ownership,
            end: None,
            results,
            processes: Vec::new(),
            losses,
            lacks_outputs: false,
            journal_paths,
        };
        ShardRun { dir: format!("r{index}").into(), run }
    }

    #[test]
    fn disjoint_and_complete_partitions_are_accepted() {
        let shards = [shard(2, "d", &["b"]), shard(1, "d", &["a", "c"])];
        assert_eq!(check_shards(&shards), [""; 0]);
        let summary = summarise_shards(&shards);
        assert_eq!((summary.records().len(), summary.counts().passed()), (3, 3));
    }

    #[test]
    fn each_difference_is_named() {
        for (shards, problem) in [
            (vec![shard(1, "d", &["a"]), shard(2, "d", &["b"])], "1 of 3 tests are not in any partition"),
            (
                vec![shard(1, "d", &["a", "b", "c"]), shard(2, "d", &["b", "c"])],
                "tests in more than one partition: s::b and 1 more",
            ),
            (
                vec![shard(1, "d", &["a", "b"]), shard(2, "e", &["c"])],
                "r1 is hash:1/2 of d and r2 is hash:2/2 of e: they were split from different tests or durations",
            ),
            (vec![shard(1, "d", &["a", "b", "c"])], "missing partitions: 2 (of 2)"),
        ] {
            assert_eq!(check_shards(&shards), [problem]);
        }
        // A set-up may run in both partitions, and counts once.
        let mut with_set_up = [shard(1, "d", &["a", "b"]), shard(2, "d", &["b", "c"])];
        for ShardRun { run, .. } in &mut with_set_up {
            let test = run.manifest.plan.tests.iter_mut().find(|test| test.uid == "s::b").unwrap();
            test.traits.push(TraitPair { name: FIXTURE_SETUP_TRAIT.into(), value: "f".into() });
        }
        with_set_up[1].run.manifest.head.shard.as_mut().unwrap().fixture_tests = 1;
        assert_eq!(check_shards(&with_set_up), [""; 0]);
        with_set_up[0].run.manifest.plan.tests.remove(0);
        assert_eq!(check_shards(&with_set_up), ["1 of 3 tests are not in any partition"]);
        let twice = [shard(1, "d", &["a", "b"]), shard(1, "d", &["c"])];
        assert_eq!(
            check_shards(&twice),
            ["r1 and r1 are both partition hash:1/2", "missing partitions: 2 (of 2)"]
        );
        let mut plain = shard(1, "d", &["a"]);
        plain.run.manifest.head.shard = None;
        assert_eq!(check_shards(&[plain]), ["r1 is not a run with --partition"]);
    }
}
