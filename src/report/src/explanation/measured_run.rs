//! The measured times of a run, and what its tests needed.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use super::{LossReason, MAX_HOLDERS, TimedTest, slot_time::LossPlace};

/// Measured times of a run. All times count from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredRun {
    /// Number of slots.
    pub slots: u32,
    /// Time from the start of the command to the start of the run: builds and listings.
    pub preparation: Duration,
    /// Duration of the run, without its preparation.
    pub duration: Duration,
    pub resources: Vec<MeasuredResource>,
    pub processes: Vec<MeasuredProcess>,
    /// Tests that ran.
    pub tests: Vec<MeasuredTest>,
}

/// A resource of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredResource {
    pub name: String,
    /// Number of units.
    pub capacity: u32,
}

/// A process that ran tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredProcess {
    pub started: Duration,
    /// Start of the first test; `None` if no test started.
    pub first_test: Option<Duration>,
    /// End of the last test; `None` if no test ended.
    pub last_test: Option<Duration>,
    pub ended: Duration,
}

/// A test that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredTest {
    pub name: String,
    /// Duration of the last attempt.
    pub duration: Duration,
    /// Duration of all earlier attempts together.
    pub earlier_attempts: Duration,
    pub ended: Duration,
    /// Index of the process that ran the last attempt, if known.
    pub process: Option<usize>,
    pub needs: MeasuredNeeds,
    /// Indices of the tests whose ends the test had to wait for.
    pub after: Vec<usize>,
}

/// Needs of a test.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasuredNeeds {
    /// Number of slots, at least one.
    pub weight: u32,
    /// Units of each resource, by the index of the resource.
    pub resources: BTreeMap<usize, u32>,
}

impl Default for MeasuredNeeds {
    fn default() -> Self {
        Self { weight: 1, resources: BTreeMap::new() }
    }
}

impl MeasuredTest {
    /// Returns the start of the last attempt.
    pub(super) fn started(&self) -> Duration {
        self.ended.saturating_sub(self.duration)
    }

    pub(super) fn timed(&self) -> TimedTest {
        TimedTest { name: self.name.clone(), duration: self.duration }
    }
}

impl MeasuredRun {
    /// Returns the slots that a test takes.
    pub(super) fn weight(&self, needs: &MeasuredNeeds) -> u32 {
        needs.weight.clamp(1, self.slots.max(1))
    }

    pub(super) fn longest_test(&self) -> Option<TimedTest> {
        let longest = self.tests.iter().max_by_key(|test| (test.duration, Reverse(&test.name)))?;
        (!longest.duration.is_zero()).then(|| longest.timed())
    }

    /// Describes the reason of a loss.
    pub(super) fn loss_reason(&self, place: LossPlace) -> LossReason {
        match place {
            LossPlace::Preparation => LossReason::Preparation,
            LossPlace::FirstProcess => LossReason::FirstProcess,
            LossPlace::ProcessStarts => LossReason::ProcessStarts { processes: self.processes.len() },
            LossPlace::ProcessEnds => LossReason::ProcessEnds,
            LossPlace::BetweenTests => LossReason::BetweenTests,
            LossPlace::EarlierAttempts => LossReason::EarlierAttempts,
            LossPlace::Gaps => LossReason::Gaps,
            LossPlace::WaitForSlots => LossReason::WaitForSlots,
            LossPlace::WaitForResource(resource) => LossReason::WaitForResource {
                name: self.resources[resource].name.clone(),
                holders: self.holders(resource),
            },
            LossPlace::WaitForPrerequisites => LossReason::WaitForPrerequisites,
            LossPlace::Tail => LossReason::Tail {
                last: self.tests.iter().max_by_key(|test| test.ended).map(MeasuredTest::timed),
            },
            LossPlace::Finish => LossReason::Finish,
        }
    }

    /// Returns the tests that used a resource longest.
    fn holders(&self, resource: usize) -> Vec<TimedTest> {
        let users = self.tests.iter().filter(|test| test.needs.resources.contains_key(&resource));
        let mut users: Vec<_> = users.collect();
        users.sort_by_key(|test| Reverse(test.duration));
        users.into_iter().take(MAX_HOLDERS).map(MeasuredTest::timed).collect()
    }
}
