//! Reads the tables `[[resource]]` and `[[fixture]]`, and checks that tests name only declared resources and
//! fixtures.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    TestLayer,
    closest_match::known_words_hint,
    reader::TableReader,
    resources::{ResourceCapacity, unit_variable},
    tables::{FixtureTable, ResourceTable},
    types::FixtureConfig,
};

/// Time limit of a set-up and of a tear-down without `timeout`.
const FIXTURE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);

/// The declared resources and fixtures.
pub(super) struct Declarations {
    /// The declared resources by name.
    pub(super) resources: BTreeMap<String, ResourceCapacity>,
    /// The fixtures in file order.
    pub(super) fixtures: Vec<FixtureConfig>,
    /// The place of each fixture in the file, in the order of `fixtures`.
    places: Vec<Range<usize>>,
    /// Fixtures that tests or other fixtures need.
    needed: RefCell<BTreeSet<String>>,
}

impl Declarations {
    pub(super) fn read(top: &TableReader<'_, '_>) -> Self {
        let resources = read_resources(top);
        let (mut fixtures, mut places): (Vec<FixtureConfig>, _) = (Vec::new(), Vec::new());
        let mut tables = Vec::new();
        for table in top.read_tables("fixture", "[[fixture]]") {
            let Some(fixture) = read_fixture(&table) else { continue };
            if fixtures.iter().any(|other| other.name == fixture.name) {
                let message = format!("duplicate fixture name \"{}\"", fixture.name);
                table.document.report(table.key_span("name"), message);
                continue;
            }
            fixtures.push(fixture);
            places.push(table.span.clone());
            tables.push(table);
        }
        let declared = Self { resources, fixtures, places, needed: RefCell::default() };
        for (table, fixture) in tables.iter().zip(&declared.fixtures) {
            declared.check_needs(table, &fixture.needs);
        }
        declared.check_cycles(top);
        declared
    }

    /// Reports resources and fixtures that the tests of a table name, and the file does not declare.
    pub(super) fn check(&self, table: &TableReader<'_, '_>, tests: &TestLayer) {
        for used in tests.uses.iter().flat_map(|uses| uses.iter()) {
            let known: Vec<&str> = self.resources.keys().map(String::as_str).collect();
            report_unknown(table, "uses", "resource", &used.resource, &known);
        }
        self.check_needs(table, tests.needs.as_deref().unwrap_or_default());
    }

    fn check_needs(&self, table: &TableReader<'_, '_>, needs: &[String]) {
        let known: Vec<&str> = self.fixtures.iter().map(|fixture| fixture.name.as_str()).collect();
        for name in needs {
            report_unknown(table, "needs", "fixture", name, &known);
        }
        self.needed.borrow_mut().extend(needs.iter().cloned());
    }

    /// Reports fixtures that neither a test nor another fixture needs.
    pub(super) fn check_all_needed(&self, top: &TableReader<'_, '_>) {
        let needed = self.needed.borrow();
        for (fixture, place) in self.fixtures.iter().zip(&self.places) {
            if !needed.contains(&fixture.name) {
                let message = format!(
                    "nothing needs the fixture \"{0}\"; add needs = [\"{0}\"] to a suite, profile or override",
                    fixture.name
                );
                top.document.report(place.clone(), message);
            }
        }
    }

    /// Reports fixtures that need each other in a circle.
    fn check_cycles(&self, top: &TableReader<'_, '_>) {
        let mut reported = BTreeSet::new();
        for (fixture, place) in self.fixtures.iter().zip(&self.places) {
            let Some(circle) = self.circle_of(&fixture.name) else { continue };
            if reported.insert(circle.iter().copied().collect::<BTreeSet<_>>()) {
                let members = circle.join("\" needs \"");
                let message = format!("fixtures need each other: \"{members}\" needs \"{}\"", fixture.name);
                top.document.report(place.clone(), message);
            }
        }
    }

    /// Returns the fixtures of the shortest circle from a fixture back to itself, beginning with it.
    fn circle_of<'f>(&'f self, name: &'f str) -> Option<Vec<&'f str>> {
        let needs_of = |name: &str| {
            let fixture = self.fixtures.iter().find(|fixture| fixture.name == name);
            fixture.into_iter().flat_map(|fixture| fixture.needs.iter().map(String::as_str))
        };
        let mut seen = BTreeSet::new();
        let mut paths = vec![vec![name]];
        while !paths.is_empty() {
            let mut longer = Vec::new();
            for path in paths {
                for next in path.last().into_iter().flat_map(|last| needs_of(last)) {
                    if next == name {
                        return Some(path);
                    }
                    if seen.insert(next) {
                        longer.push(path.iter().copied().chain([next]).collect());
                    }
                }
            }
            paths = longer;
        }
        None
    }
}

fn read_fixture(table: &TableReader<'_, '_>) -> Option<FixtureConfig> {
    let FixtureTable { name, setup, teardown, needs, timeout } = table.read();
    table.report_unknown_keys();
    if name.as_deref().is_some_and(|name| name.contains('/')) {
        table.document.report(table.key_span("name"), "the name of a fixture can't contain \"/\"");
    }
    for key in ["name", "setup"] {
        if !table.contains_key(key) {
            table.document.report(table.span.clone(), format!("[[fixture]] needs a \"{key}\""));
        }
    }
    let timeout = timeout.unwrap_or(FIXTURE_TIMEOUT);
    Some(FixtureConfig { name: name?, setup: setup?, teardown, needs: needs.unwrap_or_default(), timeout })
}

/// Reads the declared resources by name.
fn read_resources(top: &TableReader<'_, '_>) -> BTreeMap<String, ResourceCapacity> {
    let mut resources = BTreeMap::new();
    let mut variables = BTreeMap::new();
    for table in top.read_tables("resource", "[[resource]]") {
        let ResourceTable { name, capacity, units } = table.read();
        table.report_unknown_keys();
        if table.contains_key("capacity") && table.contains_key("units") {
            let message = "a resource has either \"capacity\" or \"units\": the units are its capacity";
            table.document.report(table.key_span("units"), message);
        }
        let mut known = BTreeSet::new();
        for unit in units.iter().flat_map(|units| units.iter()).filter(|unit| !known.insert(*unit)) {
            table.document.report(table.key_span("units"), format!("duplicate unit \"{unit}\""));
        }
        let Some(name) = name else {
            if !table.contains_key("name") {
                table.document.report(table.span.clone(), "[[resource]] needs a \"name\"");
            }
            continue;
        };
        if name.contains(['=', ':']) {
            let message = format!("the resource name \"{name}\" contains \"=\" or \":\"");
            table.document.report(table.key_span("name"), message);
        }
        if units.is_some() {
            let variable = unit_variable(&name);
            let other = variables.insert(variable.clone(), name.clone()).filter(|other| *other != name);
            if let Some(other) = other {
                let message =
                    format!("the units of \"{other}\" and \"{name}\" have the same variable, {variable}");
                table.document.report(table.key_span("name"), message);
            }
        }
        let capacity = units
            .map_or_else(|| ResourceCapacity::Amount(capacity.map_or(1, u32::from)), ResourceCapacity::Units);
        if resources.insert(name.clone(), capacity).is_some() {
            table.document.report(table.key_span("name"), format!("duplicate resource name \"{name}\""));
        }
    }
    resources
}

/// Reports a name in `key` that is not among the declared names of its kind.
fn report_unknown(table: &TableReader<'_, '_>, key: &str, kind: &str, name: &str, known: &[&str]) {
    if known.contains(&name) {
        return;
    }
    let hint = match known {
        [] => format!("; declare it in a [[{kind}]] table"),
        _ => known_words_hint(name, known),
    };
    table.document.report(table.key_span(key), format!("unknown {kind} \"{name}\"{hint}"));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        CommandLineSettings, Config, ResolvedSettings, ResourceAmount, ResourceUse, TestSettings,
        filter::FilterSubject,
    };

    fn of(uid: &str) -> FilterSubject<'_> {
        FilterSubject { uid, ..FilterSubject::default() }
    }

    #[test]
    fn resources_are_declared_and_used() {
        let text = r#"
[[resource]]
name = "database"
capacity = 4
[[resource]]
name = "port"
[[resource]]
name = "gpu-a"
units = ["0", "one"]
[[profile.default.override]]
filter = "db"
uses = ["database=2", "port:read"]
weight = 3
priority = -5
"#;
        let config = Config::parse(Path::new("heeler.toml"), text).unwrap();
        let declared = [
            ("database".to_owned(), ResourceCapacity::Amount(4)),
            ("gpu-a".to_owned(), ResourceCapacity::Units(["0", "one"].map(str::to_owned).into())),
            ("port".to_owned(), ResourceCapacity::Amount(1)),
        ];
        assert_eq!(config.resources, BTreeMap::from(declared));
        assert_eq!(unit_variable("gpu-a.é2"), "HEELER_UNIT_GPU_A__2");
        let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
        let test = settings.for_test(None, &of("x::db"));
        let used = |resource: &str, amount| ResourceUse { resource: resource.to_owned(), amount };
        let expected = [used("database", ResourceAmount::Units(2)), used("port", ResourceAmount::Units(1))];
        assert_eq!(test.uses.as_deref(), Some(&expected[..]));
        assert_eq!((test.weight.map(u32::from), test.priority), (Some(3), -5));
        assert_eq!(settings.for_test(None, &of("x::other")), TestSettings::default());
    }

    #[test]
    fn fixtures_are_declared_and_needed() {
        let text = r#"
[[fixture]]
name = "network"
setup = ["./network", "up"]
teardown = ["./network", "down"]
timeout = "10s"
[[fixture]]
name = "server"
setup = ["./server"]
needs = ["network"]
[[profile.default.override]]
filter = "db"
needs = ["server"]
"#;
        let config = Config::parse(Path::new("heeler.toml"), text).unwrap();
        let [network, server] = &config.fixtures[..] else { panic!("{:?}", config.fixtures) };
        assert_eq!(network.setup, ["./network", "up"]);
        assert_eq!(network.teardown.as_deref(), Some(&["./network".to_owned(), "down".to_owned()][..]));
        assert_eq!((network.timeout.as_secs(), server.timeout.as_secs()), (10, 300));
        assert_eq!((&server.needs[..], &server.teardown), (&["network".to_owned()][..], &None));
        let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
        assert_eq!(settings.for_test(None, &of("x::db")).needs.as_deref(), Some(&["server".to_owned()][..]));
        assert_eq!(settings.for_test(None, &of("x::other")).needs, None);
    }

    #[test]
    fn wrong_fixtures_are_reported() {
        let text = r#"
[[fixture]]
name = "server"
[[fixture]]
name = "a"
setup = ["true"]
needs = ["b"]
[[fixture]]
name = "b"
setup = ["true"]
needs = ["a", "srver"]
[[fixture]]
name = "idle"
setup = []
[[fixture]]
name = "unused"
setup = ["true"]
[profile.default]
needs = ["a", "unsued"]
"#;
        let error = Config::parse(Path::new("heeler.toml"), text).unwrap_err().to_string();
        let expected = r#"
heeler.toml:2:1: [[fixture]] needs a "setup"
heeler.toml:4:1: fixtures need each other: "a" needs "b" needs "a"
heeler.toml:11:1: unknown fixture "srver" (available: a, b, unused)
heeler.toml:14:9: expected a command as an array of strings, such as ["make", "tests"] for "setup" in [[fixture]], found an empty array
heeler.toml:15:1: nothing needs the fixture "unused"; add needs = ["unused"] to a suite, profile or override
heeler.toml:19:1: unknown fixture "unsued"; did you mean "unused"?
"#;
        assert_eq!(error.split_once('\n').unwrap().1, expected.trim());
    }

    #[test]
    fn wrong_resources_are_reported() {
        let text = r#"
[[resource]]
name = "database"
[[resource]]
name = "database"
[[resource]]
capacity = 0
[profile.default]
uses = ["databse", "database=0", "database:append"]
[[suite]]
name = "unit"
programs = ["x"]
uses = ["databse"]
priority = 101
"#;
        let error = Config::parse(Path::new("heeler.toml"), text).unwrap_err().to_string();
        let expected = r#"
heeler.toml:5:1: duplicate resource name "database"
heeler.toml:6:1: [[resource]] needs a "name"
heeler.toml:7:12: expected a positive integer for "capacity" in [[resource]], found the number 0
heeler.toml:9:20: expected an array of resources such as ["database", "gpu=2", "cache:read"] for "uses" in [profile.default]: "database=0"; write NAME, NAME=AMOUNT or NAME:read
heeler.toml:13:1: unknown resource "databse"; did you mean "database"?
heeler.toml:14:12: expected a number from -100 to 100 for "priority" in [[suite]], found the number 101
"#;
        assert_eq!(error.split_once('\n').unwrap().1, expected.trim());
    }

    #[test]
    fn wrong_units_are_reported() {
        let text = r#"
[[resource]]
name = "a"
units = ["0", "1", "0"]
[[resource]]
name = "b"
units = []
[[resource]]
name = "c"
capacity = 2
units = ["x"]
[[resource]]
name = "d-1"
units = ["x"]
[[resource]]
name = "d_1"
units = ["x"]
[[resource]]
name = "e"
units = ["x,y"]
[[resource]]
name = "f"
units = 2
"#;
        let error = Config::parse(Path::new("heeler.toml"), text).unwrap_err().to_string();
        let expected = r#"
heeler.toml:4:1: duplicate unit "0"
heeler.toml:7:9: expected an array of at least one name without commas, such as ["0", "1"] for "units" in [[resource]], found an empty array
heeler.toml:11:1: a resource has either "capacity" or "units": the units are its capacity
heeler.toml:16:1: the units of "d-1" and "d_1" have the same variable, HEELER_UNIT_D_1
heeler.toml:20:9: expected an array of at least one name without commas, such as ["0", "1"] for "units" in [[resource]], found an array
heeler.toml:23:9: expected an array of at least one name without commas, such as ["0", "1"] for "units" in [[resource]], found the number 2
"#;
        assert_eq!(error.split_once('\n').unwrap().1, expected.trim());
    }
}
