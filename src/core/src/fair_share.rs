//! Fair sharing of a session's slots between concurrent runs. No lease is interrupted: a share is the number
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
