//! Translates options of pytest, `go test`, GoogleTest, Catch2, doctest, Boost.Test and libtest that have the
//! same meaning in Heeler under another name. [`super::other_tools`] answers options without an equal.

use std::ffi::{OsStr, OsString};

use clap::Error;

use super::{foreign_filters as filters, libtest_arguments::LibtestArguments, other_tools};

/// The translation of an option of another tool.
#[derive(Clone, Copy)]
enum Translation {
    /// These arguments, without a value.
    Words(&'static [&'static str]),
    /// This option, with the value unchanged.
    Renamed(&'static str),
    /// This option, with the value translated.
    Value(&'static str, fn(&str) -> String),
    /// A filter that selects what the value selects. Of the same option, the last one counts.
    Filter(fn(&str) -> String),
    /// Like `Filter`, but a repeated option selects more tests.
    AnyFilter(fn(&str) -> String),
    /// A word behind `--`, for the test programs.
    ForPrograms(&'static str),
}

use Translation::{AnyFilter, Filter, ForPrograms, Renamed, Value, Words};

/// Options of other tools and their translations.
const HABITS: &[(&str, Translation)] = &[
    // pytest
    ("-x", Words(&["--max-fail=1"])),
    ("--exitfirst", Words(&["--max-fail=1"])),
    ("--maxfail", Renamed("--max-fail")),
    ("--lf", Words(&["--rerun=failed"])),
    ("--last-failed", Words(&["--rerun=failed"])),
    ("-s", Words(&["--no-capture"])),
    (
        "-n",
        Value(
            "--jobs",
            |count| if matches!(count, "auto" | "logical") { "num-cpus".into() } else { count.into() },
        ),
    ),
    ("-k", Filter(|expression| filters::of_words(expression, "test"))),
    ("-m", Filter(|expression| filters::of_words(expression, "tag"))),
    ("--junitxml", Renamed("--junit")),
    ("--junit-xml", Renamed("--junit")),
    // go test
    ("-run", Filter(filters::of_go)),
    ("-skip", Filter(|pattern| format!("not {}", filters::of_go(pattern)))),
    ("-race", Words(&["--go-arg=-race"])),
    ("-tags", Value("--go-arg", |tags| format!("-tags={tags}"))),
    ("-count", Renamed("--repeat")),
    ("-failfast", Words(&["--fail-fast"])),
    ("-short", ForPrograms("-test.short")),
    // GoogleTest
    ("--gtest_filter", Filter(filters::of_gtest)),
    ("--gtest_repeat", Renamed("--repeat")),
    ("--gtest_also_run_disabled_tests", Words(&["--run-ignored=all"])),
    ("--gtest_fail_fast", Words(&["--fail-fast"])),
    // doctest
    ("-tc", Filter(filters::of_doctest)),
    ("--test-case", Filter(filters::of_doctest)),
    ("-tce", Filter(|patterns| format!("not ({})", filters::of_doctest(patterns)))),
    ("--test-case-exclude", Filter(|patterns| format!("not ({})", filters::of_doctest(patterns)))),
    // Boost.Test
    ("--run_test", AnyFilter(filters::of_boost)),
];

/// Commands that take these options.
const COMMANDS: [&str; 2] = ["run", "list"];

/// Returns the command line with options of other tools in Heeler's form.
///
/// # Errors
/// An option of another tool has another meaning in Heeler.
pub(super) fn translate(words: Vec<OsString>) -> Result<Vec<OsString>, Error> {
    if !words.get(1).is_some_and(|command| COMMANDS.iter().any(|known| command == known)) {
        return Ok(words);
    }
    other_tools::check_misread_options(&words)?;
    let mut translation = TranslatedWords::default();
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            let (own, others) = match names_cargo(&translation.words) {
                true => LibtestArguments::read(rest).into_words(),
                false => (Vec::new(), rest.collect()),
            };
            translation.words.extend(own);
            translation.for_programs.extend(others);
            break;
        }
        // An editor passes an empty word for a placeholder without a value, such as the name of a library.
        if word.is_empty() && !translation.words.last().is_some_and(|before| may_take_value(before)) {
            continue;
        }
        if let Some(filter) = word.to_str().and_then(filters::of_catch2_tags) {
            translation.select("[tag]", filter, true);
            continue;
        }
        let Some((habit, joined)) = word.to_str().and_then(habit) else {
            let is_valued = word.to_str().is_some_and(takes_next_word);
            translation.words.push(word);
            translation.words.extend(rest.next_if(|_| is_valued));
            continue;
        };
        let needs_value = habit.translation.has_value() && joined.is_none();
        // Without a value, the parser names the option that lacks one.
        let value = joined.or_else(|| rest.next_if(|word| needs_value && word != "--")?.into_string().ok());
        translation.push(habit, value);
    }
    Ok(translation.into_words())
}

/// The words of a command line in Heeler's form.
#[derive(Default)]
struct TranslatedWords {
    words: Vec<OsString>,
    for_programs: Vec<OsString>,
    /// Filters of other tools' options, by option. A test must match all of them.
    selections: Vec<(&'static str, String)>,
    /// Position of the first of these filters among the words.
    selection_place: usize,
}

impl TranslatedWords {
    fn push(&mut self, habit: Habit, value: Option<String>) {
        let Habit { name, translation } = habit;
        match (translation, value) {
            (Words(words), _) => self.words.extend(words.iter().map(OsString::from)),
            (ForPrograms(word), _) => self.for_programs.push(word.into()),
            (Filter(filter), Some(value)) => self.select(name, filter(&value), false),
            (AnyFilter(filter), Some(value)) => self.select(name, filter(&value), true),
            (Filter(_) | AnyFilter(_), None) => self.words.push("--filter".into()),
            (Renamed(option) | Value(option, _), None) => self.words.push(option.into()),
            (Renamed(option), Some(value)) => self.words.push(format!("{option}={value}").into()),
            (Value(option, change), Some(value)) => {
                self.words.push(format!("{option}={}", change(&value)).into());
            }
        }
    }

    fn select(&mut self, option: &'static str, filter: String, is_added: bool) {
        if self.selections.is_empty() {
            self.selection_place = self.words.len();
        }
        match self.selections.iter_mut().find(|(known, _)| *known == option) {
            Some((_, earlier)) if is_added => *earlier = format!("{earlier} | {filter}"),
            Some((_, earlier)) => *earlier = filter,
            None => self.selections.push((option, filter)),
        }
    }

    fn into_words(self) -> Vec<OsString> {
        let Self { mut words, mut for_programs, selections, selection_place } = self;
        let filter = match &selections[..] {
            [] => None,
            [(_, filter)] => Some(filter.clone()),
            several => {
                let each = several.iter().map(|(_, filter)| format!("({filter})"));
                Some(each.collect::<Vec<_>>().join(" & "))
            }
        };
        if let Some(filter) = filter {
            words.insert(selection_place, format!("--filter={filter}").into());
        }
        if !for_programs.is_empty() {
            words.push("--".into());
            words.append(&mut for_programs);
        }
        words
    }
}

/// An option of another tool with its translation.
#[derive(Clone, Copy)]
struct Habit {
    name: &'static str,
    translation: Translation,
}

impl Translation {
    fn has_value(self) -> bool {
        !matches!(self, Words(_) | ForPrograms(_))
    }
}

/// Returns an option's translation, and its value if the word contains it: `--maxfail=2`, `-k=x`, `-n4`.
fn habit(word: &str) -> Option<(Habit, Option<String>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    let known = |wanted: &str| {
        let (name, translation) = HABITS.iter().find(|(name, _)| *name == wanted)?;
        Some(Habit { name, translation: *translation })
    };
    if let Some(found) = known(name) {
        return (found.translation.has_value() || value.is_none()).then_some((found, value));
    }
    let count = word.strip_prefix("-n").filter(|count| !count.is_empty())?;
    let is_count = count.bytes().all(|byte| byte.is_ascii_digit()) || count == "auto";
    if is_count { Some((known("-n")?, Some(count.to_owned()))) } else { None }
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

/// Returns whether a word is an option whose value may be the next word.
fn may_take_value(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word.starts_with('-') && !word.contains('=') && !CARGO_FLAGS.contains(&&*word)
}

/// Options of cargo without a value that select targets.
const CARGO_FLAGS: [&str; 8] =
    ["--lib", "--bins", "--tests", "--examples", "--benches", "--all-targets", "--doc", "--workspace"];

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

/// Options whose value is the next word, which may begin with a dash.
const OPTIONS_WITH_ANY_VALUE: [&str; 6] = ["-E", "--filter", "--cargo-arg", "--go-arg", "--mcp", "--mtp"];

pub(super) fn takes_next_word(word: &str) -> bool {
    OPTIONS_WITH_ANY_VALUE.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let words = shlex::split(line).unwrap().into_iter().map(OsString::from).collect();
        let words: Vec<_> =
            translate(words).unwrap().into_iter().map(|word| word.into_string().unwrap()).collect();
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
            ("heeler run a -tc='Parser*'", "heeler run a --filter=test(/(?i)::Parser.*$/)"),
            ("heeler run --run_test=io/reads", "heeler run --filter=test(/::io\\/reads(?:$|\\/)/)"),
            ("heeler run a --gtest_filter=A.*-A.b", "heeler run a --filter=(test(#A.*)) - (test(#A.b))"),
            (
                "heeler run a '[one][two]' '~[slow]' -j 2",
                "heeler run a --filter=tag(tag=one) & tag(tag=two) | not tag(tag=slow) -j 2",
            ),
            ("heeler run -k a -m b -k c", "heeler run --filter=(test(/(?i)::.*c/)) & (tag(b))"),
            (
                "heeler run ./... -run A -skip B -s",
                "heeler run ./... --filter=(test(/::.*(?:A)/)) & (not test(/::.*(?:B)/)) --no-capture",
            ),
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
            (
                "cargo-heeler run -p a --lib '' -- tests::one --exact ''",
                "cargo-heeler run -p a --lib --filter=test(=tests::one)",
            ),
            ("heeler run -p '' a ''", "heeler run -p  a"),
            ("heeler run --lib -- --show-output", "heeler run --lib --success-output=final"),
            ("heeler run --lib -- one --skip", "heeler run --lib --filter=test(/::.*one/) -- --skip"),
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
}
