//! Batching: selects the tests of the next batch. Workers pull: no test is assigned before a worker is free.
//!
//! Order of batches:
//! 1. The rest of a batch whose process died, in one new process.
//! 2. Tests that run in isolation, longest first: known crashers, tests longer than both one second and three
//!    process starts, tests marked as isolated, and isolated reruns. If a framework's processes can run
//!    further batches, a test that is merely long is a batch of one for any process of its program.
//! 3. Everything else in chunks, from the program with the most work left.
//! 4. Tests that could not start in isolation, after all others of their program.
//!
//! Chunks shrink with the remaining work (guided self-scheduling), but a process start should take at most 2
//! % of the time of its batch. Two rules override this one: all slots stay busy, and batches have a maximum
//! duration if other runs may begin at any time. While no durations of a program are known, its batches begin
//! with a few tests and grow with the number of results.
//!
//! If a start is expensive, chunks are nearly equal: each slot should start the program once, and all slots
//! should finish together. The remaining work of busy slots is taken into account (`slot_loads`).
//!
//! If tests need several slots or resources, or have a priority, `start_rules` restricts this order to the
//! programs that may start now. `waits` counts the others for the user.
//!
//! A program whose tests all run in one process is one batch, regardless of how long its tests take.
//!
//! Tests with the same bond are never in different chunks, unless a process died during one of them.
//!
//! Tests of one chunk are adjacent in their framework's order, because neighbours share expensive set-up.

pub(crate) mod least_slots;
mod needs;
mod program_queue;
mod ready_batches;
mod single_tests;
mod slot_loads;
mod start_rules;
mod ticket;
pub(crate) mod waits;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU32,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{ProgramId, Slots, TestId};
pub use needs::{HeldPortion, LeaseNeeds, units_suffice};
use program_queue::{ProgramQueue, SlotShare};
use ready_batches::ReadyBatches;
use single_tests::SingleTests;
pub use slot_loads::{BusySlot, SlotLoads};
pub use start_rules::QueueWait;
use start_rules::StartRules;

/// A test that took at least this long in earlier runs goes first and in isolation, unless its program is
/// slow to start.
pub(crate) const ISOLATE_FROM: Duration = Duration::from_secs(1);
/// Assumed duration of a test without any data, until the first results arrive.
pub(crate) const UNKNOWN_WEIGHT: Duration = Duration::from_millis(1);
/// Assumed cost of starting a program before it has been measured.
pub(crate) const UNKNOWN_START: Duration = Duration::from_millis(3);
/// Maximum target duration of batches if other runs may begin at any time: the first test of such a run waits
/// until a batch ends.
pub const SHARED_BATCH_LIMIT: Duration = Duration::from_millis(200);

/// A test that waits for a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuedTest {
    pub test: TestId,
    /// Duration in earlier runs.
    pub weight: Option<Duration>,
    /// Whether the test runs alone in its process.
    pub is_isolated: bool,
    /// Tests of a program with the same bond run in one process. They are adjacent in the order of the queue.
    pub bond: Option<u32>,
    /// Bytes of the test's name on the command line.
    pub selection_bytes: usize,
}

/// Costs and limits of a program's processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProgramCosts {
    /// Time from the start of a process to its first test.
    pub start: Option<Duration>,
    /// Time that a listing took, used until `start` is known. A listing does not include the set-up of an
    /// environment.
    pub listing: Option<Duration>,
    /// Bytes of names that fit on a command line; `None` if names are passed in a file.
    pub selection_budget_bytes: Option<usize>,
    /// Maximum number of concurrent processes.
    pub max_processes: Option<NonZeroU32>,
    pub needs: LeaseNeeds,
    pub process: ProcessTraits,
}

/// Behaviour of a framework's processes that affects batching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTraits {
    /// Whether all tests of a program run in one process, one after the other, unless they are isolated.
    pub is_one_batch: bool,
    /// Whether the framework does not report when a process is ready. The duration of its first test then
    /// includes the start, and does not help to estimate other tests.
    pub hides_start: bool,
    /// Whether a process can be ended between two tests. Tests that it has not started can then be taken back
    /// for idle slots.
    pub ends_between_tests: bool,
    /// Whether a process that has finished its tests can run more tests of its program.
    pub takes_more_tests: bool,
    /// Whether each further batch costs a running process extra time, because the framework searches for its
    /// tests again.
    pub has_costly_batches: bool,
    /// Whether each test runs in a separate process, like isolated tests.
    pub is_one_test: bool,
}

impl ProcessTraits {
    /// No traits.
    pub const NONE: Self = Self {
        is_one_batch: false,
        hides_start: false,
        ends_between_tests: false,
        takes_more_tests: false,
        has_costly_batches: false,
        is_one_test: false,
    };
}

/// A batch of tests for one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TestBatch {
    pub program: ProgramId,
    /// Tests in the framework's order; never empty.
    pub tests: Vec<TestId>,
    /// Whether the batch is one isolated test. A death of its process is final.
    pub is_isolated: bool,
}

/// The rest of a dead process's batch. It is split only when it is assigned, because more is known about the
/// program by then.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BatchRemainder {
    program: ProgramId,
    tests: VecDeque<TestId>,
}

/// The tests that wait for a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TestQueue {
    remainders: VecDeque<BatchRemainder>,
    isolated: SingleTests,
    /// Long tests of programs whose processes can run further batches. Each is a batch for any process of its
    /// program, because a separate process would repeat the set-up.
    long: SingleTests,
    programs: BTreeMap<ProgramId, ProgramQueue>,
    known_median: Option<Duration>,
    /// Duration beyond which a batch gets no more tests.
    batch_limit: Option<Duration>,
    start_rules: StartRules,
}

impl TestQueue {
    /// Returns an empty queue for these programs.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = ProgramCosts>) -> Self {
        let programs: BTreeMap<_, _> = (0_u32..)
            .map(ProgramId)
            .zip(programs)
            .map(|(id, costs)| (id, ProgramQueue::new(costs)))
            .collect();
        let needs = programs.iter().map(|(id, one)| (*id, one.needs().clone()));
        let start_rules = StartRules::new(needs);
        Self { programs, start_rules, ..Self::default() }
    }

    /// Sets the amounts of the units of each resource.
    #[must_use]
    pub(crate) fn with_capacities(mut self, capacities: Vec<Vec<u32>>) -> Self {
        self.start_rules.set_capacities(capacities);
        self
    }

    /// Limits the duration of batches. A program with an expensive start may exceed the limit, because a
    /// shorter batch would not be worth the start. While no durations of a program are known, its batches are
    /// even smaller: a guess may be wrong by orders of magnitude.
    pub(crate) fn limit_batches(&mut self, batch_limit: Option<Duration>) {
        self.batch_limit = batch_limit;
    }

    /// Adds tests. Tests of a program are batched in the order given here.
    pub fn add(&mut self, items: impl IntoIterator<Item = (ProgramId, QueuedTest)>) {
        for (program, item) in items {
            let queue = self.program(program);
            let is_long =
                item.bond.is_none() && item.weight.is_some_and(|weight| queue.is_worth_a_process(weight));
            if is_long && !item.is_isolated && queue.process_traits().takes_more_tests {
                self.long.insert(program, item.test, item.weight.unwrap_or_default());
            } else if item.is_isolated || is_long {
                self.add_isolated(program, item.test, item.weight);
            } else {
                queue.push(item);
            }
        }
        let waiting = self.programs.values().flat_map(|one| &one.waiting);
        self.known_median = median(&mut waiting.filter_map(|item| item.weight).collect::<Vec<_>>());
    }

    pub(crate) fn add_isolated(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        self.isolated.insert(program, test, weight.unwrap_or(UNKNOWN_WEIGHT));
    }

    /// Adds a test that runs in isolation, after all waiting tests of its program.
    pub(crate) fn add_last(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        let item = QueuedTest { test, weight, is_isolated: true, bond: None, selection_bytes: 0 };
        self.program(program).push(item);
    }

    /// Puts the rest of a dead process's batch at the front of the queue, to run in one new process.
    pub(crate) fn add_remainder(&mut self, program: ProgramId, tests: Vec<TestId>) {
        if !tests.is_empty() {
            self.remainders.push_back(BatchRemainder { program, tests: tests.into() });
        }
    }

    /// Puts tests that a process did not start back into the queue, in order, with their new estimates.
    pub(crate) fn add_returned(&mut self, items: impl IntoIterator<Item = (ProgramId, QueuedTest)>) {
        for (program, item) in items {
            self.program(program).push(item);
        }
    }

    /// Makes batches of this program ten times smaller, down to one test; returns the new size.
    pub(crate) fn shrink_batches(&mut self, program: ProgramId, died_with: usize) -> usize {
        let queue = self.program(program);
        let cap = (queue.cap.unwrap_or(died_with).min(died_with.max(1)) / 10).max(1);
        queue.cap = Some(cap);
        cap
    }

    /// Lets the batches of a program grow again after a batch ended successfully, unless that batch was
    /// smaller than the current limit.
    pub(crate) fn grow_batches(&mut self, program: ProgramId, ended_with: usize) {
        let cap = &mut self.program(program).cap;
        if cap.is_some_and(|cap| ended_with >= cap) {
            *cap = cap.map(|cap| cap.saturating_mul(10)).filter(|cap| *cap < 10_000);
        }
    }

    pub(crate) fn limit_to_one_process(&mut self, program: ProgramId) {
        self.program(program).limit_to_one_process();
    }

    /// Records the cost of a process start.
    pub(crate) fn observe_start(&mut self, program: ProgramId, start: Duration) {
        self.program(program).observe_start(start);
    }

    /// Returns how the processes of a program behave.
    #[must_use]
    pub fn process_traits(&self, program: ProgramId) -> ProcessTraits {
        self.programs.get(&program).map_or(ProcessTraits::NONE, ProgramQueue::process_traits)
    }

    /// Returns whether the duration of a test includes the start of its process. Such a duration does not
    /// help to estimate other tests.
    #[must_use]
    pub(crate) fn includes_start(&self, batch: &TestBatch, test: TestId) -> bool {
        batch.tests.first() == Some(&test) && self.process_traits(batch.program).hides_start
    }

    /// Records the duration of a test, to estimate tests without data.
    pub(crate) fn observe_duration(&mut self, program: ProgramId, duration: Duration) {
        self.program(program).observe_duration(duration);
    }

    /// Removes and returns all waiting tests of one program.
    pub(crate) fn take_program(&mut self, program: ProgramId) -> Vec<TestId> {
        let mut out = Vec::new();
        self.remainders.retain(|rest| {
            if rest.program == program {
                out.extend(&rest.tests);
            }
            rest.program != program
        });
        out.extend(self.isolated.take_program(program));
        out.extend(self.long.take_program(program));
        out.extend(self.program(program).take(|_| true));
        out
    }

    /// Removes and returns the accepted ones of the waiting tests.
    pub(crate) fn take(&mut self, is_accepted: impl Fn(TestId) -> bool) -> Vec<TestId> {
        let mut out = Vec::new();
        self.remainders.retain_mut(|rest| {
            out.extend(rest.tests.iter().copied().filter(|test| is_accepted(*test)));
            rest.tests.retain(|test| !is_accepted(*test));
            !rest.tests.is_empty()
        });
        out.extend(self.isolated.take(&is_accepted));
        out.extend(self.long.take(&is_accepted));
        out.extend(self.programs.values_mut().flat_map(|program| program.take(&is_accepted)));
        out
    }

    /// Returns whether no test waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remainders.is_empty()
            && self.isolated.is_empty()
            && self.long.is_empty()
            && self.programs.values().all(|one| one.waiting.is_empty())
    }

    /// Estimates how many slots, busy and free, batches could use now.
    #[must_use]
    pub fn wanted_slots(&self, loads: &SlotLoads) -> Slots {
        let ready = ReadyBatches::new(self, loads);
        let mut total = Slots(ready.unlimited_tests());
        for (id, one) in &self.programs {
            let batches = ready.of(*id, one, total < loads.slots);
            let leases = batches.min(self.room_for(*id, loads));
            total = total.saturating_add(self.start_rules.lease_weight(*id, loads.slots).times(leases));
        }
        total.min(loads.slots)
    }

    /// Returns whether a lease may start now, if there is a free slot. Always true if no test needs more than
    /// a slot.
    pub(crate) fn has_startable(&self, loads: &SlotLoads) -> bool {
        self.startable(loads).is_none_or(|programs| !programs.is_empty())
    }

    /// Returns how many leases may start now. Each needs a worker, and each of these workers gets a batch.
    #[must_use]
    pub(crate) fn startable_leases(&self, loads: &SlotLoads) -> usize {
        let Some(programs) = self.startable(loads) else {
            return loads.available().saturating_sub(loads.taken()).min(self.wanted_slots(loads)).0;
        };
        let ready = ReadyBatches::new(self, loads);
        self.start_rules.fitting_leases(programs, loads, |id| {
            ready.of(id, &self.programs[&id], true).min(self.room_for(id, loads))
        })
    }

    /// Returns how many more processes of a program may start, if there are slots.
    pub(crate) fn room_for(&self, program: ProgramId, loads: &SlotLoads) -> usize {
        if loads.delayed_starts.contains(&program) {
            return 0;
        }
        let Some(one) = self.programs.get(&program) else { return usize::MAX };
        let most = one.max_processes().unwrap_or(usize::MAX);
        let by_processes = most.saturating_sub(loads.processes_of(program));
        by_processes.min(self.start_rules.leases_by_resources(program, loads))
    }

    /// Returns the slots of a new lease of this program, and what it holds of each resource. `loads`
    /// describes the time before the lease.
    pub(crate) fn needs_of_lease(&self, program: ProgramId, loads: &SlotLoads) -> (Slots, Vec<HeldPortion>) {
        let portions = self.start_rules.choose_units(program, loads);
        let portions = portions.expect("a batch is taken only if its program's needs are free");
        (self.start_rules.lease_weight(program, loads.usable()), portions)
    }

    /// Returns the programs that may start now, if needs restrict them. Otherwise all programs with room may.
    fn startable(&self, loads: &SlotLoads) -> Option<BTreeSet<ProgramId>> {
        if self.start_rules.are_trivial() {
            return None;
        }
        let has_room = |program| self.room_for(program, loads) > 0;
        let work = |program| waiting_work(self, program);
        Some(self.start_rules.startable(&self.waiting_programs(), loads, has_room, work))
    }

    fn may_start(
        &self,
        startable: Option<&BTreeSet<ProgramId>>,
        program: ProgramId,
        loads: &SlotLoads,
    ) -> bool {
        match startable {
            None => self.room_for(program, loads) > 0,
            Some(programs) => programs.contains(&program),
        }
    }

    fn on_start(&mut self, program: ProgramId, loads: &SlotLoads) {
        if !self.start_rules.are_trivial() {
            let waiting = self.waiting_programs();
            self.start_rules.on_start(program, &waiting, loads);
        }
    }

    /// Returns the programs with waiting tests.
    fn waiting_programs(&self) -> BTreeSet<ProgramId> {
        let queued = self.programs.iter().filter(|(_, one)| !one.waiting.is_empty()).map(|(id, _)| *id);
        let rests = self.remainders.iter().map(|rest| rest.program);
        queued.chain(rests).chain(self.isolated.programs()).chain(self.long.programs()).collect()
    }

    /// Removes and returns the next batch for the free slot.
    pub fn next_batch(&mut self, loads: &SlotLoads) -> Option<TestBatch> {
        let startable = self.startable(loads);
        let batch = self.next_of(startable.as_ref(), loads)?;
        self.on_start(batch.program, loads);
        Some(batch)
    }

    fn next_of(&mut self, startable: Option<&BTreeSet<ProgramId>>, loads: &SlotLoads) -> Option<TestBatch> {
        if let Some(place) =
            self.remainders.iter().position(|rest| self.may_start(startable, rest.program, loads))
        {
            return Some(self.take_remainder(place));
        }
        // Tests that are a batch of one: the isolated ones first.
        let isolated = self.isolated.program_of_longest(|program| self.may_start(startable, program, loads));
        if let Some(program) = isolated {
            let test = self.isolated.take_longest(program)?;
            return Some(TestBatch { program, tests: vec![test], is_isolated: true });
        }
        if let Some(batch) = self.next_long(|queue, program| queue.may_start(startable, program, loads)) {
            return Some(batch);
        }
        // A chunk of the program with the most work left.
        let known_median = self.known_median;
        let waiting = self.programs.iter().filter(|(_, one)| !one.waiting.is_empty());
        let waiting = waiting.filter(|(id, _)| self.may_start(startable, **id, loads));
        let works = waiting.map(|(id, one)| (*id, one.remaining_work(known_median)));
        // On a tie, the first program in the user's order.
        let (program, _) = works.rev().max_by_key(|(_, work)| *work)?;
        let share = self.share_of_slot(program, self.remaining_work(), loads);
        let limit = self.batch_limit;
        let queue = self.program(program);
        let full = queue.full_batch(share, limit);
        let is_isolated = queue.cap == Some(1) || queue.waiting.front().is_some_and(|item| item.is_isolated);
        let tests = queue.take_batch(full, known_median);
        Some(TestBatch { program, tests, is_isolated })
    }

    /// Returns how long to delay further processes of a program if a running process will probably finish the
    /// tests before another one is ready. The delay is bounded, because the tests may take longer than
    /// estimated.
    #[must_use]
    pub(crate) fn start_delay(&self, program: ProgramId) -> Option<Duration> {
        if self.long.has(program) {
            return None;
        }
        self.programs.get(&program)?.start_delay(self.known_median)
    }

    /// Removes and returns the next batch for a process of this program that has listed its tests and waits.
    /// `None` if no waiting test can run in that process.
    pub(crate) fn next_first_batch(&mut self, program: ProgramId, loads: &SlotLoads) -> Option<TestBatch> {
        if !self.may_start(self.startable(loads).as_ref(), program, loads) {
            return None;
        }
        let batch = self.next_for_process(program, loads)?;
        self.on_start(batch.program, loads);
        Some(batch)
    }

    /// Removes and returns the next batch for a process of this program that has finished its tests. `None`
    /// if there is none, or if other tests need its slot or resources first.
    pub(crate) fn next_extension(&mut self, program: ProgramId, loads: &SlotLoads) -> Option<TestBatch> {
        let has_room = |program| self.room_for(program, loads) > 0;
        let must_yield = !self.start_rules.are_trivial()
            && self.start_rules.must_yield(program, &self.waiting_programs(), loads, has_room);
        if must_yield || self.isolated.programs().any(has_room) {
            return None;
        }
        let batch = self.next_for_process(program, loads)?;
        self.on_start(batch.program, loads);
        Some(batch)
    }

    fn next_for_process(&mut self, program: ProgramId, loads: &SlotLoads) -> Option<TestBatch> {
        if self.programs.get(&program).is_some_and(|one| one.cap == Some(1)) {
            return None;
        }
        if let Some(place) = self.remainders.iter().position(|rest| rest.program == program) {
            return Some(self.take_remainder(place));
        }
        if let Some(batch) = self.next_long(|_, of| of == program) {
            return Some(batch);
        }
        let known_median = self.known_median;
        let share = self.share_of_slot(program, self.remaining_work(), loads);
        let limit = self.batch_limit;
        let queue = self.program(program);
        if queue.waiting.front().is_none_or(|item| item.is_isolated) {
            return None;
        }
        let full = queue.full_extension(share, limit);
        let tests = queue.take_batch(full, known_median);
        Some(TestBatch { program, tests, is_isolated: false })
    }

    /// Removes and returns the longest of the `long` tests whose program is accepted.
    fn next_long(&mut self, is_accepted: impl Fn(&Self, ProgramId) -> bool) -> Option<TestBatch> {
        let program = self.long.program_of_longest(|program| is_accepted(self, program))?;
        let test = self.long.take_longest(program)?;
        Some(TestBatch { program, tests: vec![test], is_isolated: false })
    }

    /// Returns the remaining work of all programs, including one start of each.
    fn remaining_work(&self) -> Duration {
        let waiting = self.programs.values().filter(|one| !one.waiting.is_empty());
        sum(waiting.map(|one| one.remaining_work(self.known_median).saturating_add(one.start_cost())))
    }

    /// Returns one free slot's share of the remaining work if the slot starts this program. The share
    /// includes one more start of every other program.
    fn share_of_slot(&self, program: ProgramId, work: Duration, loads: &SlotLoads) -> SlotShare {
        let one = &self.programs[&program];
        let weight = self.start_rules.lease_weight(program, loads.slots);
        let most = one.max_processes().unwrap_or(usize::MAX).min(self.start_rules.most_leases(program));
        let most = (most != usize::MAX).then_some(most);
        let slots = most.unwrap_or(usize::MAX).min(loads.slots.leases_of(weight));
        let waiting = self.programs.values().map(|one| one.waiting.len()).filter(|tests| *tests > 0);
        let (programs, tests) = waiting.fold((0, 0), |(programs, all), tests| (programs + 1, all + tests));
        let duration = match most {
            // A limited program's work is shared only by its own slots.
            Some(_) => {
                let busy = loads.busy.iter().filter(|slot| slot.program == program).cloned().collect();
                let own = SlotLoads { slots: weight.times(slots), busy, ..SlotLoads::default() };
                own.share_of(one.remaining_work(self.known_median))
            }
            None => loads.share_of(work.saturating_sub(one.start_cost())),
        };
        SlotShare { duration, slots, programs, tests, known_median: self.known_median }
    }

    /// Returns the known or estimated duration of a test.
    #[must_use]
    pub fn estimated_duration(&self, program: ProgramId, weight: Option<Duration>) -> Duration {
        let unknown = || self.programs.get(&program).map(|one| one.unknown_weight(self.known_median));
        weight.or_else(unknown).unwrap_or(UNKNOWN_WEIGHT)
    }

    #[must_use]
    pub(crate) fn start_cost(&self, program: ProgramId) -> Duration {
        self.programs.get(&program).map_or(UNKNOWN_START, ProgramQueue::start_cost)
    }

    fn take_remainder(&mut self, place: usize) -> TestBatch {
        let rest = &mut self.remainders[place];
        let program = rest.program;
        let cap = self.programs.get(&program).and_then(|one| one.cap);
        let count = cap.unwrap_or(usize::MAX).min(rest.tests.len());
        let tests: Vec<_> = rest.tests.drain(..count).collect();
        if rest.tests.is_empty() {
            self.remainders.remove(place);
        }
        TestBatch { program, tests, is_isolated: cap == Some(1) }
    }

    fn program(&mut self, program: ProgramId) -> &mut ProgramQueue {
        self.programs.get_mut(&program).expect("every program of the plan has a queue")
    }
}

/// Returns the time that the waiting tests of a program take, without the rests of dead processes.
fn waiting_work(queue: &TestQueue, program: ProgramId) -> Duration {
    let chunked = queue.programs.get(&program).filter(|one| !one.waiting.is_empty());
    let chunked = chunked.map(|one| one.remaining_work(queue.known_median)).unwrap_or_default();
    let single = queue.isolated.work_of(program).saturating_add(queue.long.work_of(program));
    chunked.saturating_add(single)
}

fn sum(durations: impl Iterator<Item = Duration>) -> Duration {
    durations.fold(Duration::ZERO, Duration::saturating_add)
}

fn median(values: &mut [Duration]) -> Option<Duration> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests;
