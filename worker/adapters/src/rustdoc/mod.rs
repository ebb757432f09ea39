//! Documentation tests of Rust packages, run by rustdoc. The output is libtest's text format in one or more
//! sections. Tests are selected by parts of names, because rustdoc accepts no name with a space.

mod adapter;
mod failure;
mod grammar;
mod selection;

pub(super) use adapter::Rustdoc;
