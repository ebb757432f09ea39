//! Memory that tests need, according to the peaks of earlier runs, as units of a resource. Few different
//! amounts, because tests with equal needs share processes.

/// Number of units of the memory that tests may use.
const UNITS: u32 = 64;
/// Above this share of the time with a process that waits for memory, the machine is short of it.
const MOST_STALL_PERCENT: f64 = 20.0;
/// The amounts that a test can need. Each need is rounded up, by at most half.
const AMOUNTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, UNITS];

/// The memory that the tests of a run may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Size of all units, in KiB; not 0.
    total_kib: u64,
}

impl MemoryBudget {
    /// Capacity of the resource.
    pub const CAPACITY: u32 = UNITS;

    /// Returns the budget of a run with these slots, if its tests could use more memory than is available.
    /// `peaks_kib` is the recorded peak of each test, in KiB. A tenth of the available memory is kept free.
    #[must_use]
    pub fn new(available_kib: u64, slots: usize, peaks_kib: impl IntoIterator<Item = u64>) -> Option<Self> {
        let budget = Self { total_kib: (available_kib / 10 * 9).max(1) };
        let mut needs: Vec<u64> = peaks_kib.into_iter().map(need_kib).collect();
        needs.sort_unstable_by(|one, other| other.cmp(one));
        let largest = needs.into_iter().take(slots).fold(0, u64::saturating_add);
        (largest > budget.total_kib).then_some(budget)
    }

    /// Returns the units that a process with this recorded peak needs; 0 if it needs less than one. A process
    /// that needs more than there is takes all of them.
    #[must_use]
    pub fn units_of(self, peak_kib: u64) -> u32 {
        let needed = u128::from(need_kib(peak_kib)) * u128::from(UNITS);
        let total = u128::from(self.total_kib);
        if needed < total {
            return 0;
        }
        let is_enough = |amount: &u32| u128::from(*amount) * total >= needed;
        AMOUNTS.into_iter().find(is_enough).unwrap_or(UNITS)
    }
}

/// Returns the memory to expect of a process with this recorded peak: a fifth more.
fn need_kib(peak_kib: u64) -> u64 {
    peak_kib.saturating_add(peak_kib / 5)
}

/// Returns whether a machine has too little memory for a further test process: less than a tenth is
/// available, or processes waited for memory during more than a fifth of the last ten seconds.
///
/// `stall_percent`: share of the time with a waiting process, if the kernel measures it. `available` and
/// `total` are sizes in the same unit.
#[must_use]
pub fn is_memory_short(stall_percent: Option<f64>, available: u64, total: u64) -> bool {
    available < total / 10 || stall_percent.is_some_and(|percent| percent > MOST_STALL_PERCENT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 20;

    #[test]
    fn small_tests_need_no_budget() {
        assert_eq!(MemoryBudget::new(8 * GIB, 4, [GIB; 100]), None, "4 × 1.2 GiB fit");
        assert_eq!(MemoryBudget::new(8 * GIB, 4, []), None);
        let budget = MemoryBudget::new(8 * GIB, 8, [GIB; 100]).expect("8 × 1.2 GiB do not fit");
        assert_eq!(budget.units_of(GIB), 12, "1.2 of 7.2 GiB are 10.7 units");
        assert_eq!([budget.units_of(0), budget.units_of(50_000)], [0, 0]);
        assert_eq!([budget.units_of(6 * GIB), budget.units_of(u64::MAX)], [UNITS, UNITS]);
    }

    #[test]
    fn memory_is_short_below_a_tenth_and_under_pressure() {
        assert!(is_memory_short(None, 9, 100) && !is_memory_short(None, 10, 100));
        assert!(is_memory_short(Some(20.1), 90, 100) && !is_memory_short(Some(20.0), 90, 100));
        assert!(!is_memory_short(None, 0, 0), "an unknown size says nothing");
    }

    proptest! {
        #[test]
        fn tests_that_fit_their_units_fit_the_memory(
            available in (1_u64 << 20)..(1 << 30),
            peaks in prop::collection::vec(0_u64..(1 << 30), 1..40),
        ) {
            let Some(budget) = MemoryBudget::new(available, usize::MAX, peaks.iter().copied()) else {
                let needs = peaks.iter().map(|peak| need_kib(*peak)).sum::<u64>();
                prop_assert!(needs <= available);
                return Ok(());
            };
            // Start tests while their units fit, in any order.
            let (mut units, mut needs, mut running) = (0, 0, 0);
            for peak in peaks {
                let own = budget.units_of(peak);
                if own > 0 && units + own <= UNITS {
                    (units, needs, running) = (units + own, needs + need_kib(peak), running + 1);
                }
            }
            // A test that needs more than there is runs without other large ones.
            prop_assert!(needs <= available || running == 1, "{needs} of {available}");
        }
    }
}
