//! Text that users write: accepted text can be printed and parsed again, and errors have a position.

use std::{borrow::Cow, path::Path, str::FromStr};

use heeler_config::filter::{Filter, FilterError, FilterSubject, GraphQuery};
use heeler_config::{Config, ConfigError};
use heeler_core::Outcome;
use heeler_core::test_path::{NameNesting, TestPath};

/// Maximum filter length here. The printed form is longer and must stay within the parser's limit.
const FILTER_BYTES: usize = 1024;

/// Checks filter expressions.
pub fn filter(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => return check_error(text, &error),
    };
    let written = filter.expr().to_string();
    let Some(again) = reparse::<Filter>(&written) else { return };
    assert_eq!(again.expr(), filter.expr(), "{written}");
    for subject in subjects() {
        assert_eq!(again.is_match(&subject), filter.is_match(&subject), "{written}");
    }
}

/// Checks graph queries.
pub fn graph_query(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let query: GraphQuery = match text.parse() {
        Ok(query) => query,
        Err(error) => return check_error(text, &error),
    };
    let written = query.to_string();
    let Some(again) = reparse::<GraphQuery>(&written) else { return };
    assert_eq!(again, query, "{written}");
    let tags = [("speed", "fast"), ("owner", "")];
    for (nesting, name) in [
        (NameNesting::Flat, "a"),
        (NameNesting::FullStop, "Inst/Parser.Reads/0"),
        (NameNesting::Colons, "net::tcp::dials"),
    ] {
        let path = TestPath::new(nesting, "unit", name);
        if query.is_match(&path, &tags) {
            assert!(query.may_match("unit"), "{written}");
        }
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.len() <= FILTER_BYTES)
}

/// Parses the printed form. Returns `None` if its additional parentheses exceed the nesting limit.
fn reparse<T>(written: &str) -> Option<T>
where
    T: FromStr<Err = FilterError>,
{
    match written.parse() {
        Ok(again) => Some(again),
        Err(error) if error.message().contains("nested deeper") => None,
        Err(error) => panic!("{written}: {error}"),
    }
}

fn check_error(text: &str, error: &FilterError) {
    assert!(error.column() >= 1 && error.column() <= text.chars().count() + 1, "{error}");
    assert!(text.is_char_boundary(error.offset()));
    assert!(error.with_carets().lines().count() >= 3, "{}", error.with_carets());
    assert!(!error.message().is_empty());
}

fn subjects() -> [FilterSubject<'static>; 3] {
    let unit = FilterSubject {
        config_suite: None,
        uid: "unit::Parser.Reads",
        suite: "unit",
        program: Cow::Borrowed("build/unit_test"),
        tags: vec![("speed", "fast"), ("owner", "")],
        last: Some(Outcome::Failed),
    };
    let long = FilterSubject {
        uid: "net::aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        suite: "net",
        ..FilterSubject::default()
    };
    [unit, long, FilterSubject::default()]
}

/// Checks `heeler.toml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Err(error) = Config::parse(Path::new("heeler.toml"), text) else { return };
    let ConfigError::Invalid { problems, .. } = &error else { panic!("{error:?}") };
    assert!(!problems.is_empty() && !error.to_string().is_empty());
    let lines = text.lines().count() + 1;
    for problem in problems {
        let (line, column) = (problem.position.line as usize, problem.position.column as usize);
        assert!(line >= 1 && line <= lines && column >= 1, "{problem}");
        assert!(!problem.message.is_empty());
    }
}
