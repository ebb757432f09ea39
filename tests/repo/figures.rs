//! Figures in the documentation: repeated figures must agree with their single source.

use std::{collections::BTreeSet, fs};

use crate::source_rules::root;

/// Returns the table rows below a heading, up to the next heading: the first two columns, the CPU time and
/// the last column. An empty first column takes the value from the row above.
fn rows(page: &str, heading: &str) -> BTreeSet<[String; 4]> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let section = text.split("\n## ").next().unwrap();
    let mut what = String::new();
    let mut rows = BTreeSet::new();
    for line in section.lines().filter_map(|line| line.strip_prefix('|')) {
        let cells: Vec<_> =
            line.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        if !cells[0].is_empty() {
            what.clone_from(&cells[0]);
        }
        rows.insert([what.clone(), cells[1].clone(), cells[2].clone(), cells[cells.len() - 1].clone()]);
    }
    // Drop the two header lines.
    rows.retain(|row| row[2].starts_with(|letter: char| letter.is_ascii_digit()));
    rows
}

#[test]
fn comparison_of_the_readme_is_measured() {
    let shown = rows("README.md", "\n## Comparison\n");
    let measured = rows("docs/design/performance.md", "\n## Whole runs compared\n");
    assert!(shown.len() > 5, "{shown:?}");
    let unknown: Vec<_> = shown.difference(&measured).collect();
    assert!(unknown.is_empty(), "docs/design/performance.md has no such rows: {unknown:?}");
}

#[test]
fn pages_name_the_oldest_supported_rust() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let version = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    for (page, words) in [
        ("README.md", format!("Rust {version} or later")),
        ("docs/guide/ci.md", format!("image: rust:{version}\n")),
    ] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(text.contains(&words), "{page} does not say {words:?}");
    }
}
