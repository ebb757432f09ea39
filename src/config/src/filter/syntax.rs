//! Shared by both parsers: input with positions, errors, escapes, and limits against hostile input.

use std::ops::Range;

use winnow::{
    LocatingSlice, Parser, Stateful,
    combinator::{alt, cut_err, delimited, peek, preceded},
    error::{ErrMode, ParserError},
    stream::{Location, Stream},
    token::{any, one_of, take_while},
};

use super::{FilterError, PatternPart, WildcardPattern};

/// Maximum length of a filter. Real filters are shorter, and each filter is evaluated for every test.
const MAX_FILTER_BYTES: usize = 16 << 10;
/// Maximum nesting depth, because parsing, evaluating and dropping are recursive.
const MAX_DEPTH: usize = 64;
/// Maximum number of conditions. Each test is checked against each condition, which blocks the session's
/// other work.
const MAX_CONDITIONS: usize = 1000;
/// Maximum number of regular expressions, because compiled expressions use memory.
const MAX_REGEXES: usize = 32;

/// The input with positions, and counters checked against the limits.
pub(super) type ParserInput<'i> = Stateful<LocatingSlice<&'i str>, LimitCounters>;

pub(super) type ParseResult<T> = Result<T, ErrMode<ParseFailure>>;

/// A parser of one part of a filter.
pub(super) type PartParser<T> = fn(&mut ParserInput<'_>) -> ParseResult<T>;

#[derive(Debug, Default)]
pub(super) struct LimitCounters {
    depth: usize,
    conditions: usize,
    regexes: usize,
}

#[derive(Debug)]
pub(super) struct ParseFailure {
    span: Range<usize>,
    message: String,
}

impl<'i> ParserError<ParserInput<'i>> for ParseFailure {
    type Inner = Self;

    fn from_input(input: &ParserInput<'i>) -> Self {
        Self { span: next_char_span(input), message: "unexpected input".to_owned() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// Parses a whole filter.
pub(super) fn parse<T>(text: &str, parser: PartParser<T>) -> Result<T, FilterError> {
    if text.len() > MAX_FILTER_BYTES {
        let message = format!("the filter is longer than {MAX_FILTER_BYTES} bytes");
        return Err(FilterError::new("", 0..0, message));
    }
    let mut input = Stateful { input: LocatingSlice::new(text), state: LimitCounters::default() };
    parser(&mut input).map_err(|error| match error {
        ErrMode::Cut(fault) | ErrMode::Backtrack(fault) => FilterError::new(text, fault.span, fault.message),
        ErrMode::Incomplete(_) => unreachable!("the input is whole"),
    })
}

/// Stops parsing with a message about a span.
pub(super) fn fail_at<T>(span: Range<usize>, message: impl Into<String>) -> ParseResult<T> {
    Err(ErrMode::Cut(ParseFailure { span, message: message.into() }))
}

/// Returns the span of the next character, or an empty span at the end.
pub(super) fn next_char_span(input: &ParserInput<'_>) -> Range<usize> {
    let start = input.current_token_start();
    start..start + unread_text(input).chars().next().map_or(0, char::len_utf8)
}

pub(super) fn unread_text<'i>(input: &ParserInput<'i>) -> &'i str {
    input.input.peek_finish()
}

/// Stops parsing, and reports the expected and the found input at this position.
pub(super) fn fail_expected<T>(input: &ParserInput<'_>, what: &str) -> ParseResult<T> {
    let found = match unread_text(input).chars().next() {
        None => "the end of the text".to_owned(),
        Some(found) => format!("{:?}", found.to_string()),
    };
    fail_at(next_char_span(input), format!("expected {what}, found {found}"))
}

/// Runs a parser one nesting level deeper.
pub(super) fn with_depth<T>(
    input: &mut ParserInput<'_>,
    mut parser: impl FnMut(&mut ParserInput<'_>) -> ParseResult<T>,
) -> ParseResult<T> {
    if input.state.depth == MAX_DEPTH {
        return fail_at(
            next_char_span(input),
            format!("the filter is nested deeper than {MAX_DEPTH} levels"),
        );
    }
    input.state.depth += 1;
    let parsed = parser(input);
    input.state.depth -= 1;
    parsed
}

/// Counts one more condition against the limit.
pub(super) fn count_condition(input: &mut ParserInput<'_>) -> ParseResult<()> {
    if input.state.conditions == MAX_CONDITIONS {
        return fail_at(
            next_char_span(input),
            format!("the filter has more than {MAX_CONDITIONS} conditions"),
        );
    }
    input.state.conditions += 1;
    Ok(())
}

/// Counts one more regular expression against the limit.
pub(super) fn count_regex(input: &mut ParserInput<'_>) -> ParseResult<()> {
    if input.state.regexes == MAX_REGEXES {
        return fail_at(
            next_char_span(input),
            format!("the filter has more than {MAX_REGEXES} regular expressions"),
        );
    }
    input.state.regexes += 1;
    Ok(())
}

/// A character. Escaped characters are literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternChar {
    pub(super) char: char,
    pub(super) is_escaped: bool,
}

/// Parses `\` and an escaped character: any character of `plain`, or `\n`, `\r`, `\t`, `\u{…}`.
pub(super) fn escaped_char<'i>(
    plain: &'static str,
) -> impl FnMut(&mut ParserInput<'i>) -> ParseResult<PatternChar> {
    move |input| {
        '\\'.parse_next(input)?;
        let known = alt((
            'n'.value('\n'),
            'r'.value('\r'),
            't'.value('\t'),
            one_of(|found: char| plain.contains(found)),
            preceded(peek('u'), cut_err(unicode)),
        ))
        .parse_next(input);
        match known {
            Ok(char) => Ok(PatternChar { char, is_escaped: true }),
            Err(ErrMode::Cut(fault)) => Err(ErrMode::Cut(fault)),
            Err(_) => {
                let all: Vec<String> = plain.chars().map(|one| format!("\\{one}")).collect();
                fail_expected(
                    input,
                    &format!("a valid escape sequence ({}, \\n, \\r, \\t, \\u{{…}})", all.join(", ")),
                )
            }
        }
    }
}

fn unicode(input: &mut ParserInput<'_>) -> ParseResult<char> {
    let start = input.current_token_start();
    let hex = take_while(1..=6, |one: char| one.is_ascii_hexdigit());
    let digits: Result<&str, ErrMode<ParseFailure>> = delimited("u{", hex, '}').parse_next(input);
    let code = digits.ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match code.and_then(char::from_u32) {
        Some(char) => Ok(char),
        None => fail_at(start..start + 1, "invalid Unicode escape; write it as \\u{20}"),
    }
}

/// Parses any character except these.
pub(super) fn unescaped_char<'i>(
    but: &'static str,
) -> impl FnMut(&mut ParserInput<'i>) -> ParseResult<PatternChar> {
    move |input| {
        any.verify(|found| !but.contains(*found))
            .map(|char| PatternChar { char, is_escaped: false })
            .parse_next(input)
    }
}

/// Builds a wildcard pattern. Escaped wildcards are literal.
pub(super) fn build_pattern(letters: &[PatternChar], has_one: bool) -> WildcardPattern {
    let part = |letter: &PatternChar| match letter.char {
        '*' if !letter.is_escaped => PatternPart::Any,
        '?' if has_one && !letter.is_escaped => PatternPart::One,
        other => PatternPart::Char(other),
    };
    WildcardPattern(letters.iter().map(part).collect())
}
