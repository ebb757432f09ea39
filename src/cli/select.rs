//! Which of the discovered tests are to run: filters first, then the partition.

use std::{collections::HashMap, path::Path, time::Duration};

use wire::mtp::TestNode;

use crate::{
    config::{PartitionKind, Settings},
    history::{self, History},
};

/// The chosen tests, and how many are not.
pub(super) struct Selection {
    pub(super) chosen: Vec<TestNode>,
    pub(super) left_out: usize,
    /// What earlier runs took, of the chosen.
    pub(super) expected: HashMap<String, Duration>,
}

/// Selects by the settings.
pub(super) fn select(nodes: Vec<TestNode>, settings: &Settings) -> Selection {
    let all = nodes.len();
    let mut chosen: Vec<_> = nodes.into_iter().filter(|node| settings.is_selected(&node.uid)).collect();
    let expected =
        if settings.run.is_history_kept { durations(&settings.state_dir, &chosen) } else { HashMap::new() };
    if let Some(partition) = &settings.partition {
        let rule = match partition.kind {
            PartitionKind::Slice => model::partition::Rule::Slice,
            PartitionKind::Hash => model::partition::Rule::Hash,
            PartitionKind::Time => model::partition::Rule::Time,
        };
        let partition =
            model::partition::Partition { rule, index: partition.share.get(), count: partition.of.get() };
        let tests: Vec<_> =
            chosen.iter().map(|node| (node.uid.as_str(), expected.get(&node.uid).copied())).collect();
        let mut is_ours = partition.select(&tests).into_iter();
        chosen.retain(|_| is_ours.next().unwrap_or(false));
    }
    Selection { left_out: all - chosen.len(), chosen, expected }
}

/// What earlier runs took. Without a history that can be read, nothing is known.
fn durations(state_dir: &Path, nodes: &[TestNode]) -> HashMap<String, Duration> {
    let path = state_dir.join(history::FILE_NAME);
    if !path.exists() {
        return HashMap::new();
    }
    let known =
        History::open(&path).and_then(|history| history.load(nodes.iter().map(|node| node.uid.as_str())));
    match known {
        Ok(known) => {
            known.into_iter().filter_map(|(uid, test)| Some((uid, test.mean.or(test.last)?))).collect()
        }
        Err(error) => {
            tracing::warn!(error = crate::error_chain(&error), "durations of earlier runs are not used");
            HashMap::new()
        }
    }
}
