//! Prints filters in full: with every comparison sign, and with parentheses around nested expressions. The
//! printed text parses to the same filter, unless the parentheses exceed the nesting limit.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    BoolExpr, FilterPredicate, GraphQuery, HistoryState, NodeCondition, PatternPart, PropertyCondition,
    TextMatcher, WildcardPattern, expression, graph,
};

impl Display for BoolExpr<FilterPredicate> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(predicate) => predicate.fmt(f),
            Self::Not(inner) => {
                f.write_str("not ")?;
                write_nested(inner, f)
            }
            Self::And(all) => write_joined(all, " & ", f, write_nested),
            Self::Or(any) => write_joined(any, " | ", f, write_nested),
        }
    }
}

fn write_nested<L>(expr: &BoolExpr<L>, f: &mut Formatter<'_>) -> fmt::Result
where
    BoolExpr<L>: Display,
{
    match expr {
        BoolExpr::Leaf(_) => expr.fmt(f),
        BoolExpr::Not(_) | BoolExpr::And(_) | BoolExpr::Or(_) => write!(f, "({expr})"),
    }
}

fn write_joined<L>(
    all: &[BoolExpr<L>],
    operator: &str,
    f: &mut Formatter<'_>,
    write: fn(&BoolExpr<L>, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (place, one) in all.iter().enumerate() {
        if place > 0 {
            f.write_str(operator)?;
        }
        write(one, f)?;
    }
    Ok(())
}

impl Display for FilterPredicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all()"),
            Self::None => f.write_str("none()"),
            Self::Test(text) => write!(f, "test({text})"),
            Self::Suite(text) => write!(f, "suite({text})"),
            Self::Program(text) => write!(f, "program({text})"),
            Self::Tag { key, value: None } => write!(f, "tag({key})"),
            Self::Tag { key, value: Some(TextMatcher::Equals(value)) } if value.is_empty() => {
                write!(f, "tag({key}=)")
            }
            Self::Tag { key, value: Some(value) } => write!(f, "tag({key}={value})"),
            Self::State(past) => write!(f, "state({past})"),
        }
    }
}

impl Display for HistoryState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let known = Self::WORDS.iter().find(|(_, past)| past == self);
        f.write_str(known.expect("each has its word").0)
    }
}

impl Display for TextMatcher {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(text) => write_escaped("=", &literal(text), f),
            Self::Contains(text) => write_escaped("~", &literal(text), f),
            Self::Glob(WildcardPattern(parts)) => write_escaped("#", parts, f),
            Self::Regex(regex) => write!(f, "/{}/", escape_slashes(regex.0.as_str())),
        }
    }
}

fn literal(text: &str) -> Vec<PatternPart> {
    text.chars().map(PatternPart::Char).collect()
}

fn write_escaped(sign: &str, parts: &[PatternPart], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(sign)?;
    for part in parts {
        match part {
            PatternPart::Any => f.write_char('*')?,
            PatternPart::One => f.write_char('?')?,
            PatternPart::Char(char) if expression::needs_escape(*part) => write!(f, "\\{char}")?,
            PatternPart::Char(char) => write_char(*char, f)?,
        }
    }
    Ok(())
}

/// Escapes white space and control characters, because white space at the ends of a text would be dropped.
fn write_char(char: char, f: &mut Formatter<'_>) -> fmt::Result {
    if char.is_whitespace() || char.is_control() {
        write!(f, "\\u{{{:x}}}", u32::from(char))
    } else {
        f.write_char(char)
    }
}

fn escape_slashes(source: &str) -> String {
    let mut out = String::new();
    let mut chars = source.chars();
    while let Some(char) = chars.next() {
        match char {
            '/' => out.push_str("\\/"),
            '\\' => {
                out.push(char);
                out.extend(chars.next());
            }
            _ => out.push(char),
        }
    }
    out
}

impl Display for GraphQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            write!(f, "/{segment}")?;
        }
        match &self.rest {
            Some(rest) => {
                f.write_str("/**")?;
                write_properties(rest.properties.as_ref(), f)
            }
            None if self.segments.is_empty() => f.write_str("/"),
            None => Ok(()),
        }
    }
}

fn write_properties(all: Option<&BoolExpr<PropertyCondition>>, f: &mut Formatter<'_>) -> fmt::Result {
    all.map_or(Ok(()), |all| write!(f, "[{all}]"))
}

impl Display for BoolExpr<NodeCondition> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_expr(self, f, |node, f| {
            write_name(&node.name, f)?;
            write_properties(node.properties.as_ref(), f)
        })
    }
}

impl Display for BoolExpr<PropertyCondition> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_expr(self, f, |property, f| {
            write_name(&property.key, f)?;
            f.write_char('=')?;
            write_name(&property.value, f)
        })
    }
}

fn write_expr<L>(
    expr: &BoolExpr<L>,
    f: &mut Formatter<'_>,
    leaf: fn(&L, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result
where
    BoolExpr<L>: Display,
{
    match expr {
        BoolExpr::Leaf(one) => leaf(one, f),
        // Other parsers of the protocol require parentheses around a negation.
        BoolExpr::Not(inner) => {
            f.write_str("(!")?;
            write_nested(inner, f)?;
            f.write_char(')')
        }
        BoolExpr::And(all) => write_joined(all, "&", f, write_nested),
        BoolExpr::Or(any) => write_joined(any, "|", f, write_nested),
    }
}

fn write_name(WildcardPattern(parts): &WildcardPattern, f: &mut Formatter<'_>) -> fmt::Result {
    for part in parts {
        match part {
            PatternPart::Any => f.write_char('*')?,
            // Graph queries have no wildcard for a single character.
            PatternPart::One => f.write_char('*')?,
            PatternPart::Char(char) if graph::ESCAPED.contains(*char) => write!(f, "\\{char}")?,
            PatternPart::Char(char) => f.write_char(*char)?,
        }
    }
    Ok(())
}
