//! Tracing of other processes: seize them before they begin, hear of what happens to them, look at them, let them go.
//! What a stop means for a test is not known here. All calls must come from the one thread that seized.
//!
//! - `privileges`: what a program loses by being traced.
//! - `start`: a child that waits until it is seized.
//! - `calls`: the requests to a traced thread.
//! - `stops`: what a wait tells, for traced and other children alike.
//! - `tasks`: what procfs says of threads.
//! - `doing`: what the kernel counts of threads.
//! - `fuse`: a bound for calls that may never return.

mod calls;
mod doing;
mod fuse;
mod privileges;
mod start;
mod stops;
mod tasks;

pub use calls::{
    FloatingRegisters, GeneralRegisters, Options, SignalInfo, block, cont, detach, event_message,
    floating_registers, general_registers, interrupt, listen, seize, set_options, signal_info,
    signal_process, signal_thread, unblock,
};
pub use doing::{Doing, cpu_us, doing};
pub use fuse::Fuse;
pub use privileges::takes_privileges;
pub use start::{Held, Released, hold};
pub use stops::{Stop, Waited, next, wait_for};
pub use tasks::{Disposition, disposition, group_of, has_ended, thread_name, threads, tracer_of};
