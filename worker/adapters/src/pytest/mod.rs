//! Directories of tests that pytest runs. The program is a Python interpreter with `-m pytest` and the user's
//! own arguments; a plugin of pytest, which travels in this program, lists and runs tests over the report
//! channel.
//!
//! ```text
//! heeler                                       plugin
//!   {"k":"list","skip":[FILE,…]}         ──►
//!                                        ◄──   {"k":"hello","fence":NONCE}
//!                                        ◄──   {"k":"test","id":NODE,"selector":S,…} … {"k":"listed"}
//!   {"k":"run","tests":[S,…]}            ──►
//!                                        ◄──   {"k":"begin","i":0,"f":1} {"k":"end","i":0,"f":2,…} … {"k":"done","f":9}
//!   {"k":"run",…} or {"k":"stop"}        ──►
//!                                        ◄──   {"k":"stopped"}
//! ```
//!
//! `f` is the number of the last fence before the report: a line with the nonce and a number that the plugin
//! writes to both standard outputs between two tests.
//!
//! - `listing`, `transcript`: the two parsers.

mod adapter;
mod listing;
#[cfg(test)]
mod tests;
mod transcript;

pub(crate) use adapter::Pytest;
