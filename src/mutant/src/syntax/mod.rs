//! What the walker knows of each language: a table of roles of syntax nodes, operators, and a few functions
//! for what no table says.
//!
//! - [`table`]: the form of a table.
//! - [`rust`], [`c`], [`cpp`], [`python`]: the languages; [`languages`]: their list.
//! - [`rust_attributes`]: attributes that take code out; [`rust_literals`]: literals that a guard must not
//!   part from what is around them; [`rust_statements`]: operators that the parser takes for others;
//!   [`rust_values`], [`cpp_values`], [`python_values`]: values by return type; [`cpp_macros`]: macros that
//!   the parser does not read; [`cpp_constants`]: variables whose values the compiler computes.

mod c;
mod cpp;
mod cpp_constants;
mod cpp_macros;
mod cpp_values;
mod languages;
mod python;
mod python_values;
mod rust;
mod rust_attributes;
mod rust_literals;
mod rust_statements;
mod rust_values;
mod table;

pub(crate) use languages::table_of;
pub(crate) use python::is_dunder;
pub(crate) use table::{Evaluation, FunctionFacts, Gate, Operator, Role, Syntax, text_of};
