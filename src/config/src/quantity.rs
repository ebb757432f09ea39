//! Durations and sizes in text form: `500ms`, `1m 30s`, `64KiB`. No positions and no file I/O here.

use std::time::Duration;

/// Error of parsing a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Empty or only white space.
    #[error("the value is empty")]
    Empty,
    /// A number without a unit.
    #[error("\"{number}\" has no unit; the units are {units}")]
    NoUnit {
        number: String,
        /// Names of all units, for the message.
        units: &'static str,
    },
    /// A unit that does not exist.
    #[error("unknown unit \"{unit}\"; the units are {units}")]
    UnknownUnit {
        unit: String,
        /// Names of all units, for the message.
        units: &'static str,
    },
    /// A part that does not begin with a number.
    #[error("\"{text}\" does not begin with a number")]
    NoNumber {
        /// The text from this part on.
        text: String,
    },
    /// A duration of zero, where zero is not allowed.
    #[error("the duration must be longer than zero")]
    Zero,
    /// The value does not fit into 64 bits.
    #[error("\"{text}\" is too large")]
    TooLarge { text: String },
}

const DURATION_UNITS: &str = "ms, s, m, h and d";
const SIZE_UNITS: &str = "B, kB, MB, GB, KiB, MiB and GiB";

/// Parses a duration: numbers with the units `ms`, `s`, `m`, `h`, `d`, added up (`1m 30s`).
///
/// # Errors
/// A part has no number or an unknown unit, or the sum exceeds 64 bits of milliseconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    parse_sum(text, DURATION_UNITS, |unit| {
        Some(match unit {
            "ms" => 1,
            "s" | "sec" | "secs" => 1_000,
            "m" | "min" | "mins" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        })
    })
    .map(Duration::from_millis)
}

/// Parses a duration that must not be zero.
///
/// # Errors
/// The text is not a duration, or the duration is zero.
pub fn parse_positive_duration(text: &str) -> Result<Duration, QuantityError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err(QuantityError::Zero) } else { Ok(duration) }
}

/// Parses a size in bytes, with the units `B`, `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// The number is missing, the unit is unknown, or the size exceeds 64 bits.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    parse_sum(text, SIZE_UNITS, |unit| {
        Some(match unit {
            "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        })
    })
}

/// Adds up parts such as `12.5s`, converted to the smallest unit.
fn parse_sum(
    text: &str,
    units: &'static str,
    scale: impl Fn(&str) -> Option<u64>,
) -> Result<u64, QuantityError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(QuantityError::Empty);
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number_end);
        if number.is_empty() {
            return Err(QuantityError::NoNumber { text: rest.to_owned() });
        }
        let behind = behind.trim_start();
        let unit_end = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        if unit.is_empty() {
            return Err(QuantityError::NoUnit { number: number.to_owned(), units });
        }
        let Some(factor) = scale(unit) else {
            return Err(QuantityError::UnknownUnit { unit: unit.to_owned(), units });
        };
        let part = scale_number(number, factor)?;
        total = total
            .checked_add(part)
            .ok_or_else(|| QuantityError::TooLarge { text: text.trim().to_owned() })?;
        rest = behind.trim_start();
    }
    Ok(total)
}

/// Returns `number × factor`, with the fraction rounded down.
fn scale_number(number: &str, factor: u64) -> Result<u64, QuantityError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return Err(QuantityError::NoNumber { text: number.to_owned() });
    }
    let too_large = || QuantityError::TooLarge { text: number.to_owned() };
    let whole =
        whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(factor)).ok_or_else(too_large)?;
    // Nine digits resolve the largest unit (1 GiB) to about one byte.
    let digits = &fraction[..fraction.len().min(9)];
    let part = u128::from(digits.parse::<u64>().unwrap_or(0)) * u128::from(factor)
        / 10_u128.pow(digits.len() as u32);
    whole.checked_add(u64::try_from(part).map_err(|_| too_large())?).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            (" 0s ", 0),
            ("2 s", 2_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        for (text, bytes) in
            [("64KiB", 65_536), ("1MiB", 1 << 20), ("10kB", 10_000), ("7B", 7), ("0.5GiB", 1 << 29)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_quantities_have_precise_errors() {
        for (text, message) in [
            ("", "the value is empty"),
            ("60", "\"60\" has no unit; the units are ms, s, m, h and d"),
            ("60x", "unknown unit \"x\"; the units are ms, s, m, h and d"),
            ("soon", "\"soon\" does not begin with a number"),
            ("-1s", "\"-1s\" does not begin with a number"),
            ("1..2s", "\"1..2\" does not begin with a number"),
            (".5s", "\".5\" does not begin with a number"),
            ("99999999999999999999s", "\"99999999999999999999\" is too large"),
            ("18446744073709551615ms 1ms", "\"18446744073709551615ms 1ms\" is too large"),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message, "{text}");
        }
        assert_eq!(
            parse_size("1KIB").unwrap_err().to_string(),
            "unknown unit \"KIB\"; the units are B, kB, MB, GB, KiB, MiB and GiB"
        );
    }
}
