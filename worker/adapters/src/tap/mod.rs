//! The Test Anything Protocol, versions 12 to 14: a command reports on standard output. The points of a
//! report are parts of one test. Points can be neither listed nor selected, and have no begin event.

mod details;
mod line;
mod parser;

pub(crate) use parser::TapParser;
