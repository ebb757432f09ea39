//! Reads the state of a stopped thread, and detects whether the thread is still inside a signal handler.

use std::{fs::File, io, os::unix::fs::FileExt};

use heeler_protocol::control::SignalFault;
use heeler_sys::{
    process::Pid,
    trace::{self, SignalInfo},
};

use heeler_crash::stacks::{FloatingRegisterSet, GeneralRegisterSet, RegisterSet, ThreadRegisters};

/// Stack bytes above the stack pointer searched for the frame of a handled signal. Handlers are shallow.
const HANDLER_STACK_BYTES: usize = 256 << 10;

/// State at the arrival of a signal that the program handles itself.
#[derive(Debug, Clone)]
pub(super) struct FirstChance {
    pub(super) info: SignalInfo,
    pub(super) registers: RegisterSet,
}

impl FirstChance {
    /// Returns whether a thread with this stack pointer is still in the handler. The kernel saves the
    /// interrupted registers on the stack. Frames of functions that have returned lie below the stack
    /// pointer.
    pub(super) fn is_being_handled(&self, tid: Pid, stack: u64) -> bool {
        let Ok(memory) = File::open(format!("/proc/{tid}/mem")) else { return false };
        let mut bytes = vec![0; HANDLER_STACK_BYTES];
        let mut length = 0;
        while length < bytes.len() {
            match memory.read_at(&mut bytes[length..], stack + length as u64) {
                Ok(count) if count > 0 => length += count,
                _ => break,
            }
        }
        let general = &self.registers.general;
        let (stack_pointer, instruction) = (general.stack_pointer(), general.instruction_pointer());
        let saved = [stack_pointer.to_ne_bytes(), instruction.to_ne_bytes()].concat();
        bytes[..length]
            .chunks_exact(8)
            .zip(bytes[..length].chunks_exact(8).skip(1))
            .any(|(one, next)| one == &saved[..8] && next == &saved[8..])
    }

    /// Returns whether a thread is back at the place where the signal arrived.
    pub(super) fn is_at_same_place(&self, now: &RegisterSet) -> bool {
        let place = |set: &RegisterSet| (set.general.instruction_pointer(), set.general.stack_pointer());
        place(&self.registers) == place(now)
    }

    pub(super) fn fault(&self) -> SignalFault {
        let SignalInfo { signal, code, address } = self.info;
        SignalFault { signal: signal.0, code, address }
    }
}

pub(super) fn read_thread(tid: Pid) -> Option<ThreadRegisters> {
    Some(ThreadRegisters { tid, registers: read_registers(tid).ok()?, name: trace::thread_name(tid) })
}

pub(super) fn read_registers(tid: Pid) -> io::Result<RegisterSet> {
    let general = GeneralRegisterSet::from(&trace::general_registers(tid)?);
    // Floating-point registers are not needed to find a thread's position, so they may be missing.
    let floating = trace::floating_registers(tid).ok();
    let floating = floating.map(|registers| Box::new(FloatingRegisterSet::from(&registers)));
    Ok(RegisterSet { general, floating })
}
