//! Code shared by both parsers: input with positions, errors, escapes, and the limits against hostile input.

use std::ops::Range;

use winnow::{
    LocatingSlice, Parser, Stateful,
    combinator::{alt, cut_err, delimited, peek, preceded},
    error::{ErrMode, ParserError},
    stream::{Location, Stream},
    token::{any, one_of, take_while},
};

use super::{FilterError, Part, Wildcard};

/// Maximum length of a filter. Real filters are shorter, and a long one is evaluated for every test.
const LENGTH_BYTES: usize = 16 << 10;
/// Maximum nesting depth, because parsing, evaluating and dropping are recursive.
const DEPTH: usize = 64;
/// Maximum number of conditions: each test is checked against each condition, which blocks the session's
/// other work.
const CONDITIONS: usize = 1000;
/// Maximum number of regular expressions, because compiled ones use memory.
const REGEXES: usize = 32;

/// The text with positions, and the counters that are checked against the limits.
pub(super) type Input<'i> = Stateful<LocatingSlice<&'i str>, Counts>;

/// The result of a parser.
pub(super) type Parsed<T> = Result<T, ErrMode<Fault>>;

/// A parser function for one part.
pub(super) type Part0<T> = fn(&mut Input<'_>) -> Parsed<T>;

#[derive(Debug, Default)]
pub(super) struct Counts {
    depth: usize,
    conditions: usize,
    regexes: usize,
}

/// A parse error with its position.
#[derive(Debug)]
pub(super) struct Fault {
    span: Range<usize>,
    message: String,
}

impl<'i> ParserError<Input<'i>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'i>) -> Self {
        Self { span: here(input), message: "something else was expected here".to_owned() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// Parses a whole text.
pub(super) fn parse<T>(text: &str, parser: Part0<T>) -> Result<T, FilterError> {
    if text.len() > LENGTH_BYTES {
        let message = format!("the filter is longer than {LENGTH_BYTES} bytes");
        return Err(FilterError::new("", 0..0, message));
    }
    let mut input = Stateful { input: LocatingSlice::new(text), state: Counts::default() };
    parser(&mut input).map_err(|error| match error {
        ErrMode::Cut(fault) | ErrMode::Backtrack(fault) => FilterError::new(text, fault.span, fault.message),
        ErrMode::Incomplete(_) => unreachable!("the input is whole"),
    })
}

/// Stops parsing with a message about a span.
pub(super) fn fault<T>(span: Range<usize>, message: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Fault { span, message: message.into() }))
}

/// Returns the span of the next character, or the end of the text.
pub(super) fn here(input: &Input<'_>) -> Range<usize> {
    let start = input.current_token_start();
    start..start + rest(input).chars().next().map_or(0, char::len_utf8)
}

/// Returns the unread text.
pub(super) fn rest<'i>(input: &Input<'i>) -> &'i str {
    input.input.peek_finish()
}

/// Stops parsing with the expected and the found input at this position.
pub(super) fn expected<T>(input: &Input<'_>, what: &str) -> Parsed<T> {
    let found = match rest(input).chars().next() {
        None => "the end".to_owned(),
        Some(found) => format!("{:?}", found.to_string()),
    };
    fault(here(input), format!("expected {what}, found {found}"))
}

/// Runs a parser one nesting level deeper.
pub(super) fn deeper<T>(
    input: &mut Input<'_>,
    mut parser: impl FnMut(&mut Input<'_>) -> Parsed<T>,
) -> Parsed<T> {
    if input.state.depth == DEPTH {
        return fault(here(input), format!("the filter is nested deeper than {DEPTH} levels"));
    }
    input.state.depth += 1;
    let parsed = parser(input);
    input.state.depth -= 1;
    parsed
}

/// Counts one more condition against the limit.
pub(super) fn count_condition(input: &mut Input<'_>) -> Parsed<()> {
    if input.state.conditions == CONDITIONS {
        return fault(here(input), format!("the filter has more than {CONDITIONS} conditions"));
    }
    input.state.conditions += 1;
    Ok(())
}

/// Counts one more regular expression against the limit.
pub(super) fn count_regex(input: &mut Input<'_>) -> Parsed<()> {
    if input.state.regexes == REGEXES {
        return fault(here(input), format!("the filter has more than {REGEXES} regular expressions"));
    }
    input.state.regexes += 1;
    Ok(())
}

/// A character, and whether it was escaped and is therefore literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) char: char,
    pub(super) is_escaped: bool,
}

/// Parses `\` and an escaped character: any character of `plain`, and `\n`, `\r`, `\t`, `\u{…}`.
pub(super) fn escape<'i>(plain: &'static str) -> impl FnMut(&mut Input<'i>) -> Parsed<Letter> {
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
            Ok(char) => Ok(Letter { char, is_escaped: true }),
            Err(ErrMode::Cut(fault)) => Err(ErrMode::Cut(fault)),
            Err(_) => {
                let all: Vec<String> = plain.chars().map(|one| format!("\\{one}")).collect();
                expected(input, &format!("what \\ escapes ({}, \\n, \\r, \\t, \\u{{…}})", all.join(", ")))
            }
        }
    }
}

fn unicode(input: &mut Input<'_>) -> Parsed<char> {
    let start = input.current_token_start();
    let hex = take_while(1..=6, |one: char| one.is_ascii_hexdigit());
    let digits: Result<&str, ErrMode<Fault>> = delimited("u{", hex, '}').parse_next(input);
    let code = digits.ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match code.and_then(char::from_u32) {
        Some(char) => Ok(char),
        None => fault(start..start + 1, "expected a character's number, such as \\u{20}"),
    }
}

/// Parses any character except these.
pub(super) fn letter<'i>(but: &'static str) -> impl FnMut(&mut Input<'i>) -> Parsed<Letter> {
    move |input| {
        any.verify(|found| !but.contains(*found))
            .map(|char| Letter { char, is_escaped: false })
            .parse_next(input)
    }
}

/// Builds a wildcard pattern; escaped wildcards are literal.
pub(super) fn wildcard(letters: &[Letter], has_one: bool) -> Wildcard {
    let part = |letter: &Letter| match letter.char {
        '*' if !letter.is_escaped => Part::Any,
        '?' if has_one && !letter.is_escaped => Part::One,
        other => Part::Char(other),
    };
    Wildcard(letters.iter().map(part).collect())
}
