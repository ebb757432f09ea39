//! Selects tests from the catalogue: by uid, by filter, or by both. Pure.

use std::borrow::Cow;

use super::{Catalogue, TestRef, add_fixture_tests};
use heeler_config::filter::GraphQuery;

#[derive(Debug, Clone, Default)]
pub struct TestSelection {
    /// Uids of the selected tests; `None` means all.
    pub uids: Option<Vec<String>>,
    /// Restricts `uids` further; `None` means no restriction.
    pub filter: Option<GraphQuery>,
}

impl TestSelection {
    /// Returns the selection with the set-ups and clean-ups of the fixtures that its tests require.
    #[must_use]
    pub(crate) fn with_fixtures(&self, catalogue: &Catalogue) -> Cow<'_, Self> {
        let (chosen, missing) = select_tests(catalogue, self);
        let selected = chosen.len();
        let all = add_fixture_tests(catalogue, chosen);
        if all.len() == selected {
            return Cow::Borrowed(self);
        }
        let uids = all.into_iter().map(|test| catalogue.uid(test).to_owned()).chain(missing).collect();
        Cow::Owned(Self { uids: Some(uids), filter: None })
    }
}

/// Returns the selected tests in catalogue order, and the requested uids that no listing contains. Unknown
/// uids are returned regardless of the filter, because their path in the test tree is unknown.
#[must_use]
pub(crate) fn select_tests(catalogue: &Catalogue, selection: &TestSelection) -> (Vec<TestRef>, Vec<String>) {
    let (mut chosen, missing) = match &selection.uids {
        None => (catalogue.all().collect(), Vec::new()),
        Some(uids) => catalogue.select(uids),
    };
    if let Some(filter) = &selection.filter {
        chosen.retain(|place| is_selected(catalogue, *place, filter));
    }
    (chosen, missing)
}

/// Returns whether the filter selects a test. A program whose listing failed is selected if the filter may
/// match any of its tests, because skipping it silently would look like success.
fn is_selected(catalogue: &Catalogue, place: TestRef, filter: &GraphQuery) -> bool {
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

    use heeler_protocol::control::{ListedTest, NameNesting, OsText, TestProgram, TraitPair};

    use super::*;
    use crate::discovery::{ProgramListing, ProgramSource};

    fn source(suite: &str) -> ProgramSource {
        let program =
            TestProgram { suite: suite.to_owned(), path: OsText::from("/x"), ..TestProgram::default() };
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
        let answer = ProgramListing {
            framework,
            nesting: NameNesting::FullStop,
            selection_limit: None,
            tests,
            start: Duration::ZERO,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
            process: heeler_core::batching::ProcessTraits::default(),
        };
        catalogue.record_listing(0, Ok(answer));
        catalogue.record_listing(1, Err("it is broken".to_owned()));
        catalogue.rebuild_index();
        catalogue
    }

    fn selected_uids(uids: Option<&[&str]>, filter: Option<&str>) -> (Vec<String>, Vec<String>) {
        let catalogue = catalogue();
        let request = TestSelection {
            uids: uids.map(|all| all.iter().map(|uid| (*uid).to_owned()).collect()),
            filter: filter.map(|text| text.parse().unwrap()),
        };
        let (chosen, missing) = select_tests(&catalogue, &request);
        (
            chosen
                .into_iter()
                .map(|place| catalogue.with_description(place, |test| test.uid.to_owned()))
                .collect(),
            missing,
        )
    }

    #[test]
    fn uids_and_filter_are_intersected() {
        let all = ["unit::Parser.Reads", "unit::Parser.Writes", "unit::Lexer.Reads", "broken"];
        assert_eq!(selected_uids(None, None).0, all);
        assert_eq!(selected_uids(None, Some("/unit/*/Reads")).0, [all[0], all[2]]);
        assert_eq!(selected_uids(None, Some("/unit/**[speed=fast]")).0, [all[0]]);
        assert_eq!(selected_uids(Some(&[all[2], all[1]]), Some("/unit/*/Reads")).0, [all[2]]);
        assert_eq!(selected_uids(Some(&[]), Some("/**")).0, [""; 0]);
    }

    #[test]
    fn broken_program_is_selected_if_filter_may_match() {
        assert_eq!(selected_uids(None, Some("/broken/A/b")).0, ["broken"]);
        assert_eq!(selected_uids(None, Some("/(!unit)/**")).0, ["broken"]);
        assert_eq!(selected_uids(None, Some("/none/**")).0, [""; 0]);
    }

    #[test]
    fn unknown_uid_is_missing_despite_filter() {
        let (chosen, missing) = selected_uids(Some(&["unit::Gone", "broken"]), Some("/unit/**"));
        assert_eq!((chosen, missing), (vec![], vec!["unit::Gone".to_owned()]));
    }
}
