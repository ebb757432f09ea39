//! Options and commands of cargo-nextest, CTest, GoogleTest and libtest that have another name in Heeler.
//! The error message about such an option or command suggests Heeler's own.

use std::{borrow::Cow, ffi::OsString, path::Path};

use clap::{
    CommandFactory as _, Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{CommandLineArguments, habits::takes_next_word};

/// Names of an option in other tools, and the suggestion; `{}` stands for the option's value.
type OwnForm = (&'static [&'static str], &'static str);

const OWN_FORMS: &[OwnForm] = &[
    (&["--list", "--gtest_list_tests", "--list-test-cases", "--show-only", "-N"], "use heeler list"),
    (&["--filterset", "--filter-expr"], "use -E '{}'"),
    (&["--tests-regex", "-R"], "use -E 'test(/{}/)'"),
    (&["--exclude-regex"], "use -E 'not test(/{}/)'"),
    (&["--skip", "--deselect"], "use -E 'not test({})'"),
    (&["--exact"], "use -E 'test(={})'"),
    (&["--label-regex", "-L"], "use -E 'tag({})'"),
    (&["--label-exclude", "-LE"], "use -E 'not tag({})'"),
    (&["--repeat-until-fail", "--until-fail"], "use --repeat {}"),
    (&["--gtest_shuffle", "--schedule-random"], "use --shuffle"),
    (&["--gtest_random_seed", "--shuffle-seed"], "use --shuffle {}"),
    (&["--gtest_output", "--output-junit"], "use --junit FILE"),
    (&["--include-ignored"], "use --run-ignored all"),
    (&["--ignored"], "use --run-ignored only"),
    (&["--gtest_break_on_failure"], "use --debugger gdb"),
    (&["--stop-on-failure", "--failfast"], "use --fail-fast"),
    (&["--gtest_color", "--colour"], "use --color {}"),
    (&["--parallel", "--num-threads"], "use -j {}"),
    (&["--rerun-failed", "--failed"], "use --rerun failed"),
    (
        &["--failed-first"],
        "Heeler does not run failed tests first; use --rerun failed to run them, and then heeler run for all tests",
    ),
    (
        &["--durations", "--durations-min"],
        "the summary names the slowest tests; heeler report latest --status-level all prints every duration",
    ),
    (&["--collect-only", "--co"], "use heeler list"),
    (&["--stepwise", "--sw"], "use --max-fail 1, and then --rerun latest to go on"),
    (
        &["--output-on-failure", "--show-output", "--extra-verbose", "-VV"],
        "the output of failed tests is shown by default; for passed tests, use --success-output final",
    ),
    (&["--quiet", "-q"], "use --status-level fail"),
    (&["--logger"], "use --format json"),
    (&["--test-dir", "--build-dir"], "use heeler run {}"),
    (&["--test-timeout"], "use --timeout {}"),
    (&["--manifest-path"], "use --cargo with the package's directory"),
    (&["--locked", "--offline", "--frozen", "--target", "--target-dir"], "use --cargo-arg={option}"),
];

/// Options of `go test` that Heeler's parser would read as several short options, and the suggestions.
const GO_FORMS: &[OwnForm] = &[
    (&["-bench"], "Heeler runs tests, not benchmarks; use go test -run '^$' -bench '{}' ./..."),
    (&["-benchmem", "-benchtime"], "Heeler runs tests, not benchmarks; use go test -run '^$' -bench . ./..."),
    (&["-fuzz", "-fuzztime"], "Heeler runs fuzz tests with their seeds only; use go test -fuzz"),
    (
        &["-cover", "-covermode", "-coverpkg", "-coverprofile"],
        "Heeler measures no coverage of Go; use go test -cover ./...",
    ),
    (&["-timeout"], "use --timeout {} for each test, or --run-timeout {} for the whole run"),
    (&["-parallel"], "use -j {}"),
    (&["-json"], "use --format json"),
    (&["-list"], "use heeler list -E 'test(/{}/)'"),
    (&["-vet"], "use --go-arg=-vet={}"),
    (&["-cpu"], "use -- -test.cpu={}"),
    (&["-args"], "put the arguments for the test programs after --"),
];

/// Options that Heeler itself passes to the test programs of libtest, GoogleTest and Go, so that a second
/// occurrence would be rejected or ignored, and reports, which every process would overwrite. The second
/// element is the suggestion, unless [`OWN_FORMS`] has one.
const OPTIONS_OF_PROCESSES: [(&str, &str); 20] = [
    ("--nocapture", "use --no-capture"),
    ("--no-capture", "use --no-capture before --"),
    ("--test-threads", "use -j {}"),
    ("--gtest_filter", "use --gtest_filter='{}' before --"),
    ("--gtest_list_tests", ""),
    ("--gtest_output", ""),
    ("--gtest_repeat", "use --repeat {}"),
    ("--gtest_shuffle", ""),
    ("--junitxml", "use --junit {}"),
    ("--junit-xml", "use --junit {}"),
    ("-test.run", "use -E 'test(/{}/)'"),
    ("-test.skip", "use -E 'not test(/{}/)'"),
    ("-test.list", "use heeler list -E 'test(/{}/)'"),
    ("-test.v", "use --success-output final"),
    ("-test.json", "use --format json"),
    ("-test.count", "use --repeat {}"),
    ("-test.failfast", "use --fail-fast"),
    ("-test.timeout", "use --timeout {}"),
    ("-test.bench", "Heeler runs tests, not benchmarks; use go test -run '^$' -bench '{}' ./..."),
    ("-test.fuzz", "Heeler runs fuzz tests with their seeds only; use go test -fuzz '{}'"),
];

/// Commands of other tools that run tests.
const RUN_COMMANDS: [&str; 5] = ["test", "t", "nextest", "ctest", "check"];

/// Adds a suggestion to the parser's error if it concerns an option or command of another tool, or an option
/// that may be meant for the test programs. `words` are the arguments of the command line.
pub(super) fn with_own_form(mut error: Error, words: &[OsString]) -> Error {
    let hint = match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(option) = text_of(&error, ContextKind::InvalidArg) else { return error };
            match own_form(&option, words) {
                Some(form) => form,
                // Keep the parser's own suggestion of the closest option.
                None if error.get(ContextKind::SuggestedArg).is_some() => {
                    error.remove(ContextKind::Suggested);
                    return error;
                }
                None if takes_program_arguments(words) => {
                    format!("to pass it to the test programs, put it after --: -- {option}")
                }
                None => return error,
            }
        }
        ErrorKind::InvalidSubcommand => {
            let Some(command) = text_of(&error, ContextKind::InvalidSubcommand) else { return error };
            if command.contains('/') || Path::new(&command).exists() {
                let word = shlex::try_quote(&command).unwrap_or(Cow::Borrowed(&command));
                format!("to run its tests: heeler run {word}")
            } else if RUN_COMMANDS.contains(&command.as_str()) {
                "to run tests: heeler run".to_owned()
            } else {
                return error;
            }
        }
        _ => return error,
    };
    // Remove the parser's guesses, which compare only spelling.
    for guess in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::Usage] {
        error.remove(guess);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    error
}

/// Checks the arguments for the test programs, which follow `--`.
///
/// # Errors
/// An argument is an option that Heeler itself passes to the test programs.
pub(super) fn check_program_arguments(words: &[String]) -> Result<(), Error> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    for word in &words {
        let word = word.to_string_lossy();
        let name = word.split('=').next().unwrap_or(&word);
        let Some((_, form)) = OPTIONS_OF_PROCESSES.iter().find(|(option, _)| *option == name) else {
            continue;
        };
        let form = own_form(name, &words).unwrap_or_else(|| filled(form, name, &words));
        let text =
            format!("{name} can't be passed to the test programs: Heeler sets it itself\n\n  tip: {form}\n");
        return Err(Error::raw(ErrorKind::ArgumentConflict, text));
    }
    Ok(())
}

/// Checks for options of other tools that the parser would take for other options.
///
/// # Errors
/// An option has another meaning in Heeler. The message contains Heeler's form.
pub(super) fn check_misread_options(words: &[OsString]) -> Result<(), Error> {
    let own = words.iter().take_while(|word| *word != "--");
    let own: Vec<OsString> = own.cloned().collect();
    let names_pytest = own.iter().any(|word| {
        let word = word.to_string_lossy();
        word.starts_with("--pytest") || word.ends_with(".py") || word.contains(".py::")
    });
    let mut is_value = false;
    for word in own.iter().skip(2) {
        let word = word.to_string_lossy();
        if std::mem::replace(&mut is_value, takes_next_word(&word)) {
            continue;
        }
        let name = word.split('=').next().unwrap_or(&word);
        let form = match name {
            // cargo-nextest's --ff stops at the first failure.
            "--ff" if names_pytest => own_form("--failed-first", &own),
            "-run" | "-skip" => value_of(name, &own).filter(|value| value.contains('/')).map(|value| {
                let test = value.split('/').next().unwrap_or_default().to_owned();
                format!("Heeler runs a test with all its subtests; use {name} '{test}'")
            }),
            _ => GO_FORMS
                .iter()
                .find(|(names, _)| names.contains(&name))
                .map(|(_, form)| filled(form, name, &own)),
        };
        if let Some(form) = form {
            let text = format!("unexpected argument '{name}' found\n\n  tip: {form}\n");
            return Err(Error::raw(ErrorKind::UnknownArgument, text));
        }
    }
    Ok(())
}

fn text_of(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the suggestion for another tool's option, with the option's value if given.
fn own_form(option: &str, words: &[OsString]) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option);
    let (_, form) = OWN_FORMS.iter().find(|(names, _)| names.contains(&name))?;
    Some(filled(form, name, words))
}

/// Returns the suggestion with the option's name and value inserted.
fn filled(form: &str, name: &str, words: &[OsString]) -> String {
    let value = value_of(name, words).unwrap_or_else(|| "…".to_owned());
    form.replace("{option}", name).replace("{}", &value.replace('\'', r"'\''"))
}

/// Returns an option's value: joined by `=`, directly after a short option, or the next argument.
fn value_of(name: &str, words: &[OsString]) -> Option<String> {
    let is_whole = |word: &OsString| {
        word.to_string_lossy().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let place = words.iter().position(is_whole);
    let place = place.or_else(|| words.iter().position(|word| word.to_string_lossy().starts_with(name)))?;
    let word = words[place].to_string_lossy();
    let rest = &word[name.len()..];
    if !rest.is_empty() {
        return Some(rest.trim_start_matches('=').to_owned());
    }
    let next = words.get(place + 1)?.to_string_lossy();
    (!next.starts_with('-')).then(|| next.into_owned())
}

/// Returns whether the command takes arguments for the test programs.
fn takes_program_arguments(words: &[OsString]) -> bool {
    let all = CommandLineArguments::command();
    let command = words.get(1).and_then(|word| all.find_subcommand(word));
    command.is_some_and(|command| command.get_positionals().any(clap::Arg::is_last_set))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error message of a command line, without its first line.
    fn hint(words: &[&str]) -> String {
        message(words).lines().skip(1).collect::<Vec<_>>().join("\n").trim().to_owned()
    }

    fn message(words: &[&str]) -> String {
        let words: Vec<OsString> = ["heeler"].iter().chain(words).map(OsString::from).collect();
        let error = super::super::parse(words).unwrap_err();
        assert_eq!(error.exit_code(), 5, "{error}");
        error.to_string()
    }

    #[test]
    fn options_of_other_tools_are_answered_with_own_forms() {
        for (words, expected) in [
            (&["run", "a", "--filterset", "test(x)"][..], "use -E 'test(x)'"),
            (&["run", "a", "-R", "Parser"], "use -E 'test(/Parser/)'"),
            (&["run", "a", "-RParser"], "use -E 'test(/Parser/)'"),
            (&["run", "a", "--exact", "a::b"], "use -E 'test(=a::b)'"),
            (&["run", "a", "--skip=it's"], r"use -E 'not test(it'\''s)'"),
            (&["run", "--durations=5"], "the summary names the slowest tests; heeler report latest"),
            (&["run", "--failed-first"], "Heeler does not run failed tests first; use --rerun failed"),
            (&["run", "tests/test_a.py", "--ff"], "Heeler does not run failed tests first"),
            (
                &["run", "./...", "-bench", "Add"],
                "Heeler runs tests, not benchmarks; use go test -run '^$' -bench 'Add' ./...",
            ),
            (
                &["run", "./...", "-bench=."],
                "Heeler runs tests, not benchmarks; use go test -run '^$' -bench '.' ./...",
            ),
            (&["run", "./...", "-timeout", "30s"], "use --timeout 30s for each test, or --run-timeout 30s"),
            (&["run", "./...", "-parallel=4"], "use -j 4"),
            (&["run", "./...", "-json"], "use --format json"),
            (
                &["run", "./...", "-run", "TestA/sub"],
                "Heeler runs a test with all its subtests; use -run 'TestA'",
            ),
            (&["run", "a", "--list"], "use heeler list"),
            (&["run", "--rerun-failed"], "use --rerun failed"),
            (&["run", "--ignored"], "use --run-ignored only"),
            (&["run", "a", "--parallel", "--ignored"], "use -j …"),
            (&["run", "a", "--offline"], "use --cargo-arg=--offline"),
            (&["run", "a", "--data=dir"], "to pass it to the test programs, put it after --: -- --data"),
            (&["./build/a_test"], "to run its tests: heeler run ./build/a_test"),
            (&["./build/a test"], "to run its tests: heeler run './build/a test'"),
            (&["nextest", "run"], "to run tests: heeler run"),
        ] {
            let hint = hint(words);
            assert!(hint.starts_with(&format!("tip: {expected}")), "{words:?}: {hint}");
            assert!(!hint.contains("similar") && !hint.contains("Usage"), "{hint}");
        }
        assert!(
            hint(&["run", "a", "--retires", "2"]).starts_with("tip: a similar argument exists: '--retries'")
        );
        assert!(!hint(&["report", "--no-such-option"]).contains("after --"));
        let behind = |word| message(&["run", "a", "--", word]);
        assert!(
            behind("--nocapture").contains("--nocapture can't be passed")
                && behind("--nocapture").contains("use --no-capture")
        );
        assert!(behind("--test-threads=1").contains("use -j 1"));
        assert!(behind("--gtest_filter=A.*").contains("use --gtest_filter='A.*' before --"));
        assert!(behind("-test.run=TestA").contains("-test.run can't be passed to the test programs"));
        assert!(behind("-test.run=TestA").contains("use -E 'test(/TestA/)'"));
        assert!(behind("--junitxml=o.xml").contains("use --junit o.xml"));
    }

    #[test]
    fn own_forms_name_own_options_and_no_name_is_an_own_one() {
        let all = CommandLineArguments::command();
        let run = all.find_subcommand("run").unwrap();
        let is_own = |word: &str| {
            let long = word.strip_prefix("--");
            let short =
                word.strip_prefix('-').and_then(|text| text.chars().next()).filter(|_| word.len() == 2);
            run.get_arguments().any(|argument| {
                let names = argument.get_long_and_visible_aliases().unwrap_or_default();
                let hidden = argument.get_all_aliases().unwrap_or_default();
                long.is_some_and(|long| names.contains(&long) || hidden.contains(&long))
                    || short.is_some() && argument.get_short() == short
            })
        };
        for (names, form) in OWN_FORMS {
            for name in *names {
                assert!(!is_own(name), "{name} is an option of Heeler");
            }
            for word in form.split([' ', '=']).filter(|word| word.starts_with('-')) {
                assert!(is_own(word), "{word} of {form:?} is no option of Heeler");
            }
        }
    }
}
