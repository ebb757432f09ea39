//! The walker's knowledge of each language: roles of syntax nodes, operators, and functions for what a table
//! can't express.
//!
//! - [`table`]: the structure of a table.
//! - [`rust`], [`c`], [`cpp`], [`python`]: the languages; [`languages`]: their list.
//! - [`rust_attributes`]: attributes that exclude code; [`rust_literals`]: literals that a guard must not
//!   separate from their context; [`rust_statements`]: operators that the parser misreads; [`rust_values`],
//!   [`cpp_values`], [`python_values`]: values by return type; [`cpp_macros`]: macros that confuse the
//!   parser; [`cpp_constants`]: variables that the compiler evaluates.

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
