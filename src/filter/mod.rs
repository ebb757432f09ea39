//! Which tests are meant: the filter expressions of the command line and of `heeler.toml`, and the graph queries of the
//! test protocol. Pure: texts and values in, yes or no out.
//!
//! - `ast`: both languages, parsed; one way to join conditions.
//! - `wildcard`: `*` and `?`.
//! - `syntax`: what both parsers share, with the limits that keep hostile texts harmless.
//! - `expression`: `test(~parse) & not tag(slow)`, and plain words.
//! - `graph`: `/unit/Parser*/**[speed=fast]`.
//! - `matches`: whether a test is meant.
//! - `error`: what is wrong with a text, and where.

mod ast;
mod error;
mod expression;
mod graph;
mod matches;
mod show;
mod syntax;
#[cfg(test)]
mod tests;
mod wildcard;

pub use ast::{Expr, NodeTest, Past, Predicate, Property, Regex, Text};
pub use error::FilterError;
pub use expression::Filter;
pub use graph::GraphQuery;
pub use matches::Subject;
pub use wildcard::{Part, Wildcard};
