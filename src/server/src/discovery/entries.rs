//! Merges a program's listing with the entries of its source, which are tests registered one by one by
//! another tool such as CTest.

use std::collections::HashMap;

use heeler_protocol::control::ListedTest;

/// Returns the tests that have entries, in listing order and completed by their entries. Entries without a
/// test follow as errors. Without entries, all tests are returned unchanged.
pub(super) fn join_entries(entries: &[ListedTest], listed: Vec<ListedTest>) -> Vec<ListedTest> {
    // A command is listed as its entries, which may share a name.
    if entries.is_empty() || listed == entries {
        return listed;
    }
    let places: HashMap<&str, usize> =
        entries.iter().enumerate().map(|(place, entry)| (entry.name.as_str(), place)).collect();
    let mut is_found = vec![false; entries.len()];
    let mut joined: Vec<ListedTest> = listed
        .into_iter()
        .filter_map(|test| {
            let place = *places.get(test.name.as_str())?;
            is_found[place] = true;
            Some(join(test, &entries[place]))
        })
        .collect();
    let missing = entries.iter().zip(is_found).filter(|(_, is_found)| !is_found);
    joined.extend(missing.map(|(entry, _)| ListedTest {
        broken: Some("not run: the program no longer contains this test".to_owned()),
        ..entry.clone()
    }));
    joined
}

/// Completes a test with data from its entry.
fn join(mut test: ListedTest, entry: &ListedTest) -> ListedTest {
    let ListedTest {
        name: _,
        display,
        report_name,
        file,
        line,
        skip,
        traits,
        selector: _,
        timeout_ms,
        broken,
        variant: _,
        reported_file: _,
    } = entry;
    test.display = display.clone().or(test.display);
    test.report_name = report_name.clone().or(test.report_name);
    if test.file.is_none() {
        (test.file, test.line) = (file.clone(), *line);
    }
    test.skip = skip.clone().or(test.skip);
    test.traits.extend(traits.iter().filter(|one| !test.traits.contains(one)).cloned().collect::<Vec<_>>());
    test.timeout_ms = test.timeout_ms.into_iter().chain(*timeout_ms).min();
    test.broken = broken.clone().or(test.broken);
    test
}

#[cfg(test)]
mod tests {
    use heeler_protocol::control::TraitPair;

    use super::*;

    fn listed(name: &str) -> ListedTest {
        ListedTest { name: name.to_owned(), ..ListedTest::default() }
    }

    #[test]
    fn tests_without_entries_are_left_out_and_entries_without_tests_are_errors() {
        let label = TraitPair { name: "slow".into(), value: String::new() };
        let entry = ListedTest {
            display: Some("the second".into()),
            timeout_ms: Some(500),
            traits: vec![label.clone()],
            file: Some("CMakeLists.txt".into()),
            ..listed("b")
        };
        let test = ListedTest {
            file: Some("b.cc".into()),
            line: Some(3),
            timeout_ms: Some(900),
            selector: Some("7".into()),
            ..listed("b")
        };
        let joined = join_entries(&[listed("gone"), entry], vec![listed("a"), test]);
        let [second, gone] = &joined[..] else { panic!("{joined:?}") };
        assert_eq!((second.name.as_str(), second.display.as_deref()), ("b", Some("the second")));
        assert_eq!(
            (second.file.as_deref(), second.line, second.timeout_ms),
            (Some("b.cc"), Some(3), Some(500))
        );
        assert_eq!((second.selector.as_deref(), &second.traits[..]), (Some("7"), &[label][..]));
        assert_eq!(gone.name, "gone");
        assert!(gone.broken.as_ref().unwrap().contains("no longer contains this test"));
    }

    #[test]
    fn listing_of_the_entries_themselves_is_unchanged() {
        let entries = vec![ListedTest { selector: Some("{}".into()), ..listed("a") }, listed("b")];
        assert_eq!(join_entries(&entries, entries.clone()), entries);
        assert_eq!(join_entries(&[], vec![listed("a")]), [listed("a")]);
        let disabled = ListedTest { skip: Some("disabled".into()), ..listed("a") };
        let twice = vec![listed("a"), disabled];
        assert_eq!(join_entries(&twice, twice.clone()), twice);
    }
}
