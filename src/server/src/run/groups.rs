//! Groups that contain a run's tests: all groups of the run, and the subset for one lease.

use std::collections::HashMap;

use heeler_protocol::control::{LeasedTest, TestGroup};

use super::RunPlan;
use crate::discovery::Catalogue;

/// Collects groups. Each group follows its parent.
#[derive(Debug, Default)]
pub(super) struct GroupList {
    groups: Vec<TestGroup>,
    places: HashMap<String, u32>,
}

impl GroupList {
    /// Adds nested groups of a catalogue, outermost first. Returns the index of the innermost.
    pub(super) fn add(&mut self, catalogue: &Catalogue, names: &[(&str, &str)]) -> Option<u32> {
        let (innermost, _) = names.last()?;
        if let Some(place) = self.places.get(*innermost) {
            return Some(*place);
        }
        let mut parent = None;
        for (uid, name) in names {
            let place = self.places.get(*uid).copied().unwrap_or_else(|| {
                let place = u32::try_from(self.groups.len()).expect("there are fewer groups than tests");
                let location = catalogue.group_location(uid).unwrap_or_default();
                self.groups.push(TestGroup {
                    uid: (*uid).to_owned(),
                    name: (*name).to_owned(),
                    parent,
                    file: location.file.map(str::to_owned),
                    line: location.line,
                });
                self.places.insert((*uid).to_owned(), place);
                place
            });
            parent = Some(place);
        }
        parent
    }

    pub(super) fn finish(self) -> Vec<TestGroup> {
        self.groups
    }
}

/// Returns the groups that contain a lease's tests, and sets each test's group index.
pub(super) fn subset(plan: &RunPlan, tests: &mut [LeasedTest]) -> Vec<TestGroup> {
    let mut subset = Vec::new();
    let mut places = HashMap::new();
    for test in tests {
        test.group = plan.tests[test.test.0 as usize].group.map(|place| {
            add_with_parents(plan, place, &mut |place, parent| {
                *places.entry(place).or_insert_with(|| {
                    subset.push(TestGroup { parent, ..plan.groups[place as usize].clone() });
                    u32::try_from(subset.len() - 1).expect("there are fewer groups than tests")
                })
            })
        });
    }
    subset
}

/// Adds a group's ancestors, then the group. Returns the group's new index.
fn add_with_parents(plan: &RunPlan, place: u32, lend: &mut impl FnMut(u32, Option<u32>) -> u32) -> u32 {
    let parent = plan.groups[place as usize].parent.map(|parent| add_with_parents(plan, parent, lend));
    lend(place, parent)
}
