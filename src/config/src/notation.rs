//! Notations of values in `heeler.toml`: the accepted forms of each value, and the type it becomes. No keys,
//! positions or file I/O here.

use std::{fmt, marker::PhantomData, num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use heeler_report::ReportRequest;
use serde::{
    Deserialize as _, Deserializer,
    de::{
        DeserializeSeed, Error as _, MapAccess, SeqAccess, Unexpected, Visitor, value::MapAccessDeserializer,
    },
};

use super::{
    CaptureStrategy, CrashCapture, DumpPolicy, FailFast, FinalStatusLevel, FlakyResult, JobCount,
    MachineSlots, MemoryLimit, OutputTiming, ShuffleMode, SlowTimeout, StatusLevel, TimeLimit,
    quantity::{parse_duration, parse_positive_duration, parse_size},
    reports::parse_report_request,
    tables::SlowTimeoutTable,
};

/// A value as written in the file.
#[derive(Debug, Clone)]
pub(super) enum WrittenValue<'v> {
    Boolean(bool),
    Integer(i64),
    Text(&'v str),
    Texts(Vec<String>),
}

/// Why a value does not match its notation.
#[derive(Debug)]
pub(super) enum NotationError {
    /// A value of the wrong kind.
    Unexpected,
    /// A text that can't be parsed, with the parser's message.
    Malformed(String),
}

impl<E: std::error::Error> From<E> for NotationError {
    fn from(error: E) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// The notation of a value in the file.
pub(super) trait Notation: Sized {
    /// The type that the value becomes.
    type Value;

    /// Describes the accepted values for error messages.
    fn expected() -> String;

    /// Converts the written value.
    fn read(written: WrittenValue<'_>) -> Result<Self::Value, NotationError>;

    /// Checks a single element of an array, so that an error gets the position of the element.
    fn check_element(_text: &str) -> Result<(), NotationError> {
        Ok(())
    }

    /// Deserializes the value of a key. Name and signature are required by `#[serde(with)]`.
    ///
    /// A wrong value counts as absent, so that the other keys of the table are still checked. The
    /// deserializer in `reader.rs`, which is the only one used with these types, has already reported the
    /// error.
    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self::Value>, D::Error> {
        Ok(deserializer.deserialize_any(NotationVisitor::<Self>(PhantomData)).ok())
    }
}

struct NotationVisitor<N>(PhantomData<N>);

impl<N: Notation> NotationVisitor<N> {
    fn finish<E: serde::de::Error>(self, written: WrittenValue<'_>) -> Result<N::Value, E> {
        N::read(written).map_err(|error| self.value_error(&error))
    }

    fn value_error<E: serde::de::Error>(&self, error: &NotationError) -> E {
        match error {
            NotationError::Unexpected => E::invalid_type(Unexpected::Other("this value"), self),
            NotationError::Malformed(message) => E::invalid_value(Unexpected::Other(message), self),
        }
    }
}

/// Deserializes an element of an array. Errors mention the notation of the whole array.
impl<'de, N: Notation> DeserializeSeed<'de> for &NotationVisitor<N> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let text = String::deserialize(deserializer)
            .map_err(|_| self.value_error::<D::Error>(&NotationError::Unexpected))?;
        N::check_element(&text).map_err(|error| self.value_error::<D::Error>(&error))?;
        Ok(text)
    }
}

impl<'de, N: Notation> Visitor<'de> for NotationVisitor<N> {
    type Value = N::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&N::expected())
    }

    fn visit_bool<E: serde::de::Error>(self, boolean: bool) -> Result<N::Value, E> {
        self.finish(WrittenValue::Boolean(boolean))
    }

    fn visit_i64<E: serde::de::Error>(self, integer: i64) -> Result<N::Value, E> {
        self.finish(WrittenValue::Integer(integer))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<N::Value, E> {
        self.finish(WrittenValue::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<N::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = array.next_element_seed(&self)? {
            texts.push(text);
        }
        self.finish(WrittenValue::Texts(texts))
    }
}

/// `true` or `false`.
pub(super) struct Flag;
/// A whole number, at least 1.
pub(super) struct Count;
/// A whole number, at least 0.
pub(super) struct Number;
/// A priority from -100 to 100.
pub(super) struct Priority;
/// A duration such as `1m 30s`.
pub(super) struct DurationText;
/// A duration that is not zero.
pub(super) struct PeriodText;
/// A size such as `64KiB`.
pub(super) struct ByteSize;
/// Path of a directory, relative to the directory of `heeler.toml`.
pub(super) struct DirectoryPath;
/// Name of a suite or a resource.
pub(super) struct NameText;
/// Name of a test framework.
pub(super) struct FrameworkName;
/// A filter. Syntax errors are reported when it is parsed.
pub(super) struct FilterText;
/// An array of strings.
pub(super) struct TextArray;
/// Name of tests that run in one process.
pub(super) struct GroupName;
/// An array of names.
pub(super) struct NameArray;
/// The units of a resource.
pub(super) struct UnitArray;
/// An array of at least one path or glob.
pub(super) struct PathArray;
/// A path, or an array of at least one path.
pub(super) struct PathOrPaths;
/// Requests for report files, such as `junit=out/junit.xml`.
pub(super) struct ReportArray;
/// A command, quoted as in a shell.
pub(super) struct CommandText;
/// Name or path of a program.
pub(super) struct ProgramText;
/// Patterns of Go packages.
pub(super) struct PackagesText;
/// A program and its arguments.
pub(super) struct CommandArray;

/// Implements [`Notation`] from name, value type, description of accepted values, and conversion.
macro_rules! notations {
    ($($name:ident -> $value:ty, $expected:expr, |$written:ident| $read:expr;)+) => {$(
        impl Notation for $name {
            type Value = $value;

            fn expected() -> String {
                $expected
            }

            fn read($written: WrittenValue<'_>) -> Result<$value, NotationError> {
                $read
            }
        }
    )+};
}

notations! {
    Flag -> bool, "true or false".to_owned(), |written| written.boolean();
    Count -> NonZeroU32, "a positive integer".to_owned(), |written| written.number();
    Number -> u32, "a non-negative integer".to_owned(), |written| written.number();
    Priority -> i32, "a number from -100 to 100".to_owned(), |written| {
        let priority = written.number()?;
        if (-100..=100).contains(&priority) { Ok(priority) } else { Err(NotationError::Unexpected) }
    };
    DurationText -> Duration, "a duration such as \"60s\" or \"1m 30s\"".to_owned(),
        |written| Ok(parse_duration(written.text()?)?);
    PeriodText -> Duration, "a duration such as \"60s\"".to_owned(),
        |written| Ok(parse_positive_duration(written.text()?)?);
    ByteSize -> u64, "a size such as \"64KiB\"".to_owned(), |written| Ok(parse_size(written.text()?)?);
    DirectoryPath -> PathBuf, "a directory path".to_owned(),
        |written| Ok(written.nonempty_text()?.into());
    NameText -> String, "a name".to_owned(), |written| Ok(written.nonempty_text()?.to_owned());
    FrameworkName -> String, "the name of a framework, such as \"gtest\"".to_owned(),
        |written| Ok(written.nonempty_text()?.to_owned());
    FilterText -> String, FILTER.to_owned(), |written| Ok(written.text()?.to_owned());
    TextArray -> Vec<String>, "an array of strings".to_owned(), |written| written.texts(|_| true);
    GroupName -> Arc<str>, "\"class\", \"file\" or a name".to_owned(),
        |written| Ok(written.nonempty_text()?.into());
    NameArray -> Arc<[String]>, "an array of names".to_owned(),
        |written| Ok(written.texts(|names| names.iter().all(|name| !name.is_empty()))?.into());
    UnitArray -> Arc<[String]>, "an array of at least one name without commas, such as [\"0\", \"1\"]".to_owned(),
        |written| {
            let is_unit = |name: &String| !name.is_empty() && !name.contains([',', '\0']);
            Ok(written.texts(|names| !names.is_empty() && names.iter().all(is_unit))?.into())
        };
    PathArray -> Vec<String>, "an array of paths or globs".to_owned(),
        |written| written.texts(|paths| !paths.is_empty() && paths.iter().all(|path| !path.is_empty()));
    PathOrPaths -> Vec<String>, "a path or an array of paths".to_owned(), |written| match written {
        WrittenValue::Text(_) => Ok(vec![written.nonempty_text()?.to_owned()]),
        written => PathArray::read(written),
    };
    CommandText -> String, "a command, such as \"node server.js\"".to_owned(),
        |written| Ok(written.nonempty_text()?.to_owned());
    ProgramText -> String, "a program, such as \"python3\"".to_owned(),
        |written| Ok(written.nonempty_text()?.to_owned());
    PackagesText -> String, "Go packages, such as \"./...\"".to_owned(),
        |written| Ok(written.nonempty_text()?.to_owned());
    CommandArray -> Vec<String>, "a command as an array of strings, such as [\"make\", \"tests\"]".to_owned(),
        |written| written.texts(|words| words.first().is_some_and(|program| !program.is_empty()));
    JobCount -> Self, "a positive integer or \"num-cpus\"".to_owned(), |written| match written {
        WrittenValue::Text("num-cpus") => Ok(Self::Cpus),
        written => written.number().map(Self::Count),
    };
    MachineSlots -> Self, "a positive integer or \"off\"".to_owned(), |written| match written {
        WrittenValue::Text("off") => Ok(Self::Off),
        written => written.number().map(Self::Count),
    };
    FailFast -> Self, "true, false or \"immediate\"".to_owned(), |written| match written {
        WrittenValue::Text("immediate") => Ok(Self::Immediate),
        written => Ok(if written.boolean()? { Self::Wait } else { Self::Off }),
    };
    ShuffleMode -> Self, "a seed (a non-negative integer), true or false".to_owned(), |written| match written {
        WrittenValue::Boolean(true) => Ok(Self::Random),
        WrittenValue::Boolean(false) => Ok(Self::Off),
        written => written.number().map(Self::Seed),
    };
    CaptureStrategy -> Self, Flag::expected(),
        |written| Ok(if written.boolean()? { Self::Shown } else { Self::Kept });
    TimeLimit -> Self, "a duration such as \"60s\" or \"1m 30s\", or false (no limit)".to_owned(),
        |written| match written {
            WrittenValue::Boolean(false) => Ok(Self::Unlimited),
            written => Ok(Self::After(parse_positive_duration(written.text()?)?)),
        };
    MemoryLimit -> Self, "a size such as \"512MiB\", or false (no limit)".to_owned(), |written| match written {
        WrittenValue::Boolean(false) => Ok(Self::Unlimited),
        written => Ok(Self::Bytes(parse_size(written.text()?)?)),
    };
    StatusLevel -> Self, format!("one of {}", Self::WORDS.map(|(word, _)| word).join(", ")),
        |written| written.word(&Self::WORDS);
    FinalStatusLevel -> Self, format!("one of {}", Self::WORDS.map(|(word, _)| word).join(", ")),
        |written| written.word(&Self::WORDS);
    OutputTiming -> Self, format!("one of {}", Self::WORDS.map(|(word, _)| word).join(", ")),
        |written| written.word(&Self::WORDS);
    FlakyResult -> Self, quoted_words(&Self::WORDS), |written| written.word(&Self::WORDS);
    DumpPolicy -> Self, quoted_words(&Self::WORDS), |written| written.word(&Self::WORDS);
    CrashCapture -> Self, quoted_words(&Self::WORDS), |written| written.word(&Self::WORDS);
}

impl Notation for ReportArray {
    type Value = Vec<ReportRequest>;

    fn expected() -> String {
        "an array of reports such as [\"junit=out/junit.xml\"]".to_owned()
    }

    fn read(written: WrittenValue<'_>) -> Result<Self::Value, NotationError> {
        let texts = written.texts(|_| true)?;
        Ok(texts.iter().map(|text| parse_report_request(text)).collect::<Result<_, _>>()?)
    }

    fn check_element(text: &str) -> Result<(), NotationError> {
        parse_report_request(text)?;
        Ok(())
    }
}

/// Description of accepted filters, also used for errors of the filter parser.
pub(super) const FILTER: &str = "a substring of a name, a glob or a filter expression";

pub(super) fn quoted_words<T>(words: &[(&str, T)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    format!("one of {}", words.join(", "))
}

impl<'v> WrittenValue<'v> {
    fn boolean(&self) -> Result<bool, NotationError> {
        match self {
            Self::Boolean(boolean) => Ok(*boolean),
            _ => Err(NotationError::Unexpected),
        }
    }

    /// Converts through text, which works for all number types.
    fn number<T: std::str::FromStr>(&self) -> Result<T, NotationError> {
        match self {
            Self::Integer(integer) => integer.to_string().parse().map_err(|_| NotationError::Unexpected),
            _ => Err(NotationError::Unexpected),
        }
    }

    fn text(&self) -> Result<&'v str, NotationError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(NotationError::Unexpected),
        }
    }

    fn nonempty_text(&self) -> Result<&'v str, NotationError> {
        self.text().and_then(|text| if text.is_empty() { Err(NotationError::Unexpected) } else { Ok(text) })
    }

    pub(super) fn texts(
        self,
        is_valid: impl FnOnce(&[String]) -> bool,
    ) -> Result<Vec<String>, NotationError> {
        match self {
            Self::Texts(texts) if is_valid(&texts) => Ok(texts),
            _ => Err(NotationError::Unexpected),
        }
    }

    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, NotationError> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or(NotationError::Unexpected)
    }
}

/// `slow-timeout`: a period or a table.
impl SlowTimeout {
    const EXPECTED: &str = "a duration such as \"60s\", or a table { period = \"60s\", terminate-after = 2 }";

    /// Deserializes the value of a key. A wrong value counts as absent, see [`Notation::deserialize`].
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let keys = &["period", "terminate-after"];
        Ok(deserializer.deserialize_struct("slow-timeout", keys, SlowTimeoutVisitor).unwrap_or_default())
    }
}

struct SlowTimeoutVisitor;

impl<'de> Visitor<'de> for SlowTimeoutVisitor {
    type Value = Option<SlowTimeout>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SlowTimeout::EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let period = parse_positive_duration(text);
        let period =
            period.map_err(|error| E::invalid_value(Unexpected::Other(&error.to_string()), &self))?;
        Ok(Some(SlowTimeout { period, terminate_after: None }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let table = SlowTimeoutTable::deserialize(MapAccessDeserializer::new(map))?;
        let period = table
            .period
            .ok_or_else(|| A::Error::custom("\"slow-timeout\" needs a \"period\" such as \"60s\""))?;
        Ok(period.map(|period| SlowTimeout { period, terminate_after: table.terminate_after }))
    }
}

/// Deserializes the value of a required key. The outer option is `Some` if the key exists, the inner one if
/// its value is valid.
pub(super) fn required<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Duration>>, D::Error> {
    PeriodText::deserialize(deserializer).map(Some)
}
