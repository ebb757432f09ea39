//! Adds to a selection the set-ups and clean-ups of the fixtures that its tests require, as CTest does. Pure.

use std::collections::{HashMap, HashSet};

use heeler_protocol::control::{FIXTURE_CLEANUP_TRAIT, FIXTURE_REQUIRED_TRAIT, FIXTURE_SETUP_TRAIT};

use super::{Catalogue, TestRef};

/// Returns the tests together with all set-ups and clean-ups of the fixtures that they require, in catalogue
/// order. A set-up or clean-up may require fixtures too. A selected set-up alone does not add its clean-up.
#[must_use]
pub fn add_fixture_tests(catalogue: &Catalogue, mut chosen: Vec<TestRef>) -> Vec<TestRef> {
    let mut open: Vec<&str> = chosen.iter().flat_map(|test| required(catalogue, *test)).collect();
    // Most selections need no fixture, so the catalogue is searched only for those that do.
    if open.is_empty() {
        return chosen;
    }
    let by_fixture = fixture_tests(catalogue);
    let mut known: HashSet<TestRef> = chosen.iter().copied().collect();
    let mut provided = HashSet::new();
    while let Some(fixture) = open.pop() {
        if !provided.insert(fixture) {
            continue;
        }
        for test in by_fixture.get(fixture).into_iter().flatten() {
            if known.insert(*test) {
                chosen.push(*test);
                open.extend(required(catalogue, *test));
            }
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Returns the names of the fixtures that a test requires.
fn required(catalogue: &Catalogue, test: TestRef) -> impl Iterator<Item = &str> {
    let traits = catalogue.test(test).into_iter().flat_map(|test| test.traits());
    traits.filter(|(name, _)| *name == FIXTURE_REQUIRED_TRAIT).map(|(_, fixture)| fixture)
}

/// Returns the set-ups and clean-ups of each fixture.
fn fixture_tests(catalogue: &Catalogue) -> HashMap<&str, Vec<TestRef>> {
    let mut tests: HashMap<&str, Vec<TestRef>> = HashMap::new();
    for place in catalogue.all() {
        for (name, fixture) in catalogue.test(place).into_iter().flat_map(|test| test.traits()) {
            if [FIXTURE_SETUP_TRAIT, FIXTURE_CLEANUP_TRAIT].contains(&name) {
                tests.entry(fixture).or_default().push(place);
            }
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heeler_protocol::control::{ListedTest, NameNesting, TestProgram, TraitPair};

    use super::*;
    use crate::discovery::{ProgramListing, ProgramSource};

    const TESTS: [(&str, &[(&str, &str)]); 7] = [
        ("make_root", &[(FIXTURE_SETUP_TRAIT, "root")]),
        ("drop_root", &[(FIXTURE_CLEANUP_TRAIT, "root")]),
        ("make_db", &[(FIXTURE_SETUP_TRAIT, "db"), (FIXTURE_REQUIRED_TRAIT, "root")]),
        ("drop_db", &[(FIXTURE_CLEANUP_TRAIT, "db"), (FIXTURE_REQUIRED_TRAIT, "other")]),
        ("make_other", &[(FIXTURE_SETUP_TRAIT, "other")]),
        ("user", &[(FIXTURE_REQUIRED_TRAIT, "db")]),
        ("plain", &[]),
    ];

    fn catalogue() -> Catalogue {
        let program = TestProgram { suite: "ctest".into(), path: "/x".into(), ..TestProgram::default() };
        let mut catalogue = Catalogue::new(vec![ProgramSource { program, config_suite: None }]);
        let listed = |(name, traits): &(&str, &[(&str, &str)])| {
            let pair = |(name, value): &(&str, &str)| TraitPair {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            };
            let traits = traits.iter().map(pair).collect();
            ListedTest { name: (*name).to_owned(), traits, ..ListedTest::default() }
        };
        let listing = ProgramListing {
            framework: "command".to_owned(),
            nesting: NameNesting::FullStop,
            selection_limit: None,
            tests: TESTS.iter().map(listed).collect(),
            start: Duration::ZERO,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
            process: heeler_core::batching::ProcessTraits::default(),
        };
        catalogue.record_listing(0, Ok(listing));
        catalogue.rebuild_index();
        catalogue
    }

    /// The expected values are the output of `ctest -N -R` for the same project.
    #[test]
    fn set_ups_and_clean_ups_are_added_transitively() {
        let catalogue = catalogue();
        for (selected, expected) in [
            ("user", "make_root drop_root make_db drop_db make_other user"),
            ("make_db", "make_root drop_root make_db"),
            ("drop_db", "drop_db make_other"),
            ("make_root", "make_root"),
            ("plain", "plain"),
        ] {
            let chosen = vec![catalogue.find(&format!("ctest::{selected}")).unwrap()];
            let all = add_fixture_tests(&catalogue, chosen);
            let names: Vec<_> = all.into_iter().map(|test| &catalogue.uid(test)["ctest::".len()..]).collect();
            assert_eq!(names.join(" "), expected, "{selected}");
        }
    }
}
