//! Formats numbers, durations and names for people.

use std::time::Duration;

use super::style::{Line, Tone, cut_middle};
use crate::report::{Counts, Outcome, Record, text::one_line};

/// Maximum width of a name where the terminal is wide enough.
pub(super) const NAME_COLUMNS: usize = 200;

/// Formats a test's duration: `0.004s`, `59.999s`, then `1m 02s`, `2h 03m`. At most nine columns.
pub(super) fn precise(duration: Duration) -> String {
    if duration.as_millis() < 60_000 {
        format!("{}.{:03}s", duration.as_secs(), duration.subsec_millis())
    } else {
        rough(duration)
    }
}

/// Formats an elapsed time: `0.4s`, `9.9s`, `10s`, `1m 02s`, `2h 03m`.
pub(super) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats an estimated time in whole seconds: tenths would suggest a precision that it does not have.
pub(super) fn estimate(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{}s", seconds.max(1)),
        _ => rough(duration),
    }
}

/// Formats an amount of memory: `999 KiB`, `97.6 MiB`, `1,024 MiB`. At most ten columns.
pub(super) fn memory(kib: u64) -> String {
    let whole = |number: u64| grouped(usize::try_from(number).unwrap_or(usize::MAX));
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..102_400 => format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024),
        102_400..10_485_760 => format!("{} MiB", whole(kib / 1024)),
        _ => format!("{} GiB", whole(kib / 1_048_576)),
    }
}

/// Formats a number with thousands separators: `1,234,567`.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 test`, `2 tests`.
pub(super) fn count_of(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Returns `suite name`, cut to `columns`; the suite is omitted where all tests belong to one.
pub(super) fn name(record: &Record, suites: Suites, columns: usize) -> Line {
    let suite = record.suite.as_deref().filter(|_| suites == Suites::Many && !record.is_group);
    match suite {
        None => Line::new().with(Tone::Bold, cut_name(record.people_name(), columns)),
        Some(suite) => {
            let suite = cut_name(suite, columns / 3);
            let left = columns.saturating_sub(super::style::columns(&suite) + 1);
            Line::new()
                .with(Tone::Suite, suite)
                .and(" ")
                .with(Tone::Bold, cut_name(record.people_name(), left))
        }
    }
}

/// Whether lines include the suite's name, which is redundant in a run of one suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suites {
    /// The run has one suite: names omit it.
    One,
    /// The run has several suites: names include it.
    Many,
}

impl Suites {
    /// Returns whether names include the suite in a run of `programs` programs.
    pub(super) fn of(programs: usize) -> Self {
        if programs == 1 { Self::One } else { Self::Many }
    }
}

/// Returns a name as one line without control characters, cut to `columns`, in a time bounded by the columns.
pub(super) fn cut_name(name: &str, columns: usize) -> String {
    // The part that is cut out of the middle need not be escaped first.
    let most = columns.saturating_mul(8).max(64);
    if name.len() <= most {
        return cut_middle(&one_line(name), columns).into_owned();
    }
    let first = one_line(&name[..name.floor_char_boundary(most / 2)]);
    let last = one_line(&name[name.ceil_char_boundary(name.len() - most / 2)..]);
    cut_middle(&format!("{first}…{last}"), columns).into_owned()
}

/// Formats counts: `55 passed (1 flaky), 2 failed, 1 crashed, 2 skipped (1 leaky)`. Zero counts are omitted.
/// A leaky test may have any outcome.
pub(super) fn counts(counts: &Counts) -> Line {
    let mut line = Line::new();
    let mut is_first = true;
    for outcome in Outcome::ALL {
        let number = match outcome {
            Outcome::Passed => counts.passed(),
            Outcome::Flaky => continue,
            _ => counts.of(outcome),
        };
        if number == 0 && !(outcome == Outcome::Passed && counts.total() == 0) {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            line = line.and(", ");
        }
        line = line.with(Tone::Bold, grouped(number)).and(" ").with(tone(outcome), outcome.words());
        let flaky = counts.of(Outcome::Flaky);
        if outcome == Outcome::Passed && flaky > 0 {
            let words = format!("{} {}", grouped(flaky), Outcome::Flaky.words());
            line = line.and(" (").with(Tone::Warn, words).and(")");
        }
    }
    if counts.leaky() > 0 {
        let words = format!("{} leaky", grouped(counts.leaky()));
        line = line.and(" (").with(Tone::Warn, words).and(")");
    }
    line
}

/// Returns the tone in which an outcome is printed.
pub(super) fn tone(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Passed => Tone::Good,
        Outcome::Flaky | Outcome::Skipped | Outcome::Cancelled => Tone::Warn,
        Outcome::Failed | Outcome::TimedOut | Outcome::Crashed | Outcome::Error | Outcome::NotRun => {
            Tone::Bad
        }
    }
}

/// Returns the label of a result, its first column. For a crash this is the signal, the most specific
/// information.
pub(super) fn label(record: &Record) -> String {
    let detail = record.detail.as_deref();
    match record.outcome {
        Outcome::Passed if record.is_leaky() => "LEAK".to_owned(),
        Outcome::Passed => "PASS".to_owned(),
        Outcome::Flaky => format!("FLAKY {}", record.attempts()),
        Outcome::Skipped => "SKIP".to_owned(),
        Outcome::Failed => "FAIL".to_owned(),
        Outcome::TimedOut => "TIMEOUT".to_owned(),
        Outcome::Cancelled => "CANCELLED".to_owned(),
        Outcome::NotRun => "NOT RUN".to_owned(),
        Outcome::Crashed | Outcome::Error => {
            let signal = detail.and_then(|detail| detail.signal.as_deref());
            match (signal, detail.and_then(|detail| detail.exit_code)) {
                (Some(signal), _) => cut_name(signal, super::style::LABEL_COLUMNS),
                (None, Some(code)) => format!("EXIT {code}"),
                (None, None) if record.outcome == Outcome::Crashed => "CRASH".to_owned(),
                (None, None) => "ERROR".to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_at_most_nine_columns_and_never_round_up_into_the_next_unit() {
        for (milliseconds, exact, about) in [
            (0, "0.000s", "0.0s"),
            (999, "0.999s", "0.9s"),
            (9_999, "9.999s", "9.9s"),
            (59_999, "59.999s", "59s"),
            (62_000, "1m 02s", "1m 02s"),
            (3_599_999, "59m 59s", "59m 59s"),
            (7_380_000, "2h 03m", "2h 03m"),
            (360_000_000, "100h 00m", "100h 00m"),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!((precise(duration).as_str(), rough(duration).as_str()), (exact, about));
            assert!(exact.len() <= 9);
        }
    }

    #[test]
    fn amounts_of_memory_are_short_and_never_rounded_up() {
        for (kib, text) in [
            (0, "0 KiB"),
            (1023, "1023 KiB"),
            (1024, "1.0 MiB"),
            (102_399, "99.9 MiB"),
            (262_144, "256 MiB"),
            (10_485_759, "10,239 MiB"),
            (10_485_760, "10 GiB"),
        ] {
            assert_eq!(memory(kib), text);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let all = [0, 12, 999, 1_000, 20_000, 123_456, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "12", "999", "1,000", "20,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn a_name_of_a_megabyte_is_cut_to_its_columns() {
        let name = format!("begin\n{}end", "日\u{1b}".repeat(250_000));
        let cut = cut_name(&name, 30);
        assert!(cut.starts_with(r"begin\n") && cut.ends_with("end"), "{cut}");
        assert!(super::super::style::columns(&cut) <= 30, "{cut}");
    }
}
