//! Options that a client sends with a run request, in the notation of `heeler.toml`.
//! [`ResolvedSettings::for_run`](super::ResolvedSettings::for_run) applies them over all other settings.
//!
//! Works with any self-describing serde format. Parsing stops at the first invalid member; the error names
//! the member and the expected value.

use std::{fmt, num::NonZeroU32, time::Duration};

use heeler_core::RetryPolicy;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    RunIgnored, TestLayer, TimeLimit,
    closest_match::known_words_hint,
    file::is_variable_name,
    notation::{Count, Flag, Notation, NotationError, Number, TextArray, WrittenValue},
};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunOptions {
    /// Number of worker slots, limited to the server's number of slots.
    pub(super) jobs: Option<NonZeroU32>,
    /// Settings for every test of the run.
    pub(super) tests: TestLayer,
    /// Additional program arguments and environment changes.
    pub(super) program: ProgramOptions,
}

/// Options of a run that are not settings: how programs are started, how often tests run, and how output is
/// sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramOptions {
    /// Appended to the configured arguments.
    pub args: Vec<String>,
    /// Applied after the configured environment; `None` unsets a variable.
    pub env: Vec<(String, Option<String>)>,
    /// Whether the client receives test output while tests run.
    pub is_output_live: bool,
    /// Number of times that each test must pass. `None` uses the command line's value, or once.
    pub repeat: Option<NonZeroU32>,
    /// How long to repeat all tests, as set on the command line. Replaces `repeat`.
    pub stress_duration: Option<Duration>,
    /// Whether to run tests that their framework would skip, as set on the command line.
    pub run_ignored: RunIgnored,
}

/// All members, for error messages.
const MEMBERS: [&str; 8] = ["jobs", "retries", "repeat", "timeout", "isolate", "env", "args", "liveOutput"];

impl RunOptions {
    /// Returns whether the options change how programs are started.
    #[must_use]
    pub fn changes_programs(&self) -> bool {
        !self.program.args.is_empty() || !self.program.env.is_empty()
    }
}

impl<'de> Deserialize<'de> for RunOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionsVisitor)
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = RunOptions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the members {}", MEMBERS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RunOptions, A::Error> {
        let mut options = RunOptions::default();
        while let Some(member) = map.next_key::<String>()? {
            let RunOptions { jobs, tests, program } = &mut options;
            match member.as_str() {
                "jobs" => *jobs = read_member::<Count, _>(&mut map, "jobs")?,
                "retries" => {
                    let count = read_member::<Number, _>(&mut map, "retries")?;
                    tests.retries = count.map(RetryPolicy::immediate);
                }
                "repeat" => program.repeat = read_member::<Count, _>(&mut map, "repeat")?,
                "timeout" => tests.timeout = read_member::<TimeLimit, _>(&mut map, "timeout")?,
                "isolate" => tests.is_isolated = read_member::<Flag, _>(&mut map, "isolate")?,
                "args" => program.args = read_arguments(&mut map)?,
                "liveOutput" => {
                    program.is_output_live =
                        read_member::<Flag, _>(&mut map, "liveOutput")?.unwrap_or_default();
                }
                "env" => program.env = map.next_value_seed(EnvironmentSeed)?,
                _ => return Err(unknown_member(&member)),
            }
        }
        Ok(options)
    }
}

fn unknown_member<E: Error>(member: &str) -> E {
    let hint = known_words_hint(member, &MEMBERS);
    E::custom(format!("unknown member \"{member}\"{hint}"))
}

/// Reads one member; null counts as absent.
fn read_member<'de, N: Notation, A: MapAccess<'de>>(
    map: &mut A,
    member: &str,
) -> Result<Option<N::Value>, A::Error> {
    let malformed =
        |reason: &str| A::Error::custom(format!("expected {} for \"{member}\"{reason}", N::expected()));
    let value = match map.next_value::<OptionValue>()? {
        OptionValue::Null => return Ok(None),
        OptionValue::Boolean(boolean) => N::read(WrittenValue::Boolean(boolean)),
        OptionValue::Integer(integer) => N::read(WrittenValue::Integer(integer)),
        OptionValue::Text(text) => N::read(WrittenValue::Text(&text)),
        OptionValue::Texts(texts) => N::read(WrittenValue::Texts(texts)),
        OptionValue::Other => Err(NotationError::Unexpected),
    };
    value.map(Some).map_err(|error| match error {
        NotationError::Unexpected => malformed(""),
        NotationError::Malformed(reason) => malformed(&format!(": {reason}")),
    })
}

fn read_arguments<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<String>, A::Error> {
    let args = read_member::<TextArray, _>(map, "args")?.unwrap_or_default();
    if args.iter().any(|word| word.contains('\0')) {
        return Err(A::Error::custom("expected an array of strings without NUL bytes for \"args\""));
    }
    Ok(args)
}

/// A value as sent by the client.
enum OptionValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(String),
    Texts(Vec<String>),
    /// A value that no option accepts.
    Other,
}

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionValueVisitor)
    }
}

struct OptionValueVisitor;

impl<'de> Visitor<'de> for OptionValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<OptionValue, E> {
        Ok(OptionValue::Null)
    }

    fn visit_bool<E: Error>(self, boolean: bool) -> Result<OptionValue, E> {
        Ok(OptionValue::Boolean(boolean))
    }

    fn visit_i64<E: Error>(self, integer: i64) -> Result<OptionValue, E> {
        Ok(OptionValue::Integer(integer))
    }

    fn visit_u64<E: Error>(self, integer: u64) -> Result<OptionValue, E> {
        Ok(i64::try_from(integer).map_or(OptionValue::Other, OptionValue::Integer))
    }

    fn visit_f64<E: Error>(self, _number: f64) -> Result<OptionValue, E> {
        Ok(OptionValue::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OptionValue, E> {
        Ok(OptionValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<OptionValue, A::Error> {
        let mut texts = Some(Vec::new());
        while let Some(element) = array.next_element::<OptionValue>()? {
            match (element, &mut texts) {
                (OptionValue::Text(text), Some(texts)) => texts.push(text),
                _ => texts = None,
            }
        }
        Ok(texts.map_or(OptionValue::Other, OptionValue::Texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OptionValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(OptionValue::Other)
    }
}

/// Reads `env`: an object that maps each variable to a value, or to false to unset it.
struct EnvironmentSeed;

impl<'de> DeserializeSeed<'de> for EnvironmentSeed {
    type Value = Vec<(String, Option<String>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EnvironmentSeed {
    type Value = Vec<(String, Option<String>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of environment variables (strings, or false to unset) for \"env\"")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut variables = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, OptionValue>()? {
            if !is_variable_name(&name) {
                let message = format!("invalid environment variable name {name:?} in \"env\"");
                return Err(A::Error::custom(message));
            }
            match value {
                OptionValue::Null => {}
                OptionValue::Boolean(false) => variables.push((name, None)),
                OptionValue::Text(text) if !text.contains('\0') => variables.push((name, Some(text))),
                _ => {
                    let message = format!("expected a string for {name} in \"env\", or false to unset it");
                    return Err(A::Error::custom(message));
                }
            }
        }
        Ok(variables)
    }
}

#[cfg(test)]
mod cases {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<RunOptions, String> {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        serde_json::from_value(value).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn every_option_is_read() {
        let text = r#"{"jobs": 3, "retries": 2, "timeout": "1m 30s", "isolate": true,
            "env": {"A": "b", "C": false, "D": null}, "args": ["--x", "y"], "liveOutput": true, "repeat": 7}"#;
        let tests = TestLayer {
            retries: Some(RetryPolicy::immediate(2)),
            timeout: Some(TimeLimit::After(Duration::from_secs(90))),
            is_isolated: Some(true),
            ..TestLayer::default()
        };
        let program = ProgramOptions {
            args: vec!["--x".to_owned(), "y".to_owned()],
            env: vec![("A".to_owned(), Some("b".to_owned())), ("C".to_owned(), None)],
            is_output_live: true,
            repeat: NonZeroU32::new(7),
            stress_duration: None,
            run_ignored: RunIgnored::Default,
        };
        assert_eq!(read(text), Ok(RunOptions { jobs: NonZeroU32::new(3), tests, program }));
    }

    #[test]
    fn null_option_counts_as_absent() {
        let nulls = MEMBERS.map(|member| format!("{member:?}: null")).join(", ");
        assert_eq!(read(&format!("{{{nulls}}}")), Ok(RunOptions::default()));
        assert_eq!(read("{}"), Ok(RunOptions::default()));
        let unlimited = read(r#"{"timeout": false}"#).unwrap();
        assert_eq!(unlimited.tests.timeout, Some(TimeLimit::Unlimited));
    }

    #[test]
    fn error_names_the_member_and_what_was_expected() {
        let duration = "a duration such as \"60s\" or \"1m 30s\", or false (no limit)";
        let variables =
            "expected an object of environment variables (strings, or false to unset) for \"env\"";
        for (text, message) in [
            (r#"{"jobs": 0}"#, "expected a positive integer for \"jobs\"".to_owned()),
            (r#"{"jobs": "num-cpus"}"#, "expected a positive integer for \"jobs\"".to_owned()),
            (r#"{"jobs": 18446744073709551615}"#, "expected a positive integer for \"jobs\"".to_owned()),
            (r#"{"repeat": 0}"#, "expected a positive integer for \"repeat\"".to_owned()),
            (r#"{"repeat": true}"#, "expected a positive integer for \"repeat\"".to_owned()),
            (r#"{"retries": -1}"#, "expected a non-negative integer for \"retries\"".to_owned()),
            (r#"{"retries": 1.5}"#, "expected a non-negative integer for \"retries\"".to_owned()),
            (r#"{"timeout": 60}"#, format!("expected {duration} for \"timeout\"")),
            (
                r#"{"timeout": "60"}"#,
                format!("expected {duration} for \"timeout\": \"60\" has no unit; the units are ms, s, m, h and d"),
            ),
            (
                r#"{"timeout": "0s"}"#,
                format!("expected {duration} for \"timeout\": the duration must be longer than zero"),
            ),
            (r#"{"isolate": "yes"}"#, "expected true or false for \"isolate\"".to_owned()),
            (r#"{"args": "--x"}"#, "expected an array of strings for \"args\"".to_owned()),
            (r#"{"args": ["--x", 1]}"#, "expected an array of strings for \"args\"".to_owned()),
            (r#"{"args": [{"a": [1]}]}"#, "expected an array of strings for \"args\"".to_owned()),
            (r#"{"args": ["a\u0000"]}"#, "expected an array of strings without NUL bytes for \"args\"".to_owned()),
            (r#"{"env": {"A": 1}}"#, "expected a string for A in \"env\", or false to unset it".to_owned()),
            (r#"{"env": {"A": true}}"#, "expected a string for A in \"env\", or false to unset it".to_owned()),
            (
                r#"{"env": {"A=B": "c"}}"#,
                "invalid environment variable name \"A=B\" in \"env\"".to_owned(),
            ),
            (r#"{"env": ["A"]}"#, format!("invalid type: sequence, {variables}")),
            (r#"{"retry": 1}"#, "unknown member \"retry\"; did you mean \"retries\"?".to_owned()),
            (
                r#"{"colour": 1}"#,
                "unknown member \"colour\" (available: jobs, retries, repeat, timeout, isolate, env, args, liveOutput)".to_owned(),
            ),
            (
                "[]",
                "invalid type: sequence, expected an object with the members jobs, retries, repeat, timeout, isolate, \
                 env, args, liveOutput"
                    .to_owned(),
            ),
        ] {
            assert_eq!(read(text), Err(message), "{text}");
        }
    }
}
