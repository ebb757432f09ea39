//! Tracing of other processes with ptrace: seize them before their program starts, receive their events, read
//! their state, detach. What a stop means for a test is not known here. All calls must come from the one
//! thread that seized.
//!
//! - `privileges`: the privileges that a program loses when it is traced.
//! - `start`: a child process that waits until it is seized.
//! - `calls`: the ptrace requests to a traced thread.
//! - `stops`: results of a wait, for traced and other children alike.
//! - `tasks`: facts about threads, from procfs.
//! - `doing`: the kernel's counters of a thread.
//! - `fuse`: a time limit for calls that may never return.

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
