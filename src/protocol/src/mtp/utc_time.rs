//! ISO 8601 times, written without allocation.

/// Length of `2026-02-03T04:05:06.789Z`.
const LENGTH: usize = 24;

/// Calls `use_text` with the time in ISO 8601 with milliseconds: `2026-02-03T04:05:06.789Z`. Years after 9999
/// are cut to their last four digits.
pub(super) fn with_iso8601<T>(since_epoch_ms: u64, use_text: impl FnOnce(&str) -> T) -> T {
    let (seconds, milliseconds) = (since_epoch_ms / 1000, since_epoch_ms % 1000);
    let (year, month, day) = date_of_day(seconds / 86_400);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    write_digits(&mut text[..4], year);
    write_digits(&mut text[5..7], month);
    write_digits(&mut text[8..10], day);
    write_digits(&mut text[11..13], seconds / 3600 % 24);
    write_digits(&mut text[14..16], seconds / 60 % 60);
    write_digits(&mut text[17..19], seconds % 60);
    write_digits(&mut text[20..LENGTH - 1], milliseconds);
    use_text(std::str::from_utf8(&text).unwrap_or_default())
}

/// Returns the time in ISO 8601 with milliseconds.
#[must_use]
pub fn iso8601(since_epoch_ms: u64) -> String {
    with_iso8601(since_epoch_ms, str::to_owned)
}

fn write_digits(out: &mut [u8], mut number: u64) {
    for place in out.iter_mut().rev() {
        *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Returns year, month and day, given the days since 1970 (Hinnant's algorithm for the Gregorian calendar).
fn date_of_day(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(seconds: u64, millis: u64) -> String {
        with_iso8601(seconds * 1000 + millis, str::to_owned)
    }

    #[test]
    fn utc_time_is_written_as_iso_8601() {
        assert_eq!(iso(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(iso(951_782_400, 5), "2000-02-29T00:00:00.005Z");
        assert_eq!(iso(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(iso(1_767_225_599, 1), "2025-12-31T23:59:59.001Z");
        assert_eq!(iso(4_102_444_800, 0), "2100-01-01T00:00:00.000Z");
    }
}
