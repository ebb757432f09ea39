//! Shares the slots of a machine between coordinators that know each other only by what each has registered.
//! Every coordinator computes the same shares, takes slots up to its share, and gives slots back at the end
//! of a lease. No lease is interrupted.
//!
//! If there are more coordinators than slots, they take turns. A turn lasts [`TURN`], and a coordinator whose
//! turn is over goes behind all others.

use std::time::Duration;

use crate::Slots;

/// Minimum duration of a turn. As long as a batch where other runs wait, so that a batch is a turn.
pub const TURN: Duration = Duration::from_millis(200);

/// A coordinator's demand, as it has registered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineDemand {
    /// Number of slots that the machine has, in this coordinator's configuration.
    pub machine: Slots,
    /// Slots that the coordinator can use now, including the slots of its leases.
    pub wanted: Slots,
    /// Slots that the coordinator must hold before another lease can start, including the slots of its
    /// leases. At most one means that any slot is of use.
    pub least: Slots,
    /// Monotonic time when the coordinator's turn began. Earlier turns go first.
    pub turn: Duration,
}

/// Returns the number of slots that all coordinators together may hold: the smallest number that any
/// coordinator with a demand names, so that nobody's limit is exceeded.
#[must_use]
pub fn machine_limit(demands: &[MachineDemand]) -> Slots {
    let named = demands.iter().filter(|one| one.wanted > Slots::NONE).map(|one| one.machine);
    named.min().unwrap_or_default().max(Slots::ONE)
}

/// Returns the slots that each coordinator may hold, in the order of the demands; together at most
/// [`machine_limit`].
///
/// First, in the order of the turns, each gets the least number of slots that it can use, if these are left.
/// Then the rest is divided evenly among those that have got any. So the slots that a heavy lease needs are
/// reserved together: two coordinators never wait for each other with a part of their slots.
#[must_use]
pub fn machine_shares(demands: &[MachineDemand]) -> Vec<Slots> {
    let limit = machine_limit(demands);
    let mut left = limit;
    let mut shares = vec![Slots::NONE; demands.len()];
    let mut order: Vec<usize> =
        (0..demands.len()).filter(|place| demands[*place].wanted > Slots::NONE).collect();
    order.sort_by_key(|place| demands[*place].turn);
    for place in &order {
        let least = demands[*place].least.clamp(Slots::ONE, limit);
        if least <= left {
            shares[*place] = least;
            left = left.saturating_sub(least);
        }
    }
    loop {
        let before = left;
        for place in &order {
            let share = &mut shares[*place];
            if left > Slots::NONE && *share > Slots::NONE && *share < demands[*place].wanted {
                *share = share.saturating_add(Slots::ONE);
                left = left.saturating_sub(Slots::ONE);
            }
        }
        if left == before {
            return shares;
        }
    }
}

/// Returns whether a coordinator's turn is over after this time: [`TURN`] has passed, and another coordinator
/// lacks slots although it has a smaller share.
#[must_use]
pub fn is_turn_over(own: usize, demands: &[MachineDemand], shares: &[Slots], held_for: Duration) -> bool {
    let limit = machine_limit(demands);
    let lacks =
        |(demand, share): (&MachineDemand, &Slots)| *share < shares[own] && *share < demand.wanted.min(limit);
    held_for >= TURN && demands.iter().zip(shares).any(lacks)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn demand(machine: usize, wanted: usize, least: usize, turn: u64) -> MachineDemand {
        let turn = Duration::from_millis(turn);
        MachineDemand { machine: Slots(machine), wanted: Slots(wanted), least: Slots(least), turn }
    }

    fn shares(demands: &[MachineDemand]) -> Vec<usize> {
        machine_shares(demands).into_iter().map(|share| share.0).collect()
    }

    /// Calls `check` with every combination of three demands on a machine with up to four slots.
    fn for_every_small_case(check: impl Fn(usize, &[MachineDemand])) {
        for machine in 1..=4 {
            let one = |case: usize, turn| demand(machine, case % 5, case / 5, turn);
            for case in 0..25_usize.pow(3) {
                for turns in [[0, 1, 2], [2, 1, 0], [1, 1, 0]] {
                    let cases = [case % 25, case / 25 % 25, case / 625];
                    let demands = [0, 1, 2].map(|place| one(cases[place], turns[place]));
                    check(machine, &demands);
                }
            }
        }
    }

    #[test]
    fn single_coordinator_gets_all_it_wants() {
        assert_eq!(shares(&[demand(4, 9, 0, 0)]), [4]);
        assert_eq!(shares(&[demand(4, 3, 0, 0), demand(4, 0, 0, 0)]), [3, 0]);
        assert_eq!(shares(&[]), [0; 0]);
    }

    #[test]
    fn smallest_machine_of_all_demands_counts() {
        assert_eq!(shares(&[demand(8, 8, 0, 0), demand(2, 2, 0, 1)]), [1, 1]);
        assert_eq!(shares(&[demand(8, 8, 0, 0), demand(2, 0, 0, 1)]), [8, 0], "without a demand, no limit");
    }

    #[test]
    fn coordinators_without_a_slot_wait_for_their_turn() {
        let mut demands = [0, 1, 2].map(|turn| demand(2, 2, 0, turn));
        let before = machine_shares(&demands);
        assert_eq!(shares(&demands), [1, 1, 0]);
        assert!(is_turn_over(0, &demands, &before, TURN));
        assert!(!is_turn_over(0, &demands, &before, TURN - Duration::from_millis(1)));
        assert!(!is_turn_over(2, &demands, &before, TURN), "it has no slot to give back");
        demands[0].turn = Duration::from_millis(3);
        assert_eq!(shares(&demands), [0, 1, 1]);
    }

    #[test]
    fn turn_does_not_end_while_all_have_equal_shares() {
        let demands = [demand(2, 2, 0, 0), demand(2, 2, 0, 1)];
        assert!(!is_turn_over(0, &demands, &machine_shares(&demands), TURN * 9));
        let demands = [demand(4, 4, 0, 0), demand(4, 1, 0, 1)];
        assert!(
            !is_turn_over(0, &demands, &machine_shares(&demands), TURN * 9),
            "the other has all it wants"
        );
    }

    #[test]
    fn heavy_lease_gets_its_slots_in_its_turn() {
        let (light, heavy) = (demand(2, 2, 0, 0), demand(2, 2, 2, 1));
        assert_eq!(shares(&[light, heavy]), [2, 0]);
        assert!(is_turn_over(0, &[light, heavy], &machine_shares(&[light, heavy]), TURN));
        let light = MachineDemand { turn: Duration::from_millis(2), ..light };
        assert_eq!(shares(&[light, heavy]), [0, 2]);
        assert_eq!(shares(&[demand(4, 4, 3, 0), demand(4, 4, 3, 1)]), [4, 0], "never a part of each");
        assert_eq!(shares(&[demand(2, 9, 9, 0)]), [2], "more than there are means all");
    }

    #[test]
    fn shares_are_bounded_and_whole_in_every_small_case() {
        for_every_small_case(|machine, demands| {
            let shares = shares(demands);
            assert!(shares.iter().sum::<usize>() <= machine, "{machine} {demands:?} {shares:?}");
            let first = demands.iter().filter(|one| one.wanted > Slots::NONE).map(|one| one.turn).min();
            for (demand, share) in demands.iter().zip(&shares) {
                let least = demand.least.0.clamp(1, machine);
                if demand.wanted == Slots::NONE {
                    assert_eq!(*share, 0, "{demands:?}");
                } else {
                    assert!(*share == 0 || *share >= least, "{machine} {demands:?} {shares:?}");
                    assert!(*share <= demand.wanted.0.max(least), "{machine} {demands:?} {shares:?}");
                }
            }
            if let Some(first) = first {
                let place = demands.iter().position(|one| one.turn == first && one.wanted > Slots::NONE);
                assert!(shares[place.unwrap()] > 0, "the first in line gets its slots: {demands:?}");
            }
        });
    }

    #[test]
    fn no_slot_is_idle_without_a_heavy_lease_in_every_small_case() {
        for_every_small_case(|machine, demands| {
            if demands.iter().all(|one| one.least <= Slots::ONE) {
                let wanted = demands.iter().map(|one| one.wanted.0).sum::<usize>();
                assert_eq!(shares(demands).iter().sum::<usize>(), machine.min(wanted), "{demands:?}");
            }
        });
    }

    #[test]
    fn every_coordinator_gets_its_slots_within_a_round_of_turns_in_every_small_case() {
        for_every_small_case(|machine, demands| {
            let mut demands = demands.to_vec();
            let mut served = BTreeSet::new();
            for now in (10..).map(Duration::from_millis).take(demands.len() + 1) {
                let shares = machine_shares(&demands);
                served.extend((0..demands.len()).filter(|place| shares[*place] > Slots::NONE));
                let is_over = |place: &usize| is_turn_over(*place, &demands, &shares, TURN);
                let over: Vec<_> = (0..demands.len()).filter(is_over).collect();
                over.into_iter().for_each(|place| demands[place].turn = now);
            }
            let wanting: BTreeSet<_> =
                (0..demands.len()).filter(|place| demands[*place].wanted > Slots::NONE).collect();
            assert_eq!(served, wanting, "{machine} {demands:?}");
        });
    }
}
