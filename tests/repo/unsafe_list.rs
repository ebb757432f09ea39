//! `tests/unsafe.txt` lists every unsafe block with its reason, so a new block is visible in review.
//! `UPDATE_GOLDEN=1 cargo test --test repo unsafe_list` rewrites the list.

use std::{fmt::Write as _, fs};

use crate::source_rules::{root, rust_files};

/// Directories that may contain Heeler's unsafe code.
const PLACES: [&str; 2] = ["src/sys/src/", "watchdog/guard/src/"];
/// Programs under test, which misbehave or hang on purpose. They are not shipped.
const UNDER_TEST: [&str; 3] = ["samples/", "tests/fixtures/", "watchdog/tests/fixtures/"];
const LIST: &str = "tests/unsafe.txt";

/// An unsafe block.
struct UnsafeBlock {
    line: usize,
    function: String,
    kind: &'static str,
    /// The text after `SAFETY:`.
    reason: Option<String>,
}

/// Returns a line without string literals and comments.
fn code(line: &str) -> String {
    let mut code = String::new();
    let (mut is_text, mut is_escaped) = (false, false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '/' if !is_text && letters.peek() == Some(&'/') => break,
            _ if is_text => {}
            _ => code.push(letter),
        }
    }
    // The quotation mark was in a character literal and does not start a string, so keep the code as it is.
    if is_text { line.split("//").next().unwrap_or_default().to_owned() } else { code }
}

/// Returns the code after each occurrence of `unsafe`.
fn after_word(code: &str) -> Vec<&str> {
    const WORD: &str = "unsafe";
    let is_part =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let places = code.match_indices(WORD).filter_map(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + WORD.len()..]);
        let is_word = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        is_word.then_some(after)
    });
    places.collect()
}

fn kind(after: &str) -> &'static str {
    let after = after.trim_start();
    ["fn", "impl", "extern", "trait"]
        .into_iter()
        .find(|kind| after.starts_with(kind))
        .unwrap_or(if after.starts_with('(') { "attribute" } else { "block" })
}

/// Returns the name after `fn`, if the code has one.
fn function(code: &str) -> Option<&str> {
    let name =
        code.split_once("fn ").filter(|(before, _)| before.is_empty() || before.ends_with([' ', '(']))?.1;
    let name = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// Returns the reason above the statement of a line. The statement may begin several lines earlier.
fn reason(lines: &[&str], line: usize) -> Option<String> {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let mark = |line: &str| line.contains("// SAFETY:") || line.contains("/// # Safety");
    let above = (0..line).rev().take(12);
    let mut statement = above.take_while(|at| {
        let text = lines[*at].trim();
        !text.is_empty() && (is_comment(text) || !text.ends_with([';', '}']))
    });
    let first = statement.find(|at| mark(lines[*at]))?;
    let words = lines[first..line].iter().take_while(|line| is_comment(line));
    let text: Vec<_> = words.map(|line| line.trim_start().trim_start_matches('/').trim()).collect();
    Some(text.join(" ").trim_start_matches("SAFETY:").trim_start_matches("# Safety").trim().to_owned())
}

fn unsafe_blocks(text: &str) -> Vec<UnsafeBlock> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    let mut within = "top of the file".to_owned();
    for (line, whole) in lines.iter().enumerate() {
        let code = code(whole);
        if let Some(name) = function(&code) {
            name.clone_into(&mut within);
        }
        for after in after_word(&code) {
            found.push(UnsafeBlock {
                line: line + 1,
                function: within.clone(),
                kind: kind(after),
                reason: reason(&lines, line),
            });
        }
    }
    found
}

#[test]
fn unsafe_code_matches_list_and_allowed_places() {
    let (mut list, mut wrong) = (String::new(), String::new());
    for (path, text) in rust_files() {
        let is_under_test = UNDER_TEST.iter().any(|place| path.starts_with(place));
        let is_in_place = is_under_test || PLACES.iter().any(|place| path.starts_with(place));
        for UnsafeBlock { line, function, kind, reason } in unsafe_blocks(&text) {
            if !is_in_place {
                writeln!(wrong, "{path}:{line}: unsafe code outside of {PLACES:?}").unwrap();
            }
            if !is_under_test && reason.as_deref().is_none_or(str::is_empty) {
                writeln!(wrong, "{path}:{line}: without its SAFETY: reason").unwrap();
            }
            let reason = reason.unwrap_or_else(|| "a program under test".to_owned());
            writeln!(list, "{path} {function}, {kind}: {reason}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let file = root().join(LIST);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &list).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    let new: Vec<_> = list.lines().filter(|line| !known.contains(line)).collect();
    let hint = "write the list anew by UPDATE_GOLDEN=1, and have it reviewed";
    assert!(known == list, "{LIST} is not what stands in the code; {hint}. New:\n{}", new.join("\n"));
}

#[test]
fn unsafe_scan_ignores_strings_and_comments() {
    let word = "unsafe";
    let text = format!(
        "fn one() {{\n    // SAFETY: because\n    // of that.\n    let x =\n        {word} {{ y() }};\n    let z = {word} {{ y() }};\n}}\n\
         // {word} {{\nconst A: &str = \"{word} {{\";\n\
         /// # Safety\n/// None.\n{word} fn two() {{}}\n#[{word}(no_mangle)]\n"
    );
    let seen: Vec<_> = unsafe_blocks(&text)
        .into_iter()
        .map(|piece| (piece.line, piece.function, piece.kind, piece.reason))
        .collect();
    let piece = |line, function: &str, kind, reason: Option<&str>| {
        (line, function.to_owned(), kind, reason.map(str::to_owned))
    };
    let expected = [
        piece(5, "one", "block", Some("because of that.")),
        piece(6, "one", "block", None),
        piece(12, "two", "fn", Some("None.")),
        piece(13, "two", "attribute", None),
    ];
    assert_eq!(seen, expected);
}
