//! Groups above a run's tests: those of the whole run, of one lease, and those that the finisher must send.

use std::collections::HashMap;

use wire::{
    control::{Group, LeasedTest},
    mtp::{RawChange, group_node},
};

use super::RunPlan;

/// Collects groups, each after its parent.
#[derive(Debug, Default)]
pub(super) struct GroupList {
    groups: Vec<Group>,
    places: HashMap<String, u32>,
}

impl GroupList {
    /// Adds nested groups, outermost first; returns the index of the innermost.
    pub(super) fn add(&mut self, names: &[(&str, &str)]) -> Option<u32> {
        let (innermost, _) = names.last()?;
        if let Some(place) = self.places.get(*innermost) {
            return Some(*place);
        }
        let mut parent = None;
        for (uid, name) in names {
            let place = self.places.get(*uid).copied().unwrap_or_else(|| {
                let place = u32::try_from(self.groups.len()).expect("there are fewer groups than tests");
                let (uid, name) = ((*uid).to_owned(), (*name).to_owned());
                self.groups.push(Group { uid: uid.clone(), name, parent, foreign: None });
                self.places.insert(uid, place);
                place
            });
            parent = Some(place);
        }
        parent
    }

    pub(super) fn finish(self) -> Vec<Group> {
        self.groups
    }
}

/// Returns the subset of groups above the tests of a lease, and stores the index of each test's group in the
/// test.
pub(super) fn lend(plan: &RunPlan, tests: &mut [LeasedTest]) -> Vec<Group> {
    let mut lent = Vec::new();
    let mut places = HashMap::new();
    for test in tests {
        test.group = plan.tests[test.test.0 as usize].group.map(|place| {
            take(plan, place, &mut |place, parent| {
                *places.entry(place).or_insert_with(|| {
                    lent.push(Group { parent, ..plan.groups[place as usize].clone() });
                    u32::try_from(lent.len() - 1).expect("there are fewer groups than tests")
                })
            })
        });
    }
    lent
}

/// Adds a group after the groups above it.
fn take(plan: &RunPlan, place: u32, lend: &mut impl FnMut(u32, Option<u32>) -> u32) -> u32 {
    let parent = plan.groups[place as usize].parent.map(|parent| take(plan, parent, lend));
    lend(place, parent)
}

/// Returns a group's uid.
pub(super) fn uid(plan: &RunPlan, place: Option<u32>) -> Option<&str> {
    Some(&plan.groups[place? as usize].uid)
}

/// Returns the changes of all groups of the run if any tests are to be sent, because those may belong to any
/// group.
pub(super) fn due(plan: &RunPlan, tests: usize) -> Vec<RawChange> {
    if tests == 0 {
        return Vec::new();
    }
    let change = |group: &Group| {
        let node = group_node(&group.uid, &group.name);
        RawChange::new(uid(plan, group.parent), &node, group.foreign.as_deref())
    };
    plan.groups.iter().map(change).collect()
}
