//! Divides the slot time of a run: goes from each change of the slots to the next, and attributes every slot
//! to what it did, or to the reason why it was idle.

use std::{collections::BTreeMap, time::Duration};

use super::{BoundReason, MeasuredNeeds, MeasuredRun, MeasuredTest};

/// Part of the slot time that is not spent in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LossPlace {
    Preparation,
    FirstProcess,
    ProcessStarts,
    ProcessEnds,
    BetweenTests,
    EarlierAttempts,
    Gaps,
    WaitForSlots,
    WaitForResource(usize),
    WaitForPrerequisites,
    Tail,
    Finish,
}

impl LossPlace {
    /// Returns the rank of a loss in a run whose duration one test or one chain decides. Low ranks are hard
    /// to avoid: idle slots come first, because even the best schedule has them.
    fn unavoidable_rank(self, reason: BoundReason) -> u32 {
        match self {
            Self::Tail => u32::from(reason == BoundReason::Chain),
            Self::WaitForPrerequisites => u32::from(reason != BoundReason::Chain),
            Self::WaitForResource(_) => 2,
            Self::WaitForSlots => 3,
            Self::Gaps => 4,
            Self::BetweenTests => 5,
            Self::ProcessEnds => 6,
            Self::ProcessStarts => 7,
            Self::EarlierAttempts => 8,
            Self::Finish => 9,
            Self::FirstProcess => 10,
            Self::Preparation => 11,
        }
    }
}

/// Lost slot time in nanoseconds, by its place.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotTimes(BTreeMap<LossPlace, u128>);

impl SlotTimes {
    pub(super) fn measure(run: &MeasuredRun) -> Self {
        let mut sweep = SlotSweep::new(run);
        let mut changes = changes_of(run, &sweep.classes);
        changes.sort_by_key(|(at, _)| *at);
        let end = run.duration.as_nanos();
        let mut now = 0;
        for (at, change) in changes {
            let at = at.as_nanos().min(end);
            sweep.pass(at - now);
            now = at;
            sweep.apply(change);
        }
        sweep.pass(end - now);
        sweep.finish()
    }

    /// Removes this slot time from the losses, the least avoidable one first.
    pub(super) fn subtract(&mut self, mut unusable_ns: u128, reason: BoundReason) {
        let mut places: Vec<_> = self.0.keys().copied().collect();
        places.sort_by_key(|place| (place.unavoidable_rank(reason), *place));
        for place in places {
            let lost = self.0.entry(place).or_default();
            let removed = unusable_ns.min(*lost);
            *lost -= removed;
            unusable_ns -= removed;
        }
    }

    pub(super) fn into_parts(self) -> impl Iterator<Item = (LossPlace, u128)> {
        self.0.into_iter()
    }

    fn add(&mut self, place: LossPlace, slot_time_ns: u128) {
        *self.0.entry(place).or_default() += slot_time_ns;
    }
}

/// Phase of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Testing,
    Ending,
}

/// A change of the slots or of the waiting tests.
#[derive(Debug, Clone, Copy)]
enum SlotChange {
    /// The prerequisites of a test of this class have ended.
    Ready(usize),
    /// A test of this class has been given to a process.
    Assigned(usize),
    /// A process of this class enters a phase from another one; `None` before its start and after its end.
    Moved { class: usize, from: Option<Phase>, to: Option<Phase> },
    /// The last process has ended.
    Finished,
}

/// Classes of tests with equal needs.
struct Classes<'a> {
    by_needs: BTreeMap<&'a MeasuredNeeds, usize>,
    of_processes: Vec<usize>,
}

impl<'a> Classes<'a> {
    fn of(run: &'a MeasuredRun) -> Self {
        let mut by_needs = BTreeMap::new();
        for test in &run.tests {
            let next = by_needs.len();
            by_needs.entry(&test.needs).or_insert(next);
        }
        // A process has the needs of its tests. A process whose tests are unknown takes a slot.
        let plain = by_needs.len();
        let mut of_processes = vec![plain; run.processes.len()];
        for test in &run.tests {
            if let Some(process) = test.process {
                of_processes[process] = by_needs[&test.needs];
            }
        }
        Self { by_needs, of_processes }
    }
}

/// Returns when a test could start and when it was given to a process. The former is never later.
fn ready_and_assigned(run: &MeasuredRun, test: &MeasuredTest) -> (Duration, Duration) {
    let assigned = test.process.map_or_else(|| test.started(), |process| run.processes[process].started);
    let ends = test.after.iter().filter_map(|one| Some(run.tests.get(*one)?.ended));
    (ends.max().unwrap_or_default().min(assigned), assigned)
}

/// Returns all changes, in any order. Changes at the same time have the order of the test or process.
fn changes_of(run: &MeasuredRun, classes: &Classes<'_>) -> Vec<(Duration, SlotChange)> {
    let mut changes = Vec::with_capacity(2 * run.tests.len() + 4 * run.processes.len());
    let mut span = |class: usize, times: [Duration; 4]| {
        let [started, first, last, ended] = times;
        let (starting, testing, ending) = (Phase::Starting, Phase::Testing, Phase::Ending);
        changes.extend([
            (started, SlotChange::Moved { class, from: None, to: Some(starting) }),
            (first, SlotChange::Moved { class, from: Some(starting), to: Some(testing) }),
            (last, SlotChange::Moved { class, from: Some(testing), to: Some(ending) }),
            (ended, SlotChange::Moved { class, from: Some(ending), to: None }),
        ]);
    };
    let mut last_end = Duration::ZERO;
    for (process, class) in run.processes.iter().zip(&classes.of_processes) {
        let ended = process.ended.max(process.started);
        let first = process.first_test.unwrap_or(ended).clamp(process.started, ended);
        let last = process.last_test.unwrap_or(ended).clamp(first, ended);
        span(*class, [process.started, first, last, ended]);
        last_end = last_end.max(ended);
    }
    for test in run.tests.iter().filter(|test| test.process.is_none()) {
        let class = classes.by_needs[&test.needs];
        span(class, [test.started(), test.started(), test.ended, test.ended]);
        last_end = last_end.max(test.ended);
    }
    for test in &run.tests {
        let class = classes.by_needs[&test.needs];
        let (ready, assigned) = ready_and_assigned(run, test);
        changes.extend([(ready, SlotChange::Ready(class)), (assigned, SlotChange::Assigned(class))]);
    }
    changes.push((last_end, SlotChange::Finished));
    changes
}

/// State of the slots at one moment.
struct SlotSweep<'a> {
    run: &'a MeasuredRun,
    classes: Classes<'a>,
    needs: Vec<MeasuredNeeds>,
    /// Slots of the processes in each phase.
    starting: u128,
    testing: u128,
    ending: u128,
    /// Taken units of each resource.
    taken: Vec<u64>,
    /// Number of tests of each class that wait, and whose prerequisites have ended.
    ready: Vec<usize>,
    /// Number of tests with open prerequisites.
    blocked: usize,
    has_begun: bool,
    is_finished: bool,
    losses: SlotTimes,
    /// Slot time between the first and the last test of processes.
    testing_ns: u128,
}

impl<'a> SlotSweep<'a> {
    fn new(run: &'a MeasuredRun) -> Self {
        let classes = Classes::of(run);
        let mut needs = vec![MeasuredNeeds::default(); classes.by_needs.len() + 1];
        for (of, class) in &classes.by_needs {
            needs[*class] = (*of).clone();
        }
        let mut losses = SlotTimes::default();
        let slots = u128::from(run.slots.max(1));
        losses.add(LossPlace::Preparation, run.preparation.as_nanos() * slots);
        Self {
            run,
            ready: vec![0; needs.len()],
            needs,
            classes,
            starting: 0,
            testing: 0,
            ending: 0,
            taken: vec![0; run.resources.len()],
            blocked: run.tests.len(),
            has_begun: false,
            is_finished: false,
            losses,
            testing_ns: 0,
        }
    }

    fn apply(&mut self, change: SlotChange) {
        match change {
            SlotChange::Ready(class) => {
                self.blocked -= 1;
                self.ready[class] += 1;
            }
            SlotChange::Assigned(class) => self.ready[class] = self.ready[class].saturating_sub(1),
            SlotChange::Moved { class, from, to } => {
                self.has_begun = true;
                let weight = u128::from(self.run.weight(&self.needs[class]));
                if let Some(from) = from {
                    *self.slots_in(from) -= weight;
                }
                if let Some(to) = to {
                    *self.slots_in(to) += weight;
                }
                for (resource, amount) in self.needs[class].resources.clone() {
                    let (_, amount) = self.free_and_needed(resource, amount);
                    let Some(taken) = self.taken.get_mut(resource) else { continue };
                    match (from, to) {
                        (None, _) => *taken += amount,
                        (_, None) => *taken -= amount,
                        (Some(_), Some(_)) => {}
                    }
                }
            }
            SlotChange::Finished => self.is_finished = true,
        }
    }

    fn slots_in(&mut self, phase: Phase) -> &mut u128 {
        match phase {
            Phase::Starting => &mut self.starting,
            Phase::Testing => &mut self.testing,
            Phase::Ending => &mut self.ending,
        }
    }

    /// Attributes all slots for this time, during which nothing changes.
    fn pass(&mut self, time_ns: u128) {
        if time_ns == 0 {
            return;
        }
        // Recorded times are rounded, so a process may seem to start before its predecessor has ended.
        let mut free = u128::from(self.run.slots.max(1));
        let mut take = |slots: u128| {
            let taken = slots.min(free);
            free -= taken;
            taken * time_ns
        };
        let (testing, starting, ending) = (take(self.testing), take(self.starting), take(self.ending));
        self.testing_ns += testing;
        self.losses.add(LossPlace::ProcessStarts, starting);
        self.losses.add(LossPlace::ProcessEnds, ending);
        for (place, slots) in self.idle_reasons(free) {
            self.losses.add(place, slots * time_ns);
        }
    }

    /// Returns the reasons why this number of slots is idle, each with its number of slots.
    fn idle_reasons(&self, idle: u128) -> Vec<(LossPlace, u128)> {
        if self.is_finished {
            return vec![(LossPlace::Finish, idle)];
        }
        if !self.has_begun {
            return vec![(LossPlace::FirstProcess, idle)];
        }
        let (mut rest, mut reasons) = (idle, Vec::new());
        let mut take = |place, wanted: u128| {
            let taken = wanted.min(rest);
            rest -= taken;
            if taken > 0 {
                reasons.push((place, taken));
            }
        };
        let waiting = || self.needs.iter().zip(&self.ready).filter(|(_, ready)| **ready > 0);
        let weight = |needs: &MeasuredNeeds| u128::from(self.run.weight(needs));
        // A test that takes several slots keeps them free until there are enough.
        if waiting().any(|(needs, _)| self.lacking(needs).is_none() && weight(needs) > idle) {
            take(LossPlace::WaitForSlots, idle);
        }
        for (needs, _) in waiting().filter(|(needs, _)| self.lacking(needs).is_none()) {
            let count = self.ready[self.class_of(needs)] as u128;
            take(LossPlace::Gaps, weight(needs) * count.min(self.leases_by_resources(needs)));
        }
        for (needs, ready) in waiting() {
            if let Some(resource) = self.lacking(needs) {
                take(LossPlace::WaitForResource(resource), weight(needs) * *ready as u128);
            }
        }
        take(LossPlace::WaitForPrerequisites, self.blocked as u128);
        take(LossPlace::Tail, idle);
        reasons
    }

    fn class_of(&self, needs: &MeasuredNeeds) -> usize {
        self.classes.by_needs.get(needs).copied().unwrap_or(self.needs.len() - 1)
    }

    /// Returns the free units of a resource, and the units that the needs take.
    fn free_and_needed(&self, resource: usize, amount: u32) -> (u64, u64) {
        let capacity = self.run.resources.get(resource).map_or(u64::MAX, |one| u64::from(one.capacity));
        let taken = self.taken.get(resource).copied().unwrap_or(0);
        (capacity.saturating_sub(taken), u64::from(amount).min(capacity))
    }

    /// Returns the first resource of which too little is free.
    fn lacking(&self, needs: &MeasuredNeeds) -> Option<usize> {
        let lacks = |(resource, amount): &(&usize, &u32)| {
            let (free, needed) = self.free_and_needed(**resource, **amount);
            free < needed
        };
        needs.resources.iter().find(lacks).map(|(resource, _)| *resource)
    }

    /// Returns how many processes with these needs the free resources allow.
    fn leases_by_resources(&self, needs: &MeasuredNeeds) -> u128 {
        let allowed = |(resource, amount): (&usize, &u32)| {
            let (free, needed) = self.free_and_needed(*resource, *amount);
            u128::from(free.checked_div(needed).unwrap_or(u64::MAX))
        };
        needs.resources.iter().map(allowed).min().unwrap_or(u128::MAX)
    }

    /// Divides the time between the first and the last test of each process: into tests, attempts that were
    /// replaced, and the time between tests.
    fn finish(mut self) -> SlotTimes {
        let weighted =
            |time: Duration, test: &MeasuredTest| time.as_nanos() * u128::from(self.run.weight(&test.needs));
        let tests: u128 = self.run.tests.iter().map(|test| weighted(test.duration, test)).sum();
        let attempts: u128 = self.run.tests.iter().map(|test| weighted(test.earlier_attempts, test)).sum();
        let others = self.testing_ns.saturating_sub(tests);
        let attempts = attempts.min(others);
        self.losses.add(LossPlace::EarlierAttempts, attempts);
        self.losses.add(LossPlace::BetweenTests, others - attempts);
        self.losses
    }
}
