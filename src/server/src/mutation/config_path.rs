//! The configuration file of a request, given as a path or a URI.

use std::path::PathBuf;

/// Parses the path of a configuration file.
///
/// # Errors
/// Returns what was expected.
pub(super) fn config_path(text: &str) -> Result<PathBuf, String> {
    let expected =
        || format!("invalid configuration file {text:?}: expected a path or a file URI on this machine");
    if text.is_empty() || text.contains('\0') {
        return Err(expected());
    }
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(PathBuf::from(text)) };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(expected());
    }
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let decoded = percent_decoded(path).filter(|path| path.starts_with('/') && !path.contains('\0'));
    decoded.map(PathBuf::from).ok_or_else(expected)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|one| one.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_uris_of_this_machine_are_read() {
        for (text, path) in [
            ("heeler.toml", "heeler.toml"),
            ("/a b/heeler.toml", "/a b/heeler.toml"),
            ("file:///a%20b/%c3%BC.toml", "/a b/ü.toml"),
            ("FILE://localhost/a.toml?x#y", "/a.toml"),
        ] {
            assert_eq!(config_path(text), Ok(PathBuf::from(path)), "{text}");
        }
        for text in [
            "",
            "http://a/b",
            "file://other/a",
            "file:///a%2",
            "file:///%ff",
            "file:///%00",
            "a\0b",
            "file:///%+1",
        ] {
            assert!(config_path(text).is_err(), "{text}");
        }
    }
}
