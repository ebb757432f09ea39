//! Puts Python code on one line, which keeps the line numbers of the following code.

/// Removes line breaks and comments from code inside parentheses; line breaks in strings stay. A nested
/// string, as in f-strings, may seem to end the outer one too early, so code with both an f-string and a
/// comment stays unchanged.
pub(super) fn on_one_line(code: &str) -> String {
    let has_comment = code.contains('#');
    let is_simple = !code.contains('\n') || (has_comment && (code.contains("f\"") || code.contains("f'")));
    if is_simple {
        return code.to_owned();
    }
    let mut joined = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '#', '\\', '\n']) {
        joined.push_str(rest[..at].trim_end_matches('\r'));
        rest = &rest[at..];
        if rest.starts_with(['"', '\'']) {
            let Some(end) = text_end(rest) else { return code.to_owned() };
            joined.push_str(&rest[..end]);
            rest = &rest[end..];
        } else if rest.starts_with('#') {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else {
            // A backslash and its line break become one space each.
            joined.push(' ');
            rest = rest[1..].trim_start_matches([' ', '\t']);
        }
    }
    joined.push_str(rest);
    joined
}

/// Returns where a string ends that begins with a quotation mark.
fn text_end(code: &str) -> Option<usize> {
    let quote = &code[..1];
    let triple = quote.repeat(3);
    let mark = if code.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = mark.len();
    while !code[at..].starts_with(mark) {
        let letter = code[at..].chars().next()?;
        at += letter.len_utf8();
        if letter == '\\' {
            at += code[at..].chars().next()?.len_utf8();
        }
    }
    Some(at + mark.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_and_comments_are_left_out_but_for_those_in_texts() {
        for (code, expected) in [
            ("a +\n    b", "a + b"),
            ("a + \\\r\n  b", "a +   b"),
            ("f(  # why\n  'x # y',\n)", "f(   'x # y', )"),
            ("a + \"\"\"x\n\\\"\"y\"\"\" +\n b", "a + \"\"\"x\n\\\"\"y\"\"\" + b"),
            ("a +\n 'x", "a +\n 'x"),
            ("f'{a[\"#\"]}' +\n b", "f'{a[\"#\"]}' +\n b"),
            ("a # b", "a # b"),
        ] {
            assert_eq!(on_one_line(code), expected);
        }
    }
}
