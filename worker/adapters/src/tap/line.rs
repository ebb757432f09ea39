//! Parser of one report line.

/// A line without its indentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TapLine {
    /// `1..N`: the number of points, and the reason if all are skipped.
    Plan { count: u64, reason: Option<String> },
    /// `ok` or `not ok`.
    Point(TapPoint),
    /// `Bail out!`, with the reason.
    BailOut(String),
    /// `# Subtest: NAME`.
    Subtest(String),
    /// `---`, which begins details.
    DetailsBegin,
    /// Any other line: comments, version, pragmas, and text outside the report.
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TapPoint {
    pub(super) is_ok: bool,
    pub(super) number: Option<u64>,
    pub(super) description: String,
    pub(super) directive: Option<TapDirective>,
}

/// Directive of a test point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TapDirective {
    /// The point was skipped, for this reason.
    Skip(String),
    /// The point is expected to fail, for this reason.
    Todo(String),
}

/// Reads a line without its indentation and line ending.
pub(super) fn read_line(line: &str) -> TapLine {
    if let Some(reason) = strip_word(line, "Bail out!") {
        return TapLine::BailOut(reason.trim().to_owned());
    }
    if let Some(name) = line.strip_prefix("# Subtest:") {
        return TapLine::Subtest(name.trim().to_owned());
    }
    if line.trim_end() == "---" {
        return TapLine::DetailsBegin;
    }
    read_point(line).map(TapLine::Point).or_else(|| read_plan(line)).unwrap_or(TapLine::Other)
}

/// Returns the text after a prefix, which is matched case-insensitively.
fn strip_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = line.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

fn read_plan(line: &str) -> Option<TapLine> {
    let rest = line.strip_prefix("1..")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (count, rest) = rest.split_at(digits);
    let rest = rest.trim();
    if !rest.is_empty() && !rest.starts_with('#') {
        return None;
    }
    let comment = rest.trim_start_matches('#').trim();
    let reason = strip_word(comment, "skip").map(|reason| skip_reason(reason).to_owned());
    Some(TapLine::Plan { count: count.parse().ok()?, reason })
}

fn read_point(line: &str) -> Option<TapPoint> {
    let (is_ok, rest) = match line.strip_prefix("not ") {
        Some(rest) => (false, rest.trim_start_matches(' ').strip_prefix("ok")?),
        None => (true, line.strip_prefix("ok")?),
    };
    if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(digits);
    let is_number = digits > 0 && (after.is_empty() || after.starts_with([' ', '\t', '#', '-']));
    let (number, rest) = if is_number { (number.parse().ok(), after) } else { (None, rest) };
    let (description, directive) = split_directive(rest);
    let description = description.trim();
    let description = description.strip_prefix('-').map_or(description, str::trim_start);
    Some(TapPoint { is_ok, number, description: unescape(description), directive })
}

/// Splits a description from its directive, which starts at the first `#` after a blank. An escaped `\#` does
/// not count.
fn split_directive(text: &str) -> (&str, Option<TapDirective>) {
    for (at, _) in text.match_indices('#') {
        let (before, comment) = (&text[..at], text[at + 1..].trim());
        if !(before.is_empty() || before.ends_with([' ', '\t'])) {
            continue;
        }
        // Some producers write `# skipped: reason`.
        if let Some(reason) = strip_word(comment, "skip") {
            return (before, Some(TapDirective::Skip(skip_reason(reason).to_owned())));
        }
        if let Some(reason) = strip_word(comment, "todo") {
            let reason = reason.trim_start_matches(':').trim();
            return (before, Some(TapDirective::Todo(reason.to_owned())));
        }
    }
    (text, None)
}

/// Returns the reason after `skip`, `skipped` and similar forms.
fn skip_reason(text: &str) -> &str {
    text.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).trim_start_matches(':').trim()
}

fn unescape(text: &str) -> String {
    text.replace("\\#", "#").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(is_ok: bool, number: Option<u64>, description: &str) -> TapPoint {
        TapPoint { is_ok, number, description: description.to_owned(), directive: None }
    }

    #[test]
    fn points_have_numbers_descriptions_and_directives() {
        let skip = |reason: &str| Some(TapDirective::Skip(reason.to_owned()));
        let todo = |reason: &str| Some(TapDirective::Todo(reason.to_owned()));
        for (line, expected) in [
            ("ok", point(true, None, "")),
            ("not ok", point(false, None, "")),
            ("ok 1", point(true, Some(1), "")),
            ("ok 1 - adds", point(true, Some(1), "adds")),
            ("not ok 12 adds # up", point(false, Some(12), "adds # up")),
            ("ok - no number", point(true, None, "no number")),
            ("ok 2nd", point(true, None, "2nd")),
            ("ok 3 - # SKIP no net", TapPoint { directive: skip("no net"), ..point(true, Some(3), "") }),
            ("ok 4 a # skipped: later", TapPoint { directive: skip("later"), ..point(true, Some(4), "a") }),
            ("not ok 5 b # TODO soon", TapPoint { directive: todo("soon"), ..point(false, Some(5), "b") }),
            (r"ok 6 - c \# skip it", point(true, Some(6), "c # skip it")),
        ] {
            assert_eq!(read_line(line), TapLine::Point(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_are_told_apart() {
        let plan = |count, reason: Option<&str>| TapLine::Plan { count, reason: reason.map(str::to_owned) };
        for (line, expected) in [
            ("1..3", plan(3, None)),
            ("1..0 # SKIP no net", plan(0, Some("no net"))),
            ("1..0 # skipped", plan(0, Some(""))),
            ("1..2 # two", plan(2, None)),
            ("Bail out! disk full", TapLine::BailOut("disk full".to_owned())),
            ("bail out!", TapLine::BailOut(String::new())),
            ("# Subtest: inner", TapLine::Subtest("inner".to_owned())),
            ("---", TapLine::DetailsBegin),
            ("okay", TapLine::Other),
            ("not okay", TapLine::Other),
            ("not", TapLine::Other),
            ("1..x", TapLine::Other),
            ("1..99999999999999999999", TapLine::Other),
            ("TAP version 14", TapLine::Other),
            ("pragma +strict", TapLine::Other),
            ("", TapLine::Other),
        ] {
            assert_eq!(read_line(line), expected, "{line}");
        }
    }
}
