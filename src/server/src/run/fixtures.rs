//! The order that the traits of tests demand: of fixtures that they set up, require or clean up, and of tests
//! that they depend on. Users of a fixture start after all of its set-ups have succeeded; clean-ups start
//! after all set-ups and users have ended.

use std::collections::HashMap;

use heeler_core::{
    TestId,
    run::{Prerequisite, ScheduledTest},
};
use heeler_protocol::control::{
    CTEST_NAME_TRAIT, DEPENDS_TRAIT, FIXTURE_CLEANUP_TRAIT, FIXTURE_REQUIRED_TRAIT, FIXTURE_SETUP_TRAIT,
    ListedTest,
};

#[derive(Debug, Default)]
struct FixtureTests {
    setups: Vec<TestId>,
    users: Vec<TestId>,
    cleanups: Vec<TestId>,
}

/// Adds the prerequisites that follow from the traits of these tests. `listed` and `scheduled` have the same
/// order. Tests do not wait for tests outside the run.
pub(super) fn add_prerequisites<'a>(
    listed: impl Iterator<Item = &'a ListedTest> + Clone,
    scheduled: &mut [ScheduledTest],
) {
    add_fixtures(listed.clone(), scheduled);
    add_dependencies(listed, scheduled);
}

/// Lets tests start after the tests that they depend on, whatever the results of these, as CTest does.
fn add_dependencies<'a>(
    listed: impl Iterator<Item = &'a ListedTest> + Clone,
    scheduled: &mut [ScheduledTest],
) {
    let with_ids = || (0..).map(TestId).zip(listed.clone());
    let value_of = |listed: &'a ListedTest, name: &'static str| {
        listed.traits.iter().filter(move |one| one.name == name).map(|one| one.value.as_str())
    };
    let dependencies: Vec<(TestId, &str)> = with_ids()
        .flat_map(|(test, listed)| value_of(listed, DEPENDS_TRAIT).map(move |name| (test, name)))
        .collect();
    if dependencies.is_empty() {
        return;
    }
    let mut by_name: HashMap<&str, Vec<TestId>> = HashMap::new();
    for (test, listed) in with_ids() {
        let name = value_of(listed, CTEST_NAME_TRAIT).next().unwrap_or(&listed.name);
        by_name.entry(name).or_default().push(test);
    }
    for (test, name) in dependencies {
        let prerequisites = &mut scheduled[test.index()].prerequisites;
        for other in by_name.get(name).into_iter().flatten().filter(|other| **other != test) {
            // CTest also lists the order that follows from fixtures.
            if prerequisites.iter().all(|one| one.test != *other) {
                prerequisites.push(Prerequisite { test: *other, must_succeed: false });
            }
        }
    }
}

fn add_fixtures<'a>(listed: impl Iterator<Item = &'a ListedTest>, scheduled: &mut [ScheduledTest]) {
    let mut fixtures: HashMap<&str, FixtureTests> = HashMap::new();
    for (test, listed) in (0..).map(TestId).zip(listed) {
        for one in &listed.traits {
            let role: fn(&mut FixtureTests) -> &mut Vec<TestId> = match one.name.as_str() {
                FIXTURE_SETUP_TRAIT => |fixture| &mut fixture.setups,
                FIXTURE_REQUIRED_TRAIT => |fixture| &mut fixture.users,
                FIXTURE_CLEANUP_TRAIT => |fixture| &mut fixture.cleanups,
                _ => continue,
            };
            role(fixtures.entry(one.value.as_str()).or_default()).push(test);
        }
    }
    // Users wait for set-ups, clean-ups for both.
    for FixtureTests { setups, users, cleanups } in fixtures.into_values() {
        let mut follow = |later: &[TestId], earlier: &[TestId], must_succeed| {
            for test in later {
                let others = earlier.iter().filter(|other| *other != test);
                let prerequisites = others.map(|other| Prerequisite { test: *other, must_succeed });
                scheduled[test.index()].prerequisites.extend(prerequisites);
            }
        };
        follow(&users, &setups, true);
        follow(&cleanups, &setups, false);
        follow(&cleanups, &users, false);
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::ProgramId;
    use heeler_protocol::control::TraitPair;

    use super::*;

    /// Returns, for tests with these traits, the prerequisites that must succeed and the other ones.
    fn prerequisites(traits: &[&[(&str, &str)]]) -> Vec<[Vec<u32>; 2]> {
        let pair =
            |(name, value): &(&str, &str)| TraitPair { name: (*name).to_owned(), value: (*value).to_owned() };
        let listed: Vec<ListedTest> = traits
            .iter()
            .map(|traits| ListedTest { traits: traits.iter().map(pair).collect(), ..ListedTest::default() })
            .collect();
        let test = ScheduledTest::new(ProgramId(0));
        let mut scheduled = vec![test; listed.len()];
        add_prerequisites(listed.iter(), &mut scheduled);
        let numbers = |test: &ScheduledTest, must_succeed| {
            let those = test.prerequisites.iter().filter(|one| one.must_succeed == must_succeed);
            let mut numbers: Vec<_> = those.map(|one| one.test.0).collect();
            numbers.sort_unstable();
            numbers
        };
        scheduled.iter().map(|test| [numbers(test, true), numbers(test, false)]).collect()
    }

    #[test]
    fn tests_follow_the_tests_that_they_depend_on() {
        let named = |name| (CTEST_NAME_TRAIT, name);
        let found = prerequisites(&[
            &[named("last"), (DEPENDS_TRAIT, "first"), (DEPENDS_TRAIT, "middle"), (DEPENDS_TRAIT, "none")],
            &[named("middle"), (DEPENDS_TRAIT, "first"), (FIXTURE_REQUIRED_TRAIT, "db")],
            &[named("first"), (FIXTURE_SETUP_TRAIT, "db")],
            &[named("itself"), (DEPENDS_TRAIT, "itself")],
        ]);
        let none = Vec::new;
        assert_eq!(
            found,
            [[none(), vec![1, 2]], [vec![2], none()], [none(), none()], [none(), none()]],
            "the order of a fixture also needs its success"
        );
    }

    #[test]
    fn users_follow_set_ups_and_clean_ups_follow_both() {
        let (setup, user, cleanup) = (FIXTURE_SETUP_TRAIT, FIXTURE_REQUIRED_TRAIT, FIXTURE_CLEANUP_TRAIT);
        let found = prerequisites(&[
            &[(cleanup, "database")],
            &[("slow", ""), (user, "database"), (user, "network")],
            &[(setup, "database"), (user, "network")],
            &[(setup, "network")],
            &[(user, "nobody sets it up")],
            &[(setup, "database")],
        ]);
        let none = Vec::new;
        assert_eq!(
            found,
            [
                [none(), vec![1, 2, 5]],
                [vec![2, 3, 5], none()],
                [vec![3], none()],
                [none(), none()],
                [none(), none()],
                [none(), none()],
            ]
        );
    }
}
