//! Deserializes TOML tables. Reports every error with its position and continues. A table's known keys are
//! the fields of the types that it is read as; unknown keys are reported at the end.

use std::{cell::RefCell, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Expected, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigProblem, FilePosition, closest_match::known_words_hint, notation::FILTER};
use crate::filter::Filter;

/// The text of a file and the problems found in it so far.
pub(super) struct ConfigDocument<'t> {
    text: &'t str,
    problems: RefCell<Vec<ConfigProblem>>,
}

impl<'t> ConfigDocument<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: RefCell::default() }
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

    /// Returns where the content of a string begins, if it is written without escapes.
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

    /// Returns all problems in file order.
    pub(super) fn into_problems(self) -> Vec<ConfigProblem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.position);
        problems
    }
}

/// A table of the file, and the keys known so far.
pub(super) struct TableReader<'d, 't> {
    pub(super) document: &'d ConfigDocument<'t>,
    pub(super) span: Range<usize>,
    /// The table's heading for messages, such as `[profile.ci]`.
    title: String,
    entries: &'d DeTable<'t>,
    known_keys: RefCell<Vec<&'static str>>,
}

impl<'d, 't> TableReader<'d, 't> {
    pub(super) fn new(
        document: &'d ConfigDocument<'t>,
        title: impl Into<String>,
        entries: &'d DeTable<'t>,
        span: Range<usize>,
    ) -> Self {
        Self { document, span, title: title.into(), entries, known_keys: RefCell::default() }
    }

    /// Reads the keys of one type. A table may be read as several types. Errors are reported, and keys with
    /// errors count as absent.
    pub(super) fn read<T: Deserialize<'d> + Default>(&self) -> T {
        T::deserialize(self).unwrap_or_default()
    }

    /// Reports keys that belong to none of the types read so far.
    pub(super) fn report_unknown_keys(&self) {
        let known = self.known_keys.borrow();
        for (key, _) in self.entries {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
            let hint = known_words_hint(name, &known);
            self.document.report(key.span(), format!("unknown key \"{name}\"{place}{hint}"));
        }
    }

    /// Returns the keys of all types read so far.
    #[cfg(test)]
    pub(super) fn known_keys(&self) -> Vec<&'static str> {
        self.known_keys.borrow().clone()
    }

    /// Returns keys and values, for tables with keys chosen by the user.
    pub(super) fn entries(
        &self,
    ) -> impl Iterator<Item = (&'d Spanned<std::borrow::Cow<'t, str>>, &'d Spanned<DeValue<'t>>)> {
        self.entries.iter()
    }

    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the span of a key, or of the whole table if the key is missing.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.entries.get_key_value(key).map_or(self.span.clone(), |(key, _)| key.span())
    }

    fn value<'k>(&self, key: &'k str, value: &'d Spanned<DeValue<'t>>) -> KeyedValue<'k, 'd, 't>
    where
        'd: 'k,
    {
        KeyedValue { document: self.document, title: self.title.clone(), key, value }
    }

    /// Parses a filter. A syntax error is reported at its own position if the file writes the text without
    /// escapes.
    pub(super) fn parse_filter(&self, key: &'static str, text: &str) -> Option<Filter> {
        let error = match text.parse::<Filter>() {
            Ok(filter) => return Some(filter),
            Err(error) => error,
        };
        let span = self.entries.get(key).map_or(self.span.clone(), Spanned::span);
        let (span, message) = match self.document.content_start(&span, text) {
            Some(start) => (start + error.offset()..span.end, error.message().to_owned()),
            None => (span, error.to_string()),
        };
        let title = &self.title;
        self.document.report(span, format!("expected {FILTER} for \"{key}\" in {title}: {message}"));
        None
    }

    /// Returns a nested table.
    pub(super) fn read_table(&self, key: &'static str) -> Option<Self> {
        let value = self.value(key, self.entries.get(key)?);
        match value.value.get_ref() {
            DeValue::Table(entries) => Some(value.table(entries)),
            _ => {
                value.report_unexpected("a table");
                None
            }
        }
    }

    /// Returns nested tables written as `[[key]]`. `title` is their heading in messages.
    pub(super) fn read_tables(&self, key: &'static str, title: &str) -> Vec<Self> {
        let Some(value) = self.entries.get(key) else { return Vec::new() };
        let expected = format!("tables written as {title}");
        let Some(array) = value.get_ref().as_array() else {
            self.value(key, value).report_unexpected(&expected);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for one in array.iter() {
            match one.get_ref() {
                DeValue::Table(entries) => tables.push(Self::new(self.document, title, entries, one.span())),
                _ => self.value(key, one).report_unexpected(&expected),
            }
        }
        tables
    }
}

impl<'de> Deserializer<'de> for &TableReader<'de, '_> {
    type Error = ValueError;

    /// Visits the keys of the type and records them as known.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let mut known = self.known_keys.borrow_mut();
        known.extend(keys);
        let values = keys.iter().filter_map(|key| Some(self.value(key, self.entries.get(*key)?)));
        visitor.visit_map(KeyedValues { values, next: None })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_struct("", &[], visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The keys of a type that a table contains, with their values.
struct KeyedValues<'k, 'd, 't, I> {
    values: I,
    next: Option<KeyedValue<'k, 'd, 't>>,
}

impl<'k, 'de, 't, I: Iterator<Item = KeyedValue<'k, 'de, 't>>> MapAccess<'de>
    for KeyedValues<'k, 'de, 't, I>
{
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueError> {
        self.next = self.values.next();
        let Some(value) = &self.next else { return Ok(None) };
        let key: StrDeserializer<'_, ValueError> = value.key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ValueError> {
        seed.deserialize(self.next.take().expect("a value is asked for after its key"))
    }
}

/// A value with its key. Deserialization errors are reported with the value's position.
struct KeyedValue<'k, 'd, 't> {
    document: &'d ConfigDocument<'t>,
    /// Heading of the table.
    title: String,
    key: &'k str,
    value: &'d Spanned<DeValue<'t>>,
}

impl<'d, 't> KeyedValue<'_, 'd, 't> {
    fn place(&self) -> String {
        let place = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
        format!("for \"{}\"{place}", self.key)
    }

    /// Reports that a value does not have the expected form.
    fn report_unexpected(&self, expected: &str) {
        let found = describe_value(self.value.get_ref());
        self.document
            .report(self.value.span(), format!("expected {expected} {}, found {found}", self.place()));
    }

    fn report(&self, error: &ValueError) {
        match error {
            ValueError::Unexpected { expected } => self.report_unexpected(expected),
            ValueError::Malformed { expected, reason, span } => {
                let message = format!("expected {expected} {}: {reason}", self.place());
                self.document.report(span.clone().unwrap_or_else(|| self.value.span()), message);
            }
            ValueError::Other(message) => self.document.report(self.value.span(), message.as_str()),
        }
    }

    /// Returns this value as a table with its heading.
    fn table(&self, entries: &'d DeTable<'t>) -> TableReader<'d, 't> {
        let title = format!("[{}.{}]", self.title.trim_matches(['[', ']']), self.key);
        let title = if self.title.is_empty() { format!("[{}]", self.key) } else { title };
        TableReader::new(self.document, title, entries, self.value.span())
    }
}

impl<'de> Deserializer<'de> for KeyedValue<'_, 'de, '_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        UnkeyedValue(self.value.get_ref()).deserialize_any(visitor).inspect_err(|error| self.report(error))
    }

    /// Also accepts notations other than a table.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let DeValue::Table(entries) = self.value.get_ref() else { return self.deserialize_any(visitor) };
        let table = self.table(entries);
        let value = table.deserialize_struct(name, keys, visitor).inspect_err(|error| self.report(error));
        table.report_unknown_keys();
        value
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier
    }
}

/// A value without its key. The caller reports errors.
struct UnkeyedValue<'d, 't>(&'d DeValue<'t>);

impl<'de> Deserializer<'de> for UnkeyedValue<'de, '_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            DeValue::Boolean(boolean) => visitor.visit_bool(*boolean),
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Array(array) => visitor.visit_seq(ArrayElements(array.iter())),
            value => match integer(value) {
                Some(integer) => visitor.visit_i64(integer),
                None => Err(serde::de::Error::invalid_type(Unexpected::Other("this value"), &visitor)),
            },
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct ArrayElements<'d, 't>(std::slice::Iter<'d, Spanned<DeValue<'t>>>);

impl<'de> SeqAccess<'de> for ArrayElements<'de, '_> {
    type Error = ValueError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        let Some(element) = self.0.next() else { return Ok(None) };
        let value = seed.deserialize(UnkeyedValue(element.get_ref()));
        value.map(Some).map_err(|error| error.with_span(element.span()))
    }
}

/// Error of deserializing a value.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    /// The value is of the wrong kind.
    #[error("expected {expected}")]
    Unexpected { expected: String },
    /// The value is of the right kind but can't be parsed.
    #[error("expected {expected}: {reason}")]
    Malformed {
        expected: String,
        reason: String,
        /// The part of the value that can't be parsed, unless it is the whole value.
        span: Option<Range<usize>>,
    },
    #[error("{0}")]
    Other(String),
}

impl ValueError {
    /// Adds the span of the part that can't be parsed.
    fn with_span(self, part: Range<usize>) -> Self {
        match self {
            Self::Malformed { expected, reason, span } => {
                Self::Malformed { expected, reason, span: span.or(Some(part)) }
            }
            Self::Unexpected { .. } | Self::Other(_) => self,
        }
    }
}

impl serde::de::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Unexpected { expected: expected.to_string() }
    }

    fn invalid_value(reason: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Malformed { expected: expected.to_string(), reason: reason.to_string(), span: None }
    }
}

/// Returns the value of an integer in any notation.
fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
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
