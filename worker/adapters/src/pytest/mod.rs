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
//! A selector has lines: the index of the test among the tests with its id, or `file` for the entry of a file
//! without tests; the file; the id; and the error of a file in error. Paths and ids that are not Unicode are
//! written as a NUL and their bytes in hex.
//!
//! `f` is the number of the last fence before the report: a line with the nonce and a number that the plugin
//! writes to both standard outputs between two tests.
//!
//! While it sets a fixture of the session up, the plugin sends
//! `{"k":"set-up","fixture":NAME,"state":"begun"|"done"|"failed"}`. Around the tear-down of a fixture that
//! several tests can use: `{"k":"tear-down","fixture":NAME,"state":"begun"|"done"}`.
//!
//! A process that is forked for tests gets `{"k":"warm","collect":true}`, and answers with `{"k":"warm"}`
//! when it has collected them, or without `collect` before it loads anything but pytest and plugins; or it
//! answers with `{"k":"cold","reason":R}`. From then on it gets
//! `{"k":"fork","guard":[WORD,…],"env":[[NAME,VALUE],…]}` with four descriptors, and answers with
//! `{"k":"forked","pid":P}` or `{"k":"refused","reason":R}`; forks begin with `hello` on the channel that was
//! passed.
//!
//! - `listing`, `transcript`: the two parsers. `names`: names in reports. `warm`: the dialogue about forks.

mod adapter;
mod listing;
mod names;
#[cfg(test)]
mod tests;
mod transcript;
mod warm;

pub(crate) use adapter::Pytest;
