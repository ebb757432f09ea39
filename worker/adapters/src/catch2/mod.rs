//! Catch2, versions 3 and 2. A program lists its tests as JSON, XML or text, selects tests by patterns in a
//! file, and reports events as XML on standard output. A test that runs alone is reported as console text,
//! because with every other reporter Catch2 captures the test's output inside the process.

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
