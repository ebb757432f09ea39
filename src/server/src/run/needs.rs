//! Derives the slots, resources and locks that tests take from their settings and traits. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use heeler_config::{ResourceAmount, TestSettings};
use heeler_core::{MemoryBudget, ResourceId, Slots, batching::LeaseNeeds};
use heeler_protocol::control::{
    COST_TRAIT, ListedTest, PROCESSORS_TRAIT, RESOURCE_LOCK_TRAIT, RUN_SERIAL_TRAIT,
};

/// Capacity of a resource that no configuration declares, such as a lock of CTest.
const LOCK_CAPACITY: u32 = 1;

/// Name of a resource, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceName {
    /// The resource has this name in the configuration, or in the traits of tests.
    Named(String),
    /// The memory of the machine.
    Memory,
    /// The limit of concurrent processes of the program with this index.
    ProcessesOf(usize),
}

/// The resources of a run, numbered as its tests name them.
#[derive(Debug, Default)]
pub(super) struct ResourceIds {
    by_name: HashMap<String, ResourceId>,
    /// The memory of the machine, if tests need it.
    memory: Option<ResourceId>,
    names: Vec<ResourceName>,
    capacities: Vec<u32>,
}

impl ResourceIds {
    /// Returns the needs of a test. `declared` holds the capacities of the configured resources, which locks
    /// of a framework share by name.
    pub(super) fn needs_of(
        &mut self,
        listed: &ListedTest,
        settings: &TestSettings,
        declared: &BTreeMap<String, u32>,
    ) -> LeaseNeeds {
        let mut needs = LeaseNeeds { priority: settings.priority, ..LeaseNeeds::default() };
        for one in &listed.traits {
            match one.name.as_str() {
                RUN_SERIAL_TRAIT => needs.weight = Slots(usize::MAX),
                PROCESSORS_TRAIT => {
                    let processors = one.value.parse().unwrap_or(1);
                    needs.weight = needs.weight.max(Slots(processors));
                }
                RESOURCE_LOCK_TRAIT => self.add(&mut needs, &one.value, ResourceAmount::All, declared),
                _ => {}
            }
        }
        if let Some(weight) = settings.weight {
            needs.weight = Slots(usize::try_from(weight.get()).unwrap_or(usize::MAX));
        }
        for used in settings.uses.iter().flat_map(|uses| uses.iter()) {
            self.add(&mut needs, &used.resource, used.amount, declared);
        }
        needs
    }

    /// Adds the memory that a test needs, in the units of [`MemoryBudget`].
    pub(super) fn add_memory(&mut self, needs: &mut LeaseNeeds, units: u32) {
        let known = self.memory;
        let memory = known.unwrap_or_else(|| self.insert(ResourceName::Memory, MemoryBudget::CAPACITY));
        self.memory = Some(memory);
        needs.resources.insert(memory, units);
    }

    fn add(
        &mut self,
        needs: &mut LeaseNeeds,
        name: &str,
        amount: ResourceAmount,
        declared: &BTreeMap<String, u32>,
    ) {
        let capacity = declared.get(name).copied().unwrap_or(LOCK_CAPACITY);
        let resource = match self.by_name.get(name) {
            Some(resource) => *resource,
            None => {
                let added = self.insert(ResourceName::Named(name.to_owned()), capacity);
                self.by_name.insert(name.to_owned(), added);
                added
            }
        };
        let amount = match amount {
            ResourceAmount::All => capacity,
            ResourceAmount::Units(amount) => amount.min(capacity),
        };
        let needed = needs.resources.entry(resource).or_default();
        *needed = amount.max(*needed);
    }

    /// Adds a resource that no test names yet.
    pub(super) fn insert(&mut self, name: ResourceName, capacity: u32) -> ResourceId {
        let next = u32::try_from(self.capacities.len()).expect("there are fewer than 2^32 resources");
        self.names.push(name);
        self.capacities.push(capacity);
        ResourceId(next)
    }

    /// Returns the names and the capacities in the order of the ids.
    pub(super) fn into_parts(self) -> (Vec<ResourceName>, Vec<u32>) {
        (self.names, self.capacities)
    }
}

/// Returns the duration that a test's own trait expects. CTest's costs need not be seconds, but their order
/// counts.
pub(super) fn expected_duration(listed: &ListedTest) -> Option<Duration> {
    let cost = listed.traits.iter().find(|one| one.name == COST_TRAIT)?;
    Duration::try_from_secs_f64(cost.value.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use heeler_config::ResourceUse;
    use heeler_protocol::control::TraitPair;

    use super::*;

    fn listed(traits: &[(&str, &str)]) -> ListedTest {
        let pair =
            |(name, value): &(&str, &str)| TraitPair { name: (*name).to_owned(), value: (*value).to_owned() };
        ListedTest { traits: traits.iter().map(pair).collect(), ..ListedTest::default() }
    }

    fn uses(of: &[(&str, ResourceAmount)]) -> TestSettings {
        let one = |(resource, amount): &(&str, ResourceAmount)| ResourceUse {
            resource: (*resource).to_owned(),
            amount: *amount,
        };
        TestSettings { uses: Some(of.iter().map(one).collect()), ..TestSettings::default() }
    }

    #[test]
    fn settings_and_traits_name_the_same_resources() {
        let declared = BTreeMap::from([("db".to_owned(), 4), ("gpu".to_owned(), 2)]);
        let mut ids = ResourceIds::default();
        let mut needs =
            |listed: &ListedTest, settings: &TestSettings| ids.needs_of(listed, settings, &declared);
        let plain = needs(&listed(&[("slow", "")]), &TestSettings::default());
        assert_eq!(plain, LeaseNeeds::default());
        let (lock, own) = (ResourceId(0), ResourceId(1));
        let locked =
            needs(&listed(&[(RESOURCE_LOCK_TRAIT, "db"), (RESOURCE_LOCK_TRAIT, "file")]), &uses(&[]));
        assert_eq!(locked.resources, BTreeMap::from([(lock, 4), (own, 1)]), "a lock takes everything");
        let reader = needs(&listed(&[]), &uses(&[("db", ResourceAmount::Units(1))]));
        assert_eq!(reader.resources, BTreeMap::from([(lock, 1)]));
        let greedy = uses(&[("gpu", ResourceAmount::Units(9)), ("db", ResourceAmount::Units(2))]);
        let greedy = needs(&listed(&[(RESOURCE_LOCK_TRAIT, "db")]), &greedy);
        assert_eq!(
            greedy.resources,
            BTreeMap::from([(lock, 4), (ResourceId(2), 2)]),
            "the larger amount counts"
        );
        let (names, capacities) = ids.into_parts();
        assert_eq!(names, ["db", "file", "gpu"].map(|name| ResourceName::Named(name.to_owned())));
        assert_eq!(capacities, [4, 1, 2]);
    }

    #[test]
    fn weight_is_the_configured_one_or_the_frameworks() {
        let mut ids = ResourceIds::default();
        let mut weight = |traits: &[(&str, &str)], weight| {
            let settings = TestSettings { weight: NonZeroU32::new(weight), ..TestSettings::default() };
            ids.needs_of(&listed(traits), &settings, &BTreeMap::new()).weight
        };
        assert_eq!(weight(&[(PROCESSORS_TRAIT, "4")], 0), Slots(4));
        assert_eq!(weight(&[(PROCESSORS_TRAIT, "0")], 0), Slots::ONE);
        assert_eq!(weight(&[(RUN_SERIAL_TRAIT, ""), (PROCESSORS_TRAIT, "2")], 0), Slots(usize::MAX));
        assert_eq!(weight(&[(RUN_SERIAL_TRAIT, "")], 2), Slots(2));
    }

    #[test]
    fn costs_are_seconds() {
        let cost = |text: &str| expected_duration(&listed(&[(COST_TRAIT, text)]));
        assert_eq!(cost("2.5"), Some(Duration::from_millis(2500)));
        assert_eq!([cost("-1"), cost("much"), cost("1e300")], [None; 3]);
    }
}
