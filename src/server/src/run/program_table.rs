//! The programs of a plan: as the run starts them, and as the model schedules them. The model lists a program
//! once for each set of resources that its tests need.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use heeler_config::{ResourceCapacity, TestSettings};
use heeler_core::{
    ProgramId,
    batching::{ProcessTraits, ProgramCosts},
};
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{
    needs::{DeclaredResources, ResourceIds, ResourceName, TestNeeds},
    units::UnitVariables,
};

/// Returns the id of the program of the model with this index.
pub(super) fn program_id(place: usize) -> ProgramId {
    ProgramId(u32::try_from(place).expect("a session has fewer than 2^32 programs"))
}

/// Facts from the listing of a program, besides its tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingFacts {
    /// Number of tests that the framework runs by default; `None` if the program could not be listed.
    pub runnable_tests: Option<usize>,
    /// Time that the listing process took.
    pub start: Option<Duration>,
    /// How the listing process failed after it had listed all tests.
    pub failure: Option<Arc<str>>,
    /// Whether the program runs in a single process because its processes blocked each other in an earlier
    /// run.
    pub has_conflict: bool,
}

/// A program of the run with its costs and listing facts.
pub(super) struct PlannedProgram {
    pub(super) program: TestProgram,
    pub(super) costs: ProgramCosts,
    pub(super) listing: ListingFacts,
}

/// The programs of a plan.
#[derive(Debug)]
pub(super) struct PlannedPrograms {
    pub(super) programs: Vec<Arc<TestProgram>>,
    /// Listing facts of each program.
    pub(super) listings: Vec<ListingFacts>,
    /// Index in `programs` of each program of the model.
    pub(super) model_programs: Vec<usize>,
    /// Fixtures whose variables the processes of each program of the model get.
    pub(super) fixtures: Vec<Arc<[String]>>,
    /// Environment variables about units, for the processes of each program of the model.
    pub(super) units: Vec<UnitVariables>,
    /// Costs of the programs of the model.
    pub(super) costs: Vec<ProgramCosts>,
    /// Names of the resources that the programs of the model need.
    pub(super) resources: Vec<ResourceName>,
    /// Amounts of the units of each of these resources.
    pub(super) capacities: Vec<Vec<u32>>,
}

/// The facts that decide the needs of a test.
pub(super) struct NeedyTest<'t> {
    pub(super) listed: &'t ListedTest,
    pub(super) settings: &'t TestSettings,
    /// Names of the fixtures that the test needs; each follows the fixtures that it needs.
    pub(super) fixtures: Arc<[String]>,
    /// Memory of its process, in the units of `MemoryBudget`.
    pub(super) memory_units: u32,
}

/// Collects the programs of a plan while its tests are planned.
#[derive(Debug, Default)]
pub(super) struct ProgramTable {
    by_place: HashMap<Option<usize>, usize>,
    programs: Vec<Arc<TestProgram>>,
    /// Costs of each program, without the limits and needs of its tests.
    base_costs: Vec<ProgramCosts>,
    listings: Vec<ListingFacts>,
    /// Index of each program of the model, by its program, needs and fixtures.
    by_needs: HashMap<(usize, TestNeeds, Arc<[String]>), usize>,
    model_programs: Vec<usize>,
    fixtures: Vec<Arc<[String]>>,
    units: Vec<UnitVariables>,
    costs: Vec<ProgramCosts>,
    resources: ResourceIds,
}

impl ProgramTable {
    /// Returns the index of the program at this place of the catalogue. `make` plans it for its first test.
    pub(super) fn get_or_insert(
        &mut self,
        place: Option<usize>,
        make: impl FnOnce() -> PlannedProgram,
    ) -> usize {
        if let Some(known) = self.by_place.get(&place) {
            return *known;
        }
        let added = self.add(make());
        self.by_place.insert(place, added);
        added
    }

    /// Adds a program that is at no place of the catalogue.
    pub(super) fn add(&mut self, planned: PlannedProgram) -> usize {
        let PlannedProgram { program, costs, listing } = planned;
        self.programs.push(Arc::new(program));
        self.base_costs.push(costs);
        self.listings.push(listing);
        self.programs.len() - 1
    }

    /// Returns the fixtures whose variables the processes of a program of the model get.
    pub(super) fn fixtures_of(&self, model_program: usize) -> &Arc<[String]> {
        &self.fixtures[model_program]
    }

    pub(super) fn process_traits(&self, program: usize) -> ProcessTraits {
        self.base_costs[program].process
    }

    /// Returns the index of the program of the model for a test of a program. `configured` are the resources
    /// of the configuration.
    pub(super) fn model_program(
        &mut self,
        program: usize,
        NeedyTest { listed, settings, fixtures, memory_units }: NeedyTest<'_>,
        configured: &BTreeMap<String, ResourceCapacity>,
    ) -> usize {
        let declared = DeclaredResources { configured, of_source: &self.programs[program].resources };
        let mut needs = self.resources.needs_of(listed, settings, declared);
        if memory_units > 0 {
            self.resources.add_memory(&mut needs.lease, memory_units);
        }
        *self.by_needs.entry((program, needs, fixtures)).or_insert_with_key(|(_, needs, fixtures)| {
            self.model_programs.push(program);
            self.fixtures.push(Arc::clone(fixtures));
            self.units.push(needs.units.clone());
            self.costs.push(ProgramCosts { needs: needs.lease.clone(), ..self.base_costs[program].clone() });
            self.costs.len() - 1
        })
    }

    /// Applies the process limit of a test to its program of the model.
    pub(super) fn limit_processes(&mut self, model_program: usize, settings: &TestSettings) {
        let listing = &mut self.listings[self.model_programs[model_program]];
        let costs = &mut self.costs[model_program];
        // Tests in one process run one after another, including tests rerun after the process dies.
        let one = (costs.process.is_one_batch && !settings.is_isolated).then_some(NonZeroU32::MIN);
        // A configured `max-processes` takes precedence over a conflict learned from earlier runs.
        listing.has_conflict &= settings.max_processes.is_none();
        let learned = listing.has_conflict.then_some(NonZeroU32::MIN);
        let limits = settings.max_processes.into_iter().chain(one).chain(learned);
        costs.max_processes = costs.max_processes.into_iter().chain(limits).min();
    }

    /// Turns the process limit of a program that is in the model several times into a resource, so that the
    /// limit holds for all of its processes together.
    fn share_process_limits(&mut self) {
        for program in 0..self.programs.len() {
            let own: Vec<usize> =
                (0..self.costs.len()).filter(|place| self.model_programs[*place] == program).collect();
            let limit = own.iter().filter_map(|place| self.costs[*place].max_processes).min();
            let Some(limit) = limit.filter(|_| own.len() > 1) else { continue };
            let processes = self.resources.insert(ResourceName::ProcessesOf(program), vec![limit.get()]);
            for place in own {
                self.costs[place].needs.resources.insert(processes, vec![1]);
            }
        }
    }

    pub(super) fn finish(mut self) -> PlannedPrograms {
        // Most plans have each program once, and need no search.
        if self.costs.len() > self.programs.len() {
            self.share_process_limits();
        }
        let Self { programs, listings, model_programs, fixtures, units, costs, resources, .. } = self;
        let (resources, capacities) = resources.into_parts();
        PlannedPrograms { programs, listings, model_programs, fixtures, units, costs, resources, capacities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_limit_of_a_program_holds_for_tests_with_different_needs() {
        let mut table = ProgramTable::default();
        let planned = || PlannedProgram {
            program: TestProgram::default(),
            costs: ProgramCosts::default(),
            listing: ListingFacts::default(),
        };
        let program = table.get_or_insert(Some(0), planned);
        let listed = ListedTest::default();
        let settings = |weight, most| TestSettings {
            weight: NonZeroU32::new(weight),
            max_processes: NonZeroU32::new(most),
            ..TestSettings::default()
        };
        let mut add = |settings: TestSettings| {
            let test =
                NeedyTest { listed: &listed, settings: &settings, fixtures: Arc::default(), memory_units: 0 };
            let place = table.model_program(program, test, &BTreeMap::new());
            table.limit_processes(place, &settings);
            place
        };
        assert_eq!([add(settings(1, 3)), add(settings(2, 0)), add(settings(1, 0))], [0, 1, 0]);
        let finished = table.finish();
        assert_eq!(
            (finished.model_programs.as_slice(), finished.capacities.as_slice()),
            (&[0, 0][..], &[vec![3]][..])
        );
        assert!(finished.costs.iter().all(|costs| costs.needs.resources.len() == 1));
    }
}
