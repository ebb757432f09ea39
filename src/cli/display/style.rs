//! Lines of styled spans, which are the display's output. Spans contain no control characters except kept
//! colours, so a line can be measured, cut and printed safely.

use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColourMode {
    /// Writes SGR sequences.
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Style {
    #[default]
    Plain,
    Success,
    Failure,
    Warning,
    /// Secondary details, less visible than plain text.
    Dim,
    Bold,
    /// A suite's name.
    Suite,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Success => "32;1",
            Self::Failure => "31;1",
            Self::Warning => "33;1",
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Suite => "35",
        }
    }
}

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StyledSpan {
    style: Style,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StyledLine(Vec<StyledSpan>);

impl StyledLine {
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns a line that begins with a label, right-aligned in the label column.
    #[must_use]
    pub(crate) fn with_label(tone: Style, label: &str) -> Self {
        Self::new().with(tone, format!("{label:>LABEL_COLUMNS$}")).with_plain(" ")
    }

    #[must_use]
    pub(crate) fn with(mut self, tone: Style, text: impl Into<String>) -> Self {
        self.0.push(StyledSpan { style: tone, text: text.into() });
        self
    }

    /// Appends text, to the last span if the style is the same.
    fn push(&mut self, style: Style, text: &str) {
        match self.0.last_mut() {
            Some(span) if span.style == style => span.text.push_str(text),
            _ => self.0.push(StyledSpan { style, text: text.to_owned() }),
        }
    }

    #[must_use]
    pub(crate) fn with_plain(self, text: impl Into<String>) -> Self {
        self.with(Style::Plain, text)
    }

    #[must_use]
    pub(crate) fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    #[must_use]
    pub(crate) fn columns(&self) -> usize {
        self.0.iter().map(|span| text_columns(&span.text)).sum()
    }

    /// Returns the line cut to `limit` columns, with an ellipsis if something was cut.
    #[must_use]
    pub(crate) fn cut(self, limit: usize) -> Self {
        if self.columns() <= limit {
            return self;
        }
        let mut left = limit;
        let mut out = Vec::new();
        for span in self.0 {
            let width = text_columns(&span.text);
            if width < left {
                left -= width;
                out.push(span);
                continue;
            }
            let text =
                if left == 0 { String::new() } else { format!("{}…", column_prefix(&span.text, left - 1)) };
            out.push(StyledSpan { style: span.style, text });
            break;
        }
        Self(out)
    }

    /// Breaks the line at blanks into lines of at most `limit` columns. Continuation lines are aligned with
    /// the text after a label. A longer word is not broken, so a path can be copied.
    #[must_use]
    pub(crate) fn wrapped(self, limit: usize) -> Vec<Self> {
        const INDENT: usize = LABEL_COLUMNS + 1;
        if self.columns() <= limit || limit <= 2 * INDENT {
            return vec![self];
        }
        let (mut lines, mut line, mut used) = (Vec::new(), Self::new(), 0);
        for span in self.0 {
            for word in span.text.split_inclusive(' ') {
                let width = text_columns(word.trim_end_matches(' '));
                if width > 0 && used + width > limit && used > INDENT {
                    lines.push(std::mem::replace(&mut line, Self::new().with_plain(" ".repeat(INDENT))));
                    used = INDENT;
                }
                used += text_columns(word);
                line.push(span.style, word);
            }
        }
        lines.push(line);
        lines
    }

    /// Appends the line to `out`, without a line end.
    pub(crate) fn render(&self, colour: ColourMode, out: &mut String) {
        for span in &self.0 {
            let code = span.style.code();
            if colour == ColourMode::Off || code.is_empty() || span.text.trim().is_empty() {
                out.push_str(&span.text);
            } else {
                out.push_str("\u{1b}[");
                out.push_str(code);
                out.push('m');
                out.push_str(&span.text);
                out.push_str("\u{1b}[0m");
            }
        }
    }
}

/// Width of the column that labels are right-aligned in, as in cargo's output.
pub(super) const LABEL_COLUMNS: usize = 12;

/// Returns the width of a text in columns, without colour sequences.
pub(super) fn text_columns(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return text.len();
    }
    console::measure_text_width(text)
}

fn char_columns(char: char) -> usize {
    if char.is_ascii() { 1 } else { console::measure_text_width(char.encode_utf8(&mut [0; 4])) }
}

/// Returns the longest prefix of `text` that takes at most `limit` columns.
fn column_prefix(text: &str, limit: usize) -> &str {
    let mut left = limit;
    for (place, char) in text.char_indices() {
        let width = char_columns(char);
        if width > left {
            return &text[..place];
        }
        left -= width;
    }
    text
}

/// Returns the longest suffix of `text` that takes at most `limit` columns.
fn column_suffix(text: &str, limit: usize) -> &str {
    let mut left = limit;
    for (place, char) in text.char_indices().rev() {
        let width = char_columns(char);
        if width > left {
            return &text[place + char.len_utf8()..];
        }
        left -= width;
    }
    text
}

/// Cuts the middle out of a name. The beginning shows where the test belongs, the end which test it is. The
/// time is proportional to the limit, not to the text.
pub(super) fn cut_middle(text: &str, limit: usize) -> Cow<'_, str> {
    if column_prefix(text, limit).len() == text.len() {
        return Cow::Borrowed(text);
    }
    let Some(room) = limit.checked_sub(1) else { return Cow::Borrowed("") };
    let first = column_prefix(text, room / 2);
    let last = column_suffix(&text[first.len()..], room - text_columns(first));
    Cow::Owned(format!("{first}…{last}"))
}

/// Renders lines without colours, with line ends and without trailing white space.
#[cfg(test)]
pub(super) fn render_plain(lines: &[StyledLine]) -> String {
    let mut out = String::new();
    for line in lines {
        line.render(ColourMode::Off, &mut out);
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_keeps_its_beginning_and_end() {
        assert_eq!(cut_middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut_middle("abcdefghij", 9), "abcd…ghij");
        assert_eq!(cut_middle("日本語日本語", 6), "日…語");
        assert_eq!(cut_middle("日本語日本語", 8), "日…本語");
        assert_eq!((cut_middle("abc", 1), cut_middle("abc", 0)), ("…".into(), "".into()));
    }

    #[test]
    fn cut_line_ends_with_an_ellipsis() {
        let line =
            StyledLine::with_label(Style::Failure, "FAIL").with_plain("abc").with(Style::Suite, "日本語");
        assert_eq!(line.columns(), 22);
        for (limit, expected) in
            [(22, "        FAIL abc日本語"), (20, "        FAIL abc日…"), (19, "        FAIL abc日…")]
        {
            let cut = line.clone().cut(limit);
            assert!(cut.columns() <= limit, "{limit}");
            assert_eq!(render_plain(&[cut]).trim_end(), expected);
        }
        assert_eq!(line.clone().cut(0).columns(), 0);
        assert_eq!(line.cut(1).columns(), 1);
    }

    #[test]
    fn wrapped_line_breaks_at_blanks_and_keeps_long_words() {
        let wrapped = |text: &str, limit| {
            let line = StyledLine::with_label(Style::Failure, "FAIL").with_plain("a").with(Style::Dim, text);
            render_plain(&line.wrapped(limit))
        };
        let line = "        FAIL abc def ghi jkl mno pqr st\n";
        assert_eq!(wrapped("bc def ghi jkl mno pqr st", 39), line);
        let lines = "        FAIL abc def ghi jkl\n             mno pqr st\n";
        assert_eq!(wrapped("bc def ghi jkl mno pqr st", 30), lines);
        let path = "/a/path/that/is/longer/than/the/line";
        assert_eq!(
            wrapped(&format!(" {path} b"), 28),
            format!("        FAIL a\n             {path}\n             b\n")
        );
        assert_eq!(wrapped("bc def ghi jkl mno pqr st", 26), line, "it is too narrow for that");
    }

    #[test]
    fn colour_codes_are_written_only_when_enabled() {
        let line = StyledLine::new().with(Style::Success, "ok").with_plain(" ").with(Style::Failure, " ");
        let mut out = String::new();
        line.render(ColourMode::On, &mut out);
        assert_eq!(out, "\u{1b}[32;1mok\u{1b}[0m  ");
    }
}
