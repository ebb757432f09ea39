//! Programs in any language that report as JSON lines, for frameworks without a built-in adapter. A process
//! lives for a whole lease and runs one requested batch after the other. The lines use the report channel, or
//! standard input and output.
//!
//! ```text
//! heeler                                    program
//!   {"k":"list","v":1}                ──►
//!                                     ◄──   {"k":"test","id":ID,…} … {"k":"listed"}
//!   {"k":"run","tests":[ID,…]}        ──►
//!                                     ◄──   {"k":"begin","i":0} {"k":"end","i":0,"state":"passed"}
//!                                     ◄──   … {"k":"done"}
//!   {"k":"run",…} or {"k":"stop"}     ──►
//! ```

mod adapter;
pub mod check;
mod listing;
mod transcript;

pub(super) use adapter::JsonLines;
