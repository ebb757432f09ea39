//! The search of all paths of a scenario with stateright, and random walks.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use stateright::{Checker, Chooser, HasDiscoveries, Model, Property};

use crate::{
    rules::{ENDS, IGNORED, REACHED, STEP_RULES},
    scenario::ModelScenario,
    steps::ModelStep,
    world::ModelWorld,
};

/// Average steps between two faults of a walk while other steps are possible. Otherwise all faults would come
/// at the beginning.
const STEPS_PER_FAULT: u64 = 12;

/// A world with its hash, which identifies it in the search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelState {
    pub(crate) world: ModelWorld,
    /// Number of steps on the path to this state.
    steps: usize,
    hash: u64,
}

impl Hash for ModelState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A scenario as a stateright model.
struct ScenarioModel {
    scenario: ModelScenario,
    /// The states before and after each step, by hash; `None` in a walk.
    transitions: Option<Mutex<Vec<(u64, u64)>>>,
    /// Hashes of runs already checked to ignore repeated events: many states share a run.
    checked_runs: Mutex<HashSet<u64, BuildHasherDefault<FoldingHasher>>>,
}

/// A broken rule with a path to the violation.
#[derive(Debug)]
pub(crate) struct ModelViolation {
    pub(crate) rule: &'static str,
    pub(crate) what: String,
    pub(crate) path: Vec<ModelStep>,
}

impl ScenarioModel {
    fn new(scenario: &ModelScenario, is_walk: bool) -> Self {
        let transitions = (!is_walk).then(Mutex::default);
        Self { scenario: scenario.clone(), transitions, checked_runs: Mutex::default() }
    }

    fn state(&self, world: ModelWorld, steps: usize) -> ModelState {
        // In a walk, the step count makes each state unique, so a cyclic walk does not end early.
        let hash = hash(&(&world, self.transitions.is_none().then_some(steps)));
        ModelState { world, steps, hash }
    }

    /// Returns the run's reaction to events that it must ignore in this state, if there is any.
    fn repeated_event(&self, state: &ModelState) -> Option<String> {
        let is_over = state.world.client.has_response || state.world.client.broken.is_some();
        let coordinator = state.world.coordinator.as_ref().filter(|_| !is_over)?;
        let mut checked = self.checked_runs.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.contains(&coordinator.run_hash) {
            return None;
        }
        let found = coordinator.observer.check_repeated(&coordinator.run).err().map(|broken| broken.what);
        if found.is_none() {
            checked.insert(coordinator.run_hash);
        }
        found
    }
}

/// Returns the hash of a part of a world.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FoldingHasher(0);
    value.hash(&mut hasher);
    hasher.0
}

/// A fast hasher, because hashing takes most of the time.
#[derive(Default)]
struct FoldingHasher(u64);

impl Hasher for FoldingHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

fn is_unbroken<const RULE: usize>(_: &ScenarioModel, state: &ModelState) -> bool {
    state.world.client.broken.as_ref().is_none_or(|broken| broken.rule != STEP_RULES[RULE])
}

impl Model for ScenarioModel {
    type State = ModelState;
    type Action = ModelStep;

    fn init_states(&self) -> Vec<ModelState> {
        vec![self.state(ModelWorld::new(&self.scenario), 0)]
    }

    fn actions(&self, state: &ModelState, steps: &mut Vec<ModelStep>) {
        if state.steps <= self.scenario.longest_path() {
            state.world.steps(&self.scenario, steps);
        }
    }

    fn next_state(&self, state: &ModelState, step: ModelStep) -> Option<ModelState> {
        let mut world = state.world.clone();
        world.take(&self.scenario, step);
        let next = self.state(world, state.steps + 1);
        if let Some(transitions) = &self.transitions {
            transitions.lock().unwrap_or_else(PoisonError::into_inner).push((state.hash, next.hash));
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(STEP_RULES[0], is_unbroken::<0>),
            Property::always(STEP_RULES[1], is_unbroken::<1>),
            Property::always(STEP_RULES[2], is_unbroken::<2>),
            Property::always(STEP_RULES[3], is_unbroken::<3>),
            Property::always(STEP_RULES[4], is_unbroken::<4>),
            Property::always(STEP_RULES[5], is_unbroken::<5>),
            Property::always(STEP_RULES[6], is_unbroken::<6>),
            Property::always(STEP_RULES[7], is_unbroken::<7>),
            Property::always(STEP_RULES[8], is_unbroken::<8>),
            Property::always(STEP_RULES[9], is_unbroken::<9>),
            Property::always(STEP_RULES[10], is_unbroken::<10>),
            Property::always(IGNORED, |model: &Self, state: &ModelState| {
                is_unbroken::<11>(model, state) && model.repeated_event(state).is_none()
            }),
            Property::always(STEP_RULES[12], is_unbroken::<12>),
            Property::always(STEP_RULES[13], is_unbroken::<13>),
            Property::always(STEP_RULES[14], is_unbroken::<14>),
            Property::always(STEP_RULES[15], is_unbroken::<15>),
            Property::always(STEP_RULES[16], is_unbroken::<16>),
            Property::always(STEP_RULES[17], is_unbroken::<17>),
            Property::always(STEP_RULES[18], is_unbroken::<18>),
            Property::always(STEP_RULES[19], is_unbroken::<19>),
            Property::always(STEP_RULES[20], is_unbroken::<20>),
            Property::always(STEP_RULES[21], is_unbroken::<21>),
            Property::always(STEP_RULES[22], is_unbroken::<22>),
            Property::always(REACHED, |model: &Self, state: &ModelState| {
                let (world, mut steps) = (&state.world, Vec::new());
                world.can_hear()
                    || world.client.broken.is_some()
                    || world.has_ended_well(&model.scenario)
                    || {
                        world.steps(&model.scenario, &mut steps);
                        !steps.is_empty()
                    }
            }),
            Property::always(ENDS, |model: &Self, state: &ModelState| {
                state.steps <= model.scenario.longest_path()
            }),
        ]
    }
}

/// Tries every path; returns the number of states.
pub(crate) fn search(scenario: &ModelScenario) -> Result<usize, ModelViolation> {
    let begun = Instant::now();
    let model = ScenarioModel::new(scenario, false);
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    first_violation(&checker)?;
    let transitions = checker
        .model()
        .transitions
        .as_ref()
        .map(|all| std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner)));
    if has_circle(transitions.unwrap_or_default()) {
        let what = "some states are reached again".to_owned();
        return Err(ModelViolation { rule: ENDS, what, path: Vec::new() });
    }
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, depth {depth}, {:.1} s", begun.elapsed().as_secs_f64());
    Ok(states)
}

/// Walks along random paths for at least this number of steps, and at least to the end of one path.
pub(crate) fn walk(scenario: &ModelScenario, steps: usize, seed: u64) -> Result<usize, ModelViolation> {
    let model = ScenarioModel::new(scenario, true);
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(steps);
    let checker = checker.spawn_simulation(seed, RareFaultChooser).join();
    first_violation(&checker)?;
    Ok(checker.state_count())
}

fn first_violation(checker: &impl Checker<ScenarioModel>) -> Result<(), ModelViolation> {
    let shortest = |path: &stateright::Path<ModelState, ModelStep>| path.clone().into_actions().len();
    let found = checker.discoveries().into_iter().min_by_key(|(_, path)| shortest(path));
    let Some((rule, path)) = found else { return Ok(()) };
    let last = path.last_state();
    let broken = last.world.client.broken.as_ref().map(|broken| broken.what.clone());
    let what = broken
        .or_else(|| checker.model().repeated_event(last))
        .unwrap_or_else(|| format!("{:#?}", last.world));
    Err(ModelViolation { rule, what, path: path.into_actions() })
}

/// Returns whether some path returns to one of its own states, and therefore may never end. Repeatedly
/// removes states without a predecessor; only cycles and their successors remain.
fn has_circle(mut transitions: Vec<(u64, u64)>) -> bool {
    transitions.sort_unstable();
    let mut predecessors: HashMap<u64, usize, BuildHasherDefault<FoldingHasher>> = HashMap::default();
    transitions.iter().for_each(|(_, after)| *predecessors.entry(*after).or_default() += 1);
    let first = transitions.iter().map(|(before, _)| *before);
    let mut ready: Vec<_> = first.filter(|before| !predecessors.contains_key(before)).collect();
    ready.dedup();
    let mut removed = 0;
    while let Some(state) = ready.pop() {
        let from = transitions.partition_point(|(before, _)| *before < state);
        for (_, after) in transitions[from..].iter().take_while(|(before, _)| *before == state) {
            removed += 1;
            let left = predecessors.get_mut(after).expect("it is counted above");
            *left -= 1;
            if *left == 0 {
                ready.push(*after);
            }
        }
    }
    removed < transitions.len()
}

/// Returns the number in an environment variable, if it is set.
pub(crate) fn number_from_env(name: &str, usual: usize) -> usize {
    std::env::var(name)
        .map_or(usual, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: no number")))
}

/// Chooses steps at random, with rare faults.
#[derive(Clone)]
struct RareFaultChooser;

/// Random numbers independent of library versions: splitmix64.
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a random number below a bound.
pub(crate) fn draw_below(state: &mut u64, bound: usize) -> usize {
    usize::try_from(draw(state) % bound.max(1) as u64).expect("it is smaller than a usize")
}

impl Chooser<ScenarioModel> for RareFaultChooser {
    type State = u64;

    fn new_state(&self, seed: u64) -> u64 {
        seed
    }

    fn choose_initial_state(&self, _: &mut u64, _: &[ModelState]) -> usize {
        0
    }

    fn choose_action(&self, random: &mut u64, state: &ModelState, steps: &[ModelStep]) -> usize {
        let wants_fault = draw(random).is_multiple_of(STEPS_PER_FAULT);
        let is_wanted = |place: &usize| state.world.is_fault(steps[*place]) == wants_fault;
        let wanted: Vec<_> = (0..steps.len()).filter(is_wanted).collect();
        let place = draw_below(random, wanted.len());
        wanted.get(place).copied().unwrap_or_else(|| draw_below(random, steps.len()))
    }
}

#[test]
fn circles_are_found_and_joins_are_none() {
    assert!(has_circle(vec![(1, 2), (2, 3), (3, 2), (3, 4)]));
    assert!(!has_circle(vec![(1, 2), (1, 3), (2, 3), (3, 4), (1, 4)]));
}
