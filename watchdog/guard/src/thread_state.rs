//! The state of a stopped thread, as types of `stacks`; and whether it is still inside a signal handler.

use std::{fs::File, io, os::unix::fs::FileExt};

use heeler_protocol::control::SignalFault;
use heeler_sys::{
    process::Pid,
    trace::{self, SignalInfo},
};

use heeler_crash::stacks::{FloatingRegisterSet, GeneralRegisterSet, RegisterSet, ThreadRegisters};

/// How far above the stack pointer the frame of a handled signal is searched: handlers are shallow.
const HANDLER_STACK_BYTES: usize = 256 << 10;

/// The first chance of a signal that the program handles itself.
#[derive(Debug, Clone)]
pub(super) struct FirstChance {
    pub(super) info: SignalInfo,
    pub(super) registers: RegisterSet,
}

impl FirstChance {
    /// Returns whether a thread whose stack pointer is `stack` is still in the handler: the kernel has saved
    /// the interrupted registers on the stack, and frames that were left lie below the stack pointer.
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
        let saved = [general.rsp.to_ne_bytes(), general.rip.to_ne_bytes()].concat();
        bytes[..length]
            .chunks_exact(8)
            .zip(bytes[..length].chunks_exact(8).skip(1))
            .any(|(one, next)| one == &saved[..8] && next == &saved[8..])
    }

    /// Returns whether a thread is back where the signal arrived.
    pub(super) fn is_at_same_place(&self, now: &RegisterSet) -> bool {
        let (then, now) = (&self.registers.general, &now.general);
        (then.rip, then.rsp) == (now.rip, now.rsp)
    }

    pub(super) fn fault(&self) -> SignalFault {
        let SignalInfo { signal, code, address } = self.info;
        SignalFault { signal: signal.0, code, address }
    }
}

/// Returns a stopped thread, with its name.
pub(super) fn read_thread(tid: Pid) -> Option<ThreadRegisters> {
    Some(ThreadRegisters { tid, registers: read_registers(tid).ok()?, name: trace::thread_name(tid) })
}

/// Returns the registers of a stopped thread.
pub(super) fn read_registers(tid: Pid) -> io::Result<RegisterSet> {
    let general = general_register_set(trace::general_registers(tid)?);
    // They say little about where a thread is, so their absence is accepted.
    let floating =
        trace::floating_registers(tid).ok().map(|registers| Box::new(floating_register_set(&registers)));
    Ok(RegisterSet { general, floating })
}

fn general_register_set(r: trace::GeneralRegisters) -> GeneralRegisterSet {
    GeneralRegisterSet {
        r15: r.r15,
        r14: r.r14,
        r13: r.r13,
        r12: r.r12,
        rbp: r.rbp,
        rbx: r.rbx,
        r11: r.r11,
        r10: r.r10,
        r9: r.r9,
        r8: r.r8,
        rax: r.rax,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        orig_rax: r.orig_rax,
        rip: r.rip,
        cs: r.cs,
        eflags: r.eflags,
        rsp: r.rsp,
        ss: r.ss,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        ds: r.ds,
        es: r.es,
        fs: r.fs,
        gs: r.gs,
    }
}

fn floating_register_set(r: &trace::FloatingRegisters) -> FloatingRegisterSet {
    FloatingRegisterSet {
        cwd: r.cwd,
        swd: r.swd,
        ftw: r.ftw,
        fop: r.fop,
        rip: r.rip,
        rdp: r.rdp,
        mxcsr: r.mxcsr,
        mxcr_mask: r.mxcr_mask,
        st_space: r.st_space,
        xmm_space: r.xmm_space,
    }
}
