//! Traces other processes with ptrace: seizes them before their program starts, receives their events, reads
//! their state, and detaches. This module does not know what a stop means for a test. All calls must come
//! from the thread that seized.
//!
//! - `privileges`: privileges that a traced program loses.
//! - `held_process`: a child process that waits until it is seized.
//! - `requests`: ptrace requests to a traced thread.
//! - `repeated_exec`: repeats an exec without the tracer.
//! - `stops`: results of a wait, for traced and other children.
//! - `threads`: facts about threads, from procfs.
//! - `syscall_state`: the kernel's counters of a thread.
//! - `kill_timer`: a timeout for calls that may never return.
//! - `x86_64`, `aarch64`: differences between processors.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
mod held_process;
mod kill_timer;
mod privileges;
mod repeated_exec;
mod requests;
mod stops;
mod syscall_state;
mod threads;

pub use arch::{FloatingRegisters, GeneralRegisters};
pub use held_process::{HeldProcess, ReleasedProcess, spawn_held};
pub use kill_timer::KillTimer;
pub use privileges::loses_privileges_when_traced;
pub use repeated_exec::repeat_exec_untraced;
pub use requests::{
    EXIT_OF_PROCESS, SignalInfo, TraceOptions, block_signal, cont, detach, event_message, floating_registers,
    general_registers, interrupt, listen, seize, set_options, signal_info, signal_process, signal_thread,
    unblock_signal,
};
pub use stops::{TraceStop, WaitEvent, next_event, wait_for};
pub use syscall_state::{SyscallState, cpu_us, read_syscall_state};
pub use threads::{
    SignalDisposition, has_ended, is_thread_of, process_of_thread, signal_disposition, thread_name, threads,
    tracer_of,
};
