//! Sharding: selects the tests of this shard. Every shard computes the same partition from the same list and
//! selects its own part.

use std::{fmt, time::Duration};

/// The rule that assigns tests to shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionRule {
    /// Every n-th test of the sorted list. The sizes of shards differ by at most one, but a new test moves
    /// all tests after it to other shards.
    Slice,
    /// By a hash of the uid: a test stays in its shard when other tests are added or removed.
    Hash,
    /// Longest first to the shard with the least work, by recorded durations.
    Time,
}

/// Shard `index` (from 1) of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestPartition {
    pub rule: PartitionRule,
    /// The number of this shard, from 1.
    pub index: u32,
    /// The number of shards, at least `index`.
    pub count: u32,
}

impl TestPartition {
    /// Returns for each test (uid and recorded duration) whether it belongs to this shard.
    #[must_use]
    pub fn select(&self, tests: &[(&str, Option<Duration>)]) -> Vec<bool> {
        let count = u64::from(self.count.max(1));
        let mine = u64::from(self.index.saturating_sub(1));
        match self.rule {
            PartitionRule::Hash => {
                tests.iter().map(|(uid, _)| fnv1a(uid.as_bytes()) % count == mine).collect()
            }
            PartitionRule::Slice => {
                let mut out = vec![false; tests.len()];
                for (place, test) in (0_u64..).zip(order_by_uid(tests)) {
                    out[test] = place % count == mine;
                }
                out
            }
            PartitionRule::Time => self.select_by_time(tests),
        }
    }

    /// Returns a digest of everything that determines the split: rule, number of shards, tests and durations.
    /// Shards with equal digests compute the same split.
    #[must_use]
    pub fn split_digest(&self, tests: &[(&str, Option<Duration>)]) -> SplitDigest {
        let rule = match self.rule {
            PartitionRule::Slice => 1,
            PartitionRule::Hash => 2,
            PartitionRule::Time => 3,
        };
        let mut hash = fnv1a_from(FNV_OFFSET, &[rule]);
        hash = fnv1a_from(hash, &self.count.to_le_bytes());
        for test in order_by_uid(tests) {
            let (uid, weight) = tests[test];
            // Separators: no uid contains a zero byte, and no duration has this value.
            let micros = weight.map_or(u128::MAX, |weight| weight.as_micros());
            hash = fnv1a_from(hash, uid.as_bytes());
            hash = fnv1a_from(hash, &[0]);
            hash = fnv1a_from(hash, &micros.to_le_bytes());
        }
        SplitDigest(hash)
    }

    fn select_by_time(&self, tests: &[(&str, Option<Duration>)]) -> Vec<bool> {
        let mut known: Vec<_> = tests.iter().filter_map(|(_, weight)| *weight).collect();
        known.sort_unstable();
        let unknown = known.get(known.len() / 2).copied().unwrap_or(Duration::from_millis(1));
        let mut order = order_by_uid(tests);
        order.sort_by_key(|test| std::cmp::Reverse(tests[*test].1.unwrap_or(unknown)));
        let mut loads = vec![(Duration::ZERO, 0_u32); self.count.max(1) as usize];
        let mut out = vec![false; tests.len()];
        for test in order {
            // At equal loads, the number of tests decides, which also spreads tests without a duration.
            let (shard, load) = loads
                .iter_mut()
                .enumerate()
                .min_by_key(|(shard, load)| (**load, *shard))
                .expect("at least one shard");
            load.0 += tests[test].1.unwrap_or(unknown);
            load.1 += 1;
            out[test] = shard + 1 == self.index as usize;
        }
        out
    }
}

/// Digest of a split, written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitDigest(u64);

impl fmt::Display for SplitDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl SplitDigest {
    /// Parses a digest; `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let is_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

fn order_by_uid(tests: &[(&str, Option<Duration>)]) -> Vec<usize> {
    let mut order: Vec<_> = (0..tests.len()).collect();
    order.sort_by_key(|test| tests[*test].0);
    order
}

/// FNV-1a hash, which is the same on every machine and in every version, unlike the standard library's
/// hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_from(FNV_OFFSET, bytes)
}

/// Hash of an empty input.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a_from(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_each_rule_cover_all_tests_once() {
        let names: Vec<_> = (0..101).map(|number| format!("s::t{number}")).collect();
        let tests: Vec<_> = (0_u64..)
            .zip(&names)
            .map(|(number, name)| {
                (name.as_str(), (number % 3 != 0).then(|| Duration::from_millis(number * 7 % 50)))
            })
            .collect();
        for rule in [PartitionRule::Slice, PartitionRule::Hash, PartitionRule::Time] {
            for count in 1..6 {
                let mut owners = vec![0; tests.len()];
                for index in 1..=count {
                    for (owner, is_mine) in
                        owners.iter_mut().zip(TestPartition { rule, index, count }.select(&tests))
                    {
                        *owner += u32::from(is_mine);
                    }
                }
                assert!(owners.iter().all(|owner| *owner == 1), "{rule:?} {count}");
            }
        }
    }

    #[test]
    fn time_rule_isolates_a_dominant_test() {
        let tests = [
            ("a", Some(Duration::from_secs(10))),
            ("b", Some(Duration::from_secs(3))),
            ("c", Some(Duration::from_secs(4))),
        ];
        assert_eq!(
            TestPartition { rule: PartitionRule::Time, index: 1, count: 2 }.select(&tests),
            [true, false, false]
        );
    }

    #[test]
    fn digest_depends_on_rule_tests_and_durations_but_not_on_their_order() {
        let (a, b) = (("a", Some(Duration::from_secs(1))), ("b", None));
        let time = TestPartition { rule: PartitionRule::Time, index: 1, count: 2 };
        let digest = time.split_digest(&[a, b]);
        assert_eq!(TestPartition { index: 2, ..time }.split_digest(&[b, a]), digest);
        for other in [TestPartition { rule: PartitionRule::Hash, ..time }, TestPartition { count: 3, ..time }]
        {
            assert_ne!(other.split_digest(&[a, b]), digest, "{other:?}");
        }
        assert_eq!(SplitDigest::read(&digest.to_string()), Some(digest));
        for other in [&[a][..], &[a, ("b", Some(Duration::ZERO))], &[a, ("c", None)], &[("ab", None)], &[]] {
            assert_ne!(time.split_digest(other), digest, "{other:?}");
        }
        for text in ["", "123", "+000000000000001", "00000000000000001"] {
            assert_eq!(SplitDigest::read(text), None, "{text}");
        }
    }

    #[test]
    fn fnv1a_hash_is_stable() {
        assert_eq!(fnv1a(b"kennel::herd::turns_left"), fnv1a(b"kennel::herd::turns_left"));
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
