//! Selects tests: filter expressions of the command line and `heeler.toml`, and graph queries of the test
//! protocol. Pure functions without I/O.
//!
//! - `ast`: syntax trees of both languages, with a common type for combined conditions.
//! - `wildcard`: the wildcards `*` and `?`.
//! - `syntax`: shared by both parsers, including limits against hostile input.
//! - `expression`: parses `test(~parse) & not tag(slow)`, and plain names.
//! - `graph`: parses `/unit/Parser*/**[speed=fast]`.
//! - `matches`: evaluates filters and queries; `print`: prints them.
//! - `error`: the parse error with its position.

mod ast;
mod error;
mod expression;
mod graph;
mod matches;
mod print;
mod syntax;
#[cfg(test)]
mod tests;
mod wildcard;

pub use ast::{
    BoolExpr, CompiledRegex, FilterPredicate, HistoryState, NodeCondition, PropertyCondition, TextMatcher,
};
pub use error::FilterError;
pub use expression::Filter;
pub use graph::GraphQuery;
pub use matches::FilterSubject;
pub use wildcard::{PatternPart, WildcardPattern};
