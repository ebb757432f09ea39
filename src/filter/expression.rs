//! The parser of filter expressions: `test(~parse) & not tag(slow)`. A text that calls no function is a
//! substring or a glob over names.
//!
//! ```text
//! or       = and (("|" | "+" | "or") and)*
//! and      = unary (("&" | "and") unary | "-" unary)*
//! unary    = ("!" | "not") unary | "(" or ")" | function
//! function = "test" "(" text ")" | … | "tag" "(" text ("=" text)? ")" | "state" "(" word ")" | "all()" | "none()"
//! text     = "=" exact | "~" contained | "/" regex "/" | "#" glob | whatever the function takes without a sign
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
    Expr, FilterError, Part, Past, Predicate, Regex, Text,
    syntax::{
        Input, Letter, Parsed, count_condition, count_regex, deeper, escape, expected, fault, here, letter,
        parse, rest, wildcard,
    },
};
use crate::nearest;

/// All functions, in the order in which they are shown.
const FUNCTIONS: [&str; 7] = ["test", "suite", "program", "tag", "state", "all", "none"];
/// Functions of cargo-nextest and their replacements, for users of that program.
const FOREIGN: [(&str, &str); 3] = [("binary", "program"), ("binary_id", "suite"), ("package", "suite")];
/// The characters that a backslash makes literal, besides its own escapes.
const ESCAPED: &str = "\\)(=~/#*?, ";
/// Memory limit of one compiled regular expression.
const REGEX_BYTES: usize = 256 << 10;
/// Nesting limit of groups in one regular expression.
const REGEX_DEPTH: u32 = 64;

/// A filter of tests: an expression, or a plain substring or glob over names, together with its source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    pub(super) expr: Expr<Predicate>,
}

impl Filter {
    /// Returns the parsed expression.
    #[must_use]
    pub fn expr(&self) -> &Expr<Predicate> {
        &self.expr
    }

    /// Returns whether the filter depends on the recorded outcomes of tests.
    #[must_use]
    pub fn asks_history(&self) -> bool {
        self.expr.mentions(&|predicate| matches!(predicate, Predicate::State(_)))
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
            let message = "an empty filter; leave it out to take all tests, or write \"all()\"";
            return Err(FilterError::new(text, 0..text.len(), message));
        }
        let expr = match calls_a_function(text) {
            true => parse(text, whole)?,
            false => Expr::Leaf(Predicate::Test(plain(text))),
        };
        Ok(Self { text: text.to_owned(), expr })
    }
}

/// Returns whether a text is an expression: it begins with a call of any function name, or it calls a known
/// function anywhere. All other texts are names, which are full of `-`, `|` and spaces, and some of which
/// have parentheses.
fn calls_a_function(text: &str) -> bool {
    let mut start = text.trim_start_matches(['!', '(', ' ']);
    while let Some(behind) = start.strip_prefix("not ") {
        start = behind.trim_start_matches(['!', '(', ' ']);
    }
    let name = start.trim_start_matches(is_of_name);
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

fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

/// Parses a plain text: a glob when it has wildcards, otherwise a substring. A backslash is literal.
fn plain(text: &str) -> Text {
    let letters: Vec<_> = text.chars().map(|char| Letter { char, is_escaped: false }).collect();
    glob_or_part(&letters)
}

fn glob_or_part(letters: &[Letter]) -> Text {
    let glob = wildcard(letters, true);
    if glob.is_wild() { Text::Glob(glob) } else { Text::Contains(string(letters)) }
}

fn string(letters: &[Letter]) -> String {
    letters.iter().map(|letter| letter.char).collect()
}

fn whole(input: &mut Input<'_>) -> Parsed<Expr<Predicate>> {
    let expr = terminated(or, space).parse_next(input)?;
    match rest(input).chars().next() {
        None => Ok(expr),
        Some(')') => fault(here(input), "there is no \"(\" for this \")\"; in a name write \\)"),
        Some(_) => expected(input, "an operator (&, |, -, and, or) or the end"),
    }
}

fn or(input: &mut Input<'_>) -> Parsed<Expr<Predicate>> {
    let operator = (space, alt((literal("|").void(), literal("+").void(), word("or"))));
    let first = and(input)?;
    let rest: Vec<_> = repeat(0.., preceded(operator, and)).parse_next(input)?;
    Ok(Expr::any_of(first, rest))
}

fn and(input: &mut Input<'_>) -> Parsed<Expr<Predicate>> {
    let operator = (space, alt((literal("&").void(), word("and"))));
    let difference = preceded((space, "-"), unary).map(Expr::negated);
    let first = unary(input)?;
    let rest: Vec<_> = repeat(0.., alt((preceded(operator, unary), difference))).parse_next(input)?;
    Ok(Expr::all_of(first, rest))
}

fn unary(input: &mut Input<'_>) -> Parsed<Expr<Predicate>> {
    space(input)?;
    if opt(alt((literal("!").void(), word("not")))).parse_next(input)?.is_some() {
        return deeper(input, unary).map(Expr::negated);
    }
    let start = here(input);
    if opt("(").parse_next(input)?.is_some() {
        let inner = deeper(input, or)?;
        space(input)?;
        return match opt(")").parse_next(input)? {
            Some(_) => Ok(inner),
            None if rest(input).is_empty() => fault(start, "this \"(\" has no \")\""),
            None => expected(input, "an operator (&, |, -, and, or) or \")\""),
        };
    }
    function(input)
}

fn function(input: &mut Input<'_>) -> Parsed<Expr<Predicate>> {
    count_condition(input)?;
    let all = FUNCTIONS.map(|name| format!("{name}(…)")).join(", ");
    let named = opt(take_while(1.., is_of_name)).with_span().parse_next(input)?;
    let (Some(name), span) = named else {
        return expected(input, &format!("a function ({all}), \"not\" or \"(\""));
    };
    space(input)?;
    if opt("(").parse_next(input)?.is_none() {
        return fault(span, format!("expected a function ({all}), found a plain word; write test({name})"));
    }
    let predicate = match name {
        "all" => Predicate::All,
        "none" => Predicate::None,
        "test" => Predicate::Test(text(input, Plain::GlobOrPart)?),
        "suite" => Predicate::Suite(text(input, Plain::Glob)?),
        "program" => Predicate::Program(text(input, Plain::Glob)?),
        "tag" => tag(input)?,
        "state" => Predicate::State(state(input)?),
        other => return fault(span, unknown_function(other)),
    };
    space(input)?;
    match opt(")").parse_next(input)? {
        Some(_) => Ok(Expr::Leaf(predicate)),
        None => expected(input, &format!("\")\" at the end of {name}(…)")),
    }
}

fn unknown_function(name: &str) -> String {
    let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == name).map(|(_, ours)| *ours);
    match foreign.or_else(|| nearest(name, FUNCTIONS)) {
        Some(near) => format!("there is no function \"{name}\"; did you mean \"{near}\"?"),
        None => format!("there is no function \"{name}\"; there are {}", FUNCTIONS.join(", ")),
    }
}

fn space(input: &mut Input<'_>) -> Parsed<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

/// Matches an operator that is a word and not the prefix of a longer one.
fn word<'i>(word: &'static str) -> impl Parser<Input<'i>, (), ErrMode<super::syntax::Fault>> {
    terminated(literal(word), not(one_of(is_of_name))).void()
}

/// The meaning of a text without a comparison sign.
#[derive(Clone, Copy)]
enum Plain {
    GlobOrPart,
    Glob,
}

fn text(input: &mut Input<'_>, plain: Plain) -> Parsed<Text> {
    signed(input, plain, ")")
}

/// Parses a text with an optional comparison sign, up to one of the `ends`, which is not consumed.
fn signed(input: &mut Input<'_>, plain: Plain, ends: &'static str) -> Parsed<Text> {
    space(input)?;
    let sign = opt(one_of(['=', '~', '/', '#'])).parse_next(input)?;
    if sign == Some('/') {
        return regex(input).map(Text::Regex);
    }
    let letters = letters(input, ends)?;
    if letters.is_empty() {
        return expected(input, "a text");
    }
    Ok(match (sign, plain) {
        (Some('='), _) => Text::Equals(string(&letters)),
        (Some('~'), _) => Text::Contains(string(&letters)),
        (None, Plain::GlobOrPart) => glob_or_part(&letters),
        _ => Text::Glob(wildcard(&letters, true)),
    })
}

/// Parses characters and escapes; surrounding white space is dropped, unless escaped.
fn letters(input: &mut Input<'_>, ends: &'static str) -> Parsed<Vec<Letter>> {
    let mut letters: Vec<Letter> = repeat(0.., alt((escape(ESCAPED), letter(ends)))).parse_next(input)?;
    let is_space = |letter: &Letter| letter.char.is_whitespace() && !letter.is_escaped;
    let end = letters.iter().rposition(|letter| !is_space(letter)).map_or(0, |last| last + 1);
    letters.truncate(end);
    let start = letters.iter().take_while(|letter| is_space(letter)).count();
    Ok(letters.split_off(start))
}

fn regex(input: &mut Input<'_>) -> Parsed<Regex> {
    count_regex(input)?;
    let start = input.current_token_start();
    // Only the slash is unescaped here: all other escapes belong to the regular expression.
    let piece = alt((literal("\\/").value("/"), ('\\', any).take(), none_of(['/', '\\']).take()));
    let source: String = repeat(0.., piece).fold(String::new, |all, one| all + one).parse_next(input)?;
    let span = start..input.current_token_start();
    if opt("/").parse_next(input)?.is_none() {
        return expected(input, "\"/\" at the end of the regular expression");
    }
    compile(&source).or_else(|message| fault(span, message))
}

/// Compiles a regular expression within its limits; the error is a message.
pub(super) fn compile(source: &str) -> Result<Regex, String> {
    if source.is_empty() {
        return Err("an empty regular expression".to_owned());
    }
    let built = regex::RegexBuilder::new(source)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .nest_limit(REGEX_DEPTH)
        .build();
    built.map(Regex).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("the regular expression needs more than {} KiB of memory", REGEX_BYTES >> 10)
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
            format!("the regular expression is wrong: {reason}")
        }
    })
}

fn tag(input: &mut Input<'_>) -> Parsed<Predicate> {
    let key = signed(input, Plain::Glob, "=)")?;
    space(input)?;
    if opt("=").parse_next(input)?.is_none() {
        return Ok(Predicate::Tag { key, value: None });
    }
    // `tag(key=)` matches a trait without a value.
    let is_empty = |input: &Input<'_>| rest(input).trim_start().starts_with(')');
    space(input)?;
    if is_empty(input) {
        return Ok(Predicate::Tag { key, value: Some(Text::Equals(String::new())) });
    }
    let value = signed(input, Plain::Glob, ")")?;
    Ok(Predicate::Tag { key, value: Some(value) })
}

fn state(input: &mut Input<'_>) -> Parsed<Past> {
    space(input)?;
    let words = Past::WORDS.map(|(word, _)| word);
    let (word, span) = take_while(0.., is_of_name).with_span().parse_next(input)?;
    if word.is_empty() {
        return expected(input, &format!("one of {}", words.join(", ")));
    }
    match Past::WORDS.iter().find(|(known, _)| *known == word) {
        Some((_, past)) => Ok(*past),
        None => {
            let hint = nearest(word, words).map(|near| format!("; did you mean \"{near}\"?"));
            let message = format!("expected one of {}, found {word:?}", words.join(", "));
            fault(span, message + &hint.unwrap_or_default())
        }
    }
}

/// Returns whether this character must be escaped by a backslash.
pub(super) fn is_special(part: Part) -> bool {
    matches!(part, Part::Char(char) if ESCAPED.contains(char))
}
