//! Selects the tests of a request from the catalogue: by uid, by filter, or by both. Pure.

use super::params::TestsRequest;
use crate::{
    discover::{Catalogue, TestRef},
    filter::GraphQuery,
};

/// Returns the selected tests, in the order in which they are named, otherwise in the order of the catalogue,
/// and the uids that no listing has. Those are returned regardless of the filter, because their path in the
/// test tree is not known.
pub(super) fn choose(catalogue: &Catalogue, request: &TestsRequest) -> (Vec<TestRef>, Vec<String>) {
    let (mut chosen, missing) = match &request.uids {
        None => (catalogue.all().collect(), Vec::new()),
        Some(uids) => catalogue.select(uids),
    };
    if let Some(filter) = &request.filter {
        chosen.retain(|place| is_meant(catalogue, *place, filter));
    }
    (chosen, missing)
}

/// Returns whether the filter selects a test. A program whose listing failed is selected as soon as the
/// filter may match one of its tests: silence would look like success.
fn is_meant(catalogue: &Catalogue, place: TestRef, filter: &GraphQuery) -> bool {
    let path = catalogue.path(place);
    match catalogue.test(place) {
        None => filter.may_match(path.suite),
        Some(test) => {
            let tags: Vec<_> = test.traits().collect();
            filter.is_match(&path, &tags)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::control::{ListedTest, Nesting, OsBytes, Program, TraitPair};

    use super::*;
    use crate::discover::{Answer, ProgramSource};

    fn source(suite: &str) -> ProgramSource {
        let program = Program { suite: suite.to_owned(), path: OsBytes::from("/x"), ..Program::default() };
        ProgramSource { program, config_suite: None }
    }

    fn listed(name: &str, traits: &[(&str, &str)]) -> ListedTest {
        let pair = |(name, value): &(&str, &str)| TraitPair { name: (*name).into(), value: (*value).into() };
        ListedTest { name: name.into(), traits: traits.iter().map(pair).collect(), ..ListedTest::default() }
    }

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::new(vec![source("unit"), source("broken")]);
        let tests = vec![
            listed("Parser.Reads", &[("speed", "fast")]),
            listed("Parser.Writes", &[("speed", "slow")]),
            listed("Lexer.Reads", &[]),
        ];
        let framework = "f".to_owned();
        let answer = Answer { framework, nesting: Nesting::FullStop, tests, start: Duration::ZERO };
        catalogue.list(0, Ok(answer));
        catalogue.list(1, Err("it is broken".to_owned()));
        catalogue.index();
        catalogue
    }

    fn chosen(uids: Option<&[&str]>, filter: Option<&str>) -> (Vec<String>, Vec<String>) {
        let catalogue = catalogue();
        let request = TestsRequest {
            run_id: String::new(),
            uids: uids.map(|all| all.iter().map(|uid| (*uid).to_owned()).collect()),
            filter: filter.map(|text| text.parse().unwrap()),
            foreign: wire::mtp::Foreign::new(),
            is_debug: false,
        };
        let (chosen, missing) = choose(&catalogue, &request);
        (chosen.into_iter().map(|place| catalogue.node(place).uid).collect(), missing)
    }

    #[test]
    fn what_is_named_and_what_the_filter_takes_must_both_hold() {
        let all = ["unit::Parser.Reads", "unit::Parser.Writes", "unit::Lexer.Reads", "broken"];
        assert_eq!(chosen(None, None).0, all);
        assert_eq!(chosen(None, Some("/unit/*/Reads")).0, [all[0], all[2]]);
        assert_eq!(chosen(None, Some("/unit/**[speed=fast]")).0, [all[0]]);
        assert_eq!(chosen(Some(&[all[2], all[1]]), Some("/unit/*/Reads")).0, [all[2]]);
        assert_eq!(chosen(Some(&[]), Some("/**")).0, [""; 0]);
    }

    #[test]
    fn a_broken_program_is_told_when_its_tests_may_be_meant() {
        assert_eq!(chosen(None, Some("/broken/A/b")).0, ["broken"]);
        assert_eq!(chosen(None, Some("/(!unit)/**")).0, ["broken"]);
        assert_eq!(chosen(None, Some("/none/**")).0, [""; 0]);
    }

    #[test]
    fn a_name_that_nobody_lists_is_missing_whatever_the_filter_says() {
        let (chosen, missing) = chosen(Some(&["unit::Gone", "broken"]), Some("/unit/**"));
        assert_eq!((chosen, missing), (vec![], vec!["unit::Gone".to_owned()]));
    }
}
