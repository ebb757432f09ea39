//! Translates options of pytest, `go test`, doctest, Boost.Test and libtest that have the same meaning in
//! Heeler under another name. Options without an equal are answered by [`super::other_tools`].

use std::ffi::OsString;

/// The translation of an option of another tool.
#[derive(Clone, Copy)]
enum Translation {
    /// These words, without a value.
    Words(&'static [&'static str]),
    /// This option, with the value unchanged.
    Renamed(&'static str),
    /// This option, with the value translated.
    Value(&'static str, fn(&str) -> String),
    /// A word behind `--`, for the test programs.
    ForPrograms(&'static str),
}

use Translation::{ForPrograms, Renamed, Value, Words};

/// Options of other tools and their translations.
const HABITS: &[(&str, Translation)] = &[
    // pytest
    ("-x", Words(&["--max-fail=1"])),
    ("--exitfirst", Words(&["--max-fail=1"])),
    ("--maxfail", Renamed("--max-fail")),
    ("--lf", Words(&["--rerun=failed"])),
    ("--last-failed", Words(&["--rerun=failed"])),
    (
        "-n",
        Value(
            "--jobs",
            |count| if matches!(count, "auto" | "logical") { "num-cpus".into() } else { count.into() },
        ),
    ),
    ("-k", Value("--filter", |expression| filter_of_words(expression, "test"))),
    ("-m", Value("--filter", |expression| filter_of_words(expression, "tag"))),
    ("--junitxml", Renamed("--junit")),
    ("--junit-xml", Renamed("--junit")),
    // go test
    ("-run", Value("--filter", filter_of_go)),
    ("-race", Words(&["--go-arg=-race"])),
    ("-tags", Value("--go-arg", |tags| format!("-tags={tags}"))),
    ("-count", Renamed("--repeat")),
    ("-failfast", Words(&["--fail-fast"])),
    ("-short", ForPrograms("-test.short")),
    // doctest and Boost.Test
    ("-tc", Value("--filter", |pattern| format!("test(#{pattern})"))),
    ("--run_test", Value("--filter", |pattern| format!("test(#{pattern})"))),
];

/// Commands that take these options.
const COMMANDS: [&str; 2] = ["run", "list"];

/// Returns the command line with options of other tools in Heeler's form.
pub(super) fn translate(words: Vec<OsString>) -> Vec<OsString> {
    if !words.get(1).is_some_and(|command| COMMANDS.iter().any(|known| command == known)) {
        return words;
    }
    let mut translated: Vec<OsString> = Vec::with_capacity(words.len());
    let mut for_programs: Vec<OsString> = Vec::new();
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            let (own, others) = match names_cargo(&translated) {
                true => LibtestArguments::read(rest).into_words(),
                false => (Vec::new(), rest.collect()),
            };
            translated.extend(own);
            for_programs.extend(others);
            break;
        }
        let Some((translation, joined)) = word.to_str().and_then(habit) else {
            let is_valued = word.to_str().is_some_and(takes_next_word);
            translated.push(word);
            translated.extend(rest.next_if(|_| is_valued));
            continue;
        };
        match translation {
            Words(words) => translated.extend(words.iter().map(OsString::from)),
            ForPrograms(word) => for_programs.push(word.into()),
            Renamed(option) | Value(option, _) => {
                // Without a value, the parser names the option that lacks one.
                let value = joined.or_else(|| rest.next_if(|word| word != "--")?.into_string().ok());
                let value = value.map(|value| match translation {
                    Value(_, change) => change(&value),
                    _ => value,
                });
                translated.push(match value {
                    Some(value) => format!("{option}={value}").into(),
                    None => option.into(),
                });
            }
        }
    }
    if !for_programs.is_empty() {
        translated.push("--".into());
        translated.append(&mut for_programs);
    }
    translated
}

/// Returns an option's translation, and its value if the word contains it: `--maxfail=2`, `-k=x`, `-n4`.
fn habit(word: &str) -> Option<(Translation, Option<String>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    let found = HABITS.iter().find(|(known, _)| *known == name);
    if let Some((_, translation)) = found {
        let has_value = matches!(translation, Renamed(_) | Value(..));
        return (has_value || value.is_none()).then_some((*translation, value));
    }
    let count = word.strip_prefix("-n").filter(|count| !count.is_empty())?;
    let is_count = count.bytes().all(|byte| byte.is_ascii_digit()) || count == "auto";
    let (_, translation) = HABITS.iter().find(|(known, _)| *known == "-n")?;
    is_count.then(|| (*translation, Some(count.to_owned())))
}

/// Returns whether a command line names tests of cargo, whose programs take the arguments of libtest.
fn names_cargo(words: &[OsString]) -> bool {
    let is_option = |word: &OsString| {
        let word = word.to_string_lossy();
        let name = word.split('=').next().unwrap_or(&word);
        CARGO_OPTIONS.contains(&name)
    };
    words.iter().any(is_option)
}

/// Options that name tests of cargo.
const CARGO_OPTIONS: [&str; 17] = [
    "-p",
    "--package",
    "--workspace",
    "--cargo",
    "--lib",
    "--bins",
    "--bin",
    "--tests",
    "--test",
    "--examples",
    "--example",
    "--benches",
    "--bench",
    "--all-targets",
    "--doc",
    "--features",
    "--all-features",
];

/// Arguments of libtest behind `--`, as editors write them to run one test.
#[derive(Default)]
struct LibtestArguments {
    names: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    options: Vec<OsString>,
    /// Words without a meaning here, for programs with a main function of their own.
    others: Vec<OsString>,
}

impl LibtestArguments {
    fn read(words: impl Iterator<Item = OsString>) -> Self {
        let mut read = Self::default();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            match word.to_str() {
                // An editor without a test's name passes an empty argument.
                Some("") => {}
                Some("--exact") => read.is_exact = true,
                Some("--ignored") => read.options.push("--run-ignored=only".into()),
                Some("--include-ignored") => read.options.push("--run-ignored=all".into()),
                Some("--nocapture" | "--no-capture") => read.options.push("--no-capture".into()),
                Some("--show-output") => {}
                Some("--skip") => read.skipped.extend(words.next().and_then(|name| name.into_string().ok())),
                Some(text) => match text.strip_prefix("--skip=") {
                    Some(name) => read.skipped.push(name.to_owned()),
                    None if text.starts_with('-') => {
                        read.others.push(word);
                        read.others.extend(words.by_ref());
                    }
                    None => read.names.push(text.to_owned()),
                },
                None => read.others.push(word),
            }
        }
        read
    }

    /// Returns the words for Heeler, and the words for the programs.
    fn into_words(self) -> (Vec<OsString>, Vec<OsString>) {
        let Self { names, skipped, is_exact, options: mut own, others } = self;
        let named = |name: &String| match is_exact {
            true => format!("test(={})", escaped(name)),
            false => filter_of_part(name, false),
        };
        let mut filter = names.iter().map(named).collect::<Vec<_>>().join(" | ");
        for name in &skipped {
            filter = match filter.as_str() {
                "" => format!("not {}", named(name)),
                _ => format!("({filter}) & not {}", named(name)),
            };
        }
        if !filter.is_empty() {
            own.push(format!("--filter={filter}").into());
        }
        (own, others)
    }
}

/// Escapes the characters that end a text in a filter.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|one| matches!(one, '\\' | ')' | '(').then_some('\\').into_iter().chain([one]))
        .collect()
}

/// Options whose value is the next word, which may begin with a dash.
const OPTIONS_WITH_ANY_VALUE: [&str; 6] = ["-E", "--filter", "--cargo-arg", "--go-arg", "--mcp", "--mtp"];

fn takes_next_word(word: &str) -> bool {
    OPTIONS_WITH_ANY_VALUE.contains(&word)
}

/// Translates a pattern of `go test -run` into a filter. A filter's expression is compared with the uid, so
/// that the name begins after `::`.
fn filter_of_go(pattern: &str) -> String {
    let mut anchored = String::new();
    let mut before = ' ';
    for letter in pattern.chars() {
        match letter {
            '^' if !matches!(before, '[' | '\\') => anchored.push_str("::"),
            '/' => anchored.push_str("[^/]*\\/[^/]*"),
            other => anchored.push(other),
        }
        before = letter;
    }
    match anchored.contains("::") {
        true => format!("test(/{anchored}/)"),
        false => format!("test(/::.*(?:{anchored})/)"),
    }
}

/// Returns a filter for names that contain a text, in either case if `is_any_case`. The suite's name, which
/// precedes the first `::`, does not count.
fn filter_of_part(part: &str, is_any_case: bool) -> String {
    let escape = |one: char| match one.is_alphanumeric() || one == '_' {
        true => one.to_string(),
        false => format!("\\{one}"),
    };
    let flag = if is_any_case { "(?i)" } else { "" };
    format!("test(/{flag}::.*{}/)", part.chars().map(escape).collect::<String>())
}

/// Translates pytest's expressions of words (`io and not (slow or net)`) into a filter. A word matches names
/// that contain it, as in pytest.
fn filter_of_words(expression: &str, function: &str) -> String {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let words = spaced.split_whitespace().map(|word| match word {
        "and" | "or" | "not" | "(" | ")" => word.to_owned(),
        _ if function == "test" => filter_of_part(word, true),
        _ => format!("{function}({word})"),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let words = shlex::split(line).unwrap().into_iter().map(OsString::from).collect();
        let words: Vec<_> = translate(words).into_iter().map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn options_of_pytest_and_go_become_own_ones() {
        for (line, expected) in [
            ("heeler run tests -x --lf", "heeler run tests --max-fail=1 --rerun=failed"),
            ("heeler run -n auto --maxfail=2", "heeler run --jobs=num-cpus --max-fail=2"),
            ("heeler run -n4 --maxfail 2 --junitxml o.xml", "heeler run --jobs=4 --max-fail=2 --junit=o.xml"),
            (
                "heeler list -k 'io and not (slow or net)'",
                "heeler list --filter=test(/(?i)::.*io/) and not ( test(/(?i)::.*slow/) or test(/(?i)::.*net/) )",
            ),
            ("heeler run -m 'slow'", "heeler run --filter=tag(slow)"),
            (
                "heeler run ./... -run '^TestA$' -race -count=3",
                "heeler run ./... --filter=test(/::TestA$/) --go-arg=-race --repeat=3",
            ),
            ("heeler run -short -tags net", "heeler run --go-arg=-tags=net -- -test.short"),
            ("heeler run a -short -- -x", "heeler run a -- -test.short -x"),
            ("heeler run a -tc='Parser*'", "heeler run a --filter=test(#Parser*)"),
            ("heeler run --run_test=io/reads", "heeler run --filter=test(#io/reads)"),
        ] {
            assert_eq!(translated(line), expected, "{line}");
        }
    }

    #[test]
    fn arguments_of_an_editors_run_button_select_the_test() {
        for (line, expected) in [
            (
                "cargo-heeler run -p a --lib -- tests::one --exact --include-ignored",
                "cargo-heeler run -p a --lib --run-ignored=all --filter=test(=tests::one)",
            ),
            (
                "heeler run --package=a -- --nocapture one two",
                "heeler run --package=a --no-capture --filter=test(/::.*one/) | test(/::.*two/)",
            ),
            (
                "heeler run --cargo -- one --skip slow",
                "heeler run --cargo --filter=(test(/::.*one/)) & not test(/::.*slow/)",
            ),
            (
                "heeler run --test it -- '' --exact 'a (line 3)'",
                "heeler run --test it --filter=test(=a \\(line 3\\))",
            ),
            ("heeler run --test bench -- --data=x one", "heeler run --test bench -- --data=x one"),
            ("heeler run prog -- one --exact", "heeler run prog -- one --exact"),
        ] {
            assert_eq!(translated(line), expected, "{line}");
        }
        assert!("test(=a \\(line 3\\))".parse::<heeler_config::filter::Filter>().is_ok());
    }

    #[test]
    fn other_words_are_unchanged() {
        for line in [
            "heeler run -E -x a",
            "heeler run a -- -x",
            "heeler serve -x",
            "heeler run -race=x",
            "heeler run --go-arg -race",
            "heeler",
        ] {
            assert_eq!(translated(line), line);
        }
    }

    #[test]
    fn translated_filters_are_valid() {
        for (expression, function) in
            [("a and not (b or c.d)", "test"), ("slow or net", "tag"), ("a[x-1]", "test")]
        {
            let filter = filter_of_words(expression, function);
            assert!(filter.parse::<heeler_config::filter::Filter>().is_ok(), "{filter}");
        }
    }
}
