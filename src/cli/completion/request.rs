//! The value that is being typed, and its candidates.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use heeler_adapters::exact_filter;
use heeler_config::{Config, filter::Filter};
use heeler_run_store::history::{FILE_NAME, HistoryStore};

use crate::cli::{arguments::CommandLineArguments, configuration::load_config};

/// Maximum number of candidates. A user reads fewer, and the shell must hold all of them.
const MAX_CANDIDATES: usize = 1000;

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Suite,
    Profile,
    Framework,
    /// A recorded run.
    Run,
    /// Tests of a recorded run.
    Rerun,
    /// A test's name, as a filter.
    Filter,
}

/// A value that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompletionRequest<'a> {
    kind: ValueKind,
    /// Part of the word before the value, such as `--suite=`.
    option: &'a str,
    /// The value so far.
    typed: &'a str,
    /// All words of the command line, without the program.
    words: &'a [String],
}

impl<'a> CompletionRequest<'a> {
    /// Returns the value at the last word; `None` if the word is anything else.
    pub(super) fn of_words(words: &'a [String]) -> Option<Self> {
        let (current, before) = words.split_last()?;
        let (command, last) = (before.first()?, before.last()?);
        if before.iter().any(|word| word == "--") {
            return None;
        }
        if let Some(kind) = kind_of_option(command, last) {
            return Some(Self { kind, option: "", typed: current, words });
        }
        if let Some((option, typed)) = current.split_once('=')
            && let Some(kind) = kind_of_option(command, option)
        {
            return Some(Self { kind, option: &current[..=option.len()], typed, words });
        }
        let is_run = command == "report" && before.len() == 1 && !current.starts_with('-');
        is_run.then_some(Self { kind: ValueKind::Run, option: "", typed: current, words })
    }

    /// Returns the words that complete the typed word.
    pub(super) fn candidates(&self) -> Vec<String> {
        let values = self.values().unwrap_or_default().into_iter();
        let matching =
            values.filter(|value| value.starts_with(self.typed) && !value.contains(char::is_control));
        matching.take(MAX_CANDIDATES).map(|value| format!("{}{value}", self.option)).collect()
    }

    /// Returns the values of this kind; `None` if the configuration can't be read.
    fn values(&self) -> Option<Vec<String>> {
        let config = || load_config(self.value_of("--config-file").as_deref()).ok();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        Some(match self.kind {
            ValueKind::Suite => config()?.suites.into_iter().map(|suite| suite.name).collect(),
            ValueKind::Profile => config()?.profile_names(),
            ValueKind::Framework => {
                heeler_adapters::framework_names().split(", ").map(str::to_owned).collect()
            }
            ValueKind::Run => [words(&["latest"]), self.run_ids(&config()?)].concat(),
            ValueKind::Rerun => [words(&["failed", "not-run", "latest"]), self.run_ids(&config()?)].concat(),
            ValueKind::Filter => self.filters(&config()?),
        })
    }

    fn run_ids(&self, config: &Config) -> Vec<String> {
        heeler_run_store::run_ids(&self.state_dir(config))
    }

    /// Returns the names of recorded tests, as filters.
    fn filters(&self, config: &Config) -> Vec<String> {
        let Ok(history) = HistoryStore::open_read_only(&self.state_dir(config).join(FILE_NAME)) else {
            return Vec::new();
        };
        let exact = self.typed.strip_prefix(EXACT_FILTER);
        // An escaped character is not the name's own.
        let prefix = exact.unwrap_or(self.typed).split('\\').next().unwrap_or_default();
        let names = history.test_names(prefix, MAX_CANDIDATES).unwrap_or_default();
        match exact {
            Some(_) => names.iter().map(|name| exact_filter(name)).collect(),
            None => names.into_iter().filter(|name| is_plain_filter(name)).collect(),
        }
    }

    fn state_dir(&self, config: &Config) -> PathBuf {
        self.value_of("--state-dir").unwrap_or_else(|| config.state_dir.clone())
    }

    /// Returns the path that an option of the command line names.
    fn value_of(&self, option: &str) -> Option<PathBuf> {
        let place = self.words.iter().position(|word| {
            word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        let joined = self.words[place].split_once('=').map(|(_, value)| value);
        joined.or(self.words.get(place + 1).map(String::as_str)).map(|path| Path::new(path).to_owned())
    }
}

/// Start of a filter for one test. The name in such a filter may contain any characters.
const EXACT_FILTER: &str = "test(=";

/// Returns whether a name, as a filter, selects the tests whose names contain it.
fn is_plain_filter(name: &str) -> bool {
    let is_plain = |char: char| char.is_alphanumeric() || "_:.-@,/".contains(char);
    name.chars().all(is_plain) && !name.starts_with(['/', '-']) && name.parse::<Filter>().is_ok()
}

fn kind_of_option(command: &str, option: &str) -> Option<ValueKind> {
    let program = CommandLineArguments::command();
    let mut arguments = program.find_subcommand(command)?.get_arguments();
    let name = |argument: &clap::Arg| {
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = argument.get_long().map(|long| format!("--{long}"));
        (short.as_deref() == Some(option) || long.as_deref() == Some(option)).then_some(long)?
    };
    match arguments.find_map(name)?.as_str() {
        "--suite" => Some(ValueKind::Suite),
        "--profile" => Some(ValueKind::Profile),
        "--framework" => Some(ValueKind::Framework),
        "--rerun" => Some(ValueKind::Rerun),
        "--filter" => Some(ValueKind::Filter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<(ValueKind, String, String)> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let request = CompletionRequest::of_words(&words)?;
        Some((request.kind, request.option.to_owned(), request.typed.to_owned()))
    }

    #[test]
    fn value_has_the_kind_of_its_option_and_command() {
        for (line, expected, option, typed) in [
            ("run --suite ", ValueKind::Suite, "", ""),
            ("list --suite=un", ValueKind::Suite, "--suite=", "un"),
            ("run build/x -P c", ValueKind::Profile, "", "c"),
            ("report --profile c", ValueKind::Profile, "", "c"),
            ("run --framework g", ValueKind::Framework, "", "g"),
            ("run --rerun ", ValueKind::Rerun, "", ""),
            ("run -E math::", ValueKind::Filter, "", "math::"),
            ("run --filter=a=b", ValueKind::Filter, "--filter=", "a=b"),
            ("report la", ValueKind::Run, "", "la"),
        ] {
            assert_eq!(kind(line), Some((expected, option.to_owned(), typed.to_owned())), "{line}");
        }
        for line in
            ["run", "run ", "run --sui", "report --sui", "doctor --suite ", "run -- --suite ", "nothing -E "]
        {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn frameworks_complete_their_beginning() {
        let words = ["run", "--framework=gt"].map(str::to_owned);
        assert_eq!(
            CompletionRequest::of_words(&words).unwrap().candidates(),
            ["--framework=gtest", "--framework=gtest-abseil"]
        );
    }

    #[test]
    fn only_plain_names_are_filters_of_themselves() {
        for name in ["math::adds", "Parser.Reads/0", "tests/test_io.py::TestRead::test_end", "TestTable"] {
            assert!(is_plain_filter(name), "{name}");
        }
        for name in ["a b", "test[1-2]", "f(x)", "a & b", "-x", "/regex/", "#glob"] {
            assert!(!is_plain_filter(name), "{name}");
        }
    }
}
