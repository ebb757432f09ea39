//! Shards: Catch2 3 can run a range of its visible tests by position, without comparing names. Heeler selects
//! most tests of large programs this way, because Catch2 otherwise compares each of its tests with each given
//! name.

use std::ops::Range;

/// Minimum number of tests in a shard. Smaller groups are selected by name.
const MIN_TESTS: usize = 250;

/// Position of a test among the visible tests of its program, and their count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShardPlace {
    pub(super) index: usize,
    pub(super) count: usize,
}

/// One of several shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) index: usize,
    pub(super) count: usize,
}

impl Shard {
    /// Returns the shard that contains this test. `count` is the number of shards, at most the number of
    /// tests.
    fn around(place: ShardPlace, count: usize) -> Self {
        let (size, larger) = (place.count / count, place.count % count);
        let in_larger = place.index / (size + 1);
        let index = if in_larger < larger { in_larger } else { (place.index - larger) / size };
        Self { index, count }
    }

    /// Returns the positions of the shard's tests; `count` is the number of tests.
    fn tests(self, count: usize) -> Range<usize> {
        let (size, larger) = (count / self.count, count % self.count);
        let start = |index: usize| index * size + index.min(larger);
        start(self.index)..start(self.index + 1)
    }
}

/// Positions of tests in ascending order, and the total number of tests.
struct Places {
    indices: Vec<usize>,
    count: usize,
}

impl Places {
    /// Returns the positions; `None` if a test has no position or the order is not ascending.
    fn of(places: impl Iterator<Item = Option<ShardPlace>>) -> Option<Self> {
        let (mut indices, mut count) = (Vec::new(), 0);
        for place in places {
            let place = place.filter(|place| place.index < place.count)?;
            if indices.last().is_some_and(|last| *last >= place.index) {
                return None;
            }
            indices.push(place.index);
            count = place.count;
        }
        (!indices.is_empty()).then_some(Self { indices, count })
    }

    /// Returns whether the given positions contain this whole range, starting at index `from`.
    fn has_all(&self, from: usize, tests: &Range<usize>) -> bool {
        self.indices.get(from) == Some(&tests.start)
            && self.indices.get(from + tests.len() - 1) == Some(&(tests.end - 1))
    }

    /// Returns the largest shard that consists of the first tests.
    fn first_shard(&self) -> Option<Shard> {
        let first = ShardPlace { index: self.indices[0], count: self.count };
        let shards = (1..=self.count / MIN_TESTS).map(|count| Shard::around(first, count));
        shards.into_iter().find(|shard| self.has_all(0, &shard.tests(self.count)))
    }

    /// Returns the number of tests before the first complete shard, if there is one.
    fn before_next_shard(&self) -> Option<usize> {
        let count = self.count / MIN_TESTS;
        let first = ShardPlace { index: self.indices[0], count: self.count };
        let index = (count > 0).then(|| Shard::around(first, count).index)?;
        (index + 1..count).find_map(|index| {
            let tests = Shard { index, count }.tests(self.count);
            let from = self.indices.partition_point(|place| *place < tests.start);
            self.has_all(from, &tests).then_some(from)
        })
    }
}

/// Returns how many tests from the front one process should run so that most tests end up in shards; `None`
/// if it makes no difference.
pub(super) fn selectable_together(places: impl Iterator<Item = Option<ShardPlace>>) -> Option<usize> {
    let places = Places::of(places)?;
    let shard = places.first_shard().map(|shard| shard.tests(places.count).len());
    shard.or_else(|| places.before_next_shard())
}

/// Returns the shard that consists of exactly these tests.
pub(super) fn shard_of(places: impl Iterator<Item = Option<ShardPlace>>) -> Option<Shard> {
    let places = Places::of(places)?;
    places.first_shard().filter(|shard| shard.tests(places.count).len() == places.indices.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(indices: impl Iterator<Item = usize>, count: usize) -> Vec<Option<ShardPlace>> {
        indices.map(|index| Some(ShardPlace { index, count })).collect()
    }

    #[test]
    fn shards_are_those_of_catch2() {
        // Ranges that Catch2's `createShard` returns.
        for (count, shards, expected) in [
            (10, 3, vec![0..4, 4..7, 7..10]),
            (7, 7, (0..7).map(|at| at..at + 1).collect()),
            (5, 2, vec![0..3, 3..5]),
        ] {
            let of_index = |index| Shard { index, count: shards }.tests(count);
            assert_eq!((0..shards).map(of_index).collect::<Vec<_>>(), expected);
            for index in 0..count {
                let shard = Shard::around(ShardPlace { index, count }, shards);
                assert!(shard.tests(count).contains(&index), "{index} of {count}: {shard:?}");
            }
        }
    }

    /// Returns the sizes of the processes that run tests, and how many tests run in shards.
    fn processes(mut tests: &[Option<ShardPlace>]) -> (Vec<usize>, usize) {
        let (mut sizes, mut in_shards) = (Vec::new(), 0);
        while !tests.is_empty() {
            let count = selectable_together(tests.iter().copied()).unwrap_or(tests.len());
            let (now, after) = tests.split_at(count);
            if let Some(shard) = shard_of(now.iter().copied()) {
                let all = shard.tests(now[0].unwrap().count);
                assert_eq!((all.start, all.len()), (now[0].unwrap().index, now.len()));
                in_shards += count;
            }
            sizes.push(count);
            tests = after;
        }
        (sizes, in_shards)
    }

    #[test]
    fn most_of_what_is_contiguous_runs_in_shards() {
        assert_eq!(processes(&places(0..20_000, 20_000)), (vec![20_000], 20_000));
        for from in [1, 777, 9_999, 10_000, 19_000] {
            let (sizes, in_shards) = processes(&places(from..20_000, 20_000));
            assert!(sizes.len() <= 80 && 20_000 - from - in_shards < 260, "{from}: {sizes:?}, {in_shards}");
        }
        let without_one = places((0..20_000).filter(|index| *index != 7_001), 20_000);
        let (sizes, in_shards) = processes(&without_one);
        assert!(sizes.len() <= 80 && in_shards > 19_000, "{sizes:?}, {in_shards}");
    }

    #[test]
    fn other_tests_are_selected_by_their_names() {
        let every_second = places((0..20_000).step_by(2), 20_000);
        assert_eq!(selectable_together(every_second.into_iter()), None);
        let few = places(3..200, 20_000);
        assert_eq!((selectable_together(few.iter().copied()), shard_of(few.into_iter())), (None, None));
        let reversed = places((0..20_000).rev(), 20_000);
        assert_eq!(selectable_together(reversed.into_iter()), None);
        assert_eq!(selectable_together([None].into_iter()), None);
        assert_eq!(selectable_together(std::iter::empty()), None);
        let wrong = [Some(ShardPlace { index: 5, count: 5 })];
        assert_eq!(shard_of(wrong.into_iter()), None);
    }
}
