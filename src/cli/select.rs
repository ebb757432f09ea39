//! Selects the tests to run: filters first, then the partition, then the set-ups and clean-ups of fixtures.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Duration,
};

use heeler_core::partition::{PartitionRule, TestPartition};
use heeler_protocol::mtp::{NodeDescription, RunShard, key};
use heeler_server::discovery::{Catalogue, TestRef, add_fixture_tests};

use super::{display::RunHead, exit::CommandError, rerun::RerunPlan};
use heeler_config::filter::{Filter, FilterSubject};
use heeler_config::{PartitionKind, ResolvedSettings, RunIgnored};
use heeler_run_store::history::{self, HistoryStore, TestHistory};

/// The selected tests, and the number of tests left out.
pub(super) struct RunSelection {
    pub(super) chosen: Vec<TestRef>,
    pub(super) left_out: usize,
    /// Number of chosen tests that are only set-ups or clean-ups of fixtures that other tests require.
    pub(super) added_for_fixtures: usize,
    /// Durations of the selected tests in earlier runs.
    pub(super) expected: HashMap<String, Duration>,
    /// Partition of the selected tests.
    pub(super) shard: Option<RunShard>,
    /// Reason why the tests are not split as requested.
    pub(super) split_warning: Option<&'static str>,
}

impl RunSelection {
    /// Returns the head of a run of these tests. The given `notes` precede the notes about the selection.
    /// Programs that can't be listed are not counted as tests.
    pub(super) fn run_head(
        &self,
        run_id: &str,
        settings: &ResolvedSettings,
        rerun: Option<&RerunPlan>,
        mut notes: Vec<String>,
    ) -> RunHead {
        if let Some(shard) = &self.shard {
            notes.push(format!("partition {} of {}", shard.partition, shard.digest));
        }
        notes.extend(rerun.map(RerunPlan::describe));
        match self.added_for_fixtures {
            0 => {}
            1 => notes.push("1 of them for a fixture".to_owned()),
            added => notes.push(format!("{added} of them for fixtures")),
        }
        let programs: HashSet<_> = self.chosen.iter().map(|test| test.program).collect();
        let tests = self.chosen.iter().filter(|test| !is_unlisted_program(test)).count();
        RunHead {
            run: run_id.to_owned(),
            tests,
            filtered: self.left_out,
            programs: programs.len(),
            workers: settings.run.jobs.slots().get().min(tests),
            expected: self.expected.clone(),
            notes,
        }
    }
}

/// Warning for a split by time without shared durations.
const NO_SHARED_DURATIONS: &str = "the tests are split by a hash of their names, not by time: time:k/n needs \
    --partition-history FILE, with the same file on all machines";

struct PartitionedTests {
    chosen: Vec<TestRef>,
    shard: Option<RunShard>,
    warning: Option<&'static str>,
}

/// Returns whether `test` represents a program that could not be listed.
pub(super) fn is_unlisted_program(test: &TestRef) -> bool {
    test.test.is_none()
}

/// Returns an error for a filter that needs the history while the history is off.
pub(super) fn check_filters(settings: &ResolvedSettings) -> Result<(), CommandError> {
    match settings.filters.iter().find(|filter| filter.depends_on_history()) {
        Some(filter) if !settings.run.is_history_kept => {
            Err(CommandError::NoHistory { filter: filter.to_string() })
        }
        _ => Ok(()),
    }
}

/// Selects tests of a catalogue by the settings.
///
/// # Errors
/// The history for the partition can't be read, or the split has another digest than requested.
pub(super) fn select(
    catalogue: &Catalogue,
    tests: Vec<TestRef>,
    settings: &ResolvedSettings,
) -> Result<RunSelection, CommandError> {
    let all = tests.len();
    // A filter that depends on the history needs the history of all tests. Otherwise, read it only for the
    // filtered tests.
    let past = |tests: &[TestRef]| match settings.run.is_history_kept {
        true => read_history(&settings.state_dir, catalogue, tests),
        false => HashMap::new(),
    };
    let (chosen, known) = if settings.filters.iter().any(Filter::depends_on_history) {
        let known = past(&tests);
        let last = |uid: &str| known.get(uid).map(|test| test.outcome);
        (filter_tests(catalogue, tests, settings, last), known)
    } else {
        let chosen = filter_tests(catalogue, tests, settings, |_| None);
        let known = past(&chosen);
        (chosen, known)
    };
    // Split the tests, and keep the durations of this partition.
    let mut expected: HashMap<_, _> =
        known.into_iter().filter_map(|(uid, test)| Some((uid, test.expected_duration()?))).collect();
    let PartitionedTests { chosen, mut shard, warning } = apply_partition(catalogue, chosen, settings)?;
    // Other partitions may have the set-ups, so each partition adds the ones that its tests need.
    let selected = chosen.len();
    let chosen = add_fixture_tests(catalogue, chosen);
    let added_for_fixtures = chosen.len() - selected;
    if let Some(shard) = &mut shard {
        shard.fixture_tests = added_for_fixtures;
    }
    let ours: HashSet<&str> = chosen.iter().map(|test| catalogue.uid(*test)).collect();
    expected.retain(|uid, _| ours.contains(uid.as_str()));
    // A rerun selects among the tests to rerun, which may not include the added ones.
    let left_out = all.saturating_sub(chosen.len());
    Ok(RunSelection { chosen, left_out, added_for_fixtures, expected, shard, split_warning: warning })
}

fn filter_tests(
    catalogue: &Catalogue,
    mut tests: Vec<TestRef>,
    settings: &ResolvedSettings,
    last: impl Fn(&str) -> Option<heeler_core::Outcome>,
) -> Vec<TestRef> {
    let is_only_ignored = settings.program.run_ignored == RunIgnored::Only;
    tests.retain(|place| {
        let config_suite = catalogue.config_suite(*place);
        catalogue.with_description(*place, |test| {
            // Keep an unlistable program if a filter may select any of its tests, because a run without
            // these tests has not passed.
            if is_unlisted_program(place) {
                return settings.may_be_selected(&filter_subject(test, config_suite, None));
            }
            let is_ignored = || test.traits.iter().any(|one| one.name == key::IGNORED_TRAIT);
            (!is_only_ignored || is_ignored())
                && settings.is_selected(&filter_subject(test, config_suite, last(test.uid)))
        })
    });
    tests
}

fn filter_subject<'a>(
    test: &'a NodeDescription<'a>,
    config_suite: Option<&'a str>,
    last: Option<heeler_core::Outcome>,
) -> FilterSubject<'a> {
    FilterSubject {
        uid: test.uid,
        suite: test.suite,
        config_suite,
        program: test.program.into(),
        tags: test.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
        last,
    }
}

/// Returns the tests of the configured partition. The split may depend only on data that all machines share:
/// the tests, and the durations of a history file given for the split.
fn apply_partition(
    catalogue: &Catalogue,
    mut chosen: Vec<TestRef>,
    settings: &ResolvedSettings,
) -> Result<PartitionedTests, CommandError> {
    let Some(spec) = &settings.partition else {
        return Ok(PartitionedTests { chosen, shard: None, warning: None });
    };
    // Without shared durations, a split by time falls back to a split by hash.
    let (rule, warning) = match (spec.kind, &settings.split.history) {
        (PartitionKind::Slice, _) => (PartitionRule::Slice, None),
        (PartitionKind::Hash, _) => (PartitionRule::Hash, None),
        (PartitionKind::Time, Some(_)) => (PartitionRule::Time, None),
        (PartitionKind::Time, None) => (PartitionRule::Hash, Some(NO_SHARED_DURATIONS)),
    };
    let durations = match &settings.split.history {
        Some(path) if rule == PartitionRule::Time => read_shared_durations(path, catalogue, &chosen)?,
        _ => HashMap::new(),
    };
    // If a digest is requested, check that this machine splits the same tests and durations.
    let with_duration = |test: &TestRef| {
        let uid = catalogue.uid(*test);
        (uid, durations.get(uid).copied())
    };
    let tests: Vec<_> = chosen.iter().map(with_duration).collect();
    let (index, count) = (spec.index.get(), spec.count.get());
    let partition = TestPartition { rule, index, count };
    let digest = partition.split_digest(&tests);
    if let Some(wanted) = settings.split.digest
        && wanted != digest
    {
        return Err(CommandError::OtherSplit { wanted, digest });
    }
    let shard = RunShard {
        partition: spec.to_string(),
        index,
        count,
        digest: digest.to_string(),
        selected: chosen.len(),
        fixture_tests: 0,
    };
    // Keep this partition's tests.
    let mut is_ours = partition.select(&tests).into_iter();
    chosen.retain(|_| is_ours.next().unwrap_or(false));
    Ok(PartitionedTests { chosen, shard: Some(shard), warning })
}

/// Reads the durations of the shared history. Unlike this machine's own history, it must be readable,
/// because without it this machine would split differently.
fn read_shared_durations(
    path: &Path,
    catalogue: &Catalogue,
    tests: &[TestRef],
) -> Result<HashMap<String, Duration>, CommandError> {
    let failed = |source| CommandError::PartitionHistory { path: path.to_owned(), source };
    // A missing file is the most likely mistake, so it has a separate error.
    let metadata = std::fs::metadata(path);
    metadata.map_err(|source| CommandError::NoPartitionHistory { path: path.to_owned(), source })?;
    let known = HistoryStore::open_read_only(path)
        .and_then(|history| history.load(tests.iter().map(|test| catalogue.uid(*test))))
        .map_err(failed)?;
    Ok(known.into_iter().filter_map(|(uid, test)| Some((uid, test.expected_duration()?))).collect())
}

/// Reads the history of the tests; returns an empty map without a readable history.
fn read_history(state_dir: &Path, catalogue: &Catalogue, tests: &[TestRef]) -> HashMap<String, TestHistory> {
    let path = state_dir.join(history::FILE_NAME);
    if !path.exists() {
        return HashMap::new();
    }
    let known = HistoryStore::open(&path)
        .and_then(|history| history.load(tests.iter().map(|test| catalogue.uid(*test))));
    known.unwrap_or_else(|error| {
        tracing::warn!(
            error = heeler_core::error_chain(&error),
            "failed to read the test history; continuing without it"
        );
        HashMap::new()
    })
}
