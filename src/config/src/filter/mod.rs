//! Selection of tests: the filter expressions of the command line and of `heeler.toml`, and the graph queries
//! of the test protocol. Pure functions: no I/O.
//!
//! - `ast`: the syntax trees of both languages, with a common type for joined conditions.
//! - `build_pattern`: the wildcards `*` and `?`.
//! - `syntax`: code shared by both parsers, with the limits against hostile input.
//! - `expression`: the parser of `test(~parse) & not tag(slow)`, and of plain names.
//! - `graph`: the parser of `/unit/Parser*/**[speed=fast]`.
//! - `matches`: the evaluation.
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
