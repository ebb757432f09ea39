//! A reader of TOML tables that tracks positions: it looks up keys by name and type, collects every error
//! with its position, and at the end reports the keys that were not looked up. The set of valid keys is not
//! known here.

use std::{cell::RefCell, num::NonZeroU32, ops::Range, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ConfigProblem, ConfigSection, FilePosition, QuantityError,
    quantity::{parse_duration, parse_size},
};
use crate::filter::Filter;

/// The text of a file, and the problems found in it so far.
pub(super) struct ConfigDocument<'t> {
    text: &'t str,
    problems: RefCell<Vec<ConfigProblem>>,
    looked_up_keys: RefCell<Vec<(ConfigSection, &'static str)>>,
}

impl<'t> ConfigDocument<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: RefCell::default(), looked_up_keys: RefCell::default() }
    }

    /// Returns the line and column of a byte offset.
    pub(super) fn position(&self, offset: usize) -> FilePosition {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        FilePosition {
            line: count(before.matches('\n').count() + 1),
            column: count(before[line_start..].chars().count() + 1),
        }
    }

    /// Returns where the content of a string begins, if the file writes it without escapes.
    fn content_start(&self, span: &Range<usize>, text: &str) -> Option<usize> {
        let written = &self.text[span.clone()];
        let is_plain =
            |quote| written.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) == Some(text);
        (is_plain('"') || is_plain('\'')).then_some(span.start + 1)
    }

    pub(super) fn report(&self, span: Range<usize>, message: impl Into<String>) {
        let problem = ConfigProblem { position: self.position(span.start), message: message.into() };
        self.problems.borrow_mut().push(problem);
    }

    /// Returns all problems in the order of the file, and all keys that were looked up.
    pub(super) fn into_parts(self) -> (Vec<ConfigProblem>, Vec<(ConfigSection, &'static str)>) {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.position);
        (problems, self.looked_up_keys.into_inner())
    }
}

/// One table of the file and the keys looked up in it so far.
pub(super) struct TableReader<'d, 't> {
    pub(super) document: &'d ConfigDocument<'t>,
    pub(super) span: Range<usize>,
    section: ConfigSection,
    /// The table's heading for messages: `[profile.ci]`.
    title: String,
    entries: &'d DeTable<'t>,
    looked_up_keys: RefCell<Vec<&'static str>>,
}

/// A value with its key, for messages.
#[derive(Clone, Copy)]
struct KeyedValue<'d, 't> {
    key: &'static str,
    value: &'d Spanned<DeValue<'t>>,
}

impl<'d, 't> TableReader<'d, 't> {
    pub(super) fn new(
        document: &'d ConfigDocument<'t>,
        section: ConfigSection,
        title: impl Into<String>,
        (entries, span): (&'d DeTable<'t>, Range<usize>),
    ) -> Self {
        Self { document, span, section, title: title.into(), entries, looked_up_keys: RefCell::default() }
    }

    /// Reports the keys that were not looked up.
    pub(super) fn report_unknown_keys(self) {
        let asked = self.looked_up_keys.into_inner();
        for (key, _) in self.entries {
            let name = key.get_ref().as_ref();
            if asked.contains(&name) {
                continue;
            }
            let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
            let hint = match crate::closest_match(name, asked.iter().copied()) {
                Some(near) => format!("; did you mean \"{near}\"?"),
                None => format!("; the keys are {}", asked.join(", ")),
            };
            self.document.report(key.span(), format!("unknown key \"{name}\"{place}{hint}"));
        }
    }

    /// Returns the keys and values, for tables whose keys are chosen by the user.
    pub(super) fn entries(
        &self,
    ) -> impl Iterator<Item = (&'d Spanned<std::borrow::Cow<'t, str>>, &'d Spanned<DeValue<'t>>)> {
        self.entries.iter()
    }

    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the span of a key's name, or of the whole table if the key is missing.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.entries.get_key_value(key).map_or(self.span.clone(), |(key, _)| key.span())
    }

    fn look_up(&self, key: &'static str) -> Option<KeyedValue<'d, 't>> {
        let mut asked = self.looked_up_keys.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.document.looked_up_keys.borrow_mut().push((self.section, key));
        self.entries.get(key).map(|value| KeyedValue { key, value })
    }

    /// Reports that a value does not have the expected form.
    fn report_unexpected<T>(&self, what: &str, KeyedValue { key, value }: KeyedValue<'d, 't>) -> Option<T> {
        let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
        let found = describe_value(value.get_ref());
        self.document.report(value.span(), format!("expected {what} for \"{key}\"{place}, found {found}"));
        None
    }

    /// Returns the unconverted value, for keys of more than one type.
    pub(super) fn read_any(&self, key: &'static str) -> Option<&'d DeValue<'t>> {
        self.look_up(key).map(|value| value.value.get_ref())
    }

    pub(super) fn read<T>(
        &self,
        key: &'static str,
        what: &str,
        read: impl FnOnce(&'d DeValue<'t>) -> Option<T>,
    ) -> Option<T> {
        let value = self.look_up(key)?;
        read(value.value.get_ref()).or_else(|| self.report_unexpected(what, value))
    }

    /// Reads a text with a parser that describes its own errors; other types are reported as unexpected.
    pub(super) fn parse<T, E: std::fmt::Display>(
        &self,
        key: &'static str,
        what: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.look_up(key)?;
        let Some(text) = value.value.get_ref().as_str() else { return self.report_unexpected(what, value) };
        match read(text) {
            Ok(read) => Some(read),
            Err(error) => {
                let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
                self.document
                    .report(value.value.span(), format!("expected {what} for \"{key}\"{place}: {error}"));
                None
            }
        }
    }

    /// Reads an array of texts with a parser that describes its own errors, each at its text's position.
    pub(super) fn parse_array<T, E: std::fmt::Display>(
        &self,
        key: &'static str,
        what: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let value = self.look_up(key)?;
        let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
        let Some(array) = value.value.get_ref().as_array() else {
            return self.report_unexpected(what, value);
        };
        let mut all = Some(Vec::new());
        for item in array.iter() {
            let item_read = match item.get_ref().as_str() {
                Some(text) => read(text).map_err(|error| format!(": {error}")),
                None => Err(format!(", found {}", describe_value(item.get_ref()))),
            };
            match item_read {
                Ok(one) => {
                    all = all.map(|mut all| {
                        all.push(one);
                        all
                    })
                }
                Err(problem) => {
                    self.document
                        .report(item.span(), format!("expected {what} for \"{key}\"{place}{problem}"));
                    all = None;
                }
            }
        }
        all
    }

    /// Reads a filter. An error in it is reported at its own position, where the file writes the text without
    /// escapes.
    pub(super) fn read_filter(&self, key: &'static str) -> Option<Filter> {
        let what = "a part of a name, a glob or an expression";
        let value = self.look_up(key)?;
        let Some(text) = value.value.get_ref().as_str() else { return self.report_unexpected(what, value) };
        let error = match text.parse::<Filter>() {
            Ok(filter) => return Some(filter),
            Err(error) => error,
        };
        let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
        let span = value.value.span();
        let (span, told) = match self.document.content_start(&span, text) {
            Some(start) => (start + error.offset()..span.end, error.message().to_owned()),
            None => (span, error.to_string()),
        };
        self.document.report(span, format!("expected {what} for \"{key}\"{place}: {told}"));
        None
    }

    pub(super) fn read_string(&self, key: &'static str, what: &str) -> Option<String> {
        self.read(key, what, |value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
    }

    pub(super) fn read_bool(&self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", DeValue::as_bool)
    }

    pub(super) fn read_count(&self, key: &'static str) -> Option<NonZeroU32> {
        self.read(key, "a whole number from 1", |value| NonZeroU32::new(u32::try_from(integer(value)?).ok()?))
    }

    pub(super) fn read_duration(&self, key: &'static str) -> Option<Duration> {
        self.parse(key, "a duration such as \"60s\" or \"1m 30s\"", parse_duration)
    }

    pub(super) fn read_size(&self, key: &'static str) -> Option<u64> {
        self.parse(key, "a size such as \"64KiB\"", parse_size)
    }

    pub(super) fn read_strings(&self, key: &'static str, what: &str) -> Option<Vec<String>> {
        self.read(key, what, |value| {
            value.as_array()?.iter().map(|one| one.get_ref().as_str().map(str::to_owned)).collect()
        })
    }

    /// Returns a table below this one; `title` is its heading in messages.
    pub(super) fn read_table(&self, key: &'static str, section: ConfigSection, title: &str) -> Option<Self> {
        let value = self.look_up(key)?;
        match value.value.get_ref() {
            DeValue::Table(entries) => {
                Some(Self::new(self.document, section, title, (entries, value.value.span())))
            }
            _ => self.report_unexpected("a table", value),
        }
    }

    /// Returns the tables below this one that are written `[[key]]`.
    pub(super) fn read_tables(&self, key: &'static str, section: ConfigSection, title: &str) -> Vec<Self> {
        let Some(value) = self.look_up(key) else { return Vec::new() };
        let Some(array) = value.value.get_ref().as_array() else {
            self.report_unexpected::<()>(&format!("tables written {title}"), value);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for one in array.iter() {
            match one.get_ref() {
                DeValue::Table(entries) => {
                    tables.push(Self::new(self.document, section, title, (entries, one.span())));
                }
                _ => drop(self.report_unexpected::<()>(
                    &format!("tables written {title}"),
                    KeyedValue { key, value: one },
                )),
            }
        }
        tables
    }
}

/// Returns the value of an integer in any notation.
pub(super) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Reads a duration that must not be zero.
pub(super) fn parse_positive_duration(text: &str) -> Result<Duration, PositiveDurationError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err(PositiveDurationError::Zero) } else { Ok(duration) }
}

/// The error of parsing a duration that must not be zero.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PositiveDurationError {
    #[error("it must be longer than zero")]
    Zero,
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

fn describe_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.is_empty() => "an empty string".to_owned(),
        DeValue::String(text) if text.chars().count() > 40 => "a long string".to_owned(),
        DeValue::String(text) => format!("the string {:?}", text.as_ref()),
        DeValue::Integer(_) => match integer(value) {
            Some(integer) => format!("the number {integer}"),
            None => "a number that is too large".to_owned(),
        },
        DeValue::Float(float) => format!("the number {}", float.as_str()),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(array) if array.is_empty() => "an empty array".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
