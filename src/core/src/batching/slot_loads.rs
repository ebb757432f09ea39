//! Load of a run's slots, and one slot's share of the remaining work.

use std::{collections::BTreeSet, time::Duration};

use super::needs::HeldPortion;
use crate::{ProgramId, Slots};

/// Load of a run's slots when one of them is free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotLoads {
    /// Number of slots, including the free one.
    pub slots: Slots,
    /// Slots that the run may occupy now, if other runs have the rest.
    pub share: Option<Slots>,
    /// Slots of the share that the run may occupy at this moment. A lease that needs more waits, instead of
    /// running with fewer.
    pub available: Option<Slots>,
    pub busy: Vec<BusySlot>,
    /// Programs whose further processes are delayed, because a running process will probably run their tests.
    pub delayed_starts: BTreeSet<ProgramId>,
}

/// A slot that runs a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusySlot {
    pub program: ProgramId,
    /// Weight of the lease.
    pub weight: Slots,
    /// Resources that the lease holds.
    pub portions: Vec<HeldPortion>,
    /// Expected time until the slot is free.
    pub remaining: Duration,
}

impl SlotLoads {
    /// Returns this number of slots, all free.
    #[must_use]
    pub fn idle(slots: Slots) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Returns the number of slots that the run may occupy now.
    #[must_use]
    pub(crate) fn usable(&self) -> Slots {
        self.share.unwrap_or(self.slots).min(self.slots)
    }

    /// Returns the number of slots that the run may occupy at this moment.
    #[must_use]
    pub(crate) fn available(&self) -> Slots {
        self.available.unwrap_or(Slots(usize::MAX)).min(self.usable())
    }

    /// Returns the number of occupied slots.
    #[must_use]
    pub(crate) fn taken(&self) -> Slots {
        self.busy.iter().map(|slot| slot.weight).sum()
    }

    /// Returns how many processes of this program are running.
    #[must_use]
    pub fn processes_of(&self, program: ProgramId) -> usize {
        self.busy.iter().filter(|slot| slot.program == program).count()
    }

    /// Returns a free slot's share of this work if all slots finish at the same time. Busy slots join when
    /// they become free.
    #[must_use]
    pub(crate) fn share_of(&self, work: Duration) -> Duration {
        let mut busy: Vec<_> = self.busy.iter().map(|slot| (slot.remaining, slot.weight)).collect();
        busy.sort_unstable();
        let free = self.slots.saturating_sub(busy.iter().map(|(_, weight)| *weight).sum()).max(Slots::ONE);
        let sharers = |slots: Slots| u32::try_from(slots.0).unwrap_or(u32::MAX);
        let mut sharing = sharers(free);
        let (mut level, mut rest) = (Duration::ZERO, work);
        for (load, weight) in busy {
            let filled = load.saturating_sub(level).saturating_mul(sharing);
            if filled >= rest {
                break;
            }
            rest = rest.saturating_sub(filled);
            level = load;
            sharing = sharing.saturating_add(sharers(weight));
        }
        level.saturating_add(rest / sharing)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn busy_for(remaining: Duration) -> BusySlot {
        BusySlot { program: ProgramId(0), weight: Slots::ONE, portions: Vec::new(), remaining }
    }

    fn share(slots: usize, busy: &[u64], work: u64) -> u64 {
        let busy = busy.iter().map(|seconds| busy_for(Duration::from_secs(*seconds))).collect();
        SlotLoads { slots: Slots(slots), busy, ..SlotLoads::default() }
            .share_of(Duration::from_secs(work))
            .as_secs()
    }

    #[test]
    fn busy_slots_take_their_part_when_they_are_free() {
        assert_eq!(share(4, &[], 40), 10);
        assert_eq!(share(2, &[10], 40), 25);
        assert_eq!(share(2, &[100], 40), 40, "the other slot comes too late");
        assert_eq!(share(3, &[20, 5], 35), 20);
        assert_eq!(share(0, &[], 7), 7);
        assert_eq!(share(1, &[9, 9], 7), 7);
        assert_eq!(SlotLoads::idle(Slots(3)).share_of(Duration::MAX), Duration::MAX / 3);
    }

    proptest! {
        #[test]
        fn all_work_is_shared(busy in proptest::collection::vec(0_u64..100, 0..6), free in 1_usize..5, work in 0_u64..1000) {
            let loads: Vec<_> = busy.iter().map(|load| Duration::from_millis(*load)).collect();
            let busy = loads.iter().copied().map(busy_for).collect();
            let slots = SlotLoads { slots: Slots(free + loads.len()), busy, ..SlotLoads::default() };
            let share = slots.share_of(Duration::from_millis(work));
            let idle = share * u32::try_from(free).unwrap();
            let taken = loads.iter().map(|load| share.saturating_sub(*load)).fold(idle, |sum, one| sum + one);
            let error = taken.abs_diff(Duration::from_millis(work));
            prop_assert!(error < Duration::from_micros(1), "{taken:?} of {work} ms");
        }
    }
}
