//! Rules for the documentation: links and paths exist, lines are wrapped, and lists copied from code match
//! it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::source_rules::{files, root};

/// Maximum columns of prose. Tables and code may be wider.
const COLUMNS: usize = 120;
const README_LINES: usize = 200;

/// A line of prose, a heading or a table row, with its line number counted from 1. Code blocks are excluded.
struct TextLine<'a> {
    number: usize,
    text: &'a str,
}

fn pages() -> BTreeMap<String, String> {
    let pages = files("md");
    assert!(pages.len() > 20, "the pages are found: {:?}", pages.keys());
    pages
}

fn text_lines(page: &str) -> Vec<TextLine<'_>> {
    let mut lines = Vec::new();
    let mut is_code = false;
    for (index, text) in page.lines().enumerate() {
        if text.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(TextLine { number: index + 1, text });
        }
    }
    lines
}

/// Returns a line with its code spans replaced by spaces.
fn without_code_spans(line: &str) -> String {
    let mut is_code = false;
    let blanked = line.chars().map(|letter| {
        if letter == '`' {
            is_code = !is_code;
        }
        if is_code || letter == '`' { ' ' } else { letter }
    });
    blanked.collect()
}

/// Returns the targets of a line's links and images.
fn link_targets(line: &str) -> Vec<String> {
    let line = without_code_spans(line);
    line.match_indices("](")
        .filter_map(|(at, _)| {
            let rest = &line[at + 2..];
            Some(rest[..rest.find(')')?].to_owned())
        })
        .collect()
}

/// Returns the anchors of a page's headings as GitHub generates them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let headings = text_lines(page).into_iter().filter(|line| line.text.starts_with('#'));
    for heading in headings {
        let title = heading.text.trim_start_matches('#').trim().to_lowercase();
        let kept =
            title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let repeated = (1..).map(|count| format!("{anchor}-{count}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// Returns a path without `.` and `..`; `None` if it leaves the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if !result.pop() => return None,
            Component::ParentDir => {}
            other => result.push(other),
        }
    }
    Some(result)
}

/// Returns why a page's link is broken; `None` if it is not.
fn broken_link(page: &str, target: &str, pages: &BTreeMap<String, String>) -> Option<String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let directory = Path::new(page).parent()?;
    let file = if path.is_empty() { Some(page.into()) } else { normalized(&directory.join(path)) };
    let Some(file) = file.filter(|file| root().join(file).exists()) else {
        return Some("there is no such file".to_owned());
    };
    let anchor = anchor?;
    let Some(text) = file.to_str().and_then(|file| pages.get(file)) else {
        return Some("an anchor needs a Markdown file".to_owned());
    };
    let known = anchors(text);
    (!known.contains(anchor)).then(|| format!("the page has only the anchors {known:?}"))
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let pages = pages();
    let mut broken = Vec::new();
    let mut count = 0;
    for (page, text) in &pages {
        for line in text_lines(text) {
            for target in link_targets(line.text).iter().filter(|target| !target.contains("://")) {
                count += 1;
                let reason = broken_link(page, target, &pages);
                broken.extend(reason.map(|reason| format!("{page}:{}: {target}: {reason}", line.number)));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    assert!(count > 50, "only {count} links are found");
}

#[test]
fn broken_links_are_found() {
    let page = "# A page: its Title\n## Two\n## Two\n```\n# code\n```\n";
    let pages = BTreeMap::from([("README.md".to_owned(), page.to_owned())]);
    let reason = |target: &str| broken_link("README.md", target, &pages);
    for good in ["#a-page-its-title", "#two-1", "Cargo.toml", "src/../README.md#two"] {
        assert_eq!(reason(good), None, "{good}");
    }
    for bad in ["#code", "#three", "no-such-file.md", "../outside.md", "Cargo.toml#two"] {
        assert!(reason(bad).is_some(), "{bad}");
    }
    assert_eq!(link_targets("[a](b.md), `[c](d.md)` and ![e](f.svg)"), ["b.md", "f.svg"]);
}

#[test]
fn paths_named_in_pages_exist() {
    let starts =
        ["src/", "worker/", "watchdog/", "tests/", "benches/", "scripts/", "samples/", "examples/", "docs/"];
    let mut broken = Vec::new();
    // The changelog contains old paths, and notes on recorded files contain paths of other repositories.
    let is_ours = |page: &str| page != "CHANGELOG.md" && (page.starts_with("docs/") || !page.contains('/'));
    for (page, text) in pages().iter().filter(|(page, _)| is_ours(page)) {
        for line in text_lines(text) {
            for span in line.text.split('`').skip(1).step_by(2) {
                let is_path = starts.iter().any(|start| span.starts_with(start))
                    && span.chars().all(|letter| letter.is_alphanumeric() || "/._-".contains(letter));
                if is_path && !root().join(span).exists() {
                    broken.push(format!("{page}:{}: there is no {span}", line.number));
                }
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn prose_is_wrapped() {
    let mut broken = Vec::new();
    // Changelog entries are single lines of any width, which keeps merges free of conflicts.
    for (page, text) in pages().iter().filter(|(page, _)| *page != "CHANGELOG.md") {
        for line in text_lines(text) {
            let width = line.text.chars().count();
            let is_table = line.text.trim_start().starts_with('|');
            // A link or a code span cannot be wrapped.
            let is_one_word = line.text.trim_start_matches(['-', '#', ' ']).split(' ').count() == 1;
            if width > COLUMNS && !is_table && !is_one_word {
                broken.push(format!("{page}:{}: {width} columns, at most {COLUMNS}", line.number));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, at most {README_LINES}");
}

/// Returns the code spans in the first column of the tables below a heading, or of all tables of a page.
fn first_column(page: &str, heading: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, text) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// Returns the outcome kinds that the product reads or writes.
fn outcome_kinds_in_code() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("src/protocol/src/mtp/render.rs")).unwrap();
    let (_, module) = text.split_once("pub mod outcome_kind {").unwrap();
    let (constants, _) = module.split_once("\n}").unwrap();
    let lines = constants.lines().filter(|line| line.contains(" const "));
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[test]
fn outcome_kinds_page_equals_code() {
    let documented = first_column("docs/reference/outcome-kinds.md", "# Outcome kinds");
    assert_eq!(documented, outcome_kinds_in_code(), "left: docs/reference/outcome-kinds.md, right: the code");
}

/// Returns the wire names of all members of test nodes, except members that only groups have.
fn node_members_in_code() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("src/protocol/src/mtp/render.rs")).unwrap();
    let renames = text.split("rename = \"").skip(1).filter_map(|rest| rest.split('"').next());
    renames.map(str::to_owned).collect()
}

#[test]
fn node_members_page_equals_code() {
    let page = fs::read_to_string(root().join("docs/reference/node-members.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
    let documented: BTreeSet<String> = names.collect();
    let elsewhere = [
        // Written elsewhere: one member in listings, and the numbered members.
        "heeler.may-have-parts",
        "attachments.N.uri",
        "attachments.N.display-name",
        "attachments.N.description",
        // Fields whose name is the same on the wire.
        "uid",
        "traits",
    ];
    let elsewhere = elsewhere.into_iter().map(str::to_owned);
    let in_code: BTreeSet<String> = node_members_in_code().into_iter().chain(elsewhere).collect();
    assert_eq!(documented, in_code, "left: docs/reference/node-members.md, right: the code");
}

#[test]
fn direct_dependencies_are_explained() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let dependencies = manifest["workspace"]["dependencies"].as_table().unwrap().keys();
    let external: BTreeSet<String> =
        dependencies.filter(|name| !name.starts_with("heeler")).cloned().collect();
    let explained = first_column("ARCHITECTURE.md", "## Direct dependencies");
    assert_eq!(explained, external, "left: ARCHITECTURE.md, right: [workspace.dependencies] of Cargo.toml");
}
