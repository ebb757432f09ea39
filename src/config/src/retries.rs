//! Notations of `retries`: a number, or the table `{ backoff, count, delay, max-delay, jitter }`. On the
//! command line, the same keys are written as `count=3,delay=1s`.

use std::{fmt, time::Duration};

use heeler_core::{Backoff, RetryDelay, RetryPolicy};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

#[cfg(test)]
use super::reference::WriteNotation as _;
use super::{
    notation::{Flag, Notation, NotationError, Number, PeriodText, WrittenValue, quoted_words},
    quantity::parse_positive_duration,
};

/// Names of [`Backoff`] values.
pub(super) const BACKOFF_WORDS: [(&str, Backoff); 2] =
    [("fixed", Backoff::Fixed), ("exponential", Backoff::Exponential)];

/// The notation of `retries`.
pub(super) struct RetryNotation;
/// The notation of `backoff`.
pub(super) struct BackoffWord;

impl Notation for BackoffWord {
    type Value = Backoff;

    fn expected() -> String {
        quoted_words(&BACKOFF_WORDS)
    }

    fn read(written: WrittenValue<'_>) -> Result<Backoff, NotationError> {
        written.word(&BACKOFF_WORDS)
    }
}

/// `retries` in its table form.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields, extend("required" = ["count"])))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct RetriesTable {
    /// How the delay between retries grows. `fixed`: every delay is `delay`. `exponential`: the first is
    /// `delay`, and each further one is twice the previous one.
    #[serde(with = "BackoffWord")]
    backoff: Option<Backoff>,
    /// Number of retries of a failed test.
    #[serde(with = "Number")]
    count: Option<u32>,
    /// Time between a failure and its retry. Meanwhile the test occupies no slot; the delay is not part of
    /// its duration.
    #[serde(with = "PeriodText")]
    delay: Option<Duration>,
    /// Maximum delay of an exponential backoff.
    #[serde(with = "PeriodText")]
    max_delay: Option<Duration>,
    /// Replace each delay by a random part of it, more than half, to spread the retries of tests that failed
    /// together.
    #[serde(with = "Flag")]
    jitter: Option<bool>,
}

/// A wrong combination of keys, or an error in the value of `--retries`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetriesError {
    #[error("missing \"count\", the number of retries")]
    NoCount,
    #[error("an exponential backoff needs a \"delay\" such as \"1s\"")]
    NoDelay,
    #[error("\"jitter\" needs a \"delay\" such as \"1s\"")]
    NoDelayForJitter,
    #[error("\"max-delay\" needs backoff = \"exponential\"")]
    MaxOfFixed,
    #[error("\"max-delay\" is shorter than \"delay\"")]
    MaxBelowDelay,
    /// An unknown part in the value of `--retries`.
    #[error(
        "unknown or invalid part \"{0}\"; expected a number, or parts such as \
         count=3,backoff=exponential,delay=1s,max-delay=10s,jitter"
    )]
    Part(String),
}

impl RetriesTable {
    fn policy(&self) -> Result<RetryPolicy, RetriesError> {
        let backoff = self.backoff.unwrap_or_default();
        let count = self.count.ok_or(RetriesError::NoCount)?;
        let has_jitter = self.jitter.unwrap_or_default();
        if self.delay.is_none() && backoff == Backoff::Exponential {
            return Err(RetriesError::NoDelay);
        }
        if self.delay.is_none() && has_jitter {
            return Err(RetriesError::NoDelayForJitter);
        }
        if self.max_delay.is_some() && backoff == Backoff::Fixed {
            return Err(RetriesError::MaxOfFixed);
        }
        if self.max_delay.is_some_and(|max| Some(max) < self.delay) {
            return Err(RetriesError::MaxBelowDelay);
        }
        let first = self.delay.unwrap_or_default();
        Ok(RetryPolicy { count, delay: RetryDelay { backoff, first, max: self.max_delay, has_jitter } })
    }
}

/// Parses the value of `--retries`: a number, or the keys of the table form separated by commas.
///
/// # Errors
/// A part is unknown or malformed, or parts exclude each other.
pub fn parse_retries(text: &str) -> Result<RetryPolicy, RetriesError> {
    if let Ok(count) = text.parse() {
        return Ok(RetryPolicy::immediate(count));
    }
    let mut table = RetriesTable::default();
    for part in text.split(',').map(str::trim) {
        let wrong = || RetriesError::Part(part.to_owned());
        let duration = |text| parse_positive_duration(text).map(Some).map_err(|_| wrong());
        match part.split_once('=').unwrap_or((part, "")) {
            ("count", value) => table.count = Some(value.parse().map_err(|_| wrong())?),
            ("backoff", value) => {
                let known = BACKOFF_WORDS.iter().find(|(word, _)| *word == value);
                table.backoff = Some(known.ok_or_else(wrong)?.1);
            }
            ("delay", value) => table.delay = duration(value)?,
            ("max-delay", value) => table.max_delay = duration(value)?,
            ("jitter", "" | "true") => table.jitter = Some(true),
            ("jitter", "false") => table.jitter = Some(false),
            _ => return Err(wrong()),
        }
    }
    table.policy()
}

impl RetryNotation {
    const EXPECTED: &str =
        "a non-negative integer, or a table { backoff = \"exponential\", count = 3, delay = \"1s\" }";

    /// Deserializes the value of a key. A wrong value counts as absent, see [`Notation::deserialize`].
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<RetryPolicy>, D::Error> {
        let keys = &["backoff", "count", "delay", "max-delay", "jitter"];
        Ok(deserializer.deserialize_struct("retries", keys, RetriesVisitor).ok())
    }
}

struct RetriesVisitor;

impl<'de> Visitor<'de> for RetriesVisitor {
    type Value = RetryPolicy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RetryNotation::EXPECTED)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<RetryPolicy, E> {
        let count =
            u32::try_from(number).map_err(|_| E::invalid_type(Unexpected::Other("this value"), &self))?;
        Ok(RetryPolicy::immediate(count))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RetryPolicy, A::Error> {
        let table = RetriesTable::deserialize(MapAccessDeserializer::new(map))?;
        table.policy().map_err(|error| A::Error::custom(format!("\"retries\": {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, FlakyResult};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn text_of_the_option_is_parsed() {
        assert_eq!(parse_retries("3"), Ok(RetryPolicy::immediate(3)));
        assert_eq!(parse_retries("count=0"), Ok(RetryPolicy::immediate(0)));
        let fixed = RetryDelay { first: SECOND, ..RetryDelay::NONE };
        assert_eq!(parse_retries("count=2,delay=1s"), Ok(RetryPolicy { count: 2, delay: fixed }));
        let all = "backoff=exponential, count=3, delay=1s, max-delay=10s, jitter";
        let max = Some(10 * SECOND);
        let delay = RetryDelay { backoff: Backoff::Exponential, first: SECOND, max, has_jitter: true };
        assert_eq!(parse_retries(all), Ok(RetryPolicy { count: 3, delay }));
        assert_eq!(parse_retries("count=2,delay=1s,jitter=false").unwrap().delay, fixed);
    }

    #[test]
    fn wrong_texts_and_combinations_are_named() {
        for (text, error) in [
            ("delay=1s", RetriesError::NoCount),
            ("count=1,backoff=exponential", RetriesError::NoDelay),
            ("count=1,jitter", RetriesError::NoDelayForJitter),
            ("count=1,delay=1s,max-delay=2s", RetriesError::MaxOfFixed),
            ("count=1,delay=3s,backoff=exponential,max-delay=2s", RetriesError::MaxBelowDelay),
            ("-1", RetriesError::Part("-1".to_owned())),
            ("", RetriesError::Part(String::new())),
            ("count=x", RetriesError::Part("count=x".to_owned())),
            ("count=1,delay=0s", RetriesError::Part("delay=0s".to_owned())),
            ("count=1,backoff=linear", RetriesError::Part("backoff=linear".to_owned())),
            ("count=1,jitter=maybe", RetriesError::Part("jitter=maybe".to_owned())),
            ("count=1,wait=1s", RetriesError::Part("wait=1s".to_owned())),
        ] {
            assert_eq!(parse_retries(text), Err(error), "{text}");
        }
    }

    #[test]
    fn retries_have_a_short_and_a_table_form() {
        let policy = |value: &str| {
            let config = Config::parse(
                Path::new("heeler.toml"),
                &format!("[profile.default]\nretries = {value}\nflaky-result = \"fail\"\n"),
            )
            .unwrap();
            let tests = config.resolve_profile("default").unwrap().tests;
            assert_eq!(tests.flaky_result, FlakyResult::Fail);
            tests.retries
        };
        assert_eq!(policy("2"), RetryPolicy::immediate(2));
        assert_eq!(policy("{ count = 2 }"), RetryPolicy::immediate(2));
        let first = Duration::from_secs(1);
        let max = Some(Duration::from_secs(10));
        let delay = RetryDelay { backoff: Backoff::Exponential, first, max, has_jitter: true };
        let written =
            r#"{ backoff = "exponential", count = 3, delay = "1s", max-delay = "10s", jitter = true }"#;
        assert_eq!(policy(written), RetryPolicy { count: 3, delay });
        let text = r#"[profile.default]
retries = { count = -1, backoff = "linear", delay = "0s", wait = 1 }
flaky-result = "ok"
[profile.a]
retries = { backoff = "exponential", count = 1 }
[profile.b]
retries = "3"
"#;
        let expected = r#"
heeler.toml:2:11: "retries": missing "count", the number of retries
heeler.toml:2:21: expected a non-negative integer for "count" in [profile.default.retries], found the number -1
heeler.toml:2:35: expected one of "fixed", "exponential" for "backoff" in [profile.default.retries], found the string "linear"
heeler.toml:2:53: expected a duration such as "60s" for "delay" in [profile.default.retries]: the duration must be longer than zero
heeler.toml:2:59: unknown key "wait" in [profile.default.retries] (available: backoff, count, delay, max-delay, jitter)
heeler.toml:3:16: expected one of "pass", "fail" for "flaky-result" in [profile.default], found the string "ok"
heeler.toml:5:11: "retries": an exponential backoff needs a "delay" such as "1s"
heeler.toml:7:11: expected a non-negative integer, or a table { backoff = "exponential", count = 3, delay = "1s" } for "retries" in [profile.b], found the string "3"
"#;
        let error = Config::parse(Path::new("heeler.toml"), text).unwrap_err().to_string();
        assert_eq!(error.split_once('\n').unwrap().1, expected.trim());
    }
}
