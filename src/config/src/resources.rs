//! Resources, and the key `uses`: the resources that a test takes while it runs.

use std::sync::Arc;

use super::notation::{Notation, NotationError, WrittenValue};

/// Prefix of the environment variables that name the units of a process.
const UNIT_VARIABLE: &str = "HEELER_UNIT_";

/// Capacity of a declared resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourceCapacity {
    /// An amount that tests share.
    Amount(u32),
    /// Units with these names. Each belongs to one test at a time.
    Units(Arc<[String]>),
}

/// Returns the environment variable that names the units of this resource that a test process has, such as
/// `HEELER_UNIT_GPU`. Characters that variables do not have become `_`.
#[must_use]
pub fn unit_variable(resource: &str) -> String {
    let character = |one: char| if one.is_ascii_alphanumeric() { one.to_ascii_uppercase() } else { '_' };
    UNIT_VARIABLE.chars().chain(resource.chars().map(character)).collect()
}

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
