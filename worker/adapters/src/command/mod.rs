//! Commands as tests: a script, a program or a CTest entry. The exit code and the rules of CTest properties
//! decide the result, or the program reports in the Test Anything Protocol, which `tap` parses.

mod adapter;
mod expression;
mod output;
mod parser;

pub(crate) use adapter::CommandFramework;
