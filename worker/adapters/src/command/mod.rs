//! Commands as tests: a script, a program, or an entry of CTest. The exit code decides, with the rules of
//! CTest's properties; or the program reports in the Test Anything Protocol, whose parser is in `tap`.

mod adapter;
mod expression;
mod output;
mod parser;

pub(crate) use adapter::CommandFramework;
