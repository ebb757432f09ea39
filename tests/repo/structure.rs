//! Limits on the structure of the product's sources, as measured by `scripts/structure`.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::source_rules::root;

/// Maximum number of methods of a type, and of files with its impl blocks.
const METHODS: u64 = 40;
const FILES: u64 = 2;
/// Maximum number of files in the largest import cycle, and in all cycles.
const LARGEST_CIRCLE: usize = 5;
const FILES_IN_CIRCLES: usize = 120;
/// Maximum percentage of type names that several types share.
const SHARED_NAMES_PERCENT: f64 = 3.0;
/// Maximum percentage of public items that no other crate names.
const UNUSED_PUBLIC_PERCENT: f64 = 5.0;

#[test]
fn structure_is_within_limits() {
    let output =
        Command::new("python3").arg(root().join("scripts/structure")).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |name: &str| figures[name].as_array().unwrap();
    let percent = |name: &str| figures[name].as_f64().unwrap();
    assert!(list("types").len() > 500, "the sources are measured");

    let is_large =
        |one: &&Value| one["methods"].as_u64().unwrap() > METHODS || one["files"].as_u64().unwrap() > FILES;
    let large: BTreeSet<_> =
        list("types").iter().filter(is_large).map(|one| one["name"].as_str().unwrap()).collect();
    assert!(large.is_empty(), "types over {METHODS} methods or {FILES} files: {large:?}");

    let circles: Vec<_> = list("circles").iter().map(|one| one.as_array().unwrap().len()).collect();
    let largest = circles.iter().copied().max().unwrap_or_default();
    assert!(largest <= LARGEST_CIRCLE, "an import circle has {largest} files, at most {LARGEST_CIRCLE}");
    let files: usize = circles.iter().sum();
    assert!(files <= FILES_IN_CIRCLES, "import circles have {files} files, at most {FILES_IN_CIRCLES}");

    let functions = list("tuple_parameters");
    assert!(functions.is_empty(), "functions with a tuple as parameter: {functions:?}");

    for (name, limit) in
        [("shared_names_percent", SHARED_NAMES_PERCENT), ("unused_public_percent", UNUSED_PUBLIC_PERCENT)]
    {
        let share = percent(name);
        assert!(share <= limit, "{name} is {share}, at most {limit}: scripts/structure --list");
    }
}
