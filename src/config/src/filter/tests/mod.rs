//! Filters from their text to the selected tests.

mod expression;
mod graph;
mod random;
