//! Random orders of events of larger worlds.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::{
    exhaustive::plan,
    steps::WorldStep,
    world::{ModelWorld, RunFaults, RunScenario},
};
use crate::run::{CancelMode, FailureLimit, ScheduledTest, SchedulingPlan};

/// So many steps per test, and some, are enough for any run once the adversary has had its turn.
const FAIR_STEPS_PER_TEST: usize = 60;

#[derive(Debug, Clone)]
struct RandomTest {
    program: u32,
    is_alone: bool,
    is_unrunnable: bool,
    retries: u32,
    weight_ms: Option<u64>,
}

fn traits() -> impl Strategy<Value = RandomTest> {
    (0_u32..3, prop::bool::weighted(0.2), prop::bool::weighted(0.05), 0_u32..3, prop::option::of(0_u64..1500))
        .prop_map(|(program, is_alone, is_unrunnable, retries, weight_ms)| RandomTest {
            program,
            is_alone,
            is_unrunnable,
            retries,
            weight_ms,
        })
}

fn plan_of(traits: &[RandomTest]) -> SchedulingPlan {
    let programs: Vec<_> = traits.iter().map(|one| one.program).collect();
    plan(&programs, |place, test: &mut ScheduledTest| {
        test.is_isolated = traits[place].is_alone;
        test.is_unrunnable = traits[place].is_unrunnable;
        test.retries = traits[place].retries;
        test.weight = traits[place].weight_ms.map(Duration::from_millis);
    })
}

/// Walks as the choices say, then fairly, to the end.
fn walk(scenario: &RunScenario, choices: &[u16]) -> Result<(), (String, Vec<WorldStep>)> {
    let mut path = Vec::new();
    let mut world = ModelWorld::begin(scenario).map_err(|what| (what, Vec::new()))?;
    let longest = choices.len() + 200 + FAIR_STEPS_PER_TEST * scenario.plan.tests.len();
    for turn in 0..longest {
        if world.is_completed {
            return Ok(());
        }
        let steps = world.steps();
        let fair: Vec<_> = steps.iter().filter(|step| !step.is_fault(&world)).collect();
        let step = match choices.get(turn) {
            Some(choice) => steps.get(usize::from(*choice) % steps.len().max(1)),
            None => fair.get(turn % fair.len().max(1)).copied(),
        };
        let Some(step) = step.cloned() else {
            return Err((format!("nothing can happen in {:?}", world.run), path));
        };
        path.push(step.clone());
        let verdict = world.take(&step).and_then(|()| world.check_repeated());
        verdict.map_err(|what| (what, path.clone()))?;
    }
    Err((format!("no end in {longest} steps: {:?}", world.run), path))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_walk_through_a_larger_world_keeps_the_rules_and_ends(
        traits in vec(traits(), 0..40),
        (slots, workers) in (0_usize..6, 0_u32..6),
        (deaths, failures, cancels, loans) in
            (0_u8..60, 0_u8..20, prop::sample::select(vec![0_u8, 0, 0, 1]), prop::sample::select(vec![0_u8, 0, 5, 30])),
        (max_failures, is_immediate, max_startup_crashes) in
            (prop::option::weighted(0.2, 1_usize..6), any::<bool>(), 0_u32..5),
        choices in vec(any::<u16>(), 0..600),
    ) {
        let cancel_mode = if is_immediate { CancelMode::Now } else { CancelMode::AfterRunningTests };
        let failure_limit = max_failures.map(|failures| FailureLimit { failures, cancel_mode });
        let plan = SchedulingPlan { slots: slots.max(1), failure_limit, max_startup_crashes, ..plan_of(&traits) };
        let faults = RunFaults { deaths, failures, cancels, loans };
        let scenario = RunScenario { plan, workers, faults, outbox: 4, ..RunScenario::default() };
        if let Err((what, path)) = walk(&scenario, &choices) {
            prop_assert!(false, "{what}\n{path:?}");
        }
    }
}
