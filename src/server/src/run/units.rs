//! Environment variables that tell a test process which units of its resources it has. Pure.

use std::{collections::BTreeMap, sync::Arc};

use heeler_config::unit_variable;
use heeler_core::{ResourceId, batching::HeldPortion};
use heeler_protocol::{
    control::{OsText, ResourceUnit},
    ctest::GROUP_COUNT_VARIABLE,
};

/// Prefix of the variables that describe CTest's resource groups.
const GROUP_VARIABLE: &str = "CTEST_RESOURCE_GROUP_";

/// The variables of the processes of one program of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct UnitVariables {
    /// Names of the units of each configured resource that has named units.
    named: BTreeMap<ResourceId, NamedUnits>,
    /// CTest's resource groups, in order.
    groups: Vec<Vec<GroupRequirement>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NamedUnits {
    variable: String,
    names: Arc<[String]>,
}

/// A requirement of one of CTest's resource groups. A process holds one portion for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupRequirement {
    pub(super) resource: ResourceId,
    /// CTest's name for the resource.
    pub(super) kind: String,
    pub(super) units: Arc<[ResourceUnit]>,
}

impl UnitVariables {
    /// Adds a configured resource with named units.
    pub(super) fn add_named(&mut self, resource: ResourceId, name: &str, names: &Arc<[String]>) {
        let named = NamedUnits { variable: unit_variable(name), names: Arc::clone(names) };
        self.named.insert(resource, named);
    }

    /// Adds the next of CTest's resource groups.
    pub(super) fn add_group(&mut self, requirements: Vec<GroupRequirement>) {
        self.groups.push(requirements);
    }

    /// Returns whether the processes need not know any unit, so that one may start before its lease.
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.groups.is_empty()
    }

    /// Returns the variables of a process with these portions.
    pub(super) fn of_process(&self, portions: &[HeldPortion]) -> Vec<(OsText, OsText)> {
        let of_resource =
            |resource: ResourceId| portions.iter().filter(move |held| held.resource == resource);
        let named = self.named.iter().map(|(resource, NamedUnits { variable, names })| {
            let units = of_resource(*resource).filter_map(|held| names.get(held.unit as usize));
            (variable.clone(), units.map(String::as_str).collect::<Vec<_>>().join(","))
        });
        let mut variables: Vec<(String, String)> = named.collect();
        if !self.groups.is_empty() {
            variables.push((GROUP_COUNT_VARIABLE.to_owned(), self.groups.len().to_string()));
        }
        // Each requirement takes the next portion of its resource.
        let mut taken: BTreeMap<ResourceId, usize> = BTreeMap::new();
        for (number, group) in self.groups.iter().enumerate() {
            let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for GroupRequirement { resource, kind, units } in group {
                let next = taken.entry(*resource).or_default();
                let held = of_resource(*resource).nth(*next);
                *next += 1;
                if let Some((held, unit)) = held.and_then(|held| Some((held, units.get(held.unit as usize)?)))
                {
                    let text = format!("id:{},slots:{}", unit.id, held.amount);
                    kinds.entry(kind).or_default().push(text);
                }
            }
            let names: Vec<&str> = kinds.keys().copied().collect();
            variables.push((format!("{GROUP_VARIABLE}{number}"), names.join(",")));
            variables.extend(kinds.into_iter().map(|(kind, units)| {
                (format!("{GROUP_VARIABLE}{number}_{}", kind.to_uppercase()), units.join(";"))
            }));
        }
        variables.into_iter().map(|(name, value)| (OsText::from(name), OsText::from(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(variables: Vec<(OsText, OsText)>) -> Vec<String> {
        variables.iter().map(|(name, value)| format!("{}={}", name.to_text(), value.to_text())).collect()
    }

    fn held(resource: u32, unit: u32, amount: u32) -> HeldPortion {
        HeldPortion { resource: ResourceId(resource), unit, amount }
    }

    #[test]
    fn named_units_are_listed_by_name() {
        let mut variables = UnitVariables::default();
        assert!(variables.is_empty());
        variables.add_named(ResourceId(1), "big gpu", &["a", "b", "c"].map(str::to_owned).into());
        assert!(!variables.is_empty());
        let found = variables.of_process(&[held(0, 1, 1), held(1, 2, 1), held(1, 0, 1)]);
        assert_eq!(texts(found), ["HEELER_UNIT_BIG_GPU=c,a"]);
    }

    #[test]
    fn groups_are_described_as_by_ctest() {
        let units = |ids: &[&str]| -> Arc<[ResourceUnit]> {
            ids.iter().map(|id| ResourceUnit { id: (*id).to_owned(), amount: 4 }).collect()
        };
        let (gpus, cores) = (units(&["0", "x"]), units(&["7"]));
        let gpu =
            || GroupRequirement { resource: ResourceId(0), kind: "gpus".to_owned(), units: gpus.clone() };
        let core =
            || GroupRequirement { resource: ResourceId(2), kind: "cores".to_owned(), units: cores.clone() };
        let mut variables = UnitVariables::default();
        variables.add_group(vec![gpu(), core()]);
        variables.add_group(vec![]);
        variables.add_group(vec![gpu(), gpu()]);
        let portions = [held(0, 1, 2), held(0, 0, 1), held(0, 0, 3), held(1, 0, 1), held(2, 0, 4)];
        assert_eq!(
            texts(variables.of_process(&portions)),
            [
                "CTEST_RESOURCE_GROUP_COUNT=3",
                "CTEST_RESOURCE_GROUP_0=cores,gpus",
                "CTEST_RESOURCE_GROUP_0_CORES=id:7,slots:4",
                "CTEST_RESOURCE_GROUP_0_GPUS=id:x,slots:2",
                "CTEST_RESOURCE_GROUP_1=",
                "CTEST_RESOURCE_GROUP_2=gpus",
                "CTEST_RESOURCE_GROUP_2_GPUS=id:0,slots:1;id:0,slots:3",
            ]
        );
    }
}
