//! Parser of the test protocol's graph queries, such as `/unit/Parser*/**[speed=fast]`.
//!
//! ```text
//! query    = "/"  |  ("/" segment)+ ("/" rest)?  |  "/" rest
//! rest     = "**" properties?
//! segment  = joined(node)
//! node     = name properties?
//! properties = "[" joined(name ("=" | "!=") name) "]"
//!
//! joined(x) = and(x) ("|" and(x))*
//! and(x)    = unary(x) ("&" unary(x))*
//! unary(x)  = "!" unary(x) | "(" joined(x) ")" | x
//! ```
//! In names, `*` matches any text and a backslash makes the next character literal. Outside of properties,
//! `%XX` is the byte with that hexadecimal value. A lone `/` has no segments and selects nothing.

use std::str::FromStr;

use winnow::{
    Parser,
    combinator::{alt, opt, preceded, repeat},
    stream::Location,
    token::take_while,
};

use super::{
    BoolExpr, FilterError, NodeCondition, PropertyCondition, WildcardPattern,
    syntax::{
        ParseResult, ParserInput, PartParser, PatternChar, build_pattern, count_condition, escaped_char,
        fail_at, fail_expected, next_char_span, parse, unescaped_char, unread_text, with_depth,
    },
};

/// Characters that end the name of a node.
const NODE_ENDS: &str = "\\/()[]&|%";
/// Characters that end the name of a property.
const KEY_ENDS: &str = "\\()[]&|=!";
/// Characters that end the value of a property.
const VALUE_ENDS: &str = "\\()[]&|";
/// Characters that a backslash makes literal.
pub(super) const ESCAPED: &str = "\\/()[]&|!=*%? .,+-#^${}<>:;'\"@~";

/// A graph query that selects nodes of the test tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphQuery {
    /// One expression for each level, from the root.
    pub(super) segments: Vec<BoolExpr<NodeCondition>>,
    /// A final `**`, which matches one or more further levels.
    pub(super) rest: Option<TrailingWildcard>,
}

/// A final `**` with its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrailingWildcard {
    pub(super) properties: Option<BoolExpr<PropertyCondition>>,
}

impl FromStr for GraphQuery {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse(text, query)
    }
}

fn query(input: &mut ParserInput<'_>) -> ParseResult<GraphQuery> {
    let mut query = GraphQuery { segments: Vec::new(), rest: None };
    if unread_text(input) == "/" {
        "/".parse_next(input)?;
        return Ok(query);
    }
    while opt("/").parse_next(input)?.is_some() {
        let start = next_char_span(input).start;
        if is_trailing_wildcard(unread_text(input)) {
            "**".parse_next(input)?;
            query.rest = Some(TrailingWildcard { properties: properties(input)? });
            if unread_text(input).starts_with('/') {
                return fail_at(start..start + 2, "\"**\" is allowed only at the end of the path");
            }
            break;
        }
        query.segments.push(joined(input, node)?);
    }
    if !unread_text(input).is_empty() {
        let is_begun = !query.segments.is_empty() || query.rest.is_some();
        let what = if is_begun {
            "\"/\", \"&\", \"|\" or the end of the query"
        } else {
            "\"/\" at the start of the query"
        };
        return fail_expected(input, what);
    }
    if query.segments.is_empty() && query.rest.is_none() {
        return fail_expected(input, "\"/\" at the start of the query");
    }
    Ok(query)
}

/// Returns whether the text begins with `**` as a separate path segment.
fn is_trailing_wildcard(text: &str) -> bool {
    text.strip_prefix("**").is_some_and(|behind| behind.is_empty() || behind.starts_with(['/', '[']))
}

fn joined<L>(input: &mut ParserInput<'_>, one: PartParser<BoolExpr<L>>) -> ParseResult<BoolExpr<L>> {
    let first = and(input, one)?;
    let rest: Vec<_> =
        repeat(0.., preceded('|', |input: &mut ParserInput<'_>| and(input, one))).parse_next(input)?;
    Ok(BoolExpr::any_of(first, rest))
}

fn and<L>(input: &mut ParserInput<'_>, one: PartParser<BoolExpr<L>>) -> ParseResult<BoolExpr<L>> {
    let first = unary(input, one)?;
    let rest: Vec<_> =
        repeat(0.., preceded('&', |input: &mut ParserInput<'_>| unary(input, one))).parse_next(input)?;
    Ok(BoolExpr::all_of(first, rest))
}

fn unary<L>(input: &mut ParserInput<'_>, one: PartParser<BoolExpr<L>>) -> ParseResult<BoolExpr<L>> {
    if opt('!').parse_next(input)?.is_some() {
        return with_depth(input, |input| unary(input, one)).map(BoolExpr::negated);
    }
    let start = next_char_span(input);
    if opt('(').parse_next(input)?.is_none() {
        return one(input);
    }
    let inner = with_depth(input, |input| joined(input, one))?;
    match opt(')').parse_next(input)? {
        Some(_) => Ok(inner),
        None if unread_text(input).is_empty() => fail_at(start, "unclosed \"(\""),
        None if unread_text(input).starts_with('/') => fail_at(
            next_char_span(input),
            "parentheses can't contain more than one path segment; for a slash in a name, write \\/ or %2F",
        ),
        None => fail_expected(input, "\"&\", \"|\" or \")\""),
    }
}

fn node(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<NodeCondition>> {
    count_condition(input)?;
    let start = next_char_span(input);
    let letters: Vec<Vec<PatternChar>> = repeat(
        0..,
        alt((
            escaped_char(ESCAPED).map(|one| vec![one]),
            percent_encoded,
            unescaped_char(NODE_ENDS).map(|one| vec![one]),
        )),
    )
    .parse_next(input)?;
    let name = build_pattern(&letters.concat(), false);
    if name.0.is_empty() {
        return fail_expected(input, "a name or a pattern such as \"Parser*\"");
    }
    if name == WildcardPattern(vec![super::PatternPart::Any; 2]) {
        return fail_at(
            start.start..start.start + 2,
            "\"**\" is allowed only as a whole segment at the end of the path",
        );
    }
    Ok(BoolExpr::Leaf(NodeCondition { name, properties: properties(input)? }))
}

/// Parses a sequence of percent-encoded bytes such as `%2F`, which together must be UTF-8. A `%` that is not
/// followed by two hexadecimal digits is literal.
fn percent_encoded(input: &mut ParserInput<'_>) -> ParseResult<Vec<PatternChar>> {
    let start = input.current_token_start();
    let byte = preceded('%', take_while(2..=2, |one: char| one.is_ascii_hexdigit()))
        .map(|digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits are a byte"));
    let bytes: Vec<u8> = repeat(0.., byte).parse_next(input)?;
    if bytes.is_empty() {
        return '%'.map(|char| vec![PatternChar { char, is_escaped: true }]).parse_next(input);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.chars().map(|char| PatternChar { char, is_escaped: true }).collect()),
        Err(_) => {
            fail_at(start..input.current_token_start(), "the percent-encoded bytes are not valid UTF-8")
        }
    }
}

fn properties(input: &mut ParserInput<'_>) -> ParseResult<Option<BoolExpr<PropertyCondition>>> {
    let start = next_char_span(input);
    if opt('[').parse_next(input)?.is_none() {
        return Ok(None);
    }
    let properties = joined(input, property)?;
    match opt(']').parse_next(input)? {
        Some(_) if unread_text(input).starts_with('[') => fail_at(
            next_char_span(input),
            "only one pair of brackets is allowed; join the conditions inside with \"&\" or \"|\"",
        ),
        Some(_) => Ok(Some(properties)),
        None if unread_text(input).is_empty() => fail_at(start, "unclosed \"[\""),
        None => fail_expected(input, "\"&\", \"|\" or \"]\""),
    }
}

fn property(input: &mut ParserInput<'_>) -> ParseResult<BoolExpr<PropertyCondition>> {
    count_condition(input)?;
    let key = name_until(input, KEY_ENDS)?;
    if key.0.is_empty() {
        return fail_expected(input, "a trait name, as in [speed=fast]");
    }
    let operator = opt(alt(("!=".value(true), "=".value(false)))).parse_next(input)?;
    let Some(is_negated) = operator else {
        return fail_expected(input, "\"=\" or \"!=\" after the trait name");
    };
    let value = name_until(input, VALUE_ENDS)?;
    let property = BoolExpr::Leaf(PropertyCondition { key, value });
    Ok(if is_negated { property.negated() } else { property })
}

fn name_until(input: &mut ParserInput<'_>, ends: &'static str) -> ParseResult<WildcardPattern> {
    let letters: Vec<PatternChar> =
        repeat(0.., alt((escaped_char(ESCAPED), unescaped_char(ends)))).parse_next(input)?;
    Ok(build_pattern(&letters, false))
}
