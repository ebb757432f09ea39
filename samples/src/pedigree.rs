//! Ancestry of dogs.

use std::collections::HashMap;

/// The mother of each dog, by name.
#[derive(Debug, Clone, Default)]
pub struct Pedigree {
    mothers: HashMap<String, String>,
}

impl Pedigree {
    /// Returns the pedigree of pairs of a dog and its mother.
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        let owned = |(dog, mother): &(&str, &str)| ((*dog).to_owned(), (*mother).to_owned());
        Self { mothers: pairs.iter().map(owned).collect() }
    }

    /// Returns the number of known generations above a dog.
    ///
    /// Deliberate bug: a dog that is entered as its own ancestor causes an endless loop.
    pub fn generations(&self, dog: &str) -> usize {
        let Some(mother) = self.mothers.get(dog) else { return 0 };
        1 + self.generations(std::hint::black_box(mother))
    }

    /// Returns whether `elder` is an ancestor of `dog`.
    pub fn descends(&self, dog: &str, elder: &str) -> bool {
        let mothers = std::iter::successors(self.mothers.get(dog), |mother| self.mothers.get(*mother));
        mothers.take(self.mothers.len()).any(|mother| mother == elder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bess() -> Pedigree {
        Pedigree::of(&[("Bess", "Meg"), ("Meg", "Old Meg"), ("Moss", "Jed")])
    }

    #[test]
    fn a_stranger_has_no_generations() {
        assert_eq!(bess().generations("Cap"), 0);
    }

    #[test]
    fn generations_are_counted_upwards() {
        assert_eq!(bess().generations("Bess"), 2);
        assert_eq!(bess().generations("Meg"), 1);
    }

    #[test]
    fn a_grandmother_is_an_ancestor() {
        assert!(bess().descends("Bess", "Old Meg"));
    }

    #[test]
    fn a_daughter_is_no_ancestor() {
        assert!(!bess().descends("Meg", "Bess"));
    }

    #[test]
    fn a_line_of_a_thousand_dogs_is_followed() {
        let names: Vec<String> = (0..=1_000).map(|number| format!("dog {number}")).collect();
        let pairs: Vec<(&str, &str)> =
            names.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        assert_eq!(Pedigree::of(&pairs).generations("dog 0"), 1_000);
    }

    #[test]
    fn a_circle_of_mothers_has_an_end() {
        let circle = Pedigree::of(&[("Bess", "Meg"), ("Meg", "Bess")]);
        assert!(!circle.descends("Bess", "Jed"));
    }
}
