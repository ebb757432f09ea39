//! Bonds: tests that run in one process because their setting `together` says so.

use std::collections::HashMap;

use heeler_core::run::ScheduledTest;

use super::selected_test::SelectedTest;
use crate::discovery::{Catalogue, TestRef};

/// `together` for the tests of each innermost group, such as a class.
const BY_CLASS: &str = "class";
/// `together` for the tests of each source file.
const BY_FILE: &str = "file";

/// Numbers the bonds of a plan.
#[derive(Debug, Default)]
pub(super) struct Bonds {
    /// By the program of the model, and what the tests have in common.
    by_key: HashMap<(usize, String), u32>,
}

impl Bonds {
    /// Returns the bond of a test; `None` if it may run in any process.
    pub(super) fn of(
        &mut self,
        planned: &ScheduledTest,
        test: &SelectedTest,
        catalogue: &Catalogue,
        place: TestRef,
    ) -> Option<u32> {
        let together = test.settings.together.as_deref().filter(|_| !planned.is_isolated)?;
        let common = match together {
            BY_CLASS => format!("class {}", catalogue.groups(place).last()?.0),
            BY_FILE => format!("file {}", test.listed.file.as_ref()?),
            name => format!("name {name}"),
        };
        let next = u32::try_from(self.by_key.len()).expect("a run has fewer than 2^32 tests");
        Some(*self.by_key.entry((planned.program.index(), common)).or_insert(next))
    }

    /// Moves the tests of each bond to the first of them, in their order.
    pub(super) fn make_adjacent(&self, tests: &mut Vec<SelectedTest>, scheduled: &mut Vec<ScheduledTest>) {
        if self.by_key.is_empty() {
            return;
        }
        let mut firsts: HashMap<u32, usize> = HashMap::new();
        let mut all: Vec<_> =
            std::mem::take(tests).into_iter().zip(std::mem::take(scheduled)).enumerate().collect();
        for (place, (_, planned)) in &all {
            if let Some(bond) = planned.bond {
                firsts.entry(bond).or_insert(*place);
            }
        }
        // The sort is stable, so other tests keep their places.
        all.sort_by_key(|(place, (_, planned))| planned.bond.map_or(*place, |bond| firsts[&bond]));
        (*tests, *scheduled) = all.into_iter().map(|(_, pair)| pair).unzip();
    }
}
