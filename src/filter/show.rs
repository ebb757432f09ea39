//! Printing of filters in full: with every comparison sign, and parentheses wherever expressions nest. The
//! printed text parses to the same filter, unless the parentheses exceed the nesting limit.

use std::fmt::{self, Display, Formatter, Write};

use super::{Expr, GraphQuery, NodeTest, Part, Past, Predicate, Property, Text, Wildcard, expression, graph};

impl Display for Expr<Predicate> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(predicate) => predicate.fmt(f),
            Self::Not(inner) => {
                f.write_str("not ")?;
                nested(inner, f)
            }
            Self::And(all) => list(all, " & ", f, nested),
            Self::Or(any) => list(any, " | ", f, nested),
        }
    }
}

fn nested<L>(expr: &Expr<L>, f: &mut Formatter<'_>) -> fmt::Result
where
    Expr<L>: Display,
{
    match expr {
        Expr::Leaf(_) => expr.fmt(f),
        Expr::Not(_) | Expr::And(_) | Expr::Or(_) => write!(f, "({expr})"),
    }
}

fn list<L>(
    all: &[Expr<L>],
    operator: &str,
    f: &mut Formatter<'_>,
    write: fn(&Expr<L>, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (place, one) in all.iter().enumerate() {
        if place > 0 {
            f.write_str(operator)?;
        }
        write(one, f)?;
    }
    Ok(())
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all()"),
            Self::None => f.write_str("none()"),
            Self::Test(text) => write!(f, "test({text})"),
            Self::Suite(text) => write!(f, "suite({text})"),
            Self::Program(text) => write!(f, "program({text})"),
            Self::Tag { key, value: None } => write!(f, "tag({key})"),
            Self::Tag { key, value: Some(Text::Equals(value)) } if value.is_empty() => {
                write!(f, "tag({key}=)")
            }
            Self::Tag { key, value: Some(value) } => write!(f, "tag({key}={value})"),
            Self::State(past) => write!(f, "state({past})"),
        }
    }
}

impl Display for Past {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let known = Self::WORDS.iter().find(|(_, past)| past == self);
        f.write_str(known.expect("each has its word").0)
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(text) => escaped("=", &literal(text), f),
            Self::Contains(text) => escaped("~", &literal(text), f),
            Self::Glob(Wildcard(parts)) => escaped("#", parts, f),
            Self::Regex(regex) => write!(f, "/{}/", slashes(regex.0.as_str())),
        }
    }
}

fn literal(text: &str) -> Vec<Part> {
    text.chars().map(Part::Char).collect()
}

fn escaped(sign: &str, parts: &[Part], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(sign)?;
    for part in parts {
        match part {
            Part::Any => f.write_char('*')?,
            Part::One => f.write_char('?')?,
            Part::Char(char) if expression::is_special(*part) => write!(f, "\\{char}")?,
            Part::Char(char) => write_char(*char, f)?,
        }
    }
    Ok(())
}

/// Writes white space and control characters as escapes: at the ends of a text they would be dropped as
/// layout.
fn write_char(char: char, f: &mut Formatter<'_>) -> fmt::Result {
    if char.is_whitespace() || char.is_control() {
        write!(f, "\\u{{{:x}}}", u32::from(char))
    } else {
        f.write_char(char)
    }
}

fn slashes(source: &str) -> String {
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
                properties(rest.properties.as_ref(), f)
            }
            None => Ok(()),
        }
    }
}

fn properties(all: Option<&Expr<Property>>, f: &mut Formatter<'_>) -> fmt::Result {
    all.map_or(Ok(()), |all| write!(f, "[{all}]"))
}

impl Display for Expr<NodeTest> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        joined(self, f, |node, f| {
            name(&node.name, f)?;
            properties(node.properties.as_ref(), f)
        })
    }
}

impl Display for Expr<Property> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        joined(self, f, |property, f| {
            name(&property.key, f)?;
            f.write_char('=')?;
            name(&property.value, f)
        })
    }
}

fn joined<L>(
    expr: &Expr<L>,
    f: &mut Formatter<'_>,
    leaf: fn(&L, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result
where
    Expr<L>: Display,
{
    match expr {
        Expr::Leaf(one) => leaf(one, f),
        // Other parsers of the protocol require parentheses around a negation.
        Expr::Not(inner) => {
            f.write_str("(!")?;
            nested(inner, f)?;
            f.write_char(')')
        }
        Expr::And(all) => list(all, "&", f, nested),
        Expr::Or(any) => list(any, "|", f, nested),
    }
}

fn name(Wildcard(parts): &Wildcard, f: &mut Formatter<'_>) -> fmt::Result {
    for part in parts {
        match part {
            Part::Any => f.write_char('*')?,
            // Graph queries have no wildcard for a single character.
            Part::One => f.write_char('*')?,
            Part::Char(char) if graph::ESCAPED.contains(*char) => write!(f, "\\{char}")?,
            Part::Char(char) => f.write_char(*char)?,
        }
    }
    Ok(())
}
