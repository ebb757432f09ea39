//! Parser of Boost.Test's listing: a Graphviz graph on standard error, with unescaped names.

use std::collections::HashMap;

use heeler_protocol::control::{ListedTest, TraitPair};

use super::adapter::NAME;
use crate::{ListingError, ListingOutput, scan};

const START: &str = "digraph G {rankdir=LR;\n";
/// Lowest id of a test case; suites have lower ids.
const FIRST_CASE: u32 = 0x1_0000;
/// Trait with the path of a test that must run before this one.
pub(super) const DEPENDENCY: &str = "depends-on";
/// Trait with the number of failures that the test expects.
pub(super) const EXPECTED_FAILURES: &str = "expected-failures";

/// A suite or a test case in the graph.
#[derive(Debug, Default)]
struct TestUnit {
    id: u32,
    name: String,
    file: Option<String>,
    line: Option<u32>,
    expected_failures: Option<String>,
    labels: Vec<String>,
    is_enabled: bool,
    parent: Option<u32>,
    dependencies: Vec<u32>,
}

/// Parses a listing. A complete listing is valid, however the program ended afterwards.
pub(super) fn read(output: &ListingOutput) -> Result<Vec<ListedTest>, ListingError> {
    let text = scan::decode_lossy(&output.stderr);
    let Some(start) = text.find(START) else {
        if output.code != Some(0) {
            return Err(ListingError::of_exit(output));
        }
        let line = scan::decode_lossy(&output.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("expected a list of tests, found {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    };
    let damaged = || match output.code {
        Some(0) => ListingError::Damaged { framework: NAME, reason: "unexpected end".to_owned() },
        Some(_) | None => ListingError::of_recognized_exit(output),
    };
    let units = read_units(&text[start + START.len()..]).ok_or_else(damaged)?;
    let by_id: HashMap<u32, &TestUnit> = units.iter().map(|unit| (unit.id, unit)).collect();
    let cases = units.iter().filter(|unit| unit.id >= FIRST_CASE);
    Ok(cases.map(|case| listed_test(case, &by_id)).collect())
}

/// Parses the units of the graph in order; `None` if the graph is truncated.
fn read_units(graph: &str) -> Option<Vec<TestUnit>> {
    let mut units: Vec<TestUnit> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut depth = 1_usize;
    let mut rest = graph;
    while depth > 0 {
        let (line, after) = rest.split_once('\n')?;
        rest = match line.trim_end() {
            "{" => {
                depth += 1;
                after
            }
            "}" => {
                depth -= 1;
                after
            }
            _ => {
                let (id, of_unit) = read_id(rest)?;
                if let Some(edge) = of_unit.strip_prefix(" -> ") {
                    let (target, edge_attributes) = read_id(edge)?;
                    let (attributes, after) = edge_attributes.split_once(";\n")?;
                    if attributes.is_empty() {
                        units.get_mut(*places.get(&target)?)?.parent = Some(id);
                    } else {
                        units.get_mut(*places.get(&id)?)?.dependencies.push(target);
                    }
                    after
                } else {
                    let (attributes, after) = of_unit.split_once("\"];\n")?;
                    places.insert(id, units.len());
                    units.push(read_unit(id, attributes));
                    after
                }
            }
        };
    }
    Some(units)
}

/// Reads `tu` and a number; also returns the rest.
fn read_id(text: &str) -> Option<(u32, &str)> {
    let digits = text.strip_prefix("tu")?;
    let end = digits.find(|character: char| !character.is_ascii_digit())?;
    Some((digits[..end].parse().ok()?, &digits[end..]))
}

/// Reads a unit from its attributes. The label is the last attribute, and its parts are read from the end
/// because a name may contain the separator.
fn read_unit(id: u32, attributes: &str) -> TestUnit {
    let (style, label) = attributes.split_once("label=\"").unwrap_or((attributes, ""));
    let mut unit = TestUnit { id, is_enabled: !style.contains("color=yellow"), ..TestUnit::default() };
    let mut label = label;
    while let Some((before, part)) = label.rsplit_once('|') {
        label = before;
        if let Some(labels) = part.strip_prefix("labels:") {
            let names = labels.split_whitespace().map(|name| name.trim_start_matches('@').to_owned());
            unit.labels = names.collect();
        } else if let Some(count) = part.strip_prefix("expected failures=") {
            unit.expected_failures = Some(count.to_owned());
        } else if !part.starts_with("timeout=") {
            let place = part.strip_suffix(')').and_then(|part| part.rsplit_once('('));
            if let Some((file, line)) = place {
                unit.file = Some(file.to_owned());
                unit.line = line.parse().ok().filter(|line| *line > 0);
            }
            break;
        }
    }
    unit.name = label.to_owned();
    unit
}

fn listed_test(case: &TestUnit, by_id: &HashMap<u32, &TestUnit>) -> ListedTest {
    let (name, is_enabled, mut labels) = path_of(case, by_id);
    labels.sort();
    labels.dedup();
    let mut traits: Vec<_> =
        labels.into_iter().map(|value| TraitPair { name: "tag".to_owned(), value }).collect();
    for dependency in dependencies_of(case, by_id) {
        let (value, _, _) = path_of(dependency, by_id);
        traits.push(TraitPair { name: DEPENDENCY.to_owned(), value });
    }
    if let Some(value) = case.expected_failures.clone() {
        traits.push(TraitPair { name: EXPECTED_FAILURES.to_owned(), value });
    }
    ListedTest {
        name,
        file: case.file.clone(),
        line: case.line,
        skip: (!is_enabled).then(|| "disabled by its decorator".to_owned()),
        traits,
        ..ListedTest::default()
    }
}

/// Returns the dependencies of a test and of its enclosing suites.
fn dependencies_of<'a>(case: &TestUnit, by_id: &HashMap<u32, &'a TestUnit>) -> Vec<&'a TestUnit> {
    let mut ids = case.dependencies.clone();
    let mut parent = case.parent.and_then(|id| by_id.get(&id));
    // A damaged graph may have a cycle.
    for _ in 0..by_id.len() {
        let Some(suite) = parent else { break };
        ids.extend(suite.dependencies.iter().filter(|id| !case.dependencies.contains(id)));
        parent = suite.parent.and_then(|id| by_id.get(&id));
    }
    ids.iter().filter_map(|id| by_id.get(id).copied()).collect()
}

/// Returns the path of a unit below the module, whether the unit and all enclosing suites are enabled, and
/// all their labels.
fn path_of(unit: &TestUnit, by_id: &HashMap<u32, &TestUnit>) -> (String, bool, Vec<String>) {
    let mut names = vec![unit.name.as_str()];
    let mut is_enabled = unit.is_enabled;
    let mut labels = unit.labels.clone();
    let mut parent = unit.parent.and_then(|id| by_id.get(&id));
    // A damaged graph may have a cycle.
    while let Some(suite) = parent.filter(|_| names.len() <= by_id.len()) {
        labels.extend(suite.labels.iter().cloned());
        parent = suite.parent.and_then(|id| by_id.get(&id));
        is_enabled &= suite.is_enabled;
        // The module has no parent and is not part of paths.
        if parent.is_some() {
            names.push(&suite.name);
        }
    }
    names.reverse();
    (names.join("/"), is_enabled, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = "digraph G {rankdir=LR;\ntu1[shape=ellipse,color=green,label=\"Mod\"];\n{\ntu2[shape=Mrecord,color=green,label=\"math|t.cc(9)|expected failures=1|labels: @fast @x\"];\ntu1 -> tu2;\n{\ntu65536[shape=Mrecord,color=green,label=\"add|t.cc(10)\"];\ntu2 -> tu65536;\ntu65537[shape=Mrecord,color=yellow,label=\"a|b \"q\"\nline|t (1).cc(11)|timeout=1\"];\ntu2 -> tu65537;\ntu65540[shape=Mrecord,color=green,label=\"dep|t.cc(14)|expected failures=2\"];\ntu2 -> tu65540;\ntu65540 -> tu65536[color=red,style=dotted,constraint=false];\n}\ntu65541[shape=Mrecord,color=green,label=\"top<int>|t.cc(20)\"];\ntu1 -> tu65541;\n}\n}\n";

    fn printed(stderr: &str, code: i32) -> ListingOutput {
        ListingOutput { stderr: stderr.into(), code: Some(code), ..ListingOutput::default() }
    }

    #[test]
    fn tests_have_paths_places_labels_and_dependencies() {
        let tests = read(&printed(&format!("noise\n{GRAPH}"), 0)).unwrap();
        let seen: Vec<_> = tests
            .iter()
            .map(|test| {
                let traits: Vec<_> = test.traits.iter().map(|one| one.value.as_str()).collect();
                (test.name.as_str(), test.line, test.skip.is_some(), traits.join(" "))
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("math/add", Some(10), false, "fast x".to_owned()),
                ("math/a|b \"q\"\nline", Some(11), true, "fast x".to_owned()),
                ("math/dep", Some(14), false, "fast x math/add 2".to_owned()),
                ("top<int>", Some(20), false, String::new()),
            ]
        );
    }

    #[test]
    fn cut_graph_is_damaged_and_another_program_is_none() {
        for cut in START.len()..GRAPH.len() - 1 {
            if let Some(cut) = GRAPH.get(..cut) {
                assert!(matches!(read(&printed(cut, 0)), Err(ListingError::Damaged { .. })), "{cut}");
            }
        }
        assert!(matches!(read(&printed("", 0)), Err(ListingError::NotThisFramework { .. })));
        assert!(matches!(
            read(&printed("setup error", 200)),
            Err(ListingError::Died { code: Some(200), .. })
        ));
    }
}
