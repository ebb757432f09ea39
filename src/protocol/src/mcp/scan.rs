//! A JSON scanner that accepts more than any parser, because a message that some implementation can read must
//! never look like garbage here. The scanner accepts any scalar, keys in any case (like Go's decoder), lone
//! surrogates, repeated members, and any depth. Nothing here recurses.

use std::ops::Range;

/// Byte range of a text.
pub(super) type Span = Range<usize>;

/// State at the end of a line of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// The line contains only values and white space.
    Complete,
    /// The line ends within an array or object. A later line could complete it for a reader that ignores line
    /// ends.
    Unbalanced,
    /// No reader can parse the line.
    Invalid,
}

/// Why a value has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoValue {
    Unbalanced,
    Invalid,
}

/// Splits a line into its values. There should be one, but stream decoders accept several.
pub(super) fn values(line: &[u8]) -> (Vec<Span>, LineEnd) {
    let mut values = Vec::new();
    let mut at = if line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    loop {
        at = skip_blanks(line, at);
        if at == line.len() {
            return (values, LineEnd::Complete);
        }
        if !is_scalar_word(line, at) {
            return (values, LineEnd::Invalid);
        }
        match skip_value(line, at) {
            Ok(end) => values.push(at..end),
            Err(NoValue::Unbalanced) => return (values, LineEnd::Unbalanced),
            Err(NoValue::Invalid) => return (values, LineEnd::Invalid),
        }
        at = values.last().map_or(line.len(), |value| value.end);
    }
}

/// Returns whether a value may begin here, unlike text such as a log line.
fn is_scalar_word(line: &[u8], at: usize) -> bool {
    if matches!(line[at], b'{' | b'[' | b'"' | b'-' | b'+' | b'.' | b'0'..=b'9') {
        return true;
    }
    let word = &line[at..skip_scalar(line, at)];
    [b"true".as_slice(), b"false", b"null", b"NaN", b"Infinity"].contains(&word)
}

/// Returns keys and values of an object's direct members, including repeated ones; `None` if no reader
/// accepts the object.
pub(super) fn members(text: &[u8], object: &Span) -> Option<Vec<(Span, Span)>> {
    let mut members = Vec::new();
    let mut at = skip_blanks(text, object.start + 1);
    while text.get(at)? != &b'}' {
        if text[at] != b'"' {
            return None;
        }
        let key = at..skip_value(text, at).ok()?;
        at = skip_blanks(text, key.end);
        if text.get(at)? != &b':' {
            return None;
        }
        at = skip_blanks(text, at + 1);
        let value = at..skip_value(text, at).ok()?;
        at = skip_separator(text, value.end)?;
        members.push((key, value));
    }
    Some(members)
}

/// Returns the elements of an array; `None` if no reader accepts the array.
pub(super) fn elements(text: &[u8], array: &Span) -> Option<Vec<Span>> {
    let mut elements = Vec::new();
    let mut at = skip_blanks(text, array.start + 1);
    while text.get(at)? != &b']' {
        let element = at..skip_value(text, at).ok()?;
        at = skip_separator(text, element.end)?;
        elements.push(element);
    }
    Some(elements)
}

/// Skips white space and at most one comma.
fn skip_separator(text: &[u8], at: usize) -> Option<usize> {
    let at = skip_blanks(text, at);
    match text.get(at)? {
        b',' => Some(skip_blanks(text, at + 1)),
        b'}' | b']' => Some(at),
        _ => None,
    }
}

fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Returns the end of the value that begins here.
fn skip_value(text: &[u8], at: usize) -> Result<usize, NoValue> {
    match text.get(at) {
        None => Err(NoValue::Unbalanced),
        Some(b'"') => skip_string(text, at),
        Some(b'{' | b'[') => skip_brackets(text, at),
        Some(_) => match skip_scalar(text, at) {
            end if end == at => Err(NoValue::Invalid),
            end => Ok(end),
        },
    }
}

fn skip_scalar(text: &[u8], mut at: usize) -> usize {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b",:{}[]\"".contains(byte);
    while text.get(at).is_some_and(|byte| !is_end(byte)) {
        at += 1;
    }
    at
}

/// A string must end on its line: no reader accepts a line end in a string.
fn skip_string(text: &[u8], at: usize) -> Result<usize, NoValue> {
    let mut at = at + 1;
    loop {
        match text.get(at).ok_or(NoValue::Invalid)? {
            b'"' => return Ok(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn skip_brackets(text: &[u8], mut at: usize) -> Result<usize, NoValue> {
    let mut open = Vec::new();
    loop {
        match text.get(at).ok_or(NoValue::Unbalanced)? {
            b'"' => {
                at = skip_string(text, at)?;
                continue;
            }
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            found @ (b'}' | b']') if open.pop() != Some(*found) => return Err(NoValue::Invalid),
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            return Ok(at);
        }
    }
}

/// Returns the text of a quoted string as a lenient reader decodes it: invalid parts become the replacement
/// character. `None` for other values.
pub(super) fn string(value: &[u8]) -> Option<String> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return Some(String::from_utf8_lossy(inner).into_owned());
    }
    let mut units = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'\\' {
            let plain = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
            units.extend(String::from_utf8_lossy(&rest[..plain]).encode_utf16());
            rest = &rest[plain..];
            continue;
        }
        let (unit, length) = escape(behind);
        units.push(unit);
        rest = &behind[length.min(behind.len())..];
    }
    Some(String::from_utf16_lossy(&units))
}

/// Returns the UTF-16 unit of an escape, and the escape's length without the backslash.
fn escape(behind: &[u8]) -> (u16, usize) {
    let hex = |digits: &[u8]| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    match behind {
        [b'u', digits @ ..] if digits.len() >= 4 => match hex(&digits[..4]) {
            Some(unit) => (unit, 5),
            None => (u16::from(b'u'), 1),
        },
        [b'b', ..] => (8, 1),
        [b'f', ..] => (12, 1),
        [b'n', ..] => (10, 1),
        [b'r', ..] => (13, 1),
        [b't', ..] => (9, 1),
        [other, ..] => (u16::from(*other), 1),
        [] => (u16::from(b'\\'), 0),
    }
}

/// Returns whether a key is this name in any case, with the folding of the most lenient reader.
pub(super) fn is_key(key: &[u8], name: &str) -> bool {
    let folded = |text: &str| -> String {
        text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
    };
    string(key).is_some_and(|key| key == name || folded(&key) == folded(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> (Vec<&str>, LineEnd) {
        let (spans, end) = values(line.as_bytes());
        (spans.into_iter().map(|span| &line[span]).collect(), end)
    }

    #[test]
    fn line_is_split_into_values() {
        for (line, expected, end) in [
            ("", vec![], LineEnd::Complete),
            (" \r\n", vec![], LineEnd::Complete),
            ("{\"a\":[1,\"}\\\"\"]} \n", vec!["{\"a\":[1,\"}\\\"\"]}"], LineEnd::Complete),
            ("{}[]7\"x\"null", vec!["{}", "[]", "7", "\"x\""], LineEnd::Complete),
            ("{\"a\":NaN}", vec!["{\"a\":NaN}"], LineEnd::Complete),
            ("{} {\"a\":", vec!["{}"], LineEnd::Unbalanced),
            ("{\"a\":\"b", vec![], LineEnd::Invalid),
            ("{]", vec![], LineEnd::Invalid),
            ("listening on {", vec![], LineEnd::Invalid),
            ("}", vec![], LineEnd::Invalid),
        ] {
            let (mut found, found_end) = texts(line);
            if line.ends_with("null") {
                assert_eq!(found.pop(), Some("null"));
            }
            assert_eq!((found, found_end), (expected, end), "{line}");
        }
    }

    #[test]
    fn depth_is_unlimited() {
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(texts(&deep).1, LineEnd::Complete);
    }

    #[test]
    fn members_and_elements_are_direct_ones() {
        let text = r#"{"a":{"b":1},"a":[2,{}], "c" : x ,}"#;
        let found = members(text.as_bytes(), &(0..text.len())).unwrap();
        let found: Vec<_> = found.into_iter().map(|(key, value)| (&text[key], &text[value])).collect();
        assert_eq!(found, [("\"a\"", "{\"b\":1}"), ("\"a\"", "[2,{}]"), ("\"c\"", "x")]);
        let text = "[ 1 ,[2,3], \"]\"]";
        let found = elements(text.as_bytes(), &(0..text.len())).unwrap();
        assert_eq!(found.into_iter().map(|span| &text[span]).collect::<Vec<_>>(), ["1", "[2,3]", "\"]\""]);
        for wrong in ["{1}", "{\"a\"}", "{\"a\":}", "{\"a\":1 2}"] {
            assert_eq!(members(wrong.as_bytes(), &(0..wrong.len())), None, "{wrong}");
        }
    }

    #[test]
    fn strings_are_read_leniently() {
        for (value, expected) in [
            (r#""plain""#, "plain"),
            (r#""mcp\u002etest\u002E""#, "mcp.test."),
            (r#""\ud83d\ude00\n\/\q""#, "😀\n/q"),
            (r#""a\ud800b""#, "a\u{fffd}b"),
            (r#""\u00zz""#, "u00zz"),
        ] {
            assert_eq!(string(value.as_bytes()).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(string(b"\"\xff\"").as_deref(), Some("\u{fffd}"));
        assert_eq!(string(b"7"), None);
    }

    #[test]
    fn keys_match_in_any_case() {
        for key in [r#""params""#, r#""PARAMS""#, r#""paramſ""#, r#""p\u0061rams""#] {
            assert!(is_key(key.as_bytes(), "params"), "{key}");
        }
        assert!(!is_key(br#""param""#, "params"));
    }
}
