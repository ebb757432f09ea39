//! Reads the tables `[[resource]]`, and checks that tests use only resources declared there.

use std::collections::BTreeMap;

use super::{TestLayer, closest_match::known_words_hint, reader::TableReader, tables::ResourceTable};

/// Reads the declared resources: the capacity of each by its name.
pub(super) fn read_resources(top: &TableReader<'_, '_>) -> BTreeMap<String, u32> {
    let mut resources = BTreeMap::new();
    for table in top.read_tables("resource", "[[resource]]") {
        let ResourceTable { name, capacity } = table.read();
        table.report_unknown_keys();
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
        if resources.insert(name.clone(), capacity.map_or(1, u32::from)).is_some() {
            table.document.report(table.key_span("name"), format!("duplicate resource name \"{name}\""));
        }
    }
    resources
}

/// Reports uses of resources that are not declared.
pub(super) fn check_uses(table: &TableReader<'_, '_>, tests: &TestLayer, resources: &BTreeMap<String, u32>) {
    for used in tests.uses.iter().flat_map(|uses| uses.iter()) {
        if resources.contains_key(&used.resource) {
            continue;
        }
        let known: Vec<&str> = resources.keys().map(String::as_str).collect();
        let hint = match known[..] {
            [] => "; declare it in a [[resource]] table".to_owned(),
            _ => known_words_hint(&used.resource, &known),
        };
        let message = format!("unknown resource \"{}\"{hint}", used.resource);
        table.document.report(table.key_span("uses"), message);
    }
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
[[profile.default.override]]
filter = "db"
uses = ["database=2", "port:read"]
weight = 3
priority = -5
"#;
        let config = Config::parse(Path::new("heeler.toml"), text).unwrap();
        assert_eq!(config.resources, BTreeMap::from([("database".to_owned(), 4), ("port".to_owned(), 1)]));
        let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
        let test = settings.for_test(None, &of("x::db"));
        let used = |resource: &str, amount| ResourceUse { resource: resource.to_owned(), amount };
        let expected = [used("database", ResourceAmount::Units(2)), used("port", ResourceAmount::Units(1))];
        assert_eq!(test.uses.as_deref(), Some(&expected[..]));
        assert_eq!((test.weight.map(u32::from), test.priority), (Some(3), -5));
        assert_eq!(settings.for_test(None, &of("x::other")), TestSettings::default());
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
}
