//! Filters with the meaning of a selection option of pytest, Go, libtest, GoogleTest, Catch2, doctest or
//! Boost.Test. A regular expression of a filter is compared with the uid, so the name of a test begins after
//! `::`.

/// Whether a name may differ in the case of its letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetterCase {
    Same,
    Any,
}

impl LetterCase {
    fn flag(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Any => "(?i)",
        }
    }
}

/// Returns a filter for names that contain a text. The suite's name, which precedes the first `::`, does not
/// count.
pub(super) fn of_part(part: &str, case: LetterCase) -> String {
    format!("test(/{}::.*{}/)", case.flag(), literal(part))
}

/// Translates pytest's expressions of words (`io and not (slow or net)`) into a filter. A word matches names
/// that contain it, as in pytest.
pub(super) fn of_words(expression: &str, function: &str) -> String {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let words = spaced.split_whitespace().map(|word| match word {
        "and" | "or" | "not" | "(" | ")" => word.to_owned(),
        _ if function == "test" => of_part(word, LetterCase::Any),
        _ => format!("{function}({})", escaped(word)),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Translates a pattern of `go test -run` without a slash. Heeler runs a test with all its subtests, so that
/// [`super::other_tools`] rejects other patterns.
pub(super) fn of_go(pattern: &str) -> String {
    let mut anchored = String::new();
    let mut before = ' ';
    for letter in pattern.chars() {
        match letter {
            '^' if !matches!(before, '[' | '\\') => anchored.push_str("::"),
            '/' => anchored.push_str("\\/"),
            other => anchored.push(other),
        }
        before = letter;
    }
    match anchored.contains("::") {
        true => format!("test(/{anchored}/)"),
        false => format!("test(/::.*(?:{anchored})/)"),
    }
}

/// Translates the value of `--gtest_filter`: patterns, then `-` and the patterns of tests that are left out.
pub(super) fn of_gtest(list: &str) -> String {
    let (selected, left_out) = list.split_once('-').unwrap_or((list, ""));
    let any = |list: &str| {
        let patterns = list.split(':').filter(|pattern| !pattern.is_empty());
        patterns.map(|pattern| format!("test(#{})", escaped(pattern))).collect::<Vec<_>>().join(" | ")
    };
    let selected = if selected.is_empty() { "all()".to_owned() } else { any(selected) };
    if left_out.is_empty() { selected } else { format!("({selected}) - ({})", any(left_out)) }
}

/// Translates tags of Catch2: `[a][b]` selects tests with both tags, `[a],[b]` with either, `~[a]` without.
/// Returns `None` for another word.
pub(super) fn of_catch2_tags(word: &str) -> Option<String> {
    let mut alternatives = Vec::new();
    for group in word.split(',') {
        let mut conditions = Vec::new();
        let mut rest = group;
        while !rest.is_empty() {
            let positive = rest.strip_prefix('~').or_else(|| rest.strip_prefix("exclude:"));
            let (tag, behind) = positive.unwrap_or(rest).strip_prefix('[')?.split_once(']')?;
            let first = tag.chars().next()?;
            // Tags that begin with a sign have a meaning of their own, and are not among the tags of a test.
            if !first.is_alphanumeric() && first != '_' || tag.contains(['/', '*', '?']) {
                return None;
            }
            let negation = if positive.is_some() { "not " } else { "" };
            conditions.push(format!("{negation}tag(tag={})", escaped(tag)));
            rest = behind;
        }
        (!conditions.is_empty()).then_some(())?;
        alternatives.push(conditions.join(" & "));
    }
    Some(alternatives.join(" | "))
}

/// Translates doctest's patterns for names, separated by commas, in any letter case.
pub(super) fn of_doctest(list: &str) -> String {
    let patterns = list.split(',').filter(|pattern| !pattern.is_empty());
    let filters = patterns.map(|pattern| format!("test(/(?i)::{}$/)", glob(pattern, ".*")));
    filters.collect::<Vec<_>>().join(" | ")
}

/// Translates the value of Boost.Test's `--run_test`: paths of tests or suites, separated by colons. A level
/// may have several names (`a,b`) and wildcards; `@` selects a label, `!` leaves out.
pub(super) fn of_boost(list: &str) -> String {
    let (left_out, selected): (Vec<&str>, Vec<&str>) =
        list.split(':').filter(|path| !path.is_empty()).partition(|path| path.starts_with('!'));
    let any = |paths: &[&str]| {
        paths
            .iter()
            .map(|path| boost_path(path.trim_start_matches(['!', '+'])))
            .collect::<Vec<_>>()
            .join(" | ")
    };
    match (selected.is_empty(), left_out.is_empty()) {
        (_, true) => any(&selected),
        (true, false) => format!("not ({})", any(&left_out)),
        (false, false) => format!("({}) - ({})", any(&selected), any(&left_out)),
    }
}

fn boost_path(path: &str) -> String {
    if let Some(label) = path.strip_prefix('@') {
        return format!("tag(tag={})", escaped(label));
    }
    let level = |names: &str| {
        let names: Vec<String> = names.split(',').map(|name| glob(name, "[^\\/]*")).collect();
        if let [name] = &names[..] { name.clone() } else { format!("(?:{})", names.join("|")) }
    };
    let levels: Vec<String> = path.split('/').map(level).collect();
    format!("test(/::{}(?:$|\\/)/)", levels.join("\\/"))
}

/// Escapes the characters that end or change a text in a filter, except wildcards.
fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|one| matches!(one, '\\' | ')' | '(').then_some('\\').into_iter().chain([one]))
        .collect()
}

/// Returns a regular expression for a text.
fn literal(text: &str) -> String {
    let escape = |one: char| match one.is_ascii_punctuation() && !"_<>".contains(one) {
        true => format!("\\{one}"),
        false => one.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Returns a regular expression for a pattern; `any` is the expression for `*`.
fn glob(pattern: &str, any: &str) -> String {
    let parts = pattern.split('*').map(|part| part.split('?').map(literal).collect::<Vec<_>>().join("."));
    parts.collect::<Vec<_>>().join(any)
}

#[cfg(test)]
mod tests {
    use heeler_config::filter::{Filter, FilterSubject};

    use super::*;

    /// Returns the names among these that a filter selects. A `@` separates a name from its tag.
    fn selected<'a>(filter: &str, names: &[&'a str]) -> Vec<&'a str> {
        let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{filter}: {error}"));
        let is_selected = |name: &&&str| {
            let (test, tag) = name.split_once('@').unwrap_or((name, ""));
            let uid = format!("suite::{test}");
            filter.is_match(&FilterSubject {
                uid: &uid,
                suite: "suite",
                config_suite: None,
                program: "/w/suite".into(),
                tags: vec![("tag", tag)],
                last: None,
            })
        };
        names.iter().filter(is_selected).copied().collect()
    }

    #[test]
    fn filter_selects_what_the_other_tool_selects() {
        let gtest = ["A.b", "A.bc", "B.b", "Pre/A.b/0"];
        for (patterns, expected) in [
            ("A.b", &["A.b"][..]),
            ("A.*", &["A.b", "A.bc"]),
            ("*b", &["A.b", "B.b"]),
            ("A.*-*c", &["A.b"]),
            ("-A.*:B.*", &["Pre/A.b/0"]),
            ("A.b?:Pre/*", &["A.bc", "Pre/A.b/0"]),
            ("", &["A.b", "A.bc", "B.b", "Pre/A.b/0"]),
        ] {
            assert_eq!(selected(&of_gtest(patterns), &gtest), expected, "{patterns}");
        }
        let boost = ["io/reads", "io/writes", "io/deep/reads", "net/reads@slow", "iota"];
        for (path, expected) in [
            ("io", &["io/reads", "io/writes", "io/deep/reads"][..]),
            ("io/reads", &["io/reads"]),
            ("io/reads,writes", &["io/reads", "io/writes"]),
            ("*/reads", &["io/reads", "net/reads@slow"]),
            ("io*", &["io/reads", "io/writes", "io/deep/reads", "iota"]),
            ("@slow:iota", &["net/reads@slow", "iota"]),
            ("!io", &["net/reads@slow", "iota"]),
            ("io:!io/deep", &["io/reads", "io/writes"]),
        ] {
            assert_eq!(selected(&of_boost(path), &boost), expected, "{path}");
        }
        let doctest = ["Parser reads", "parser", "reads (all)"];
        for (patterns, expected) in [
            ("parser*", &["Parser reads", "parser"][..]),
            ("PARSER", &["parser"]),
            ("*(all),parser", &["parser", "reads (all)"]),
        ] {
            assert_eq!(selected(&of_doctest(patterns), &doctest), expected, "{patterns}");
        }
        let words = ["io::reads<T>", "IO::fast", "slow"];
        assert_eq!(selected(&of_words("io and not fast", "test"), &words), ["io::reads<T>"]);
        assert_eq!(selected(&of_part("reads<T>", LetterCase::Same), &words), ["io::reads<T>"]);
        let exact = heeler_adapters::exact_filter("f (line 3)");
        assert_eq!(selected(&exact, &["f (line 3)", "f (line 33)"]), ["f (line 3)"]);
    }

    #[test]
    fn tags_of_catch2_are_a_filter() {
        let cases = ["a@one", "b@two", "c@a b"];
        for (word, expected) in [
            ("[one]", &["a@one"][..]),
            ("[one],[two]", &["a@one", "b@two"]),
            ("[one][two]", &[]),
            ("~[one]", &["b@two", "c@a b"]),
            ("[a b]", &["c@a b"]),
        ] {
            assert_eq!(selected(&of_catch2_tags(word).unwrap(), &cases), expected, "{word}");
        }
        for word in ["[.]", "[!shouldfail]", "[a]b", "build/[ab]_test", "[]", "", "a", "[a", "[a-z]*"] {
            assert_eq!(of_catch2_tags(word), None, "{word}");
        }
    }
}
