//! Fair sharing of the slots between clients, and between the concurrent runs of each. No lease is interrupted: a share is the number
//! of leases that a run may hold, and is computed again whenever a lease ends.

/// The demand of one run, or one listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotDemand {
    /// Number of concurrent leases that it can use, including those it holds.
    pub wanted: usize,
    /// Number of leases that it has received since it began: the demand with the fewest comes first when
    /// slots are scarce.
    pub served: u64,
}

/// Returns the number of leases that each may hold, in the order of the demands; together at most `slots`.
///
/// No demand receives more than it wants, and none receives one more while another that wants more has two
/// fewer. A remainder that cannot be divided evenly goes to the demands that were served least, among equals
/// to the first.
#[must_use]
pub fn fair_shares(slots: usize, demands: &[SlotDemand]) -> Vec<usize> {
    let mut shares = vec![0; demands.len()];
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|place| demands[*place].served);
    let mut left = slots;
    loop {
        let before = left;
        for place in &order {
            if left > 0 && shares[*place] < demands[*place].wanted {
                shares[*place] += 1;
                left -= 1;
            }
        }
        if left == before {
            return shares;
        }
    }
}

/// The demand of one run of a group: the runs of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupedDemand {
    pub group: u32,
    /// Number of leases that the group has received, with those of demands that are over. The same for all
    /// demands of a group.
    pub group_served: u64,
    pub demand: SlotDemand,
}

/// Returns the number of leases that each may hold, in the order of the demands; together at most `slots`. The
/// slots are shared fairly between the groups, and those of each group between its demands, so that a group
/// with many demands gets no more than one with a single demand.
#[must_use]
pub fn fair_shares_of_groups(slots: usize, demands: &[GroupedDemand]) -> Vec<usize> {
    let mut groups: Vec<(u32, SlotDemand)> = Vec::new();
    for GroupedDemand { group, group_served, demand } in demands {
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, all)) => all.wanted = all.wanted.saturating_add(demand.wanted),
            None => groups.push((*group, SlotDemand { wanted: demand.wanted, served: *group_served })),
        }
    }
    let of_groups: Vec<_> = groups.iter().map(|(_, demand)| *demand).collect();
    let mut shares = vec![0; demands.len()];
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

    fn demands(wanted: &[usize]) -> Vec<SlotDemand> {
        wanted.iter().map(|wanted| SlotDemand { wanted: *wanted, served: 0 }).collect()
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
        let served = |served: u64| SlotDemand { wanted: 2, served };
        assert_eq!(fair_shares(1, &[served(3), served(1), served(2)]), [0, 1, 0]);
        assert_eq!(fair_shares(4, &[served(3), served(1), served(2)]), [1, 2, 1]);
    }

    #[test]
    fn group_of_many_demands_gets_no_more_than_another_group() {
        let of_groups = |groups: &[u32]| -> Vec<_> {
            let demand = SlotDemand { wanted: 9, served: 0 };
            groups.iter().map(|group| GroupedDemand { group: *group, group_served: 0, demand }).collect()
        };
        assert_eq!(fair_shares_of_groups(8, &of_groups(&[1, 1, 1, 2])), [2, 1, 1, 4]);
        assert_eq!(fair_shares_of_groups(8, &of_groups(&[1, 1])), [4, 4]);
        assert_eq!(fair_shares_of_groups(1, &of_groups(&[2, 1, 2])), [1, 0, 0]);
        assert_eq!(fair_shares_of_groups(8, &[]), [0; 0]);
        let mut uneven = of_groups(&[1, 2]);
        uneven[0].demand.wanted = 1;
        assert_eq!(fair_shares_of_groups(8, &uneven), [1, 7], "what one group does not use, another gets");
        uneven[0].group_served = 3;
        assert_eq!(fair_shares_of_groups(1, &uneven), [0, 1], "the group that was served least comes first");
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
