//! Selection of documentation tests. rustdoc splits the arguments of its test runner at whitespace, so whole
//! names cannot be passed. A test is selected by the last word of its name, such as `12)` in
//! `src/lib.rs - item (line 12)`. Other tests with this text in their names are skipped by words that no
//! selected test contains.

use std::collections::BTreeSet;

use heeler_protocol::control::ListedTest;

use crate::CommandLineError;

/// Returns the selector of each test: the names of the other tests that its last word would also select, one
/// per line.
pub(super) fn selectors(names: &[&str]) -> Vec<String> {
    let similar = |name: &&str| {
        let word = last_word(name);
        let others = names.iter().filter(|other| *other != name && other.contains(word));
        others.copied().collect::<Vec<_>>().join("\n")
    };
    names.iter().map(similar).collect()
}

/// Returns the number of tests, from the front, that one command can select.
pub(super) fn selectable_together(tests: &[&ListedTest]) -> usize {
    if select(tests).is_ok() {
        return tests.len();
    }
    let (mut fitting, mut too_many) = (1, tests.len());
    // Selecting more tests needs more arguments, which leaves fewer for skipping others.
    while fitting + 1 < too_many {
        let middle = usize::midpoint(fitting, too_many);
        match select(&tests[..middle]) {
            Ok(_) => fitting = middle,
            Err(_) => too_many = middle,
        }
    }
    fitting
}

/// Returns the arguments that select exactly these tests.
///
/// # Errors
/// Another test cannot be distinguished from one of these.
pub(super) fn select(tests: &[&ListedTest]) -> Result<Vec<String>, CommandLineError> {
    let selected: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    let mut words: Vec<String> = tests.iter().map(|test| last_word(&test.name).to_owned()).collect();
    let mut skipped = BTreeSet::new();
    for (place, test) in tests.iter().enumerate() {
        let others = test.selector.as_deref().unwrap_or_default().lines();
        for other in others.filter(|other| !selected.contains(other)) {
            if skipped.iter().any(|word: &String| other.contains(word.as_str())) {
                continue;
            }
            // The line number is the word that the fewest other tests share.
            let mut candidates = other.split_whitespace().rev();
            let word = candidates.find(|word| !selected.iter().any(|name| name.contains(word)));
            let Some(word) = word else {
                let reason = format!("rustdoc would also run \"{other}\", which its filter cannot exclude");
                return Err(CommandLineError::Unselectable { place, reason });
            };
            skipped.insert(word.to_owned());
        }
    }
    words.dedup();
    words.extend(skipped.into_iter().flat_map(|word| ["--skip".to_owned(), word]));
    Ok(words)
}

fn last_word(name: &str) -> &str {
    name.split_whitespace().next_back().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = [
        "src/lib.rs - (line 3)",
        "src/lib.rs - one (line 9)",
        "src/lib.rs - one (line 19)",
        "src/lib.rs - one (line 119)",
        "src/other.rs - other::one (line 9)",
        "src/other.rs - other::two (line 33)",
    ];

    fn listed() -> Vec<ListedTest> {
        let test = |(name, selector): (&&str, String)| ListedTest {
            name: (*name).to_owned(),
            selector: Some(selector),
            ..ListedTest::default()
        };
        NAMES.iter().zip(selectors(&NAMES)).map(test).collect()
    }

    /// Returns the tests that the test runner selects with these arguments.
    fn run_by(words: &[String]) -> Vec<&'static str> {
        let at = words.iter().position(|word| word == "--skip").unwrap_or(words.len());
        let (filters, skips) = words.split_at(at);
        let skips: Vec<&String> = skips.iter().filter(|word| *word != "--skip").collect();
        let is_run = |name: &&&str| {
            filters.iter().any(|word| name.contains(word.as_str()))
                && !skips.iter().any(|word| name.contains(word.as_str()))
        };
        NAMES.iter().filter(is_run).copied().collect()
    }

    #[test]
    fn every_subset_selects_itself_or_is_refused() {
        let listed = listed();
        let mut refused = 0;
        for subset in 1_u32..1 << NAMES.len() {
            let is_in = |place: &usize| subset & (1 << place) != 0;
            let places: Vec<usize> = (0..NAMES.len()).filter(is_in).collect();
            let tests: Vec<&ListedTest> = places.iter().map(|place| &listed[*place]).collect();
            match select(&tests) {
                Ok(words) => {
                    assert!(words.iter().all(|word| !word.contains(' ')), "{words:?}");
                    assert_eq!(run_by(&words), places.iter().map(|place| NAMES[*place]).collect::<Vec<_>>());
                }
                Err(_) => refused += 1,
            }
            let together = selectable_together(&tests);
            assert!((1..=tests.len()).contains(&together), "{together} of {}", tests.len());
            assert!(together == 1 || select(&tests[..together]).is_ok());
        }
        assert!(refused < 32, "less than half: {refused}");
        assert!(listed.iter().all(|test| select(&[test]).is_ok()));
    }

    #[test]
    fn test_that_cannot_be_told_apart_is_refused() {
        let names = ["src/a.rs - f (line 9)", "x/src/a.rs - f (line 9)"];
        let listed = names.iter().zip(selectors(&names)).map(|(name, selector)| ListedTest {
            name: (*name).to_owned(),
            selector: Some(selector),
            ..ListedTest::default()
        });
        let [short, long] = listed.collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(select(&[&short]).unwrap(), ["9)", "--skip", "x/src/a.rs"]);
        let error = select(&[&long]).unwrap_err().to_string();
        assert!(error.contains("rustdoc would also run \"src/a.rs - f (line 9)\""), "{error}");
    }
}
