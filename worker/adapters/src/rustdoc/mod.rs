//! Documentation tests of Rust packages, run by rustdoc: its own lines of libtest's text format, in one or
//! more sections, and a selection by parts of names, because rustdoc takes no name with a space.

mod adapter;
mod failure;
mod grammar;
mod selection;

pub(super) use adapter::Rustdoc;
