//! The Test Anything Protocol, versions 12 to 14: what a command reports on its standard output. Its points
//! are parts of one test; they can be neither listed nor selected, and have no beginning.

mod details;
mod line;
mod parser;

pub(crate) use parser::TapParser;
