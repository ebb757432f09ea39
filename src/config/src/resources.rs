//! Resources that tests use while they run: `[[resource]]` declares them, `uses` names them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    TestLayer,
    notation::{Notation, NotationError, WrittenValue},
    reader::TableReader,
    tables::ResourceTable,
};

/// How much of a resource a test uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceAmount {
    /// All of it: no other test uses the resource at the same time.
    All,
    /// This much; more than the capacity means all of it.
    Units(u32),
}

/// A resource that a test uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUse {
    pub resource: String,
    pub amount: ResourceAmount,
}

/// Resources that tests use, as written: `NAME`, `NAME=AMOUNT` or `NAME:read`.
pub(super) struct ResourceUses;

impl Notation for ResourceUses {
    type Value = Arc<[ResourceUse]>;

    fn expected() -> String {
        "an array of resources such as [\"database\", \"gpu=2\", \"cache:read\"]".to_owned()
    }

    fn read(written: WrittenValue<'_>) -> Result<Self::Value, NotationError> {
        let texts = written.texts(|_| true)?;
        texts.iter().map(|text| parse_use(text)).collect()
    }

    fn check_element(text: &str) -> Result<(), NotationError> {
        parse_use(text).map(|_| ())
    }
}

/// Parses one use of a resource. Reading takes one unit; everything without an amount takes all units.
fn parse_use(text: &str) -> Result<ResourceUse, NotationError> {
    let malformed = || NotationError::Malformed(format!("{text:?}; write NAME, NAME=AMOUNT or NAME:read"));
    let (resource, amount) = if let Some((name, amount)) = text.split_once('=') {
        let amount = amount.parse().ok().filter(|amount| *amount > 0).ok_or_else(malformed)?;
        (name, ResourceAmount::Units(amount))
    } else if let Some((name, mode)) = text.split_once(':') {
        let amount = match mode {
            "read" => ResourceAmount::Units(1),
            "write" => ResourceAmount::All,
            _ => return Err(malformed()),
        };
        (name, amount)
    } else {
        (text, ResourceAmount::All)
    };
    if resource.is_empty() {
        return Err(malformed());
    }
    Ok(ResourceUse { resource: resource.to_owned(), amount })
}

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
        let known = resources.keys().map(String::as_str);
        let hint = match crate::closest_match(&used.resource, known) {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None if resources.is_empty() => "; declare it in a [[resource]] table".to_owned(),
            None => {
                let names: Vec<_> = resources.keys().map(String::as_str).collect();
                format!(" (available: {})", names.join(", "))
            }
        };
        let message = format!("unknown resource \"{}\"{hint}", used.resource);
        table.document.report(table.key_span("uses"), message);
    }
}
