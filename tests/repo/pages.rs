//! Commands of the documentation: every block is executed by `tests/e2e/cli/pages.rs`, or says above itself
//! why not.

use std::fs;

use crate::source_rules::{files, root};

const EXECUTED: &str = "<!-- executed in: ";
const NOT_EXECUTED: &str = "<!-- not executed: ";

/// What a page says of its blocks of commands.
#[derive(Debug, Default, PartialEq, Eq)]
struct Blocks {
    executed: usize,
    mistakes: Vec<String>,
}

fn blocks(page: &str) -> Blocks {
    let mut blocks = Blocks::default();
    let mut before = "";
    let mut is_code = false;
    for (number, line) in (1..).zip(page.lines()) {
        let is_block = !is_code && line == "```console";
        let reason = before.strip_prefix(NOT_EXECUTED).map(|rest| rest.trim_end_matches("-->").trim());
        let is_comment = reason.is_some() || before.starts_with(EXECUTED);
        let mistake = if !is_block && is_comment {
            Some("a comment on commands that are not below it")
        } else if !is_block && !is_code && line.trim_start().starts_with("```console") {
            Some("a block of commands that is indented, or that has a name")
        } else if is_block && reason.is_some_and(str::is_empty) {
            Some("a block without the reason why it is not executed")
        } else {
            None
        };
        blocks.mistakes.extend(mistake.map(|mistake| format!("{number}: {mistake}")));
        blocks.executed += usize::from(is_block && reason.is_none());
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        before = line;
    }
    blocks
}

#[test]
fn pages_are_executed() {
    let executor = fs::read_to_string(root().join("tests/e2e/cli/pages.rs")).unwrap();
    let mut mistakes = Vec::new();
    let mut count = 0;
    let is_ours = |page: &str| page.starts_with("docs/") || !page.contains('/');
    for (page, text) in files("md").iter().filter(|(page, _)| is_ours(page)) {
        let blocks = blocks(text);
        mistakes.extend(blocks.mistakes.iter().map(|mistake| format!("{page}:{mistake}")));
        let is_followed = executor.contains(&format!("\"{page}\""));
        if is_followed != (blocks.executed > 0) {
            let has = if is_followed { "no commands to execute" } else { "commands that nothing executes" };
            mistakes.push(format!("{page} has {has}: see tests/e2e/cli/pages.rs"));
        }
        count += blocks.executed;
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
    assert!(count > 20, "only {count} blocks are executed");
}

#[test]
fn blocks_without_a_reason_are_found() {
    let mistakes = |page: &str| blocks(page).mistakes.len();
    let block = "```console\n$ a\n```\n";
    for (executed, good) in [
        (1, block.to_owned()),
        (1, format!("<!-- executed in: samples -->\n{block}")),
        (0, format!("<!-- not executed: it takes an hour -->\n{block}")),
    ] {
        assert_eq!(blocks(&good), Blocks { executed, mistakes: Vec::new() }, "{good}");
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
