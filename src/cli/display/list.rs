//! Output of `heeler list`: discovered tests as a table for people, as JSON for programs, or as one name per
//! line for shells.

use clap::ValueEnum;
use heeler_protocol::mtp::{NodeType, TestNode, TestTrait, key};

use super::{
    format::{NAME_COLUMNS, count_of, cut_name},
    style::{ColourMode, Style, StyledLine, text_columns},
    test_line::relative_path,
};
use heeler_report::{sanitise, split_name};

/// `--format` of `heeler list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ListFormat {
    /// Grouped by suite, with file and line.
    #[default]
    Human,
    /// A JSON array of test nodes, one in each line.
    Json,
    /// One uid a line, as filters take it; control characters are escaped.
    Names,
}

/// Names are aligned up to this width, so that one long name does not push the locations of all others to the
/// right.
const ALIGNED_COLUMNS: usize = 60;

/// Returns the output for the discovered nodes, in the order of discovery. Paths below `root` are shown
/// relative to it.
#[must_use]
pub(crate) fn render_list(nodes: &[TestNode], format: ListFormat, colour: ColourMode, root: &str) -> String {
    let tests: Vec<&TestNode> = nodes.iter().filter(|node| node.node_type == NodeType::Action).collect();
    match format {
        ListFormat::Human => human(&tests, colour, root),
        ListFormat::Json => json(&tests),
        ListFormat::Names => {
            tests.iter().map(|test| format!("{}\n", sanitise::one_line(&test.uid))).collect()
        }
    }
}

fn json(tests: &[&TestNode]) -> String {
    let nodes: Vec<String> = tests
        .iter()
        .map(|test| {
            let mut test = (*test).clone();
            let framework = test.text_member(key::FRAMEWORK).map(str::to_owned);
            if let Some(framework) = framework {
                let has_parts = may_have_parts(&framework);
                test.members.set_own(key::MAY_HAVE_PARTS, has_parts);
            }
            serde_json::to_string(&test).expect("a node is a map with text keys")
        })
        .collect();
    if nodes.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", nodes.join(",\n")) }
}

fn human(tests: &[&TestNode], colour: ColourMode, root: &str) -> String {
    let mut suites: Vec<(Option<&str>, Vec<&TestNode>)> = Vec::new();
    let mut place = std::collections::HashMap::new();
    for &test in tests {
        let suite = test.text_member(key::SUITE);
        let index = *place.entry(suite).or_insert_with(|| {
            suites.push((suite, Vec::new()));
            suites.len() - 1
        });
        suites[index].1.push(test);
    }
    let mut lines = Vec::new();
    for (suite, tests) in &suites {
        let name = suite.map_or_else(|| "no suite".to_owned(), |suite| cut_name(suite, NAME_COLUMNS));
        let count = format!("  {}{}", count_of(tests.len(), "test"), frameworks_note(tests));
        lines.push(StyledLine::new().with(Style::Suite, name).with(Style::Dim, count));
        suite_lines(&mut lines, tests, root);
        lines.push(StyledLine::new());
    }
    let total = format!("{} in {}", count_of(tests.len(), "test"), count_of(suites.len(), "suite"));
    lines.push(StyledLine::new().with(Style::Bold, total));
    let mut out = String::new();
    for line in lines {
        line.render(colour, &mut out);
        out.push('\n');
    }
    out
}

/// Returns the frameworks of a suite's tests, a comma before each, and whether their tests may have parts.
fn frameworks_note(tests: &[&TestNode]) -> String {
    let mut frameworks: Vec<&str> =
        tests.iter().filter_map(|test| test.text_member(key::FRAMEWORK)).collect();
    frameworks.dedup();
    frameworks.sort_unstable();
    frameworks.dedup();
    let may_have_parts = frameworks.iter().any(|framework| may_have_parts(framework));
    let names: String = frameworks.iter().map(|framework| format!(", {framework}")).collect();
    if may_have_parts { format!("{names}, parts unknown until they run") } else { names }
}

fn may_have_parts(framework: &str) -> bool {
    heeler_adapters::by_name(framework).is_some_and(|adapter| adapter.traits().has_parts)
}

/// Returns the tags of a test, as filters name them.
fn tags_note(test: &TestNode) -> String {
    let tag = |one: &TestTrait| match one.value.as_str() {
        "" => one.name.clone(),
        value => format!("{}={value}", one.name),
    };
    let tags: Vec<String> =
        test.traits.iter().filter(|one| one.name != key::IGNORED_TRAIT).map(tag).collect();
    if tags.is_empty() {
        return String::new();
    }
    format!("  [{}]", cut_name(&sanitise::one_line(&tags.join(", ")), NAME_COLUMNS))
}

fn suite_lines(lines: &mut Vec<StyledLine>, tests: &[&TestNode], root: &str) {
    let names: Vec<String> = tests.iter().map(|test| cut_name(&split_name(test).1, NAME_COLUMNS)).collect();
    let widths = names.iter().map(|name| text_columns(name)).filter(|&width| width <= ALIGNED_COLUMNS);
    let width = widths.max().unwrap_or(0);
    for (test, name) in tests.iter().zip(names) {
        let padding = " ".repeat(width.saturating_sub(text_columns(&name)));
        let mut line = StyledLine::new().with_plain("    ").with_plain(name);
        if let Some(file) = &test.location_file {
            let file = cut_name(relative_path(file, root), NAME_COLUMNS);
            let at = test.location_line_start.map_or_else(|| file.clone(), |at| format!("{file}:{at}"));
            line = line.with_plain(padding).with(Style::Dim, format!("  {at}"));
        }
        line = line.with(Style::Dim, tags_note(test));
        if let Some(reason) = test.error_message.as_deref().filter(|reason| !reason.is_empty()) {
            let reason = cut_name(&sanitise::headline(reason), NAME_COLUMNS);
            line = line.with(Style::Warning, format!("  ({reason})"));
        }
        lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nodes() -> Vec<TestNode> {
        let node = |suite: &str, name: &str, more: serde_json::Value| {
            let mut node = json!({"uid": format!("{suite}::{name}"), "display-name": name, "node-type": "action",
                "execution-state": "discovered", (key::SUITE): suite});
            node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(node).unwrap()
        };
        let long = "long_".repeat(20);
        vec![
            node("core", "adds", json!({"location.file": "/w/src/add.rs", "location.line-start": 12})),
            node("net", "Net.connects", json!({"error.message": "ignored: needs net"})),
            node("core", "a\nname", json!({"location.file": "/w/src/name.rs"})),
            node("core", &long, json!({"location.file": "/x/long.rs", "location.line-start": 1})),
            serde_json::from_value(json!({"uid": "core", "node-type": "group"})).unwrap(),
        ]
    }

    #[test]
    fn human_format_groups_tests_by_suite() {
        insta::assert_snapshot!(render_list(&nodes(), ListFormat::Human, ColourMode::Off, "/w"), @r#"
        core  3 tests
            adds     src/add.rs:12
            a\nname  src/name.rs
            long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_  /x/long.rs:1

        net  1 test
            Net.connects  (ignored: needs net)

        4 tests in 2 suites
        "#);
        assert_eq!(render_list(&[], ListFormat::Human, ColourMode::Off, ""), "0 tests in 0 suites\n");
    }

    #[test]
    fn names_format_has_one_uid_per_line() {
        let names = render_list(&nodes()[..3], ListFormat::Names, ColourMode::On, "");
        assert_eq!(names, "core::adds\nnet::Net.connects\ncore::a\\nname\n");
    }

    #[test]
    fn json_format_contains_the_nodes() {
        let text = render_list(&nodes(), ListFormat::Json, ColourMode::On, "");
        let read: Vec<TestNode> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, &nodes()[..4]);
        assert_eq!(
            (text.lines().count(), render_list(&[], ListFormat::Json, ColourMode::Off, "").as_str()),
            (6, "[]\n")
        );
    }
}
