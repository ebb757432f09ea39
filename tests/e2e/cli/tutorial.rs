//! The pages whose commands a reader types one after the other are executed as they stand.

use std::{fs, path::Path};

use crate::support::world::{TestWorld, run_with_separate_outputs};

/// A fenced block of a page: what stands behind the three backquotes, and its lines.
struct Block<'a> {
    info: &'a str,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            blocks.push(Block { info, lines: lines.by_ref().take_while(|line| *line != "```").collect() });
        }
    }
    blocks
}

/// Returns the commands of a block for the terminal, each with the lines that the page shows below it.
fn commands<'a>(block: &'a Block<'a>) -> Vec<(&'a str, &'a [&'a str])> {
    let starts = block.lines.iter().enumerate().filter(|(_, line)| line.starts_with("$ "));
    let starts: Vec<_> = starts.map(|(index, _)| index).chain([block.lines.len()]).collect();
    let pairs = starts.windows(2);
    pairs.map(|pair| (&block.lines[pair[0]][2..], &block.lines[pair[0] + 1..pair[1]])).collect()
}

/// Returns whether an output is what a page shows: `…` stands for any text, on a line of its own for any
/// lines.
fn is_shown(shown: &str, output: &str) -> bool {
    let mut rest = output;
    let mut parts = shown.split('…');
    let Some(first) = parts.next() else { return true };
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.is_empty() || shown.ends_with('…')
}

/// Does in an empty directory what a page says: writes the files whose names stand behind the language of a
/// block, and executes the commands of the blocks for the terminal.
#[track_caller]
fn follow(page: &str) -> usize {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let world = TestWorld::new();
    let heeler = Path::new(env!("CARGO_BIN_EXE_heeler")).parent().unwrap().display();
    let mut count = 0;
    for block in blocks(&text) {
        if let Some((_, name)) = block.info.split_once(' ') {
            world.write(name, &format!("{}\n", block.lines.join("\n")));
        } else if block.info == "console" {
            for (command, shown) in commands(&block) {
                // Both outputs in the order in which a terminal has them.
                let line = format!("exec 2>&1; PATH={heeler}:$PATH; {command}");
                let output = run_with_separate_outputs(world.shell(&line)).stdout;
                let shown = shown.join("\n");
                assert!(
                    is_shown(shown.trim_end(), output.trim_end()),
                    "{page}: $ {command}\nshown:\n{shown}\nprinted:\n{output}"
                );
                count += 1;
            }
        }
    }
    count
}

#[test]
fn tutorial_can_be_followed() {
    assert!(follow("docs/tutorial.md") > 10, "the page has commands");
}

#[test]
fn page_on_scripts_with_debuggers_can_be_followed() {
    assert!(follow("docs/guide/gdb-in-ci.md") == 3);
}

#[test]
fn shown_outputs_are_compared() {
    for (shown, output, expected) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a … c", "a b c", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nc", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("a", "a\nb", false),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(is_shown(shown, output), expected, "{shown:?} {output:?}");
    }
}
