//! Golden files: each message equals its golden file byte for byte except for white space, and is read back
//! as the same value. A golden file changes only together with its line on the page of messages, which
//! contains its hash.

use std::collections::BTreeSet;

use crate::{
    check_file, is_update,
    messages::{MessageSample, samples},
    mutation_messages, repository_path, rsp_messages,
};

/// The messages of one protocol.
struct ProtocolSamples {
    /// The directory of the golden files.
    directory: &'static str,
    /// The page that lists all messages.
    page: &'static str,
    /// The file with the samples.
    source: &'static str,
    samples: fn() -> Vec<MessageSample>,
}

const PROTOCOLS: [ProtocolSamples; 3] = [
    ProtocolSamples {
        directory: "tests/golden",
        page: "docs/reference/messages.md",
        source: "src/protocol/tests/it/messages.rs",
        samples,
    },
    ProtocolSamples {
        directory: "tests/golden/rsp",
        page: "docs/reference/rsp-messages.md",
        source: "src/protocol/tests/it/rsp_messages.rs",
        samples: rsp_messages::samples,
    },
    ProtocolSamples {
        directory: "tests/golden/mutation",
        page: "docs/reference/mutation-messages.md",
        source: "src/protocol/tests/it/mutation_messages.rs",
        samples: mutation_messages::samples,
    },
];

#[test]
fn messages_match_golden_files_and_round_trip() {
    for ProtocolSamples { directory, samples, .. } in PROTOCOLS {
        for MessageSample { name, body, read_back } in samples() {
            check_file(&format!("{directory}/{name}.json"), pretty(&body));
            assert_eq!(read_back(&body), Ok(()), "{name} is not read as it was written");
        }
    }
}

#[test]
fn golden_files_are_listed_in_messages_page_with_hash() {
    if !is_update() {
        PROTOCOLS.iter().for_each(check_page);
    }
}

fn check_page(ProtocolSamples { directory, page, source, samples }: &ProtocolSamples) {
    let named: BTreeSet<String> = samples().iter().map(|sample| format!("{}.json", sample.name)).collect();
    let files = std::fs::read_dir(repository_path(directory)).unwrap().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().unwrap().is_file());
    let found: BTreeSet<String> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(found, named, "each golden file belongs to one message of {source}");
    let text = std::fs::read_to_string(repository_path(page)).unwrap();
    let table =
        text.split_once("<!-- messages -->").and_then(|(_, rest)| rest.split_once("<!-- /messages -->"));
    let (table, _) = table.expect("the page has a table of messages between its two marks");
    let mut wrong = Vec::new();
    for file in &found {
        let bytes = std::fs::read(repository_path(directory).join(file)).unwrap();
        let cell = format!("| `{}` {:08x} |", file.trim_end_matches(".json"), crc32fast::hash(&bytes));
        if table.matches(&cell).count() != 1 {
            wrong.push(cell);
        }
    }
    let lines = table.lines().filter(|line| line.starts_with("| ") && line.contains('`')).count();
    assert!(
        wrong.is_empty() && lines == found.len(),
        "{page}: {lines} lines for {} golden files; these cells must stand there, each at the end of \
         the line that describes its message (read whether that is still true):\n{}",
        found.len(),
        wrong.join("\n")
    );
}

/// Breaks JSON into lines without changing its values or the order of members.
fn pretty(json: &str) -> String {
    let mut out = String::new();
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if is_text {
            out.push(character);
            (is_text, is_escaped) = (is_escaped || character != '"', !is_escaped && character == '\\');
            continue;
        }
        match character {
            '{' | '[' if characters.peek() == Some(&if character == '{' { '}' } else { ']' }) => {
                out.push(character);
                out.extend(characters.next());
            }
            '{' | '[' => {
                depth += 1;
                out.push(character);
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                is_text = true;
                out.push('"');
            }
            other => out.push(other),
        }
    }
    out.push('\n');
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}
