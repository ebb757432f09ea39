//! Formats numbers, durations and names for people.

use std::time::Duration;

use super::style::{Style, StyledLine, cut_middle};
use heeler_core::{Outcome, OutcomeCounts};
pub(super) use heeler_report::rough_duration;
use heeler_report::{TestReport, sanitise::one_line};

/// Maximum width of a name, even in a wider terminal.
pub(super) const NAME_COLUMNS: usize = 200;

/// Formats a test's duration: `0.004s`, `59.999s`, then `1m 02s`, `2h 03m`. At most nine columns.
pub(super) fn precise_duration(duration: Duration) -> String {
    if duration.as_millis() < 60_000 {
        format!("{}.{:03}s", duration.as_secs(), duration.subsec_millis())
    } else {
        rough_duration(duration)
    }
}

/// Formats an estimated time in whole seconds. Tenths would suggest more precision than an estimate has.
pub(super) fn estimated_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{}s", seconds.max(1)),
        _ => rough_duration(duration),
    }
}

/// Formats a number with thousands separators: `1,234,567`.
pub(super) fn grouped_number(number: usize) -> String {
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
pub(crate) fn count_of(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", grouped_number(number), if number == 1 { "" } else { "s" })
}

/// Returns `suite name`, cut to `columns`; the suite is omitted if all tests belong to one suite.
pub(super) fn test_name(record: &TestReport, suites: SuiteNames, columns: usize) -> StyledLine {
    let suite = record
        .suite
        .as_deref()
        .filter(|_| (suites == SuiteNames::Shown && !record.is_group) || record.is_fixture());
    match suite {
        None => StyledLine::new().with(Style::Bold, cut_name(record.shown_name(), columns)),
        Some(suite) => {
            let suite = cut_name(suite, columns / 3);
            let left = columns.saturating_sub(super::style::text_columns(&suite) + 1);
            StyledLine::new()
                .with(Style::Suite, suite)
                .with_plain(" ")
                .with(Style::Bold, cut_name(record.shown_name(), left))
        }
    }
}

/// Whether lines include the suite's name, which is redundant in a run of one suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuiteNames {
    /// The run has one suite: names omit it.
    Hidden,
    /// The run has several suites: names include it.
    Shown,
}

impl SuiteNames {
    /// Returns whether names include the suite in a run of `programs` programs.
    pub(super) fn for_program_count(programs: usize) -> Self {
        if programs == 1 { Self::Hidden } else { Self::Shown }
    }
}

/// Returns a name as one line without control characters, cut to `columns`. The time is bounded by the
/// columns, not by the name's length.
pub(super) fn cut_name(name: &str, columns: usize) -> String {
    // Cut the middle out of a long name before escaping, so that the cost does not depend on its length.
    let most = columns.saturating_mul(8).max(64);
    if name.len() <= most {
        return cut_middle(&one_line(name), columns).into_owned();
    }
    let first = one_line(&name[..name.floor_char_boundary(most / 2)]);
    let last = one_line(&name[name.ceil_char_boundary(name.len() - most / 2)..]);
    cut_middle(&format!("{first}…{last}"), columns).into_owned()
}

/// Formats counts: `55 passed (1 flaky), 2 failed (1 leaky)`. Zero counts are omitted. The leaky count comes
/// last and covers all outcomes.
pub(super) fn counts(counts: &OutcomeCounts) -> StyledLine {
    let mut line = StyledLine::new();
    let mut is_first = true;
    for outcome in OutcomeCounts::KINDS {
        let number = match outcome {
            Outcome::Passed => counts.passed(),
            Outcome::Flaky => continue,
            _ => counts.with_outcome(outcome),
        };
        if number == 0 && !(outcome == Outcome::Passed && counts.total() == 0) {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            line = line.with_plain(", ");
        }
        line = line
            .with(Style::Bold, grouped_number(number))
            .with_plain(" ")
            .with(outcome_style(outcome), outcome.label());
        let flaky = counts.with_outcome(Outcome::Flaky);
        if outcome == Outcome::Passed && flaky > 0 {
            let words = format!("{} {}", grouped_number(flaky), Outcome::Flaky.label());
            line = line.with_plain(" (").with(Style::Warning, words).with_plain(")");
        }
    }
    if counts.leaky() > 0 {
        let words = format!("{} leaky", grouped_number(counts.leaky()));
        line = line.with_plain(" (").with(Style::Warning, words).with_plain(")");
    }
    line
}

pub(super) fn outcome_style(outcome: Outcome) -> Style {
    match outcome {
        Outcome::Passed => Style::Success,
        Outcome::Flaky | Outcome::Skipped | Outcome::Cancelled => Style::Warning,
        Outcome::Failed
        | Outcome::TimedOut
        | Outcome::Idle
        | Outcome::Crashed
        | Outcome::ExitedEarly
        | Outcome::OutOfMemory
        | Outcome::Lost
        | Outcome::Interrupted
        | Outcome::NotRun(_) => Style::Failure,
    }
}

/// Returns a result's label, which is its first column. A crash is labelled with its signal, or with the term
/// of the language's runtime, such as `PANIC`.
pub(super) fn result_label(record: &TestReport) -> String {
    let detail = record.detail.as_deref();
    let label = match record.outcome {
        Outcome::Passed if record.is_leaky() => "LEAK",
        Outcome::Passed => "PASS",
        Outcome::Flaky => return format!("FLAKY {}", record.attempts()),
        Outcome::Skipped => "SKIP",
        Outcome::Failed if record.is_group && !record.is_fixture() => "ERROR",
        Outcome::Failed => {
            record.detail_text(|one| one.message.as_ref()).and_then(sanitizer_label).unwrap_or("FAIL")
        }
        Outcome::TimedOut => "TIMEOUT",
        Outcome::Idle => "IDLE",
        Outcome::Cancelled => "CANCELLED",
        Outcome::NotRun(_) => "NOT RUN",
        Outcome::OutOfMemory => "MEMORY",
        Outcome::Lost => "LOST",
        Outcome::Interrupted => "INTERRUPTED",
        Outcome::Crashed | Outcome::ExitedEarly => {
            let signal = detail.and_then(|detail| detail.signal.as_deref());
            if let (None, Some(label)) =
                (signal, record.detail_text(|one| one.message.as_ref()).and_then(sanitizer_label))
            {
                return label.to_owned();
            }
            if let Some(runtime) = detail.and_then(|detail| detail.runtime) {
                return runtime.label().to_uppercase();
            }
            return match (signal, detail.and_then(|detail| detail.exit_code)) {
                (Some(signal), _) => cut_name(signal, super::style::LABEL_COLUMNS),
                (None, Some(code)) => format!("EXIT {code}"),
                (None, None) => "CRASH".to_owned(),
            };
        }
    };
    cut_name(label, super::style::LABEL_COLUMNS)
}

/// Returns the short name of the sanitizer whose summary begins the message.
fn sanitizer_label(message: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 6] = [
        ("AddressSanitizer", "ASAN"),
        ("HWAddressSanitizer", "HWASAN"),
        ("LeakSanitizer", "LSAN"),
        ("MemorySanitizer", "MSAN"),
        ("ThreadSanitizer", "TSAN"),
        ("UndefinedBehaviorSanitizer", "UBSAN"),
    ];
    let (name, _) = message.split_once(':')?;
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, label)| *label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fit_nine_columns_and_are_rounded_down() {
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
            assert_eq!(
                (precise_duration(duration).as_str(), rough_duration(duration).as_str()),
                (exact, about)
            );
            assert!(exact.len() <= 9);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let all = [0, 12, 999, 1_000, 20_000, 123_456, 1_234_567].map(grouped_number);
        assert_eq!(all, ["0", "12", "999", "1,000", "20,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn megabyte_name_is_cut_to_its_columns() {
        let name = format!("begin\n{}end", "日\u{1b}".repeat(250_000));
        let cut = cut_name(&name, 30);
        assert!(cut.starts_with(r"begin\n") && cut.ends_with("end"), "{cut}");
        assert!(super::super::style::text_columns(&cut) <= 30, "{cut}");
    }

    #[test]
    fn sanitizers_have_their_short_names() {
        let label = |message: &str| sanitizer_label(message).unwrap_or("-").to_owned();
        assert_eq!(label("AddressSanitizer: heap-buffer-overflow a.cc:3 in f()"), "ASAN");
        assert_eq!(label("ThreadSanitizer: data race a.cc:3 in f()"), "TSAN");
        assert_eq!(label("exited with code 1"), "-");
        assert_eq!(label("the AddressSanitizer: is quoted"), "-");
    }
}
