//! Selects the tests to run from the discovered ones: filters first, then the partition.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Duration,
};

use heeler_core::partition::{PartitionRule, TestPartition};
use heeler_protocol::mtp::{ExecutionState, RunShard, TestNode, key};

use super::{display::RunHead, exit::CommandError, rerun::RerunPlan};
use heeler_config::filter::{Filter, FilterSubject};
use heeler_config::{PartitionKind, ResolvedSettings, RunIgnored};
use heeler_run_store::history::{self, HistoryStore, TestHistory};

/// The selected tests, and the number of the others.
pub(super) struct RunSelection {
    pub(super) chosen: Vec<TestNode>,
    pub(super) left_out: usize,
    /// Durations of the selected tests in earlier runs.
    pub(super) expected: HashMap<String, Duration>,
    /// The partition that they are.
    pub(super) shard: Option<RunShard>,
    /// Why the tests are not split as requested.
    pub(super) split_warning: Option<&'static str>,
}

impl RunSelection {
    /// Returns the head of a run of these tests, with its own notes first. Programs that can't be listed are
    /// reported beside the tests and not counted as tests.
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
        let programs: HashSet<_> =
            self.chosen.iter().filter_map(|node| node.text_member(key::SUITE)).collect();
        let tests = self.chosen.iter().filter(|node| !is_unlisted_program(node)).count();
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

/// Warning for a split by time without durations that all machines share.
const NO_SHARED_DURATIONS: &str = "the tests are split by a hash of their names: time:k/n needs --partition-history, the \
    same durations on all machines, since partitions by different durations would leave tests out";

/// Tests of a partition.
struct PartitionedTests {
    chosen: Vec<TestNode>,
    shard: Option<RunShard>,
    warning: Option<&'static str>,
}

/// Returns whether a discovered node represents a program that could not be listed.
pub(super) fn is_unlisted_program(node: &TestNode) -> bool {
    node.state == Some(ExecutionState::Error)
}

/// Returns an error for a filter that depends on a history that is off.
pub(super) fn check_filters(settings: &ResolvedSettings) -> Result<(), CommandError> {
    match settings.filters.iter().find(|filter| filter.depends_on_history()) {
        Some(filter) if !settings.run.is_history_kept => {
            Err(CommandError::NoHistory { filter: filter.to_string() })
        }
        _ => Ok(()),
    }
}

/// Selects tests by the settings.
///
/// # Errors
/// The history to split by can't be read, or the split is not the one that is demanded.
pub(super) fn select(
    nodes: Vec<TestNode>,
    settings: &ResolvedSettings,
) -> Result<RunSelection, CommandError> {
    let all = nodes.len();
    let past = |nodes: &[TestNode]| match settings.run.is_history_kept {
        true => read_history(&settings.state_dir, nodes),
        false => HashMap::new(),
    };
    let (chosen, known) = if settings.filters.iter().any(Filter::depends_on_history) {
        let known = past(&nodes);
        let last = |uid: &str| known.get(uid).map(|test| test.outcome);
        (filter_nodes(nodes, settings, last), known)
    } else {
        let chosen = filter_nodes(nodes, settings, |_| None);
        let known = past(&chosen);
        (chosen, known)
    };
    let mut expected: HashMap<_, _> =
        known.into_iter().filter_map(|(uid, test)| Some((uid, test.expected_duration()?))).collect();
    let PartitionedTests { chosen, shard, warning } = apply_partition(chosen, settings)?;
    let ours: HashSet<&str> = chosen.iter().map(|node| node.uid.as_str()).collect();
    expected.retain(|uid, _| ours.contains(uid.as_str()));
    Ok(RunSelection { left_out: all - chosen.len(), chosen, expected, shard, split_warning: warning })
}

fn filter_nodes(
    nodes: Vec<TestNode>,
    settings: &ResolvedSettings,
    last: impl Fn(&str) -> Option<heeler_core::Outcome>,
) -> Vec<TestNode> {
    // A program that could not be listed is kept whenever a filter may select one of its tests: a run without
    // these tests has not passed.
    let is_selected = |node: &TestNode| match is_unlisted_program(node) {
        true => settings.may_be_selected(&filter_subject(node, None)),
        false => settings.is_selected(&filter_subject(node, last(&node.uid))),
    };
    let is_only_ignored = settings.program.run_ignored == RunIgnored::Only;
    let is_ignored = |node: &TestNode| node.traits.iter().any(|one| one.name == key::IGNORED_TRAIT);
    let is_wanted = |node: &TestNode| !is_only_ignored || is_ignored(node) || is_unlisted_program(node);
    nodes.into_iter().filter(|node| is_wanted(node) && is_selected(node)).collect()
}

fn filter_subject(node: &TestNode, last: Option<heeler_core::Outcome>) -> FilterSubject<'_> {
    FilterSubject {
        uid: &node.uid,
        suite: node.text_member(key::SUITE).unwrap_or_default(),
        program: node.text_member(key::PROGRAM).unwrap_or_default().into(),
        tags: node.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
        last,
    }
}

/// Takes the tests of the configured partition. The split depends on nothing but what all machines share: the
/// tests, and the durations of a history that is given for that.
fn apply_partition(
    mut chosen: Vec<TestNode>,
    settings: &ResolvedSettings,
) -> Result<PartitionedTests, CommandError> {
    let Some(spec) = &settings.partition else {
        return Ok(PartitionedTests { chosen, shard: None, warning: None });
    };
    let (rule, warning) = match (spec.kind, &settings.split.history) {
        (PartitionKind::Slice, _) => (PartitionRule::Slice, None),
        (PartitionKind::Hash, _) => (PartitionRule::Hash, None),
        (PartitionKind::Time, Some(_)) => (PartitionRule::Time, None),
        (PartitionKind::Time, None) => (PartitionRule::Hash, Some(NO_SHARED_DURATIONS)),
    };
    let durations = match &settings.split.history {
        Some(path) if rule == PartitionRule::Time => read_shared_durations(path, &chosen)?,
        _ => HashMap::new(),
    };
    let tests: Vec<_> =
        chosen.iter().map(|node| (node.uid.as_str(), durations.get(&node.uid).copied())).collect();
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
    };
    let mut is_ours = partition.select(&tests).into_iter();
    chosen.retain(|_| is_ours.next().unwrap_or(false));
    Ok(PartitionedTests { chosen, shard: Some(shard), warning })
}

/// Reads the durations of a history that all machines share. Unlike the own history, it has to be readable:
/// without it this machine would split differently.
fn read_shared_durations(path: &Path, nodes: &[TestNode]) -> Result<HashMap<String, Duration>, CommandError> {
    let failed = |source| CommandError::PartitionHistory { path: path.to_owned(), source };
    // It is the most likely mistake, and has an error of its own.
    let metadata = std::fs::metadata(path);
    metadata.map_err(|source| CommandError::NoPartitionHistory { path: path.to_owned(), source })?;
    let known = HistoryStore::open_read_only(path)
        .and_then(|history| history.load(nodes.iter().map(|node| node.uid.as_str())))
        .map_err(failed)?;
    Ok(known.into_iter().filter_map(|(uid, test)| Some((uid, test.expected_duration()?))).collect())
}

/// Reads the history of the tests; returns an empty map when there is no readable history.
fn read_history(state_dir: &Path, nodes: &[TestNode]) -> HashMap<String, TestHistory> {
    let path = state_dir.join(history::FILE_NAME);
    if !path.exists() {
        return HashMap::new();
    }
    let known = HistoryStore::open(&path)
        .and_then(|history| history.load(nodes.iter().map(|node| node.uid.as_str())));
    known.unwrap_or_else(|error| {
        tracing::warn!(error = heeler_core::error_chain(&error), "the history of earlier runs is not used");
        HashMap::new()
    })
}
