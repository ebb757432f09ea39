//! The schedule that a run's manifest records. Pure.

use heeler_core::{ProgramId, batching::ProgramCosts};
use heeler_protocol::manifest::{ManifestNeeds, ManifestPrerequisites, ManifestResource, ManifestSchedule};

use super::{RunPlan, needs::ResourceName, plan::millis};

/// Returns the slots of a run, and what its tests have to wait for.
pub(super) fn manifest_schedule(plan: &RunPlan) -> ManifestSchedule {
    let name = |name: &ResourceName| match name {
        ResourceName::Named(name) => name.clone(),
        ResourceName::ProcessesOf(program) => processes_of(plan, *program),
    };
    let named = plan.resources.iter().zip(&plan.model.capacities);
    let mut schedule = ManifestSchedule {
        slots: to_u32(plan.model.slots),
        preparation_ms: millis(plan.provenance.preparation),
        resources: named
            .map(|(one, units)| ManifestResource { name: name(one), capacity: sum_of(units) })
            .collect(),
        ..ManifestSchedule::default()
    };
    add_needs(&mut schedule, plan);
    let with_index = plan.model.tests.iter().zip(0_u32..);
    let prerequisites = with_index.filter(|(test, _)| !test.prerequisites.is_empty());
    schedule.prerequisites = prerequisites
        .map(|(test, index)| ManifestPrerequisites {
            test: index,
            after: test.prerequisites.iter().map(|one| one.test.0).collect(),
        })
        .collect();
    schedule
}

/// Adds the needs of all tests. A limit of processes is a resource, too.
fn add_needs(schedule: &mut ManifestSchedule, plan: &RunPlan) {
    let mut tests_of: Vec<Vec<u32>> = vec![Vec::new(); plan.model.programs.len()];
    for (test, index) in plan.model.tests.iter().zip(0_u32..) {
        tests_of[test.program.index()].push(index);
    }
    for ((costs, tests), id) in plan.model.programs.iter().zip(tests_of).zip((0_u32..).map(ProgramId)) {
        let resources = costs.needs.resources.iter();
        let mut resources: Vec<_> =
            resources.map(|(resource, portions)| (to_u32(resource.index()), sum_of(portions))).collect();
        if let Some(limit) = own_process_limit(plan, id, costs) {
            let name = processes_of(plan, plan.program_of(id));
            resources.push((to_u32(schedule.resources.len()), 1));
            schedule.resources.push(ManifestResource { name, capacity: limit });
        }
        let weight = to_u32(costs.needs.weight.0);
        if weight > 1 || !resources.is_empty() {
            schedule.needs.push(ManifestNeeds { weight, resources, tests });
        }
    }
}

/// Returns the process limit of a program of the model, unless the limit is among its resources already, or
/// all tests run in one process anyway.
fn own_process_limit(plan: &RunPlan, id: ProgramId, costs: &ProgramCosts) -> Option<u32> {
    let limit = costs.max_processes.filter(|_| !costs.process.is_one_batch)?;
    let program = plan.program_of(id);
    let is_shared = costs
        .needs
        .resources
        .keys()
        .any(|resource| plan.resources[resource.index()] == ResourceName::ProcessesOf(program));
    (!is_shared).then_some(limit.get())
}

fn processes_of(plan: &RunPlan, program: usize) -> String {
    format!("a process of {}", plan.programs[program].suite)
}

fn sum_of(amounts: &[u32]) -> u32 {
    amounts.iter().copied().fold(0, u32::saturating_add)
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
