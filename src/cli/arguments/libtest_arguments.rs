//! Arguments of libtest behind `--`, as cargo-nextest takes them from users and editors.

use std::ffi::OsString;

use heeler_adapters::exact_filter;

use super::foreign_filters::{self as filters, LetterCase};

/// Arguments of libtest behind `--`, as editors write them to run one test.
#[derive(Default)]
pub(super) struct LibtestArguments {
    names: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    options: Vec<OsString>,
    /// Words without a meaning here, for programs with a main function of their own.
    others: Vec<OsString>,
}

impl LibtestArguments {
    pub(super) fn read(words: impl Iterator<Item = OsString>) -> Self {
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
                Some("--show-output") => read.options.push("--success-output=final".into()),
                Some("--skip") => match words.next().map(OsString::into_string) {
                    Some(Ok(name)) => read.skipped.push(name),
                    Some(Err(name)) => read.others.extend([word, name]),
                    // The program reports that the value is missing.
                    None => read.others.push(word),
                },
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
    pub(super) fn into_words(self) -> (Vec<OsString>, Vec<OsString>) {
        let Self { names, skipped, is_exact, options: mut own, others } = self;
        let named = |name: &String| match is_exact {
            true => exact_filter(name),
            false => filters::of_part(name, LetterCase::Same),
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
