//! One small process per test process: starts it, hears the worker, and tells how it ended when nothing of its family
//! is left. Synchronous and of one thread, because it is started for each test process and, one day, traces it.
//!
//! It gets the test's outputs as its own 1 and 2, and the control connection as 0. So it prints nothing, ever.

mod control;
mod end;
mod family;
mod life;

pub use life::main;
