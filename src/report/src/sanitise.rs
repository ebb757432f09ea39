//! Sanitises foreign text. Output and names of tests may contain anything, and must not control a terminal
//! or break an XML reader. Control characters become visible, escape sequences are removed, and colours
//! (SGR) are kept only if the output supports colours.

use std::{borrow::Cow, collections::VecDeque};

use heeler_core::shell_words::is_control_or_bidi;

/// Whether colours in foreign text are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColourPolicy {
    /// Keeps `ESC [ … m`, and resets colours at the end of each line.
    Kept,
    /// Removes all escape sequences.
    Dropped,
}

/// Maximum number of characters shown of a line; the rest is only counted.
const MAX_LINE_CHARS: usize = 4000;
/// Maximum length of colour sequences carried over from earlier lines. No real output needs more.
const MAX_CARRIED_BYTES: usize = 128;

/// Returns a name as one line without control characters: a newline becomes `\n`, others are escaped too.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control_or_bidi) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_control_or_bidi(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

/// Returns a message as one sanitised line; white space around its lines is dropped.
#[must_use]
pub fn headline(message: &str) -> String {
    // A message may be a megabyte of output, so only its beginning is read.
    let head =
        sanitised_lines(&message[..message.floor_char_boundary(MAX_LINE_CHARS)], ColourPolicy::Dropped);
    let parts: Vec<&str> = head.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    parts.join(" · ")
}

/// Returns the sanitised lines of an output, without trailing white space.
#[must_use]
pub fn sanitised_lines(text: &str, colours: ColourPolicy) -> Vec<String> {
    let mut carried = String::new();
    text.trim_end().split('\n').map(|line| clean_line(line, colours, &mut carried)).collect()
}

/// Lines from the beginning and the end of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanitisedExcerpt {
    pub first: Vec<String>,
    /// Number of omitted lines in between.
    pub hidden: usize,
    pub last: VecDeque<String>,
}

/// Returns up to `limit` sanitised lines from the beginning of an output, and up to `limit` from its end.
/// Only these lines are in memory, because an output may be a megabyte of empty lines.
#[must_use]
pub fn sanitised_excerpt(text: &str, colours: ColourPolicy, limit: usize) -> SanitisedExcerpt {
    let mut excerpt = SanitisedExcerpt { first: Vec::new(), hidden: 0, last: VecDeque::new() };
    let mut carried = String::new();
    for line in text.trim_end().split('\n') {
        let line = clean_line(line, colours, &mut carried);
        if excerpt.first.len() < limit {
            excerpt.first.push(line);
            continue;
        }
        excerpt.last.push_back(line);
        if excerpt.last.len() > limit {
            excerpt.last.pop_front();
            excerpt.hidden += 1;
        }
    }
    excerpt
}

fn clean_line(line: &str, colours: ColourPolicy, carried: &mut String) -> String {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut out = carried.clone();
    let mut rest = line;
    let mut shown = 0;
    while let Some(char) = rest.chars().next() {
        if shown == MAX_LINE_CHARS {
            out.push_str(&format!("… ({} more bytes)", rest.len()));
            break;
        }
        if char == '\u{1b}' {
            let length = escape_length(rest);
            let sequence = &rest[..length];
            if colours == ColourPolicy::Kept && is_sgr(sequence) {
                out.push_str(sequence);
                update_carried_colours(carried, sequence);
            }
            rest = &rest[length..];
            continue;
        }
        push_visible(&mut out, char);
        shown += 1;
        rest = &rest[char.len_utf8()..];
    }
    if colours == ColourPolicy::Kept && out.contains('\u{1b}') {
        out.push_str("\u{1b}[0m");
    }
    out
}

fn push_visible(out: &mut String, char: char) {
    match char {
        '\t' => out.push_str("    "),
        '\u{0}'..='\u{1f}' => {
            out.push(char::from_u32(0x2400 + u32::from(char)).expect("the control pictures begin there"));
        }
        '\u{7f}' => out.push('\u{2421}'),
        char if is_control_or_bidi(char) => out.extend(char.escape_default()),
        char => out.push(char),
    }
}

fn update_carried_colours(carried: &mut String, sequence: &str) {
    if matches!(sequence, "\u{1b}[m" | "\u{1b}[0m") || carried.len() + sequence.len() > MAX_CARRIED_BYTES {
        carried.clear();
    }
    if !matches!(sequence, "\u{1b}[m" | "\u{1b}[0m") {
        carried.push_str(sequence);
    }
}

fn is_sgr(sequence: &str) -> bool {
    sequence.len() <= MAX_CARRIED_BYTES
        && sequence
            .strip_prefix("\u{1b}[")
            .and_then(|rest| rest.strip_suffix('m'))
            .is_some_and(|body| body.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')))
}

/// Returns the length in bytes of the escape sequence at the start of `text`, at least 1. A sequence cut off
/// by the line's end extends to the line's end.
fn escape_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(1) {
        // Control sequence: parameters and intermediates, then one final byte.
        Some(b'[') => {
            let body = bytes[2..].iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
            let has_final = matches!(bytes.get(2 + body), Some(0x40..=0x7e));
            2 + body + usize::from(has_final)
        }
        // Strings for the terminal (titles, links, images), terminated by BEL or by ESC \.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = bytes[2..].iter().position(|byte| matches!(byte, 0x07 | 0x1b));
            match end.map(|end| end + 2) {
                Some(end) if bytes[end] == 0x1b && bytes.get(end + 1) == Some(&b'\\') => end + 2,
                Some(end) if bytes[end] == 0x1b => end,
                Some(end) => end + 1,
                None => bytes.len(),
            }
        }
        // Two bytes, or three with an intermediate (character sets).
        Some(0x20..=0x2f) => 2 + usize::from(matches!(bytes.get(2), Some(0x30..=0x7e))),
        Some(0x30..=0x7e) => 2,
        _ => 1,
    }
}

/// Returns text that XML may contain. Escape sequences and characters forbidden in XML 1.0 are removed. Tabs
/// become spaces, because the XML writer would drop them.
#[must_use]
pub fn xml_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let length = if char == '\u{1b}' { escape_length(rest) } else { char.len_utf8() };
        match char {
            '\t' => out.push_str("    "),
            '\n' => out.push('\n'),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            char => out.push(char),
        }
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Vec<String> {
        sanitised_lines(text, ColourPolicy::Kept)
    }

    fn dropped(text: &str) -> Vec<String> {
        sanitised_lines(text, ColourPolicy::Dropped)
    }

    #[test]
    fn name_is_one_visible_line() {
        assert_eq!(one_line("plain ü 名"), "plain ü 名");
        assert_eq!(one_line("a\nb\t\u{1b}[2J\u{202e}x\u{9b}"), r"a\nb\t\u{1b}[2J\u{202e}x\u{9b}");
    }

    #[test]
    fn kept_colours_end_with_their_line() {
        assert_eq!(
            kept("\u{1b}[31mred\nred too\u{1b}[0m\nplain"),
            ["\u{1b}[31mred\u{1b}[0m", "\u{1b}[31mred too\u{1b}[0m\u{1b}[0m", "plain"]
        );
        assert_eq!(dropped("\u{1b}[31mred\u{1b}[0m\nplain"), ["red", "plain"]);
    }

    #[test]
    fn terminal_control_sequences_are_removed() {
        for sequence in [
            "\u{1b}[2J",
            "\u{1b}[?25l",
            "\u{1b}[10;10H",
            "\u{1b}]0;title\u{7}",
            "\u{1b}]8;;http://x\u{1b}\\",
            "\u{1b}Pdevice\u{1b}\\",
            "\u{1b}c",
            "\u{1b}(B",
            "\u{1b}7",
            "\u{1b}[31;\u{1b}[K",
            "\u{1b}[1;2m\u{1b}[6n\u{1b}[0m",
        ] {
            let text = format!("a{sequence}b");
            assert_eq!(dropped(&text), ["ab"], "{sequence:?}");
            let shown = kept(&text).concat();
            let left = console::strip_ansi_codes(&shown).into_owned();
            assert_eq!(left, "ab", "{sequence:?}");
        }
    }

    #[test]
    fn control_characters_are_shown_as_pictures() {
        assert_eq!(dropped("a\rb\u{7}\u{8}\u{0}\u{7f}\tc\r\nd"), ["a␍b␇␈␀␡    c", "d"]);
        assert_eq!(dropped("trailing\u{1b}"), ["trailing"]);
        assert_eq!(dropped("\u{1b}[31"), [""]);
    }

    #[test]
    fn random_output_leaves_no_control_character() {
        use proptest::prelude::*;
        proptest!(ProptestConfig { failure_persistence: None, ..Default::default() }, |(text in "[\u{1b}\\[\\]P0-9;m\\\\a\u{7}\r\n\u{9b}ü]{0,40}")| {
            for line in dropped(&text) {
                prop_assert!(!line.chars().any(is_control_or_bidi), "{line:?}");
            }
            for line in kept(&text) {
                prop_assert!(!console::strip_ansi_codes(&line).chars().any(is_control_or_bidi), "{line:?}");
                let is_undone = !line.contains('\u{1b}') || line.ends_with("\u{1b}[0m");
                prop_assert!(is_undone, "{line:?}");
            }
            prop_assert!(!xml_text(&text).contains(|char: char| char.is_control() && char != '\n'));
        });
    }

    #[test]
    fn huge_line_is_truncated_with_a_note() {
        let line = &dropped(&"x".repeat(1_000_000))[0];
        assert!(line.len() < 4100 && line.ends_with("… (996000 more bytes)"), "{}", line.len());
    }

    #[test]
    fn excerpt_has_both_ends_and_counts_the_rest() {
        let text: String = (0..10).map(|line| format!("{line}\n")).collect();
        for limit in 0..12 {
            let excerpt = sanitised_excerpt(&text, ColourPolicy::Dropped, limit);
            let whole = sanitised_lines(&text, ColourPolicy::Dropped);
            assert_eq!(excerpt.hidden, whole.len().saturating_sub(2 * limit));
            let shown: Vec<_> = excerpt.first.into_iter().chain(excerpt.last).collect();
            let first = limit.min(whole.len());
            let last = (whole.len() - first).min(limit);
            assert_eq!(shown, [&whole[..first], &whole[whole.len() - last..]].concat());
        }
    }

    #[test]
    fn headline_is_one_bounded_line() {
        assert_eq!(headline("a failed\n\n  left: 1\r\n\tright: 2\n"), "a failed · left: 1 · right: 2");
        assert!(headline(&"ü".repeat(1_000_000)).len() < 5000);
    }

    #[test]
    fn xml_text_contains_only_valid_characters() {
        assert_eq!(xml_text("a\u{0}\u{1b}[31mb\tc\nd\u{fffe}\u{8}e\u{85}"), "ab    c\nde");
    }
}
