//! Quoting of words for POSIX shells, in commands that users copy. Heeler itself never runs these commands.

use std::fmt::Write as _;

/// A newline as the last character of the default `IFS`. In `zsh`, a null byte follows, where the argument of
/// a program ends anyway.
const NEWLINE: &str = "${IFS#??}";

/// Returns whether a character is a control character or a bidirectional mark, which a terminal would obey
/// instead of showing it.
#[must_use]
pub fn is_control_or_bidi(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Quotes a word if necessary. The result is one line of visible characters.
#[must_use]
pub fn quote(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.iter().map(|byte| char::from(*byte)).collect();
    }
    match std::str::from_utf8(word) {
        Ok(text) if !text.chars().any(is_control_or_bidi) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escape(word),
    }
}

/// Quotes a word with `printf`, which can express any bytes on one line in every POSIX shell; `dash` does not
/// know `$'…'`. A substitution drops the newlines at its end, so these follow the substitution.
fn escape(word: &[u8]) -> String {
    let newlines = word.iter().rev().take_while(|byte| **byte == b'\n').count();
    let body = &word[..word.len() - newlines];
    let mut quoted = "\"".to_owned();
    if !body.is_empty() {
        quoted.push_str("$(printf -- '");
        push_format(&mut quoted, body);
        quoted.push_str("')");
    }
    quoted.push_str(&NEWLINE.repeat(newlines));
    quoted.push('"');
    quoted
}

/// Adds a format of `printf` that prints these bytes, for use between single quotes.
fn push_format(quoted: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => quoted.push_str(r"\n"),
                '\t' => quoted.push_str(r"\t"),
                '\\' => quoted.push_str(r"\\"),
                '%' => quoted.push_str("%%"),
                // `bash` expands `!` between double quotes.
                '\'' | '!' => push_octal(quoted, character),
                _ if is_control_or_bidi(character) => push_octal(quoted, character),
                _ => quoted.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_octal_byte(quoted, *byte));
    }
}

fn push_octal(quoted: &mut String, character: char) {
    character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_octal_byte(quoted, byte));
}

fn push_octal_byte(quoted: &mut String, byte: u8) {
    write!(quoted, "\\{byte:03o}").expect("a string takes everything");
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests paste the words into real shells")]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Shells that users paste commands into, where installed. `/bin/sh` must be.
    const SHELLS: [&str; 5] = ["/bin/sh", "dash", "bash", "zsh", "ksh"];

    /// Checks that each shell passes the quoted words to a program as they were.
    #[track_caller]
    fn check_shells(words: &[Vec<u8>]) {
        let quoted: Vec<_> = words.iter().map(|word| quote(word)).collect();
        // `env` runs a program: words for a shell's own `printf` need not be arguments.
        let script = format!("env printf '%s\\0' {}", quoted.join(" "));
        assert!(!script.chars().any(is_control_or_bidi), "{script}");
        let expected: Vec<u8> = words.iter().flat_map(|word| [word, &b"\0"[..]].concat()).collect();
        for shell in SHELLS {
            let output = match Command::new(shell).args(["-c", &script]).output() {
                Ok(output) => output,
                Err(error) => {
                    assert_ne!(shell, SHELLS[0], "{error}");
                    continue;
                }
            };
            assert_eq!(
                output.stdout.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{shell}: {script}"
            );
        }
    }

    #[test]
    fn only_words_that_need_it_are_quoted() {
        for (word, quoted) in [
            ("A.b/0", "A.b/0"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("ü*", "'ü*'"),
            ("a\nb'\\\u{1}", r#""$(printf -- 'a\nb\047\\\001')""#),
            ("b\n", r#""$(printf -- 'b')${IFS#??}""#),
            ("\n\n", r#""${IFS#??}${IFS#??}""#),
            ("a\u{202e}\u{9b}", r#""$(printf -- 'a\342\200\256\302\233')""#),
        ] {
            assert_eq!(quote(word.as_bytes()), quoted);
        }
        assert_eq!(quote(b"\xff"), r#""$(printf -- '\377')""#);
    }

    #[test]
    fn shells_read_the_quoted_words() {
        let words = [
            "it's (a) $HOME `x` \"q\" \\ ü *",
            "-n",
            "a\nb'\\\u{1}%d!$HOME\"",
            "",
            "\t %s",
            "!",
            "ends with a newline\n",
            "\n\n",
            "\n \n",
            "\u{1b}[31m1\u{202e}\u{9b}2\u{2028}",
        ];
        let bytes = (1..=255).collect();
        check_shells(
            &words.map(|word| word.as_bytes().to_vec()).into_iter().chain([bytes]).collect::<Vec<_>>(),
        );
    }

    #[test]
    fn shells_read_random_words() {
        let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
        let byte = prop_oneof![1..=255_u8, prop::sample::select(b"\n\t'\"\\%$!`\x1b7".to_vec())];
        let words = prop::collection::vec(prop::collection::vec(byte, 0..12), 1..40);
        proptest!(config, |(words in words)| check_shells(&words));
    }
}
