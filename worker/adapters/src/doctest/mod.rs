//! doctest, version 2.4 and 2.5: lists as XML, selects tests by their place in the listing, reports events as
//! XML on standard output.

mod adapter;
mod command;
mod grammar;
mod listing;

pub(super) use adapter::Doctest;
