//! Hides C++ macros in the position of specifiers, such as `API_EXPORT int f();`. The parser would mistake
//! them for types and misread the following code. Blanks keep all positions.

/// Words that may precede such a macro on its line.
const KEYWORDS: [&str; 10] = [
    "static",
    "inline",
    "virtual",
    "explicit",
    "friend",
    "extern",
    "constexpr",
    "const",
    "typename",
    "public:",
];

/// Replaces the macros with blanks; `None` if there are none.
pub(super) fn without_specifiers(text: &str) -> Option<String> {
    let mut blanked: Option<Vec<u8>> = None;
    let mut start = 0;
    // The last byte of code before the line shows whether a declaration may begin here.
    let mut before = b';';
    for line in text.split_inclusive('\n') {
        let code = line.trim();
        if matches!(before, b';' | b'{' | b'}' | b'>' | b':' | b'/') {
            let rest = &text[start + line.len()..];
            for (at, length) in specifiers(line, rest) {
                let bytes = blanked.get_or_insert_with(|| text.as_bytes().to_vec());
                bytes[start + at..start + at + length].fill(b' ');
                // After a macro on its own line, the next line begins a declaration.
                if line.trim().len() == length {
                    before = b';';
                }
            }
        }
        let is_alone = blanked.as_ref().is_some_and(|bytes| is_blank(&bytes[start..start + line.len()]));
        if !code.is_empty() && !code.starts_with(['#', '/', '*']) && !is_alone {
            before = code.as_bytes()[code.len() - 1];
        }
        start += line.len();
    }
    blanked.map(|bytes| String::from_utf8(bytes).expect("whole words of ASCII were replaced by blanks"))
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// Returns the offsets and lengths of macros at the beginning of a line.
fn specifiers(line: &str, rest: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        at += blanks(&line[at..]);
        let here = &line[at..];
        let word = word(here);
        if KEYWORDS.contains(&word) {
            at += word.len();
        } else if is_macro(word) && is_before_declaration(&here[word.len()..], rest) {
            found.push((at, word.len()));
            at += word.len();
        } else {
            return found;
        }
    }
}

fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn word(text: &str) -> &str {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    &text[..text.find(|letter| !is_part(letter)).unwrap_or(text.len())]
}

fn is_macro(word: &str) -> bool {
    let mut letters = word.bytes();
    word.len() > 2
        && word.contains('_')
        && letters.next().is_some_and(|first| first.is_ascii_uppercase())
        && letters.all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_')
}

/// Returns whether the code after a macro is a type and a name, or the name of a constructor or destructor.
/// Returns `false` if the macro itself expands to the type, because only a name follows then.
fn is_before_declaration(line: &str, rest: &str) -> bool {
    let here = line.trim();
    if here.is_empty() {
        // A macro on its own line, without a semicolon.
        let next = rest.trim_start();
        return next.starts_with(|letter: char| letter.is_ascii_alphabetic()) && !is_macro(word(next));
    }
    let Some(behind) = after_type(here) else { return false };
    let behind = behind.trim_start_matches([' ', '\t', '*', '&']);
    let first = &here[..here.len() - behind.len()];
    match behind.bytes().next() {
        Some(b'(') => first.contains("::") || first.starts_with('~') || !here.ends_with(';'),
        Some(letter) => letter.is_ascii_alphabetic() || letter == b'_' || letter == b':',
        None => false,
    }
}

/// Returns the text after a qualified name with template arguments; `None` without a name.
fn after_type(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut end = text.len();
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.checked_sub(1)?,
            _ if depth > 0 || letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '~') => {}
            _ => {
                end = at;
                break;
            }
        }
    }
    (end > 0 && depth == 0).then(|| &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(text: &str) -> String {
        without_specifiers(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn specifiers_are_blanks_and_types_stay() {
        for (text, expected) in [
            ("API_EXPORT int f() {}", "           int f() {}"),
            ("  LIB_INLINE std::string A::f(int a) {", "             std::string A::f(int a) {"),
            ("static LIB_INLINE void f();", "static            void f();"),
            ("LIB_INLINE A::A(int a) : b(a) {}", "           A::A(int a) : b(a) {}"),
            ("LIB_INLINE ~A() {", "           ~A() {"),
            ("LIB_NODISCARD std::vector<int, A> f();", "              std::vector<int, A> f();"),
            ("NS_DECLARATION\nclass A {", "              \nclass A {"),
            ("template <class T>\nLIB_A LIB_B int f() {", "template <class T>\n            int f() {"),
        ] {
            assert_eq!(blanked(text), expected, "{text}");
        }
        for text in [
            "BOOL ok = a;",
            "LARGE_INTEGER li;",
            "LARGE_INTEGER li = f(a);",
            "LARGE_INTEGER li(a);",
            "FILE *f = g();",
            "x = A_MACRO b;",
            "f(a,\n  LIB_FLAG int b);",
            "#define LIB_X int f()",
            "A_CALL(x) int f();",
            "",
        ] {
            assert_eq!(blanked(text), text);
        }
    }
}
