//! Ear tags, such as `NZ-0042`.

use std::{fmt, str::FromStr};

/// The number of a sheep and its country of registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    country: [char; 2],
    number: u16,
}

/// Why a text is not a valid tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagError {
    /// The dash is missing.
    NoDash,
    /// The country is not two capital letters.
    Country(String),
    /// The number is not four digits.
    Number(String),
}

impl Tag {
    /// Returns the tag with the next number; 0001 follows 9999.
    pub fn next(self) -> Self {
        // Deliberate bug: there is no tag 0000.
        Self { number: (self.number + 1) % 10_000, ..self }
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let (country, number) = text.split_once('-').ok_or(TagError::NoDash)?;
        let letters: Vec<char> = country.chars().collect();
        let &[first, second] = letters.as_slice() else { return Err(TagError::Country(country.to_owned())) };
        if !first.is_ascii_uppercase() || !second.is_ascii_uppercase() {
            return Err(TagError::Country(country.to_owned()));
        }
        if number.len() != 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(TagError::Number(number.to_owned()));
        }
        let number = number.parse().map_err(|_| TagError::Number(number.to_owned()))?;
        Ok(Self { country: [first, second], number })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.country;
        write!(f, "{first}{second}-{:04}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_country_and_number() {
        assert_eq!("NZ-0042".parse(), Ok(Tag { country: ['N', 'Z'], number: 42 }));
    }

    #[test]
    fn prints_as_it_was_read() {
        for text in ["NZ-0042", "AU-9999", "IS-0001"] {
            assert_eq!(text.parse::<Tag>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_a_tag_without_a_dash() {
        assert_eq!("NZ0042".parse::<Tag>(), Err(TagError::NoDash));
    }

    #[test]
    fn refuses_small_letters() {
        assert_eq!("nz-0042".parse::<Tag>(), Err(TagError::Country("nz".to_owned())));
    }

    #[test]
    fn refuses_three_letters() {
        assert_eq!("NZL-0042".parse::<Tag>(), Err(TagError::Country("NZL".to_owned())));
    }

    #[test]
    fn refuses_five_digits() {
        assert_eq!("NZ-00042".parse::<Tag>(), Err(TagError::Number("00042".to_owned())));
    }

    #[test]
    fn refuses_digits_of_other_scripts() {
        assert!("NZ-٠٠٤٢".parse::<Tag>().is_err());
    }

    #[test]
    fn sorts_by_country_then_number() {
        let mut tags: Vec<Tag> =
            ["NZ-0002", "AU-0009", "NZ-0001"].iter().map(|tag| tag.parse().unwrap()).collect();
        tags.sort();
        let sorted: Vec<String> = tags.iter().map(Tag::to_string).collect();
        assert_eq!(sorted, ["AU-0009", "NZ-0001", "NZ-0002"]);
    }

    #[test]
    fn counts_on() {
        assert_eq!("NZ-0041".parse::<Tag>().unwrap().next().to_string(), "NZ-0042");
    }

    #[test]
    fn counts_from_one_again_after_the_last() {
        assert_eq!("NZ-9999".parse::<Tag>().unwrap().next().to_string(), "NZ-0001");
    }
}
