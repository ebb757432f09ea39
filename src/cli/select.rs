//! Selects the tests to run from the discovered ones: filters first, then the partition.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Duration,
};

use heeler_protocol::mtp::{TestNode, key};

use super::{exit::CommandError, run::is_unlisted_program};
use heeler_config::filter::{Filter, FilterSubject};
use heeler_config::{PartitionKind, ResolvedSettings};
use heeler_run_store::history::{self, HistoryStore, TestHistory};

/// The selected tests, and the number of the others.
pub(super) struct TestSelection {
    pub(super) chosen: Vec<TestNode>,
    pub(super) left_out: usize,
    /// Durations of the selected tests in earlier runs.
    pub(super) expected: HashMap<String, Duration>,
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
pub(super) fn select(nodes: Vec<TestNode>, settings: &ResolvedSettings) -> TestSelection {
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
        known.into_iter().filter_map(|(uid, test)| Some((uid, test.mean.or(test.last)?))).collect();
    let chosen = apply_partition(chosen, settings, &expected);
    let ours: HashSet<&str> = chosen.iter().map(|node| node.uid.as_str()).collect();
    expected.retain(|uid, _| ours.contains(uid.as_str()));
    TestSelection { left_out: all - chosen.len(), chosen, expected }
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
    nodes.into_iter().filter(is_selected).collect()
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

fn apply_partition(
    mut chosen: Vec<TestNode>,
    settings: &ResolvedSettings,
    expected: &HashMap<String, Duration>,
) -> Vec<TestNode> {
    let Some(partition) = &settings.partition else { return chosen };
    let rule = match partition.kind {
        PartitionKind::Slice => heeler_core::partition::PartitionRule::Slice,
        PartitionKind::Hash => heeler_core::partition::PartitionRule::Hash,
        PartitionKind::Time => heeler_core::partition::PartitionRule::Time,
    };
    let partition = heeler_core::partition::TestPartition {
        rule,
        index: partition.index.get(),
        count: partition.count.get(),
    };
    let tests: Vec<_> =
        chosen.iter().map(|node| (node.uid.as_str(), expected.get(&node.uid).copied())).collect();
    let mut is_ours = partition.select(&tests).into_iter();
    chosen.retain(|_| is_ours.next().unwrap_or(false));
    chosen
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
