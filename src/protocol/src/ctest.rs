//! Parsers for the output of `ctest --show-only=json-v1`, and for CTest's resource spec files.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;

use crate::control::ResourceUnit;

/// Name of the test trait that says how CTest reports a test that skips itself.
pub const SKIP_TRAIT: &str = "ctest-skip";
/// Value of [`SKIP_TRAIT`] if CTest reports the skip as a failure.
pub const SKIP_FAILS: &str = "fails";

/// Environment variable with the number of resource groups of a test. Tests without groups have 0 if the
/// resources are known, and no variable otherwise.
pub const GROUP_COUNT_VARIABLE: &str = "CTEST_RESOURCE_GROUP_COUNT";

/// A test of a CTest project.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CtestTest {
    pub name: String,
    /// Program and arguments; empty if CTest does not find the program.
    pub command: Vec<String>,
    pub properties: CtestProperties,
    /// File and line of the CMake command that added the test.
    pub place: Option<(String, u32)>,
}

/// Properties of a test. Properties that are not set have default values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CtestProperties {
    pub is_disabled: bool,
    pub will_fail: bool,
    pub skip_return_code: Option<i32>,
    pub pass_expressions: Vec<String>,
    pub fail_expressions: Vec<String>,
    pub skip_expressions: Vec<String>,
    pub timeout: Option<Duration>,
    /// Timeout, and the expressions whose match starts it.
    pub timeout_after_match: Option<(Duration, Vec<String>)>,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
    /// `NAME=OPERATION:VALUE`, applied in order after `environment`.
    pub environment_modification: Vec<String>,
    pub working_directory: Option<String>,
    pub required_files: Vec<String>,
    pub labels: Vec<String>,
    pub attached_files: Vec<String>,
    pub attached_files_on_failure: Vec<String>,
    /// Names of tests that must precede this one, including fixtures.
    pub depends: Vec<String>,
    /// Number of slots that the test takes.
    pub processors: Option<u64>,
    /// Whether the test runs while no other test runs.
    pub is_serial: bool,
    /// Locks that the test holds.
    pub resource_locks: Vec<String>,
    /// Groups of resources that the test gets.
    pub resource_groups: Vec<ResourceGroup>,
    /// Expected duration in seconds, or any number that is larger for longer tests.
    pub cost: Option<f64>,
    /// Fixtures that the test sets up.
    pub fixtures_setup: Vec<String>,
    /// Fixtures that the test requires.
    pub fixtures_required: Vec<String>,
    /// Fixtures that the test cleans up.
    pub fixtures_cleanup: Vec<String>,
    /// Names of all other properties that are set.
    pub others: BTreeSet<String>,
}

/// Amounts of resources of a test, each of one unit of this type.
pub type ResourceGroup = Vec<(String, u32)>;

/// Error in a listing of tests.
#[derive(Debug, thiserror::Error)]
pub enum CtestListingError {
    #[error("read the test list of ctest")]
    Json(#[from] serde_json::Error),
    #[error("read the test list of ctest: expected \"kind\": \"ctestInfo\" of version 1, found {found}")]
    Kind { found: String },
}

/// Returns the tests in the order of the listing.
///
/// # Errors
/// The input is not a listing by CTest.
pub fn read_ctest_listing(json: &[u8]) -> Result<Vec<CtestTest>, CtestListingError> {
    // Names and arguments may contain any bytes, and CTest writes them unchanged.
    let text = String::from_utf8_lossy(json);
    // A project may run a command before the tests (CTEST_CUSTOM_PRE_TEST), which prints before the listing.
    let begin = if text.starts_with('{') { 0 } else { text.find("\n{").map_or(0, |at| at + 1) };
    let listing: Listing = serde_json::from_str(&text[begin..])?;
    if listing.kind != "ctestInfo" || listing.version.major != 1 {
        let found = format!("\"kind\": {:?} of version {}", listing.kind, listing.version.major);
        return Err(CtestListingError::Kind { found });
    }
    let Listing { tests, graph, .. } = listing;
    let test = |test: Test| CtestTest {
        place: test.backtrace.and_then(|node| graph.place(node)),
        properties: read_properties(test.properties),
        name: test.name,
        command: test.command,
    };
    Ok(tests.into_iter().map(test).collect())
}

/// Error in a resource spec file.
#[derive(Debug, thiserror::Error)]
pub enum ResourceSpecError {
    #[error("read the resource spec")]
    Json(#[from] serde_json::Error),
    #[error("the resource spec has version {found} instead of 1")]
    Version { found: u32 },
    #[error("the resource spec describes {found} machines instead of one")]
    Machines { found: usize },
}

/// Returns the units of each type in a resource spec file.
///
/// # Errors
/// The input is not a resource spec of version 1 for one machine.
pub fn read_resource_spec(json: &[u8]) -> Result<BTreeMap<String, Vec<ResourceUnit>>, ResourceSpecError> {
    let ResourceSpec { version, mut local } = serde_json::from_slice(json)?;
    if version.major != 1 {
        return Err(ResourceSpecError::Version { found: version.major });
    }
    if local.len() > 1 {
        return Err(ResourceSpecError::Machines { found: local.len() });
    }
    let unit = |unit: SpecUnit| ResourceUnit { id: unit.id, amount: unit.slots };
    let types = local.pop().unwrap_or_default().into_iter();
    Ok(types.map(|(name, units)| (name, units.into_iter().map(unit).collect())).collect())
}

#[derive(Deserialize)]
struct ResourceSpec {
    version: Version,
    local: Vec<BTreeMap<String, Vec<SpecUnit>>>,
}

#[derive(Deserialize)]
struct SpecUnit {
    id: String,
    #[serde(default = "one_slot")]
    slots: u32,
}

fn one_slot() -> u32 {
    1
}

#[derive(Deserialize)]
struct Listing {
    kind: String,
    version: Version,
    #[serde(default)]
    tests: Vec<Test>,
    #[serde(default, rename = "backtraceGraph")]
    graph: BacktraceGraph,
}

#[derive(Deserialize)]
struct Version {
    major: u32,
}

#[derive(Deserialize)]
struct Test {
    name: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    backtrace: Option<usize>,
    #[serde(default)]
    properties: Vec<Property>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    #[serde(default)]
    value: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BacktraceGraph {
    files: Vec<String>,
    nodes: Vec<BacktraceNode>,
}

#[derive(Deserialize)]
struct BacktraceNode {
    file: usize,
    line: Option<u32>,
}

impl BacktraceGraph {
    fn place(&self, node: usize) -> Option<(String, u32)> {
        let node = self.nodes.get(node)?;
        Some((self.files.get(node.file)?.clone(), node.line?))
    }
}

fn read_properties(properties: Vec<Property>) -> CtestProperties {
    let mut read = CtestProperties::default();
    for Property { name, value } in properties {
        match name.as_str() {
            "DISABLED" => read.is_disabled = is_true(&value),
            "WILL_FAIL" => read.will_fail = is_true(&value),
            "SKIP_RETURN_CODE" => {
                read.skip_return_code = value.as_i64().and_then(|code| code.try_into().ok())
            }
            "PASS_REGULAR_EXPRESSION" => read.pass_expressions = texts(&value),
            "FAIL_REGULAR_EXPRESSION" => read.fail_expressions = texts(&value),
            "SKIP_REGULAR_EXPRESSION" => read.skip_expressions = texts(&value),
            // Zero means no timeout.
            "TIMEOUT" => read.timeout = seconds(&value),
            "TIMEOUT_AFTER_MATCH" => {
                read.timeout_after_match =
                    seconds(&value["timeout"]).map(|limit| (limit, texts(&value["regex"])));
            }
            "ENVIRONMENT" => read.environment = texts(&value),
            "ENVIRONMENT_MODIFICATION" => read.environment_modification = texts(&value),
            "WORKING_DIRECTORY" => read.working_directory = value.as_str().map(str::to_owned),
            "REQUIRED_FILES" => read.required_files = texts(&value),
            "LABELS" => read.labels = texts(&value),
            "ATTACHED_FILES" => read.attached_files = texts(&value),
            "ATTACHED_FILES_ON_FAIL" => read.attached_files_on_failure = texts(&value),
            "DEPENDS" => read.depends = texts(&value),
            "PROCESSORS" => read.processors = value.as_u64(),
            "RUN_SERIAL" => read.is_serial = is_true(&value),
            "RESOURCE_LOCK" => read.resource_locks = texts(&value),
            "RESOURCE_GROUPS" => read.resource_groups = resource_groups(&value),
            "COST" => read.cost = value.as_f64(),
            "FIXTURES_SETUP" => read.fixtures_setup = texts(&value),
            "FIXTURES_REQUIRED" => read.fixtures_required = texts(&value),
            "FIXTURES_CLEANUP" => read.fixtures_cleanup = texts(&value),
            _ => drop(read.others.insert(name)),
        }
    }
    read
}

fn is_true(value: &Value) -> bool {
    value.as_bool() == Some(true)
}

fn seconds(value: &Value) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(value.as_f64()?).ok()?;
    (!limit.is_zero()).then_some(limit)
}

/// Returns the groups of resources, each with the types and amounts of its requirements.
fn resource_groups(value: &Value) -> Vec<ResourceGroup> {
    let requirement = |one: &Value| {
        let amount = one["slots"].as_u64().and_then(|amount| u32::try_from(amount).ok())?;
        Some((one[".type"].as_str()?.to_owned(), amount))
    };
    let group = |group: &Value| {
        group["requirements"].as_array().into_iter().flatten().filter_map(requirement).collect()
    };
    value.as_array().into_iter().flatten().map(group).collect()
}

/// Returns the texts of a list, or a single text as a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => vec![text.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_and_places_are_read() {
        let json = br#"{"kind":"ctestInfo","version":{"major":1,"minor":0},
            "backtraceGraph":{"commands":["add_test"],"files":["/w/CMakeLists.txt"],
                "nodes":[{"file":0},{"command":0,"file":0,"line":9,"parent":0}]},
            "tests":[
                {"name":"a","command":["/bin/sh","-c","x"],"backtrace":1,"properties":[
                    {"name":"TIMEOUT","value":1.5},{"name":"DISABLED","value":true},
                    {"name":"SKIP_RETURN_CODE","value":77},{"name":"LABELS","value":["x","y"]},
                    {"name":"TIMEOUT_AFTER_MATCH","value":{"regex":["r"],"timeout":2.0}},
                    {"name":"FIXTURES_REQUIRED","value":["database"]},
                    {"name":"RESOURCE_GROUPS","value":[{"requirements":[{".type":"gpus","slots":2},
                        {".type":"cores","slots":1}]},{"requirements":[]}]},
                    {"name":"COST","value":5.0},{"name":"MEASUREMENT","value":["a=1"]},{"name":"WORKING_DIRECTORY","value":"/w"}]},
                {"name":"b_NOT_BUILT","properties":[{"name":"TIMEOUT","value":0.0}]}]}"#;
        let tests = read_ctest_listing(json).unwrap();
        let behind_output = [b"Optional {library}: none\n", &json[..]].concat();
        assert_eq!(read_ctest_listing(&behind_output).unwrap().len(), 2);
        let [first, second] = &tests[..] else { panic!("{tests:?}") };
        assert_eq!(first.place, Some(("/w/CMakeLists.txt".to_owned(), 9)));
        assert_eq!(first.command, ["/bin/sh", "-c", "x"]);
        let read = &first.properties;
        assert_eq!((read.timeout, read.is_disabled), (Some(Duration::from_millis(1500)), true));
        assert_eq!((read.skip_return_code, read.labels.len()), (Some(77), 2));
        assert_eq!(read.fixtures_required, ["database"]);
        assert_eq!(read.timeout_after_match, Some((Duration::from_secs(2), vec!["r".to_owned()])));
        assert_eq!(read.cost, Some(5.0));
        let group = vec![("gpus".to_owned(), 2), ("cores".to_owned(), 1)];
        assert_eq!(read.resource_groups, [group, Vec::new()]);
        assert_eq!(read.others.iter().collect::<Vec<_>>(), ["MEASUREMENT"]);
        assert_eq!((second.command.len(), second.place.as_ref(), second.properties.timeout), (0, None, None));
    }

    #[test]
    fn resource_specs_are_read() {
        let json =
            br#"{"version":{"major":1,"minor":0},"local":[{"gpus":[{"id":"0","slots":2},{"id":"x"}]}]}"#;
        let unit = |id: &str, amount| ResourceUnit { id: id.to_owned(), amount };
        let expected = BTreeMap::from([("gpus".to_owned(), vec![unit("0", 2), unit("x", 1)])]);
        assert_eq!(read_resource_spec(json).unwrap(), expected);
        for (json, expected) in [
            ("{}", "missing field `version`"),
            (r#"{"version":{"major":2},"local":[]}"#, "has version 2 instead of 1"),
            (r#"{"version":{"major":1},"local":[{},{}]}"#, "describes 2 machines instead of one"),
            (r#"{"version":{"major":1},"local":[{"gpus":[{}]}]}"#, "missing field `id`"),
        ] {
            let error = heeler_core::error_chain(&read_resource_spec(json.as_bytes()).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn other_documents_are_refused() {
        for (json, expected) in [
            ("{}", "missing field `kind`"),
            (r#"{"kind":"ctestInfo","version":{"major":2}}"#, "\"kind\": \"ctestInfo\" of version 2"),
            ("No tests were found!!!", "expected value"),
        ] {
            let error = heeler_core::error_chain(&read_ctest_listing(json.as_bytes()).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
