//! Parser of filter expressions such as `test(~parse) & not tag(slow)`. A filter that calls no function is a
//! substring or glob matched against names.
//!
//! ```text
//! or       = and (("|" | "+" | "or") and)*
//! and      = unary (("&" | "and") unary | "-" unary)*
//! unary    = ("!" | "not") unary | "(" or ")" | function
//! function = "test" "(" text ")" | … | "tag" "(" text ("=" text)? ")" | "state" "(" word ")"
//!          | "all()" | "none()"
//! text     = "=" exact | "~" contained | "/" regex "/" | "#" glob | text without a sign
//! ```

use std::{fmt, str::FromStr};

use winnow::{
    Parser,
    combinator::{alt, not, opt, preceded, repeat, terminated},
    error::ErrMode,
    stream::Location,
    token::{any, literal, none_of, one_of, take_while},
};

use super::{
    BoolExpr, CompiledRegex, FilterError, FilterPredicate, HistoryState, PatternPart, TextMatcher,
    syntax::{
        ParseResult, ParserInput, PatternChar, build_pattern, count_condition, count_regex, escaped_char,
        fail_at, fail_expected, next_char_span, parse, unescaped_char, unread_text, with_depth,
    },
};
use crate::closest_match::{closest_match, known_words_hint};

/// All functions, in display order.
const FUNCTIONS: [&str; 7] = ["test", "suite", "program", "tag", "state", "all", "none"];
/// Functions of cargo-nextest and their replacements, for users who switch. `X` stands for the function's
/// argument. Suites of a package are named `package` and `package::target`.
const NEXTEST_FUNCTIONS: [(&str, &str); 6] = [
    ("binary", "suite(*::X), or suite(X) for a library"),
    ("binary_id", "suite(X)"),
    ("package", "suite(X) | suite(X::*)"),
    ("kind", "options such as --lib, --bins and --test"),
    ("deps", "options such as -p"),
    ("rdeps", "options such as -p"),
];
/// Characters that a backslash makes literal, in addition to the escape sequences.
const ESCAPED: &str = "\\)(=~/#*?, ";
/// Memory limit of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 256 << 10;
/// Nesting limit of groups in a regular expression.
const MAX_REGEX_DEPTH: u32 = 64;

/// A test filter with its source text: an expression, or a plain substring or glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    pub(super) expr: BoolExpr<FilterPredicate>,
}

impl Filter {
    /// Returns the parsed expression.
    #[must_use]
    pub fn expr(&self) -> &BoolExpr<FilterPredicate> {
        &self.expr
    }

    /// Returns whether the filter depends on recorded outcomes.
    #[must_use]
    pub fn depends_on_history(&self) -> bool {
        self.expr.contains_condition(&|predicate| matches!(predicate, FilterPredicate::State(_)))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.trim().is_empty() {
            let message = "empty filter; to select all tests, omit it or write all()";
            return Err(FilterError::new(text, 0..text.len(), message));
        }
        let expr = match calls_a_function(text) {
            true => parse(text, whole)?,
            false => BoolExpr::Leaf(FilterPredicate::Test(parse_plain_text(text))),
        };
        Ok(Self { text: text.to_owned(), expr })
    }
}

/// Returns whether a filter is an expression: it begins with a function call, or contains a call of a known
/// function. Everything else is a name. Names often contain `-`, `|` and spaces, and sometimes parentheses.
fn calls_a_function(text: &str) -> bool {
    let mut start = text.trim_start_matches(['!', '(', ' ']);
    while let Some(behind) = start.strip_prefix("not ") {
        start = behind.trim_start_matches(['!', '(', ' ']);
    }
    let name = start.trim_start_matches(is_name_char);
    if name.len() < start.len() && name.starts_with('(') {
        return true;
    }
    FUNCTIONS.iter().any(|function| {
        text.match_indices(function).any(|(place, _)| {
            let is_word = text[..place].ends_with([' ', '(', '!', '&', '|', '+', '-']) || place == 0;
            is_word && text[place + function.len()..].starts_with('(')
        })
    })
}

fn is_name_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

/// Parses plain text: a glob if it contains wildcards, otherwise a substring. A backslash is literal.
fn parse_plain_text(text: &str) -> TextMatcher {
    let letters: Vec<_> = text.chars().map(|char| PatternChar { char, is_escaped: false }).collect();
    glob_or_substring(&letters)
}

fn glob_or_substring(letters: &[PatternChar]) -> TextMatcher {
    let glob = build_pattern(letters, true);
    if glob.has_wildcards() { TextMatcher::Glob(glob) } else { TextMatcher::Contains(string(letters)) }
}

fn string(letters: &[PatternChar]) -> String {
    letters.iter().map(|letter| letter.char).collect()
}

fn whole(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<FilterPredicate>> {
    let expr = terminated(or, space).parse_next(input)?;
    match unread_text(input).chars().next() {
        None => Ok(expr),
        Some(')') => {
            fail_at(next_char_span(input), "unmatched \")\"; for a literal parenthesis in a name, write \\)")
        }
        Some(_) => fail_expected(input, "an operator (&, |, -, and, or) or the end of the filter"),
    }
}

fn or(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<FilterPredicate>> {
    let operator = (space, alt((literal("|").void(), literal("+").void(), keyword("or"))));
    let first = and(input)?;
    let rest: Vec<_> = repeat(0.., preceded(operator, and)).parse_next(input)?;
    Ok(BoolExpr::any_of(first, rest))
}

fn and(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<FilterPredicate>> {
    let operator = (space, alt((literal("&").void(), keyword("and"))));
    let difference = preceded((space, "-"), unary).map(BoolExpr::negated);
    let first = unary(input)?;
    let rest: Vec<_> = repeat(0.., alt((preceded(operator, unary), difference))).parse_next(input)?;
    Ok(BoolExpr::all_of(first, rest))
}

fn unary(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<FilterPredicate>> {
    space(input)?;
    if opt(alt((literal("!").void(), keyword("not")))).parse_next(input)?.is_some() {
        return with_depth(input, unary).map(BoolExpr::negated);
    }
    let start = next_char_span(input);
    if opt("(").parse_next(input)?.is_some() {
        let inner = with_depth(input, or)?;
        space(input)?;
        return match opt(")").parse_next(input)? {
            Some(_) => Ok(inner),
            None if unread_text(input).is_empty() => fail_at(start, "unclosed \"(\""),
            None => fail_expected(input, "an operator (&, |, -, and, or) or \")\""),
        };
    }
    function(input)
}

fn function(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<FilterPredicate>> {
    count_condition(input)?;
    let all = FUNCTIONS.map(|name| format!("{name}(…)")).join(", ");
    let named = opt(take_while(1.., is_name_char)).with_span().parse_next(input)?;
    let (Some(name), span) = named else {
        return fail_expected(input, &format!("a function ({all}), \"not\" or \"(\""));
    };
    space(input)?;
    if opt("(").parse_next(input)?.is_none() {
        return fail_at(
            span,
            format!("expected a function ({all}), found {name:?}; did you mean test({name})?"),
        );
    }
    let predicate = match name {
        "all" => FilterPredicate::All,
        "none" => FilterPredicate::None,
        "test" => FilterPredicate::Test(text(input, UnsignedTextMode::GlobOrSubstring)?),
        "suite" => FilterPredicate::Suite(text(input, UnsignedTextMode::Glob)?),
        "program" => FilterPredicate::Program(text(input, UnsignedTextMode::Glob)?),
        "tag" => tag(input)?,
        "state" => FilterPredicate::State(state(input)?),
        other => {
            let text = unread_text(input).split(')').next().unwrap_or_default().trim().to_owned();
            return fail_at(span, unknown_function(other, &text));
        }
    };
    space(input)?;
    match opt(")").parse_next(input)? {
        Some(_) => Ok(BoolExpr::Leaf(predicate)),
        None => fail_expected(input, &format!("\")\" to close {name}(…)")),
    }
}

/// Returns the error message for an unknown function. `text` is its argument.
fn unknown_function(name: &str, text: &str) -> String {
    if let Some((_, form)) = NEXTEST_FUNCTIONS.iter().find(|(foreign, _)| *foreign == name) {
        let is_word = text.chars().all(|char| char.is_alphanumeric() || "-_.:*".contains(char));
        let form = if is_word && !text.is_empty() { form.replace('X', text) } else { (*form).to_owned() };
        return format!("unknown function \"{name}\"; use {form}");
    }
    format!("unknown function \"{name}\"{}", known_words_hint(name, &FUNCTIONS))
}

fn space(input: &mut ParserInput<'_>) -> ParseResult<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

/// Matches an operator word that is not the prefix of a longer word.
fn keyword<'i>(word: &'static str) -> impl Parser<ParserInput<'i>, (), ErrMode<super::syntax::ParseFailure>> {
    terminated(literal(word), not(one_of(is_name_char))).void()
}

/// Meaning of a text without a comparison sign.
#[derive(Clone, Copy)]
enum UnsignedTextMode {
    GlobOrSubstring,
    Glob,
}

fn text(input: &mut ParserInput<'_>, plain: UnsignedTextMode) -> ParseResult<TextMatcher> {
    parse_comparison(input, plain, ")")
}

/// Parses a text with an optional comparison sign. Stops before any of the characters in `ends`.
fn parse_comparison(
    input: &mut ParserInput<'_>,
    plain: UnsignedTextMode,
    ends: &'static str,
) -> ParseResult<TextMatcher> {
    space(input)?;
    let sign = opt(one_of(['=', '~', '/', '#'])).parse_next(input)?;
    if sign == Some('/') {
        return regex(input).map(TextMatcher::Regex);
    }
    let letters = parse_pattern_chars(input, ends)?;
    if letters.is_empty() {
        return fail_expected(input, "text");
    }
    Ok(match (sign, plain) {
        (Some('='), _) => TextMatcher::Equals(string(&letters)),
        (Some('~'), _) => TextMatcher::Contains(string(&letters)),
        (None, UnsignedTextMode::GlobOrSubstring) => glob_or_substring(&letters),
        _ => TextMatcher::Glob(build_pattern(&letters, true)),
    })
}

/// Parses characters and escapes. Drops unescaped white space at both ends.
fn parse_pattern_chars(input: &mut ParserInput<'_>, ends: &'static str) -> ParseResult<Vec<PatternChar>> {
    let mut letters: Vec<PatternChar> =
        repeat(0.., alt((escaped_char(ESCAPED), unescaped_char(ends)))).parse_next(input)?;
    let is_space = |letter: &PatternChar| letter.char.is_whitespace() && !letter.is_escaped;
    let end = letters.iter().rposition(|letter| !is_space(letter)).map_or(0, |last| last + 1);
    letters.truncate(end);
    let start = letters.iter().take_while(|letter| is_space(letter)).count();
    Ok(letters.split_off(start))
}

fn regex(input: &mut ParserInput<'_>) -> ParseResult<CompiledRegex> {
    count_regex(input)?;
    let start = input.current_token_start();
    // Only the slash is unescaped here; all other escapes belong to the regular expression.
    let piece = alt((literal("\\/").value("/"), ('\\', any).take(), none_of(['/', '\\']).take()));
    let source: String = repeat(0.., piece).fold(String::new, |all, one| all + one).parse_next(input)?;
    let span = start..input.current_token_start();
    if opt("/").parse_next(input)?.is_none() {
        return fail_expected(input, "a closing \"/\" after the regular expression");
    }
    compile(&source).or_else(|message| fail_at(span, message))
}

/// Compiles a regular expression within the limits. The error is a message for the user.
pub(super) fn compile(source: &str) -> Result<CompiledRegex, String> {
    if source.is_empty() {
        return Err("empty regular expression".to_owned());
    }
    let built = regex::RegexBuilder::new(source)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .nest_limit(MAX_REGEX_DEPTH)
        .build();
    built.map(CompiledRegex).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("the compiled regular expression exceeds {} KiB", MAX_REGEX_BYTES >> 10)
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
            format!("invalid regular expression: {reason}")
        }
    })
}

fn tag(input: &mut ParserInput<'_>) -> ParseResult<FilterPredicate> {
    let key = parse_comparison(input, UnsignedTextMode::Glob, "=)")?;
    space(input)?;
    if opt("=").parse_next(input)?.is_none() {
        return Ok(FilterPredicate::Tag { key, value: None });
    }
    // `tag(key=)` matches a trait with an empty value.
    let is_empty = |input: &ParserInput<'_>| unread_text(input).trim_start().starts_with(')');
    space(input)?;
    if is_empty(input) {
        return Ok(FilterPredicate::Tag { key, value: Some(TextMatcher::Equals(String::new())) });
    }
    let value = parse_comparison(input, UnsignedTextMode::Glob, ")")?;
    Ok(FilterPredicate::Tag { key, value: Some(value) })
}

fn state(input: &mut ParserInput<'_>) -> ParseResult<HistoryState> {
    space(input)?;
    let words = HistoryState::WORDS.map(|(word, _)| word);
    let (word, span) = take_while(0.., is_name_char).with_span().parse_next(input)?;
    if word.is_empty() {
        return fail_expected(input, &format!("one of {}", words.join(", ")));
    }
    match HistoryState::WORDS.iter().find(|(known, _)| *known == word) {
        Some((_, past)) => Ok(*past),
        None => {
            let hint = closest_match(word, words).map(|near| format!("; did you mean \"{near}\"?"));
            let message = format!("expected one of {}, found {word:?}", words.join(", "));
            fail_at(span, message + &hint.unwrap_or_default())
        }
    }
}

/// Returns whether this character must be escaped with a backslash.
pub(super) fn needs_escape(part: PatternPart) -> bool {
    matches!(part, PatternPart::Char(char) if ESCAPED.contains(char))
}
