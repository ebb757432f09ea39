//! Regular expressions in CMake's syntax: `^ $ . [] * + ? | ()` and a backslash that escapes any character.
//! `.` and brackets match line ends; `^` and `$` match the ends of the whole output. Expressions are
//! translated for the crate `regex`, which matches in linear time.

use regex::bytes::{Regex, RegexBuilder};

#[derive(Debug)]
pub(super) struct Expression {
    /// Text as the user wrote it.
    pub(super) text: String,
    /// Matches complete output.
    complete: Regex,
    /// Matches output that may continue, so `$` never matches.
    incomplete: Regex,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid regular expression {text:?} of CTest: {reason}")]
pub(super) struct ExpressionError {
    text: String,
    reason: String,
}

/// Suffix that matches only the end of the output.
const AT_END: &str = r"\z";
/// Expression that never matches.
const NOTHING: &str = r"[^\x00-\xff]";

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The expression has a syntax error, or is too large.
    pub(super) fn parse(text: &str) -> Result<Self, ExpressionError> {
        let error = |reason: String| ExpressionError { text: text.to_owned(), reason };
        let compile = |end: &str| {
            let pattern = translate(text.as_bytes(), end).map_err(|reason| error(reason.to_owned()))?;
            let built = RegexBuilder::new(&pattern).unicode(false).dot_matches_new_line(true).build();
            built.map_err(|source| {
                let line = source.to_string().lines().last().unwrap_or_default().trim().to_owned();
                error(line)
            })
        };
        Ok(Self { text: text.to_owned(), complete: compile(AT_END)?, incomplete: compile(NOTHING)? })
    }

    /// Returns whether the output matches at or after byte `from`. `^` matches only at the real start of the
    /// output. `is_complete` means that no output follows.
    pub(super) fn matches(&self, output: &[u8], from: usize, is_complete: bool) -> bool {
        let regex = if is_complete { &self.complete } else { &self.incomplete };
        regex.is_match_at(output, from)
    }
}

/// Returns the pattern for the crate `regex`; `end` replaces `$`.
fn translate(text: &[u8], end: &str) -> Result<String, &'static str> {
    let mut pattern = String::new();
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'^' => pattern.push_str(r"\A"),
            b'$' => pattern.push_str(end),
            b'.' | b'*' | b'+' | b'?' | b'|' | b')' => pattern.push(char::from(*byte)),
            b'(' => pattern.push_str("(?:"),
            b'[' => rest = translate_class(rest, &mut pattern)?,
            b'\\' => {
                let [escaped, after @ ..] = rest else { return Err("trailing backslash") };
                push_literal(&mut pattern, *escaped);
                rest = after;
            }
            _ => push_literal(&mut pattern, *byte),
        }
    }
    Ok(pattern)
}

/// Translates a character class after its opening bracket; returns the text after the closing bracket.
fn translate_class<'a>(text: &'a [u8], pattern: &mut String) -> Result<&'a [u8], &'static str> {
    pattern.push('[');
    let mut rest = text;
    if let [b'^', after @ ..] = rest {
        pattern.push('^');
        rest = after;
    }
    let mut is_first = true;
    loop {
        rest = match rest {
            [] => return Err("unclosed bracket"),
            [b']', after @ ..] if !is_first => {
                pattern.push(']');
                return Ok(after);
            }
            [low, b'-', high, after @ ..] if *high != b']' => {
                if low > high {
                    return Err("invalid range");
                }
                push_literal(pattern, *low);
                pattern.push('-');
                push_literal(pattern, *high);
                after
            }
            [byte, after @ ..] => {
                push_literal(pattern, *byte);
                after
            }
        };
        is_first = false;
    }
}

fn push_literal(pattern: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        pattern.push(char::from(byte));
    } else {
        pattern.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(text: &str, output: &str) -> bool {
        Expression::parse(text).unwrap().matches(output.as_bytes(), 0, true)
    }

    #[test]
    fn expressions_mean_what_they_mean_to_cmake() {
        for (text, output, expected) in [
            ("all (well|good)", "now all good\n", true),
            ("^a.b", "a\nb\n", true),
            ("^b", "a\nb\n", false),
            ("a$", "a\n", false),
            ("a.$", "a\n", true),
            ("a{2}", "aa", false),
            ("a{2}", "a{2}", true),
            (r"\d", "5", false),
            (r"\d", "d", true),
            (r"\[  SKIPPED \]", "[  SKIPPED ] A.b\n", true),
            ("[]a]x", "]x", true),
            ("[^]]x", "]x", false),
            ("[a-]x", "-x", true),
            ("[\\d]x", "\\x", true),
            ("[a&&b~]x", "&x", true),
            ("(a|b)+c?", "ab", true),
            ("ünï", "an ünï", true),
            ("[^a]", "\n", true),
            ("", "", true),
        ] {
            assert_eq!(is_match(text, output), expected, "{text:?} on {output:?}");
        }
    }

    #[test]
    fn end_of_what_is_read_so_far_is_not_the_end() {
        let expression = Expression::parse("b$").unwrap();
        assert!(expression.matches(b"ab", 0, true) && !expression.matches(b"ab", 0, false));
        let start = Expression::parse("^b").unwrap();
        assert!(start.matches(b"b", 0, false) && !start.matches(b"ab", 1, true));
    }

    #[test]
    fn wrong_expressions_are_named() {
        for text in ["a(", "[a", "a\\", "[b-a]", "*"] {
            let error = Expression::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
