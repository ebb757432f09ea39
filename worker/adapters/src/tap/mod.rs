//! The Test Anything Protocol, versions 12 to 14: a command reports on standard output. Its points are parts
//! of one test; they can be neither listed nor selected, and have no begin event.

mod details;
mod line;
mod parser;

pub(crate) use parser::TapParser;
