//! Filters from text to answer.

mod expression;
mod graph;
mod random;
