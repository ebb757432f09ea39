//! Commands in the documentation: `tests/e2e/cli/pages.rs` executes every block, unless a comment above the
//! block gives a reason not to.

use std::{collections::BTreeSet, fs};

use crate::{
    page_blocks::{EXECUTED, NOT_EXECUTED, blocks},
    source_rules::{files, root},
};

/// Result of checking a page's command blocks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    executed: usize,
    mistakes: Vec<String>,
}

fn findings(page: &str) -> Findings {
    let mut mistakes: Vec<(usize, &str)> = Vec::new();
    let mut comments: BTreeSet<usize> = (1..)
        .zip(page.lines())
        .filter(|(_, line)| [EXECUTED, NOT_EXECUTED].iter().any(|start| line.starts_with(start)))
        .map(|(number, _)| number)
        .collect();
    let mut executed = 0;
    for block in blocks(page) {
        if block.is_console() {
            comments.remove(&(block.number - 1));
            executed += usize::from(block.projects().is_some());
            let reason = block.comment.strip_prefix(NOT_EXECUTED);
            if reason.is_some_and(|rest| rest.trim_end_matches("-->").trim().is_empty()) {
                mistakes.push((block.number, "a block without the reason why it is not executed"));
            }
            if !block.lines.first().is_some_and(|line| line.starts_with("$ ")) {
                mistakes.push((block.number, "a block that does not begin with a command"));
            }
        } else if block.fence.trim_start().starts_with("```console") {
            mistakes.push((block.number, "a block of commands that is indented, or that has a name"));
        }
    }
    let lost = |number| (number, "a comment on commands that are not below it");
    mistakes.extend(comments.into_iter().map(lost));
    let mistakes = mistakes.into_iter().map(|(number, mistake)| format!("{number}: {mistake}")).collect();
    Findings { executed, mistakes }
}

#[test]
fn pages_are_executed() {
    let executor = fs::read_to_string(root().join("tests/e2e/cli/pages.rs")).unwrap();
    let mut mistakes = Vec::new();
    let mut count = 0;
    let is_ours = |page: &str| page.starts_with("docs/") || !page.contains('/');
    for (page, text) in files("md").iter().filter(|(page, _)| is_ours(page)) {
        let found = findings(text);
        mistakes.extend(found.mistakes.iter().map(|mistake| format!("{page}:{mistake}")));
        let is_followed = executor.contains(&format!("\"{page}\""));
        if is_followed != (found.executed > 0) {
            let has = if is_followed { "no commands to execute" } else { "commands that nothing executes" };
            mistakes.push(format!("{page} has {has}: see tests/e2e/cli/pages.rs"));
        }
        count += found.executed;
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
    assert!(count > 20, "only {count} blocks are executed");
}

#[test]
fn blocks_without_a_reason_are_found() {
    let mistakes = |page: &str| findings(page).mistakes.len();
    let block = "```console\n$ a\n```\n";
    for (executed, good) in [
        (1, block.to_owned()),
        (1, format!("<!-- executed in: samples -->\n{block}")),
        (0, format!("<!-- not executed: it takes an hour -->\n{block}")),
    ] {
        assert_eq!(findings(&good), Findings { executed, mistakes: Vec::new() }, "{good}");
    }
    for bad in [
        format!("<!-- not executed: -->\n\n{block}"),
        format!("<!-- not executed:  -->\n{block}"),
        "<!-- executed in: samples -->\ntext".to_owned(),
        "  ```console\n  $ a\n  ```\n".to_owned(),
    ] {
        assert_eq!(mistakes(&bad), 1, "{bad}");
    }
}
