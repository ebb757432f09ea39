//! Tests of filters, from text to selected tests.

mod expression;
mod graph;
mod random;
