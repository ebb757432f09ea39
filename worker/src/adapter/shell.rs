//! Quoting for command lines that people copy into a shell. Nothing here is ever run by Heeler.

use std::fmt::Write;

use wire::control::{OsBytes, Program};

/// Quotes one word, only where that is needed.
#[must_use]
pub(super) fn quote(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.iter().map(|byte| char::from(*byte)).collect();
    }
    match std::str::from_utf8(word) {
        Ok(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escape(word),
    }
}

/// The `$'...'` form: one line whatever the bytes are.
fn escape(word: &[u8]) -> String {
    let mut quoted = String::from("$'");
    for chunk in word.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => quoted.push_str(r"\n"),
                '\t' => quoted.push_str(r"\t"),
                '\'' | '\\' => quoted.extend(['\\', character]),
                _ if character.is_control() && character.is_ascii() => octal(&mut quoted, character as u8),
                _ => quoted.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut quoted, *byte));
    }
    quoted.push('\'');
    quoted
}

fn octal(quoted: &mut String, byte: u8) {
    write!(quoted, "\\{byte:03o}").expect("a string takes everything");
}

/// Returns the start of a command line: the environment that the configuration sets, the program, its arguments.
#[must_use]
pub(super) fn program(program: &Program) -> String {
    let mut words = Vec::new();
    for (name, _) in program.env.iter().filter(|(_, value)| value.is_none()) {
        words.extend(["-u".to_owned(), quote(name.as_bytes())]);
    }
    if !words.is_empty() {
        words.insert(0, "env".to_owned());
    }
    for (name, value) in &program.env {
        let Some(value) = value else { continue };
        words.push(format!("{}={}", name.to_text(), quote_value(value)));
    }
    let path = program.path.as_bytes();
    let local: &[u8] = if path.contains(&b'/') { b"" } else { b"./" };
    words.push(quote(&[local, path].concat()));
    words.extend(program.args.iter().map(|arg| quote(arg.as_bytes())));
    words.join(" ")
}

fn quote_value(value: &OsBytes) -> String {
    if value.as_bytes().is_empty() { String::new() } else { quote(value.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_need_it_are_quoted() {
        for (word, quoted) in [
            ("A.b/0", "A.b/0"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("ü*", "'ü*'"),
            ("a\nb'\\\u{1}", r"$'a\nb\'\\\001'"),
        ] {
            assert_eq!(quote(word.as_bytes()), quoted);
        }
        assert_eq!(quote(b"\xff"), r"$'\377'");
    }

    #[test]
    fn a_program_comes_with_the_environment_and_arguments_of_the_configuration() {
        let given = Program {
            suite: "s".into(),
            path: "prog".into(),
            args: vec!["--data dir".into()],
            env: vec![("A".into(), Some("1 2".into())), ("B".into(), None), ("C".into(), Some("".into()))],
            cwd: "/".into(),
            framework: None,
        };
        assert_eq!(program(&given), "env -u B A='1 2' C= ./prog '--data dir'");
    }
}
