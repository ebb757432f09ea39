//! Output of `heeler list`: a table for people, JSON for programs, or one name per line for shells.

use std::collections::HashMap;

use clap::ValueEnum;
use heeler_protocol::{
    control::TraitPair,
    mtp::{NodeChange, NodeDescription, key, render_discovered},
};

use super::{
    format::{NAME_COLUMNS, count_of, cut_name},
    style::{ColourMode, Style, StyledLine, text_columns},
    test_line::relative_path,
};
use heeler_report::{sanitise, shown_name};

/// `--format` of `heeler list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ListFormat {
    /// Grouped by suite, with file and line.
    #[default]
    Human,
    /// A JSON array of test nodes, one per line.
    Json,
    /// One uid per line, as accepted by filters; control characters are escaped.
    Names,
}

/// Maximum width for aligning names. Without a limit, one long name would push all locations to the right.
const ALIGNED_COLUMNS: usize = 60;

/// The output of a list of tests, in the order of discovery.
pub(crate) struct TestList<'a> {
    format: ListFormat,
    colour: ColourMode,
    /// Paths below this directory are shown relative to it.
    root: &'a str,
    /// One line per test, for the JSON and names formats.
    lines: Vec<String>,
    /// Tests of each suite, for the human format.
    suites: Vec<(String, Vec<ListedRow>)>,
    suite_indexes: HashMap<String, usize>,
}

/// A test in the human format.
struct ListedRow {
    name: String,
    framework: String,
    /// File and line.
    place: Option<String>,
    tags: String,
}

impl<'a> TestList<'a> {
    pub(crate) fn new(format: ListFormat, colour: ColourMode, root: &'a str) -> Self {
        let (lines, suites, suite_indexes) = (Vec::new(), Vec::new(), HashMap::new());
        Self { format, colour, root, lines, suites, suite_indexes }
    }

    pub(crate) fn add(&mut self, test: &NodeDescription<'_>) {
        match self.format {
            ListFormat::Human => self.add_row(test),
            ListFormat::Json => self.lines.push(json(test)),
            ListFormat::Names => self.lines.push(sanitise::one_line(test.uid).into_owned()),
        }
    }

    /// Returns the output.
    #[must_use]
    pub(crate) fn render(self) -> String {
        match self.format {
            ListFormat::Human => self.human(),
            ListFormat::Json if self.lines.is_empty() => "[]\n".to_owned(),
            ListFormat::Json => format!("[\n{}\n]\n", self.lines.join(",\n")),
            ListFormat::Names => self.lines.iter().map(|line| format!("{line}\n")).collect(),
        }
    }

    fn add_row(&mut self, test: &NodeDescription<'_>) {
        let index = match self.suite_indexes.get(test.suite) {
            Some(index) => *index,
            None => {
                self.suites.push((test.suite.to_owned(), Vec::new()));
                self.suite_indexes.insert(test.suite.to_owned(), self.suites.len() - 1);
                self.suites.len() - 1
            }
        };
        let place = test.file.map(|file| {
            let file = cut_name(relative_path(file, self.root), NAME_COLUMNS);
            test.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
        });
        self.suites[index].1.push(ListedRow {
            name: cut_name(&shown_name(test), NAME_COLUMNS),
            framework: test.framework.to_owned(),
            place,
            tags: tags_note(test.traits),
        });
    }

    fn human(self) -> String {
        let mut lines = Vec::new();
        let mut total = 0;
        for (suite, rows) in &self.suites {
            let name = if suite.is_empty() { "no suite".to_owned() } else { cut_name(suite, NAME_COLUMNS) };
            let count = format!("  {}{}", count_of(rows.len(), "test"), frameworks_note(rows));
            lines.push(StyledLine::new().with(Style::Suite, name).with(Style::Dim, count));
            suite_lines(&mut lines, rows);
            lines.push(StyledLine::new());
            total += rows.len();
        }
        let total = format!("{} in {}", count_of(total, "test"), count_of(self.suites.len(), "suite"));
        lines.push(StyledLine::new().with(Style::Bold, total));
        let mut out = String::new();
        for line in lines {
            line.render(self.colour, &mut out);
            out.push('\n');
        }
        out
    }
}

/// Returns a test's node in the encoding of the test protocol, and whether the test may have parts.
fn json(test: &NodeDescription<'_>) -> String {
    let mut change = Vec::new();
    render_discovered(&mut change, test);
    let change: NodeChange = serde_json::from_slice(&change).expect("a change is read as it is written");
    let mut node = change.node;
    if !test.framework.is_empty() {
        node.members.set_own(key::MAY_HAVE_PARTS, may_have_parts(test.framework));
    }
    serde_json::to_string(&node).expect("a node is a map with text keys")
}

/// Returns the frameworks of a suite's tests, each after a comma, and a note if tests may have parts.
fn frameworks_note(rows: &[ListedRow]) -> String {
    let mut frameworks: Vec<&str> =
        rows.iter().map(|row| row.framework.as_str()).filter(|framework| !framework.is_empty()).collect();
    frameworks.sort_unstable();
    frameworks.dedup();
    let may_have_parts = frameworks.iter().any(|framework| may_have_parts(framework));
    let names: String = frameworks.iter().map(|framework| format!(", {framework}")).collect();
    if may_have_parts { format!("{names}, subtests are listed after a run") } else { names }
}

fn may_have_parts(framework: &str) -> bool {
    heeler_adapters::by_name(framework).is_some_and(|adapter| adapter.traits().has_parts)
}

/// Returns a test's tags in the syntax of filters.
fn tags_note(traits: &[TraitPair]) -> String {
    let tag = |one: &TraitPair| match one.value.as_str() {
        "" => one.name.clone(),
        value => format!("{}={value}", one.name),
    };
    let tags: Vec<String> = traits.iter().filter(|one| one.name != key::IGNORED_TRAIT).map(tag).collect();
    if tags.is_empty() {
        return String::new();
    }
    format!("  [{}]", cut_name(&sanitise::one_line(&tags.join(", ")), NAME_COLUMNS))
}

fn suite_lines(lines: &mut Vec<StyledLine>, rows: &[ListedRow]) {
    let widths = rows.iter().map(|row| text_columns(&row.name)).filter(|&width| width <= ALIGNED_COLUMNS);
    let width = widths.max().unwrap_or(0);
    for ListedRow { name, place, tags, .. } in rows {
        let padding = " ".repeat(width.saturating_sub(text_columns(name)));
        let mut line = StyledLine::new().with_plain("    ").with_plain(name.as_str());
        if let Some(place) = place {
            line = line.with_plain(padding).with(Style::Dim, format!("  {place}"));
        }
        lines.push(line.with(Style::Dim, tags.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::mtp::{ExecutionState, TestNode};

    use super::*;

    fn add_tests(list: &mut TestList<'_>) {
        let long = "long_".repeat(20);
        for (suite, name, file, line) in [
            ("core", "adds", Some("/w/src/add.rs"), Some(12)),
            ("net", "Net.connects", None, None),
            ("core", "a\nname", Some("/w/src/name.rs"), None),
            ("core", long.as_str(), Some("/x/long.rs"), Some(1)),
        ] {
            let uid = format!("{suite}::{name}");
            let test = NodeDescription {
                uid: &uid,
                display_name: name,
                suite,
                file,
                line,
                ..NodeDescription::default()
            };
            list.add(&test);
        }
    }

    fn rendered(format: ListFormat) -> String {
        let mut list = TestList::new(format, ColourMode::Off, "/w");
        add_tests(&mut list);
        list.render()
    }

    #[test]
    fn human_format_groups_tests_by_suite() {
        insta::assert_snapshot!(rendered(ListFormat::Human), @r#"
        core  3 tests
            adds     src/add.rs:12
            a\nname  src/name.rs
            long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_  /x/long.rs:1

        net  1 test
            Net.connects

        4 tests in 2 suites
        "#);
        let empty = TestList::new(ListFormat::Human, ColourMode::Off, "").render();
        assert_eq!(empty, "0 tests in 0 suites\n");
    }

    #[test]
    fn names_format_has_one_uid_per_line() {
        let names = rendered(ListFormat::Names);
        assert_eq!(
            names.lines().take(3).collect::<Vec<_>>(),
            ["core::adds", "net::Net.connects", "core::a\\nname"]
        );
    }

    #[test]
    fn json_format_contains_the_nodes() {
        let text = rendered(ListFormat::Json);
        let read: Vec<TestNode> = serde_json::from_str(&text).unwrap();
        let uids: Vec<_> = read.iter().map(|node| node.uid.as_str()).collect();
        assert_eq!(uids[..3], ["core::adds", "net::Net.connects", "core::a\nname"]);
        assert_eq!(
            (read[0].location_line_start, read[0].state),
            (Some(12), Some(ExecutionState::Discovered))
        );
        let empty = TestList::new(ListFormat::Json, ColourMode::Off, "").render();
        assert_eq!((text.lines().count(), empty.as_str()), (6, "[]\n"));
    }
}
