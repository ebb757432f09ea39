//! Test directories run by pytest. The program is a Python interpreter with `-m pytest` and the user's
//! arguments. A pytest plugin, embedded in this program, lists and runs tests over the report channel.
//!
//! ```text
//! heeler                                       plugin
//!   {"k":"list","skip":[FILE,…]}         ──►
//!                                        ◄──   {"k":"hello","fence":NONCE}
//!                                        ◄──   {"k":"test","id":NODE,"selector":S,…} … {"k":"listed"}
//!   {"k":"run","tests":[S,…]}            ──►
//!                                        ◄──   {"k":"begin","i":0,"f":1} {"k":"end","i":0,"f":2,…}
//!                                        ◄──   … {"k":"done","f":9}
//!   {"k":"run",…} or {"k":"stop"}        ──►
//!                                        ◄──   {"k":"stopped"}
//! ```
//!
//! A selector has several lines: the index of the test among tests with the same id (or `file` for the entry
//! of a file without tests), the file, the id, and the error of a file that cannot be loaded. Paths and ids
//! that are not Unicode are written as a NUL and their bytes in hex.
//!
//! `f` is the number of the last fence before the report. A fence is a line with the nonce and a number that
//! the plugin writes to standard output and standard error between two tests.
//!
//! While it sets up a session fixture, the plugin sends
//! `{"k":"set-up","fixture":NAME,"state":"begun"|"done"|"failed"}`. Around the tear-down of a fixture that
//! several tests can use, it sends `{"k":"tear-down","fixture":NAME,"state":"begun"|"done"}`.
//!
//! A process that will be forked for tests gets `{"k":"warm","collect":true}`. The process answers
//! `{"k":"warm"}` when it has collected the tests. Without `collect`, it answers before it loads anything but
//! pytest and plugins. If it cannot be forked, it answers `{"k":"cold","reason":R}`. Afterwards it gets
//! `{"k":"fork","guard":[WORD,…],"env":[[NAME,VALUE],…]}` with four descriptors, and answers
//! `{"k":"forked","pid":P}` or `{"k":"refused","reason":R}`. Forks begin with `hello` on the channel that was
//! passed.
//!
//! - `listing`, `transcript`: the parsers. `names`: names in reports. `warm`: the dialogue about forks.

mod adapter;
mod listing;
mod names;
#[cfg(test)]
mod tests;
mod traceback;
mod transcript;
mod warm;

pub(crate) use adapter::Pytest;
