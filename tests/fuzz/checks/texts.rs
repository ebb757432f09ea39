//! Text input by users: everything accepted is printed and parsed to the same value, and errors carry a
//! position.

use std::{borrow::Cow, path::Path, str::FromStr};

use heeler::{
    config::{Config, ConfigError},
    filter::{Filter, FilterError, GraphQuery, Subject},
    history::LastOutcome,
};
use model::path::{Nesting, TestPath};

/// The full printed form may be longer than the input limit.
const FILTER_BYTES: usize = 1024;

/// Checks filter expressions.
pub fn filter(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => return check_error(text, &error),
    };
    let written = filter.expr().to_string();
    let Some(again) = read_again::<Filter>(&written) else { return };
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
    let Some(again) = read_again::<GraphQuery>(&written) else { return };
    assert_eq!(again, query, "{written}");
    let tags = [("speed", "fast"), ("owner", "")];
    for (nesting, name) in [
        (Nesting::Flat, "a"),
        (Nesting::FullStop, "Inst/Parser.Reads/0"),
        (Nesting::Colons, "net::tcp::dials"),
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

/// Parses the printed form, which has more parentheses, possibly too many.
fn read_again<T>(written: &str) -> Option<T>
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
    assert!(error.pointed().lines().count() >= 3, "{}", error.pointed());
    assert!(!error.message().is_empty());
}

fn subjects() -> [Subject<'static>; 3] {
    let unit = Subject {
        uid: "unit::Parser.Reads",
        suite: "unit",
        program: Cow::Borrowed("build/unit_test"),
        tags: vec![("speed", "fast"), ("owner", "")],
        last: Some(LastOutcome::Failed),
    };
    let long = Subject {
        uid: "net::aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        suite: "net",
        ..Subject::default()
    };
    [unit, long, Subject::default()]
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
