//! The words of a command line that is being typed in `bash`, up to the cursor. Quotes may still be open.

use std::path::Path;

use heeler_core::shell_words::quote;

/// A command line up to the cursor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TypedLine {
    /// Words without their quotes; the last is being typed, and may be empty.
    words: Vec<String>,
    /// Quote that is open at the cursor.
    open_quote: Option<char>,
}

impl TypedLine {
    pub(super) fn parse(line: &str) -> Self {
        let mut typed = Self { words: vec![String::new()], open_quote: None };
        let mut is_within_word = false;
        let mut chars = line.chars();
        while let Some(char) = chars.next() {
            let word = typed.words.last_mut().expect("there is always a last word");
            match (typed.open_quote, char) {
                (Some(quote), _) if char == quote => typed.open_quote = None,
                (None | Some('"'), '\\') => word.extend(chars.next()),
                (Some(_), _) => word.push(char),
                (None, '\'' | '"') => {
                    typed.open_quote = Some(char);
                    is_within_word = true;
                }
                (None, _) if char.is_whitespace() => {
                    if is_within_word || !word.is_empty() {
                        typed.words.push(String::new());
                    }
                    is_within_word = false;
                }
                (None, _) => word.push(char),
            }
        }
        typed
    }

    /// Returns the words after the program's name; `None` if the name itself is being typed.
    pub(super) fn arguments(&self) -> Option<&[String]> {
        let is_program = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "heeler");
        let program = self.words.iter().position(is_program)?;
        Some(&self.words[program + 1..]).filter(|words| !words.is_empty())
    }

    /// Returns the text that replaces `fragment`, the part of the last word that `bash` completes, because
    /// `bash` also breaks words at `=` and `:`. The value begins with the last word.
    pub(super) fn insertion(&self, value: &str, fragment: &str) -> String {
        let word = self.words.last().map_or("", String::as_str);
        let fragment = fragment.strip_prefix(['\'', '"']).unwrap_or(fragment);
        let kept = word.strip_suffix(fragment).unwrap_or_default();
        let rest = value.strip_prefix(kept).unwrap_or(value);
        if self.open_quote.is_some() { rest.to_owned() } else { quote(rest.as_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lose_their_quotes_and_the_last_may_be_open() {
        for (line, words, open_quote) in [
            ("heeler run ", &["run", ""][..], None),
            ("A=1 /opt/heeler  run -E 'a b", &["run", "-E", "a b"], Some('\'')),
            ("heeler run \"a\\\" b\" c\\ d", &["run", "a\" b", "c d"], None),
            ("heeler run '' x", &["run", "", "x"], None),
        ] {
            let typed = TypedLine::parse(line);
            assert_eq!(typed.arguments().unwrap(), words, "{line}");
            assert_eq!(typed.open_quote, open_quote, "{line}");
        }
        assert_eq!(TypedLine::parse("heel").arguments(), None);
    }

    #[test]
    fn insertion_replaces_the_fragment_only() {
        let insertion =
            |line: &str, value: &str, fragment: &str| TypedLine::parse(line).insertion(value, fragment);
        assert_eq!(insertion("heeler run --suite=un", "--suite=unit", "un"), "unit");
        assert_eq!(insertion("heeler run -E math::", "math::adds", ""), "adds");
        assert_eq!(insertion("heeler run -E ma", "math::adds", "ma"), "math::adds");
        assert_eq!(insertion("heeler run --suite a", "a b", "a"), "'a b'");
        assert_eq!(insertion("heeler run --suite 'a", "a b", "'a"), "a b");
        assert_eq!(insertion("heeler run --suite 'a", "a b", "a"), "a b");
    }
}
