//! The parser of graph queries of the test protocol: `/unit/Parser*/**[speed=fast]`.
//!
//! ```text
//! query    = ("/" segment)+ ("/" rest)?  |  "/" rest
//! rest     = "**" properties?
//! segment  = joined of nodes;  joined = and ("|" and)*;  and = unary ("&" unary)*;  unary = "!" unary | "(" joined ")" | one
//! node     = name properties?
//! properties = "[" joined of (name ("=" | "!=") name) "]"
//! ```
//! In names `*` matches any text, a backslash makes the next character literal, and outside of properties
//! `%2F` is the byte with that number.

use std::str::FromStr;

use winnow::{
    Parser,
    combinator::{alt, opt, preceded, repeat},
    stream::Location,
    token::take_while,
};

use super::{
    Expr, FilterError, NodeTest, Property, Wildcard,
    syntax::{
        Input, Letter, Parsed, Part0, count_condition, deeper, escape, expected, fault, here, letter, parse,
        rest, wildcard,
    },
};

/// The characters that end the name of a node.
const NODE_ENDS: &str = "\\/()[]&|%";
/// The characters that end the name of a property.
const KEY_ENDS: &str = "\\()[]&|=!";
/// The characters that end the value of a property.
const VALUE_ENDS: &str = "\\()[]&|";
/// The characters that a backslash makes literal.
pub(super) const ESCAPED: &str = "\\/()[]&|!=*%? .,+-#^${}<>:;'\"@~";

/// A graph query: selects nodes of the tree of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphQuery {
    /// One expression for each level, from the root.
    pub(super) segments: Vec<Expr<NodeTest>>,
    /// A final `**`: matches one or more further levels.
    pub(super) rest: Option<Rest>,
}

/// A final `**` with its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) properties: Option<Expr<Property>>,
}

impl FromStr for GraphQuery {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse(text, query)
    }
}

fn query(input: &mut Input<'_>) -> Parsed<GraphQuery> {
    let mut query = GraphQuery { segments: Vec::new(), rest: None };
    while opt("/").parse_next(input)?.is_some() {
        let start = here(input).start;
        if is_rest(rest(input)) {
            "**".parse_next(input)?;
            query.rest = Some(Rest { properties: properties(input)? });
            if rest(input).starts_with('/') {
                return fault(start..start + 2, "\"**\" can only be the last part of a path");
            }
            break;
        }
        query.segments.push(joined(input, node)?);
    }
    if !rest(input).is_empty() {
        let is_begun = !query.segments.is_empty() || query.rest.is_some();
        let what =
            if is_begun { "\"/\", \"&\", \"|\" or the end" } else { "\"/\", with which each query begins" };
        return expected(input, what);
    }
    if query.segments.is_empty() && query.rest.is_none() {
        return expected(input, "\"/\", with which each query begins");
    }
    Ok(query)
}

/// Returns whether `**` is a path segment of its own.
fn is_rest(text: &str) -> bool {
    text.strip_prefix("**").is_some_and(|behind| behind.is_empty() || behind.starts_with(['/', '[']))
}

fn joined<L>(input: &mut Input<'_>, one: Part0<Expr<L>>) -> Parsed<Expr<L>> {
    let first = and(input, one)?;
    let rest: Vec<_> =
        repeat(0.., preceded('|', |input: &mut Input<'_>| and(input, one))).parse_next(input)?;
    Ok(Expr::any_of(first, rest))
}

fn and<L>(input: &mut Input<'_>, one: Part0<Expr<L>>) -> Parsed<Expr<L>> {
    let first = unary(input, one)?;
    let rest: Vec<_> =
        repeat(0.., preceded('&', |input: &mut Input<'_>| unary(input, one))).parse_next(input)?;
    Ok(Expr::all_of(first, rest))
}

fn unary<L>(input: &mut Input<'_>, one: Part0<Expr<L>>) -> Parsed<Expr<L>> {
    if opt('!').parse_next(input)?.is_some() {
        return deeper(input, |input| unary(input, one)).map(Expr::negated);
    }
    let start = here(input);
    if opt('(').parse_next(input)?.is_none() {
        return one(input);
    }
    let inner = deeper(input, |input| joined(input, one))?;
    match opt(')').parse_next(input)? {
        Some(_) => Ok(inner),
        None if rest(input).is_empty() => fault(start, "this \"(\" has no \")\""),
        None if rest(input).starts_with('/') => fault(
            here(input),
            "parentheses can't hold more than one part of a path; write \\/ or %2F for a slash in a name",
        ),
        None => expected(input, "\"&\", \"|\" or \")\""),
    }
}

fn node(input: &mut Input<'_>) -> Parsed<Expr<NodeTest>> {
    count_condition(input)?;
    let start = here(input);
    let letters: Vec<Vec<Letter>> = repeat(
        0..,
        alt((escape(ESCAPED).map(|one| vec![one]), encoded, letter(NODE_ENDS).map(|one| vec![one]))),
    )
    .parse_next(input)?;
    let name = wildcard(&letters.concat(), false);
    if name.0.is_empty() {
        return expected(input, "a name or a pattern such as \"Parser*\"");
    }
    if name == Wildcard(vec![super::Part::Any; 2]) {
        return fault(
            start.start..start.start + 2,
            "\"**\" can only stand alone, as the last part of a path",
        );
    }
    Ok(Expr::Leaf(NodeTest { name, properties: properties(input)? }))
}

/// Parses `%2F` and the like, as many as follow each other: together they are UTF-8. A `%` without two
/// hexadecimal digits after it is literal.
fn encoded(input: &mut Input<'_>) -> Parsed<Vec<Letter>> {
    let start = input.current_token_start();
    let byte = preceded('%', take_while(2..=2, |one: char| one.is_ascii_hexdigit()))
        .map(|digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits are a byte"));
    let bytes: Vec<u8> = repeat(0.., byte).parse_next(input)?;
    if bytes.is_empty() {
        return '%'.map(|char| vec![Letter { char, is_escaped: true }]).parse_next(input);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.chars().map(|char| Letter { char, is_escaped: true }).collect()),
        Err(_) => fault(start..input.current_token_start(), "these bytes are not UTF-8"),
    }
}

fn properties(input: &mut Input<'_>) -> Parsed<Option<Expr<Property>>> {
    let start = here(input);
    if opt('[').parse_next(input)?.is_none() {
        return Ok(None);
    }
    let properties = joined(input, property)?;
    match opt(']').parse_next(input)? {
        Some(_) if rest(input).starts_with('[') => {
            fault(here(input), "only one pair of brackets; join conditions inside by \"&\" or \"|\"")
        }
        Some(_) => Ok(Some(properties)),
        None if rest(input).is_empty() => fault(start, "this \"[\" has no \"]\""),
        None => expected(input, "\"&\", \"|\" or \"]\""),
    }
}

fn property(input: &mut Input<'_>) -> Parsed<Expr<Property>> {
    count_condition(input)?;
    let key = name_until(input, KEY_ENDS)?;
    if key.0.is_empty() {
        return expected(input, "the name of a trait, as in [speed=fast]");
    }
    let operator = opt(alt(("!=".value(true), "=".value(false)))).parse_next(input)?;
    let Some(is_negated) = operator else {
        return expected(input, "\"=\" or \"!=\" behind the name of the trait");
    };
    let value = name_until(input, VALUE_ENDS)?;
    let property = Expr::Leaf(Property { key, value });
    Ok(if is_negated { property.negated() } else { property })
}

fn name_until(input: &mut Input<'_>, ends: &'static str) -> Parsed<Wildcard> {
    let letters: Vec<Letter> = repeat(0.., alt((escape(ESCAPED), letter(ends)))).parse_next(input)?;
    Ok(wildcard(&letters, false))
}
