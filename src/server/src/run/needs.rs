//! Derives the slots, resources and locks that tests take from their settings and traits. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use heeler_config::{ResourceAmount, ResourceCapacity, TestSettings};
use heeler_core::{MemoryBudget, ResourceId, Slots, batching::LeaseNeeds};
use heeler_protocol::control::{
    COST_TRAIT, ListedTest, PROCESSORS_TRAIT, RESOURCE_GROUP_TRAIT, RESOURCE_LOCK_TRAIT, RUN_SERIAL_TRAIT,
    ResourceUnit,
};

use super::units::{GroupRequirement, UnitVariables};

/// Capacity of a resource that no configuration declares, such as a lock of CTest.
static LOCK_CAPACITY: ResourceCapacity = ResourceCapacity::Amount(1);

/// Name of the resource that stands for the memory of the machine.
const MEMORY: &str = "memory";

/// Needs of the tests of one program of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct TestNeeds {
    pub(super) lease: LeaseNeeds,
    /// Environment variables of their processes about the units that they get.
    pub(super) units: UnitVariables,
}

/// The resources that tests of a program may name.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeclaredResources<'a> {
    /// Resources of the configuration, which locks of a framework share by name.
    pub(super) configured: &'a BTreeMap<String, ResourceCapacity>,
    /// Resources of the program's source.
    pub(super) of_source: &'a BTreeMap<String, Vec<ResourceUnit>>,
}

/// Name of a resource, and its units if the source of a program declares it.
type ResourceKey = (String, Option<Vec<ResourceUnit>>);

/// Name of a resource, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceName {
    /// The resource has this name in the configuration, or in the traits of tests.
    Named(String),
    /// The limit of concurrent processes of the program with this index.
    ProcessesOf(usize),
}

/// The resources of a run, numbered as its tests name them.
#[derive(Debug, Default)]
pub(super) struct ResourceIds {
    by_key: HashMap<ResourceKey, ResourceId>,
    /// The memory of the machine, if tests need it.
    memory: Option<ResourceId>,
    names: Vec<ResourceName>,
    /// Amounts of the units of each resource.
    capacities: Vec<Vec<u32>>,
}

impl ResourceIds {
    /// Returns the needs of a test.
    pub(super) fn needs_of(
        &mut self,
        listed: &ListedTest,
        settings: &TestSettings,
        declared: DeclaredResources<'_>,
    ) -> TestNeeds {
        let mut needs = TestNeeds::default();
        needs.lease.priority = settings.priority;
        for one in &listed.traits {
            let weight = &mut needs.lease.weight;
            match one.name.as_str() {
                RUN_SERIAL_TRAIT => *weight = Slots(usize::MAX),
                PROCESSORS_TRAIT => *weight = Slots(one.value.parse().unwrap_or(1)).max(*weight),
                RESOURCE_LOCK_TRAIT => self.add(&mut needs, &one.value, ResourceAmount::All, declared),
                RESOURCE_GROUP_TRAIT => self.add_group(&mut needs, &one.value, declared),
                _ => {}
            }
        }
        if let Some(weight) = settings.weight {
            needs.lease.weight = Slots(usize::try_from(weight.get()).unwrap_or(usize::MAX));
        }
        for used in settings.uses.iter().flat_map(|uses| uses.iter()) {
            self.add(&mut needs, &used.resource, used.amount, declared);
        }
        needs
    }

    /// Adds the memory that a test needs, in the units of [`MemoryBudget`].
    pub(super) fn add_memory(&mut self, needs: &mut LeaseNeeds, units: u32) {
        let known = self.memory;
        let memory = known.unwrap_or_else(|| {
            self.insert(ResourceName::Named(MEMORY.to_owned()), vec![MemoryBudget::CAPACITY])
        });
        self.memory = Some(memory);
        needs.resources.insert(memory, vec![units]);
    }

    fn add(
        &mut self,
        needs: &mut TestNeeds,
        name: &str,
        amount: ResourceAmount,
        declared: DeclaredResources<'_>,
    ) {
        let capacity = declared.configured.get(name).unwrap_or(&LOCK_CAPACITY);
        let units = match capacity {
            ResourceCapacity::Amount(capacity) => vec![*capacity],
            ResourceCapacity::Units(names) => vec![1; names.len()],
        };
        let portions = match (amount, capacity) {
            (ResourceAmount::All, _) => units.clone(),
            (ResourceAmount::Units(amount), ResourceCapacity::Amount(capacity)) => {
                vec![amount.min(*capacity)]
            }
            (ResourceAmount::Units(amount), ResourceCapacity::Units(names)) => {
                vec![1; names.len().min(usize::try_from(amount).unwrap_or(usize::MAX))]
            }
        };
        let resource = self.id_of((name.to_owned(), None), units);
        if let ResourceCapacity::Units(names) = capacity {
            needs.units.add_named(resource, name, names);
        }
        // The larger need counts.
        let needed = needs.lease.resources.entry(resource).or_default();
        if portions.iter().sum::<u32>() > needed.iter().sum() {
            *needed = portions;
        }
    }

    /// Adds one of CTest's resource groups, written as `TYPE:AMOUNT,TYPE:AMOUNT`. Without declared resources,
    /// CTest ignores groups.
    fn add_group(&mut self, needs: &mut TestNeeds, group: &str, declared: DeclaredResources<'_>) {
        if declared.of_source.is_empty() {
            return;
        }
        let mut requirements = Vec::new();
        for (kind, amount) in group.split(',').filter_map(|one| one.split_once(':')) {
            let (Some(units), Ok(amount)) = (declared.of_source.get(kind), amount.parse()) else { continue };
            let amounts = units.iter().map(|unit| unit.amount).collect();
            let resource = self.id_of((kind.to_owned(), Some(units.clone())), amounts);
            needs.lease.resources.entry(resource).or_default().push(amount);
            let units = units.as_slice().into();
            requirements.push(GroupRequirement { resource, kind: kind.to_owned(), units });
        }
        needs.units.add_group(requirements);
    }

    fn id_of(&mut self, key: ResourceKey, units: Vec<u32>) -> ResourceId {
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let added = self.insert(ResourceName::Named(key.0.clone()), units);
        self.by_key.insert(key, added);
        added
    }

    /// Adds a resource that no test names yet.
    pub(super) fn insert(&mut self, name: ResourceName, units: Vec<u32>) -> ResourceId {
        let next = u32::try_from(self.capacities.len()).expect("there are fewer than 2^32 resources");
        self.names.push(name);
        self.capacities.push(units);
        ResourceId(next)
    }

    /// Returns the name of each resource and the amounts of its units, in the order of the ids.
    pub(super) fn into_parts(self) -> (Vec<ResourceName>, Vec<Vec<u32>>) {
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
    use std::{num::NonZeroU32, sync::Arc};

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

    /// Returns these resources of the configuration, and none of the source.
    fn configured(resources: &BTreeMap<String, ResourceCapacity>) -> DeclaredResources<'_> {
        static NONE: BTreeMap<String, Vec<ResourceUnit>> = BTreeMap::new();
        DeclaredResources { configured: resources, of_source: &NONE }
    }

    #[test]
    fn settings_and_traits_name_the_same_resources() {
        let declared = BTreeMap::from([
            ("db".to_owned(), ResourceCapacity::Amount(4)),
            ("gpu".to_owned(), ResourceCapacity::Amount(2)),
        ]);
        let mut ids = ResourceIds::default();
        let mut needs = |listed: &ListedTest, settings: &TestSettings| {
            let needs = ids.needs_of(listed, settings, configured(&declared));
            assert!(needs.units.is_empty());
            needs.lease
        };
        let plain = needs(&listed(&[("slow", "")]), &TestSettings::default());
        assert_eq!(plain, LeaseNeeds::default());
        let (lock, own) = (ResourceId(0), ResourceId(1));
        let locked =
            needs(&listed(&[(RESOURCE_LOCK_TRAIT, "db"), (RESOURCE_LOCK_TRAIT, "file")]), &uses(&[]));
        let expected = BTreeMap::from([(lock, vec![4]), (own, vec![1])]);
        assert_eq!(locked.resources, expected, "a lock takes everything");
        let reader = needs(&listed(&[]), &uses(&[("db", ResourceAmount::Units(1))]));
        assert_eq!(reader.resources, BTreeMap::from([(lock, vec![1])]));
        let greedy = uses(&[("gpu", ResourceAmount::Units(9)), ("db", ResourceAmount::Units(2))]);
        let greedy = needs(&listed(&[(RESOURCE_LOCK_TRAIT, "db")]), &greedy);
        assert_eq!(
            greedy.resources,
            BTreeMap::from([(lock, vec![4]), (ResourceId(2), vec![2])]),
            "the larger amount counts"
        );
        let (names, capacities) = ids.into_parts();
        assert_eq!(names, ["db", "file", "gpu"].map(|name| ResourceName::Named(name.to_owned())));
        assert_eq!(capacities, [[4], [1], [2]]);
    }

    #[test]
    fn named_units_are_portions_of_one() {
        let names: Arc<[String]> = ["a", "b", "c"].map(str::to_owned).into();
        let declared = BTreeMap::from([("gpu".to_owned(), ResourceCapacity::Units(names))]);
        let mut ids = ResourceIds::default();
        let mut portions = |amount| {
            let settings = uses(&[("gpu", amount), ("gpu", ResourceAmount::Units(1))]);
            let needs = ids.needs_of(&listed(&[]), &settings, configured(&declared));
            assert!(!needs.units.is_empty());
            needs.lease.resources[&ResourceId(0)].clone()
        };
        assert_eq!(portions(ResourceAmount::All), [1, 1, 1]);
        assert_eq!(portions(ResourceAmount::Units(2)), [1, 1]);
        assert_eq!(portions(ResourceAmount::Units(9)), [1, 1, 1]);
        assert_eq!(ids.into_parts().1, [[1, 1, 1]]);
    }

    #[test]
    fn groups_take_portions_of_the_resources_of_their_source() {
        let unit = |id: &str, amount| ResourceUnit { id: id.to_owned(), amount };
        let of_source = BTreeMap::from([
            ("gpus".to_owned(), vec![unit("0", 2), unit("1", 4)]),
            ("cores".to_owned(), vec![unit("7", 8)]),
        ]);
        let nothing = BTreeMap::new();
        let declared = DeclaredResources { configured: &nothing, of_source: &of_source };
        let mut ids = ResourceIds::default();
        let test =
            listed(&[(RESOURCE_GROUP_TRAIT, "gpus:2,cores:1"), (RESOURCE_GROUP_TRAIT, "gpus:1,gpus:3")]);
        let needs = ids.needs_of(&test, &uses(&[]), declared);
        let (gpus, cores) = (ResourceId(0), ResourceId(1));
        assert_eq!(needs.lease.resources, BTreeMap::from([(gpus, vec![2, 1, 3]), (cores, vec![1])]));
        let same_needs =
            listed(&[(RESOURCE_GROUP_TRAIT, "gpus:2,cores:1,gpus:1"), (RESOURCE_GROUP_TRAIT, "gpus:3")]);
        let others = ids.needs_of(&same_needs, &uses(&[]), declared);
        assert_eq!(others.lease, needs.lease);
        assert_ne!(others.units, needs.units, "the processes see other groups");
        let ignored = ids.needs_of(&test, &uses(&[]), configured(&nothing));
        assert_eq!(ignored, TestNeeds::default(), "CTest ignores groups without declared resources");
        assert_eq!(ids.into_parts().1, [vec![2, 4], vec![8]]);
    }

    #[test]
    fn weight_is_the_configured_one_or_the_frameworks() {
        let mut ids = ResourceIds::default();
        let nothing = BTreeMap::new();
        let mut weight = |traits: &[(&str, &str)], weight| {
            let settings = TestSettings { weight: NonZeroU32::new(weight), ..TestSettings::default() };
            ids.needs_of(&listed(traits), &settings, configured(&nothing)).lease.weight
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
