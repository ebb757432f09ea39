//! Puts Rust, C and C++ code on one line. Guards then add no lines, so line numbers in compiler messages,
//! panics and assertions stay the same.

/// The syntax of literals and comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lexis {
    Rust,
    /// C and C++.
    C,
}

/// Returns code on one line. Returns it unchanged if a line break must stay: in raw strings and around
/// preprocessor directives.
pub(super) fn on_one_line(code: &str, lexis: Lexis) -> String {
    if !code.contains('\n') {
        return code.to_owned();
    }
    let written = String::with_capacity(code.len());
    LineWriter { code, lexis, at: 0, written }.write().unwrap_or_else(|| code.to_owned())
}

struct LineWriter<'a> {
    code: &'a str,
    lexis: Lexis,
    /// The next byte to read, at a character boundary.
    at: usize,
    written: String,
}

impl<'a> LineWriter<'a> {
    /// Returns `None` if a line break must stay.
    fn write(mut self) -> Option<String> {
        while let Some(letter) = self.rest().chars().next() {
            match letter {
                '/' if self.rest().starts_with("//") => self.line_comment()?,
                '/' if self.rest().starts_with("/*") => self.block_comment(),
                '"' => self.text()?,
                '\'' => self.character(),
                '\\' if self.lexis == Lexis::C && break_length(&self.rest()[1..]) > 0 => {
                    self.at += 1 + break_length(&self.rest()[1..]);
                    self.written.push(' ');
                }
                '\r' | '\n' => {
                    self.at += break_length(self.rest()).max(1);
                    self.written.push(' ');
                    if self.lexis == Lexis::C && self.rest().trim_start().starts_with('#') {
                        return None;
                    }
                }
                _ => self.copy(letter.len_utf8()),
            }
        }
        Some(self.written)
    }

    fn rest(&self) -> &'a str {
        &self.code[self.at..]
    }

    fn copy(&mut self, length: usize) {
        let end = self.code.len().min(self.at + length);
        self.written.push_str(&self.code[self.at..end]);
        self.at = end;
    }

    /// Skips a comment, up to its line break.
    fn line_comment(&mut self) -> Option<()> {
        let length = self.rest().find('\n').unwrap_or(self.rest().len());
        let comment = self.rest()[..length].trim_end_matches('\r');
        self.at += length;
        // In C, a backslash continues the comment on the next line.
        (self.lexis == Lexis::Rust || !comment.ends_with('\\')).then_some(())
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while !self.rest().is_empty() {
            if self.rest().starts_with("/*") && (depth == 0 || self.lexis == Lexis::Rust) {
                depth += 1;
                self.at += 2;
            } else if self.rest().starts_with("*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    break;
                }
            } else {
                self.at += self.rest().chars().next().map_or(1, char::len_utf8);
            }
        }
        self.written.push(' ');
    }

    /// Copies a string; `None` if a line break in it must stay.
    fn text(&mut self) -> Option<()> {
        if let Some(length) = self.raw_text_length() {
            let is_on_one_line = !self.rest()[..length].contains('\n');
            self.copy(length);
            return is_on_one_line.then_some(());
        }
        self.copy(1);
        while let Some(letter) = self.rest().chars().next() {
            let breaks = break_length(self.rest());
            match letter {
                '"' => {
                    self.copy(1);
                    break;
                }
                '\\' => {
                    let continued = break_length(&self.rest()[1..]);
                    if continued == 0 {
                        self.copy(1);
                        self.copy(self.rest().chars().next().map_or(0, char::len_utf8));
                        continue;
                    }
                    self.at += 1 + continued;
                    if self.lexis == Lexis::Rust {
                        self.at += self.rest().len() - self.rest().trim_start().len();
                    }
                }
                _ if breaks > 0 && self.lexis == Lexis::C => return None,
                _ if breaks > 0 => {
                    self.at += breaks;
                    self.written.push_str("\\n");
                }
                _ => self.copy(letter.len_utf8()),
            }
        }
        Some(())
    }

    /// Returns the length of a raw string, from its quote on; `None` for other strings.
    fn raw_text_length(&self) -> Option<usize> {
        let before = self.written.trim_end_matches('#');
        let hashes = self.written.len() - before.len();
        let start = before.trim_end_matches(|letter: char| letter.is_alphanumeric() || letter == '_').len();
        let prefix = &before[start..];
        let rest = &self.rest()[1..];
        let end = match self.lexis {
            Lexis::Rust if ["r", "br", "cr"].contains(&prefix) => format!("\"{}", "#".repeat(hashes)),
            Lexis::C if hashes == 0 && ["R", "LR", "uR", "UR", "u8R"].contains(&prefix) => {
                format!("){}\"", rest.split('(').next().unwrap_or_default())
            }
            Lexis::Rust | Lexis::C => return None,
        };
        Some(1 + rest.find(&end).map_or(rest.len(), |at| at + end.len()))
    }

    /// Copies a character literal, or the quote of a lifetime or label.
    fn character(&mut self) {
        let mut letters = self.rest().chars().skip(1);
        let (first, second) = (letters.next(), letters.next());
        match first {
            Some('\\') if !matches!(second, Some('\r' | '\n')) => {
                self.copy(2 + second.map_or(0, char::len_utf8));
                let end = self.rest().find(['\'', '\n']).map_or(0, |at| at + 1);
                if self.rest()[..end].ends_with('\'') {
                    self.copy(end);
                }
            }
            Some(first) if second == Some('\'') && first != '\n' => self.copy(2 + first.len_utf8()),
            _ => self.copy(1),
        }
    }
}

/// Returns the length of a line break at the beginning of a text; 0 if there is none.
fn break_length(text: &str) -> usize {
    ["\n", "\r\n"].iter().find(|one| text.starts_with(**one)).map_or(0, |one| one.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn breaks_are_blanks_and_comments_are_left_out() {
        for (code, expected) in [
            ("a\n  && b", "a   && b"),
            ("a // a \"text\"\r\n && b", "a   && b"),
            ("a /* b\n // */ + /* x */ c\n", "a   +   c "),
            ("f('\"', '\\'', '/', \"//\")\n", "f('\"', '\\'', '/', \"//\") "),
        ] {
            assert_eq!(on_one_line(code, Lexis::Rust), expected);
            assert_eq!(on_one_line(code, Lexis::C), expected);
        }
    }

    #[test]
    fn literals_of_rust_keep_their_values() {
        for (code, expected) in [
            ("a == \"b\n c\\\n   d\\\\\"\n", "a == \"b\\n cd\\\\\" "),
            ("x::<'a>(b\"\r\n\")\n", "x::<'a>(b\"\\n\") "),
            ("r#\"\"//\"# // c\n+ 1", "r#\"\"//\"#  + 1"),
            ("a /* /* \n */ b */ + 'b: {\n}", "a   + 'b: { }"),
            ("'\\u{41}' == '\u{e9}'\n", "'\\u{41}' == '\u{e9}' "),
            ("{ #[a]\n f() }", "{ #[a]  f() }"),
            // This line break must stay.
            ("br\"\n\" +\n 1", "br\"\n\" +\n 1"),
        ] {
            assert_eq!(on_one_line(code, Lexis::Rust), expected);
        }
    }

    #[test]
    fn lines_of_c_stay_where_they_are_read() {
        for (code, expected) in [
            ("a \\\n + \"b\\\n c\"", "a   + \"b c\""),
            ("a /* /* \n */ + 1'000\n", "a   + 1'000 "),
            ("R\"x(\")x\" +\n 1", "R\"x(\")x\" +  1"),
            ("a\n#if X\n + 1\n#endif\n", "a\n#if X\n + 1\n#endif\n"),
            ("R\"(\n)\" +\n 1", "R\"(\n)\" +\n 1"),
            ("a // b \\\n c\n", "a // b \\\n c\n"),
        ] {
            assert_eq!(on_one_line(code, Lexis::C), expected);
        }
    }

    proptest! {
        #[test]
        fn any_code_is_on_one_line_or_the_same(code in "[ab'\"\\\\/*#rR()\r\n\u{e9}]{0,24}") {
            for lexis in [Lexis::Rust, Lexis::C] {
                let written = on_one_line(&code, lexis);
                prop_assert!(!written.contains('\n') || written == code, "{code:?} {written:?}");
            }
        }
    }
}
