//! doctest, versions 2.4 and 2.5. A program lists its tests as XML, selects them by position in the listing,
//! and reports events as XML on standard output.

mod adapter;
mod command;
mod grammar;
mod listing;

pub(super) use adapter::Doctest;
