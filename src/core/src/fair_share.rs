//! Shares the slots fairly between clients, and between the concurrent runs of each client. A share is the
//! number of slots that a run may use. Shares are computed again whenever a lease ends; no lease is
//! interrupted.
//!
//! The first lease of a small run has priority, because a user is waiting for it. A series of such runs could
//! keep all slots from a large run, so every second grant ignores priority.

use crate::Slots;

/// The demand of one run, or one listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotDemand {
    /// Slots that the demand can use, including the slots of its current leases.
    pub wanted: Slots,
    /// Leases received since the demand began. When slots are scarce, the demand with the fewest comes first.
    pub served: u64,
}

/// Returns the slots that each demand may use, in the order of the demands; together at most `slots`.
///
/// No demand receives more than it wants. A demand receives at most one slot more than any demand that still
/// wants slots. A remainder that cannot be divided evenly goes to the demands that were served least; on a
/// tie, to the first.
#[must_use]
pub(crate) fn fair_shares(slots: Slots, demands: &[SlotDemand]) -> Vec<Slots> {
    let mut shares = vec![Slots::NONE; demands.len()];
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|place| demands[*place].served);
    let mut left = slots;
    loop {
        let before = left;
        for place in &order {
            if left > Slots::NONE && shares[*place] < demands[*place].wanted {
                shares[*place] = shares[*place].saturating_add(Slots::ONE);
                left = left.saturating_sub(Slots::ONE);
            }
        }
        if left == before {
            return shares;
        }
    }
}

/// Maximum number of selected tests of a run whose first lease has priority: few enough to be selected by
/// hand and to fit one batch.
pub(crate) const SMALL_SELECTION: usize = 16;

/// Returns whether the next lease of a run has priority.
#[must_use]
pub fn has_priority(selected_tests: usize, leases_received: u64) -> bool {
    selected_tests <= SMALL_SELECTION && leases_received == 0
}

/// The rule for the next grant of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrantRule {
    /// Demands with priority come first.
    #[default]
    PriorityFirst,
    /// Only the fair share decides.
    Fair,
}

impl GrantRule {
    /// Returns the rule after a grant to a demand with or without priority.
    #[must_use]
    pub fn after_grant(has_priority: bool) -> Self {
        if has_priority { Self::Fair } else { Self::PriorityFirst }
    }
}

/// Demand of one run in a group. A group is all runs of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupedDemand {
    pub group: u32,
    /// Leases that the group has received, including leases of finished demands. The same for all demands of
    /// a group.
    pub group_served: u64,
    pub demand: SlotDemand,
    /// Whether the run's next lease has priority.
    pub has_priority: bool,
}

/// Returns which demands come before all others: with [`GrantRule::PriorityFirst`], each group's oldest
/// demand with priority; otherwise none.
#[must_use]
pub fn preferred_demands(rule: GrantRule, demands: &[GroupedDemand]) -> Vec<bool> {
    let is_candidate = |one: &GroupedDemand| one.has_priority && one.demand.wanted > Slots::NONE;
    let mut preferred = vec![false; demands.len()];
    if rule == GrantRule::Fair {
        return preferred;
    }
    for (place, one) in demands.iter().enumerate() {
        let is_first =
            !demands[..place].iter().any(|earlier| earlier.group == one.group && is_candidate(earlier));
        preferred[place] = is_candidate(one) && is_first;
    }
    preferred
}

/// Returns the slots that each demand may use, like `fair_shares_of_groups`. Each preferred demand gets at
/// least one slot while slots are left.
#[must_use]
pub fn shares_with_priority(slots: Slots, demands: &[GroupedDemand], preferred: &[bool]) -> Vec<Slots> {
    let firsts = Slots::ONE.times(preferred.iter().filter(|one| **one).count()).min(slots);
    let mut left = firsts;
    let mut taken = vec![Slots::NONE; demands.len()];
    for (place, _) in preferred.iter().enumerate().filter(|(_, one)| **one) {
        taken[place] = left.min(Slots::ONE);
        left = left.saturating_sub(taken[place]);
    }
    let rest: Vec<_> = demands
        .iter()
        .zip(&taken)
        .map(|(one, taken)| {
            let wanted = one.demand.wanted.saturating_sub(*taken);
            GroupedDemand { demand: SlotDemand { wanted, ..one.demand }, ..*one }
        })
        .collect();
    let shares = fair_shares_of_groups(slots.saturating_sub(firsts), &rest);
    shares.into_iter().zip(taken).map(|(share, taken)| share.saturating_add(taken)).collect()
}

/// Returns the slots that each demand may use, in the order of the demands; together at most `slots`. Groups
/// share the slots fairly, and the demands of a group share the group's slots, so a group with many demands
/// gets no more than a group with one.
#[must_use]
pub(crate) fn fair_shares_of_groups(slots: Slots, demands: &[GroupedDemand]) -> Vec<Slots> {
    let mut groups: Vec<(u32, SlotDemand)> = Vec::new();
    for GroupedDemand { group, group_served, demand, has_priority: _ } in demands {
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, all)) => all.wanted = all.wanted.saturating_add(demand.wanted),
            None => groups.push((*group, SlotDemand { wanted: demand.wanted, served: *group_served })),
        }
    }
    let of_groups: Vec<_> = groups.iter().map(|(_, demand)| *demand).collect();
    let mut shares = vec![Slots::NONE; demands.len()];
    for ((group, _), slots) in groups.iter().zip(fair_shares(slots, &of_groups)) {
        let places: Vec<_> = (0..demands.len()).filter(|place| demands[*place].group == *group).collect();
        let own: Vec<_> = places.iter().map(|place| demands[*place].demand).collect();
        for (place, share) in places.iter().zip(fair_shares(slots, &own)) {
            shares[*place] = share;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(shares: Vec<Slots>) -> Vec<usize> {
        shares.into_iter().map(|share| share.0).collect()
    }

    fn fair_shares(slots: usize, demands: &[SlotDemand]) -> Vec<usize> {
        counts(super::fair_shares(Slots(slots), demands))
    }

    fn fair_shares_of_groups(slots: usize, demands: &[GroupedDemand]) -> Vec<usize> {
        counts(super::fair_shares_of_groups(Slots(slots), demands))
    }

    fn shares_with_priority(slots: usize, demands: &[GroupedDemand], preferred: &[bool]) -> Vec<usize> {
        counts(super::shares_with_priority(Slots(slots), demands, preferred))
    }

    fn demands(wanted: &[usize]) -> Vec<SlotDemand> {
        wanted.iter().map(|wanted| SlotDemand { wanted: Slots(*wanted), served: 0 }).collect()
    }

    #[test]
    fn single_demand_gets_all_it_wants() {
        assert_eq!(fair_shares(4, &demands(&[9])), [4]);
        assert_eq!(fair_shares(4, &demands(&[3])), [3]);
        assert_eq!(fair_shares(4, &[]), [0; 0]);
    }

    #[test]
    fn unused_share_goes_to_other_demands() {
        assert_eq!(fair_shares(8, &demands(&[9, 1, 9])), [4, 1, 3]);
        assert_eq!(fair_shares(8, &demands(&[0, 9])), [0, 8]);
    }

    #[test]
    fn least_served_demand_comes_first() {
        let served = |served: u64| SlotDemand { wanted: Slots(2), served };
        assert_eq!(fair_shares(1, &[served(3), served(1), served(2)]), [0, 1, 0]);
        assert_eq!(fair_shares(4, &[served(3), served(1), served(2)]), [1, 2, 1]);
    }

    #[test]
    fn group_of_many_demands_gets_no_more_than_another_group() {
        let of_groups = |groups: &[u32]| -> Vec<_> {
            let demand = SlotDemand { wanted: Slots(9), served: 0 };
            let one =
                |group: &u32| GroupedDemand { group: *group, group_served: 0, demand, has_priority: false };
            groups.iter().map(one).collect()
        };
        assert_eq!(fair_shares_of_groups(8, &of_groups(&[1, 1, 1, 2])), [2, 1, 1, 4]);
        assert_eq!(fair_shares_of_groups(8, &of_groups(&[1, 1])), [4, 4]);
        assert_eq!(fair_shares_of_groups(1, &of_groups(&[2, 1, 2])), [1, 0, 0]);
        assert_eq!(fair_shares_of_groups(8, &[]), [0; 0]);
        let mut uneven = of_groups(&[1, 2]);
        uneven[0].demand.wanted = Slots(1);
        assert_eq!(fair_shares_of_groups(8, &uneven), [1, 7], "what one group does not use, another gets");
        uneven[0].group_served = 3;
        assert_eq!(fair_shares_of_groups(1, &uneven), [0, 1], "the group that was served least comes first");
    }

    /// Demands given as group, wanted leases, received leases, and priority.
    fn prioritised(demands: &[(u32, usize, u64, bool)]) -> Vec<GroupedDemand> {
        let one = |(group, wanted, served, has_priority): &(u32, usize, u64, bool)| GroupedDemand {
            group: *group,
            group_served: demands.iter().filter(|other| other.0 == *group).map(|other| other.2).sum(),
            demand: SlotDemand { wanted: Slots(*wanted), served: *served },
            has_priority: *has_priority,
        };
        demands.iter().map(one).collect()
    }

    #[test]
    fn small_selection_has_priority_for_its_first_lease() {
        assert!(has_priority(1, 0) && has_priority(SMALL_SELECTION, 0));
        assert!(!has_priority(1, 1) && !has_priority(SMALL_SELECTION + 1, 0));
    }

    #[test]
    fn first_lease_of_a_small_selection_gets_the_next_slot() {
        // The small run's client has received far more leases than the other client.
        let demands = prioritised(&[(1, 9, 400, false), (1, 1, 0, true), (2, 9, 3, false)]);
        let preferred = preferred_demands(GrantRule::PriorityFirst, &demands);
        assert_eq!(preferred, [false, true, false]);
        assert_eq!(shares_with_priority(1, &demands, &preferred), [0, 1, 0]);
        assert_eq!(shares_with_priority(2, &demands, &preferred), [0, 1, 1]);
        assert_eq!(shares_with_priority(4, &demands, &preferred), [1, 1, 2]);
        // The next grant ignores priority.
        let rule = GrantRule::after_grant(true);
        let preferred = preferred_demands(rule, &demands);
        assert_eq!(shares_with_priority(1, &demands, &preferred), [0, 0, 1]);
        assert_eq!(GrantRule::after_grant(false), GrantRule::PriorityFirst);
    }

    #[test]
    fn one_demand_of_each_group_is_preferred() {
        let demands = prioritised(&[(1, 1, 0, true), (1, 1, 0, true), (2, 0, 0, true), (3, 2, 0, true)]);
        let preferred = preferred_demands(GrantRule::PriorityFirst, &demands);
        assert_eq!(preferred, [true, false, false, true]);
        assert_eq!(shares_with_priority(2, &demands, &preferred), [1, 0, 0, 1]);
        assert_eq!(shares_with_priority(0, &demands, &preferred), [0; 4]);
    }

    #[test]
    fn shares_with_priority_are_bounded_and_complete_in_every_small_case() {
        for case in 0..4_usize.pow(3) * 8 {
            let (wanted, flags) = ([case % 4, case / 4 % 4, case / 16 % 4], case / 64);
            let of = |place: usize, group| (group, wanted[place], 5 * place as u64, flags >> place & 1 == 1);
            for demands in [[of(0, 1), of(1, 1), of(2, 2)], [of(0, 1), of(1, 2), of(2, 3)]] {
                let demands = prioritised(&demands);
                for (slots, rule) in
                    (0..6).flat_map(|slots| [(slots, GrantRule::PriorityFirst), (slots, GrantRule::Fair)])
                {
                    let preferred = preferred_demands(rule, &demands);
                    let shares = shares_with_priority(slots, &demands, &preferred);
                    assert_eq!(
                        shares.iter().sum::<usize>(),
                        slots.min(wanted.iter().sum()),
                        "{slots} {demands:?}"
                    );
                    assert!(shares.iter().zip(wanted).all(|(share, wish)| *share <= wish), "{demands:?}");
                    let served =
                        preferred.iter().zip(&shares).filter(|(is, share)| **is && **share > 0).count();
                    assert_eq!(served, preferred.iter().filter(|is| **is).count().min(slots), "{demands:?}");
                    if rule == GrantRule::Fair {
                        assert_eq!(shares, fair_shares_of_groups(slots, &demands));
                    }
                }
            }
        }
    }

    #[test]
    fn shares_are_bounded_and_even_in_every_small_case() {
        for slots in 0..6_usize {
            for case in 0..4_usize.pow(3) {
                let wanted = [case % 4, case / 4 % 4, case / 16];
                let shares = fair_shares(slots, &demands(&wanted));
                assert_eq!(
                    shares.iter().sum::<usize>(),
                    slots.min(wanted.iter().sum()),
                    "{slots} {wanted:?}"
                );
                for (one, (share, wish)) in shares.iter().zip(wanted).enumerate() {
                    assert!(*share <= wish, "{slots} {wanted:?} {shares:?}");
                    let is_short = *share < wish;
                    let is_even = shares.iter().all(|other| *other <= share + 1);
                    assert!(!is_short || is_even, "{one} of {slots} {wanted:?} {shares:?}");
                }
            }
        }
    }
}
