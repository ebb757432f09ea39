//! One small process per test process: starts it, hears the worker, and tells how it ended when nothing of its family
//! is left. Synchronous and of one thread, because it is started for each test process and traces it.
//!
//! It is born in a nursery ([`crate::nursery`]), or executed. It gets the test's outputs as its own 1 and 2, and, when it
//! is executed, the control connection as 0. So it prints nothing, ever.
//!
//! - [`main`]: its life. `control`: the worker's connection. `family`: all that is below the guard. `end`: raw ends.
//! - `tracer`: the one place that waits for processes. `crash`: what is done with one that crashes. `sanitizer`: what
//!   must not be traced. `halt`: processes made to stand and let go. `look`: what a thread that stands still shows.
//! - `debug`: a process that stands before its first instruction, to be handed over.
//! - `hang`: dumps of processes that live on. `sample`: what they do.

mod control;
mod crash;
mod debug;
mod end;
mod family;
mod halt;
mod hang;
mod life;
mod look;
mod sample;
mod sanitizer;
mod tracer;

pub use life::main;
pub(crate) use life::serve;
