//! Programs that report as JSON lines, in any language: adapters of frameworks that are not built in. The
//! process lives for a whole lease and runs one requested batch after the other. The lines travel on the
//! report channel, or on standard input and output.
//!
//! ```text
//! heeler                                    program
//!   {"k":"list","v":1}                ──►
//!                                     ◄──   {"k":"test","id":ID,…} … {"k":"listed"}
//!   {"k":"run","tests":[ID,…]}        ──►
//!                                     ◄──   {"k":"begin","i":0} {"k":"end","i":0,"state":"passed"} … {"k":"done"}
//!   {"k":"run",…} or {"k":"stop"}     ──►
//! ```

mod adapter;
pub mod check;
mod listing;
mod transcript;

pub(super) use adapter::JsonLines;
