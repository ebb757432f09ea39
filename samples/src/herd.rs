//! A set of tagged sheep.

use std::collections::BTreeSet;

use crate::tag::Tag;

/// A set of sheep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Herd {
    sheep: BTreeSet<Tag>,
}

impl Herd {
    /// Returns a herd of the first `count` tags of a country.
    pub fn of(first: &str, count: usize) -> Self {
        let first: Tag = first.parse().expect("the first tag of a herd");
        let tags = std::iter::successors(Some(first), |tag| Some(tag.next()));
        Self { sheep: tags.take(count).collect() }
    }

    /// Adds a sheep; returns whether it is new.
    pub fn add(&mut self, tag: Tag) -> bool {
        self.sheep.insert(tag)
    }

    /// Removes a sheep.
    pub fn remove(&mut self, tag: Tag) -> Option<Tag> {
        self.sheep.take(&tag)
    }

    /// Returns the number of sheep.
    pub fn len(&self) -> usize {
        self.sheep.len()
    }

    /// Returns whether the herd is empty.
    pub fn is_empty(&self) -> bool {
        self.sheep.is_empty()
    }

    /// Returns the sheep of this herd that are not in `answered`.
    pub fn missing(&self, answered: &Herd) -> Vec<Tag> {
        self.sheep.difference(&answered.sheep).copied().collect()
    }

    /// Distributes the herd over pens as evenly as possible.
    ///
    /// # Panics
    /// If there are no pens.
    pub fn into_pens(self, pens: usize) -> Vec<Herd> {
        assert!(pens > 0, "a herd needs at least one pen");
        let mut herds = vec![Herd::default(); pens];
        for (place, tag) in self.sheep.into_iter().enumerate() {
            herds[place % pens].add(tag);
        }
        herds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_empty() {
        assert!(Herd::default().is_empty());
    }

    #[test]
    fn counts_each_sheep_once() {
        let mut herd = Herd::of("NZ-0001", 3);
        assert!(!herd.add("NZ-0002".parse().unwrap()));
        assert_eq!(herd.len(), 3);
    }

    #[test]
    fn loses_the_sheep_that_is_taken_out() {
        let mut herd = Herd::of("NZ-0001", 2);
        assert!(herd.remove("NZ-0001".parse().unwrap()).is_some());
        assert!(herd.remove("NZ-0001".parse().unwrap()).is_none());
        assert_eq!(herd, Herd::of("NZ-0002", 1));
    }

    #[test]
    fn names_the_missing() {
        let missing = Herd::of("NZ-0001", 4).missing(&Herd::of("NZ-0002", 2));
        let names: Vec<String> = missing.iter().map(Tag::to_string).collect();
        assert_eq!(names, ["NZ-0001", "NZ-0004"]);
    }

    #[test]
    fn fills_pens_evenly() {
        let sizes: Vec<usize> = Herd::of("NZ-0001", 10).into_pens(3).iter().map(Herd::len).collect();
        assert_eq!(sizes, [4, 3, 3]);
    }

    #[test]
    fn leaves_pens_empty_when_there_are_too_many() {
        let sizes: Vec<usize> = Herd::of("NZ-0001", 1).into_pens(3).iter().map(Herd::len).collect();
        assert_eq!(sizes, [1, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "at least one pen")]
    fn needs_a_pen() {
        Herd::of("NZ-0001", 1).into_pens(0);
    }

    #[test]
    fn keeps_every_sheep_of_a_large_herd() {
        std::thread::sleep(std::time::Duration::from_millis(600));
        let total: usize = Herd::of("NZ-0001", 9_000).into_pens(7).iter().map(Herd::len).sum();
        assert_eq!(total, 9_000);
    }

    #[test]
    #[ignore = "needs the counting gate of the north paddock"]
    fn agrees_with_the_counting_gate() {
        unreachable!("there is no gate here");
    }
}
