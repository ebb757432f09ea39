//! Catch2, versions 3 and 2: lists as JSON, XML or text, selects tests by patterns in a file, reports events
//! as XML on standard output; a test alone in its process as text for people, because Catch2 keeps what a
//! test writes inside the process for every other form.

mod adapter;
mod command;
mod console_grammar;
mod listing;
mod selector;
mod shards;
mod text_listing;
mod xml_grammar;

pub(super) use adapter::Catch2;
#[cfg(test)]
pub(super) use console_grammar::console_parser;
#[cfg(test)]
pub(super) use xml_grammar::catch2_parser;
