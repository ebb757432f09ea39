//! x86-64: thread registers in a minidump.

use crash_context::CrashContext;
use minidump::{MinidumpRawContext, system_info::Cpu};

use crate::stacks::{FloatingRegisterSet, GeneralRegisterSet};

/// Processor named in dumps.
pub(in crate::dump) const CPU: Cpu = Cpu::X86_64;

/// Returns the thread registers recorded in a dump.
pub(in crate::dump) fn from_dump(context: &MinidumpRawContext) -> Option<GeneralRegisterSet> {
    let MinidumpRawContext::Amd64(raw) = context else { return None };
    Some(GeneralRegisterSet {
        r15: raw.r15,
        r14: raw.r14,
        r13: raw.r13,
        r12: raw.r12,
        rbp: raw.rbp,
        rbx: raw.rbx,
        r11: raw.r11,
        r10: raw.r10,
        r9: raw.r9,
        r8: raw.r8,
        rax: raw.rax,
        rcx: raw.rcx,
        rdx: raw.rdx,
        rsi: raw.rsi,
        rdi: raw.rdi,
        rip: raw.rip,
        rsp: raw.rsp,
        eflags: u64::from(raw.eflags),
        cs: u64::from(raw.cs),
        ss: u64::from(raw.ss),
        ds: u64::from(raw.ds),
        es: u64::from(raw.es),
        fs: u64::from(raw.fs),
        gs: u64::from(raw.gs),
        ..GeneralRegisterSet::default()
    })
}

/// Index of each register in a context: the values of `REG_R8` and the following constants.
fn context_registers(registers: &GeneralRegisterSet) -> [(usize, u64); 19] {
    let r = registers;
    let segments = (r.cs & 0xffff) | ((r.gs & 0xffff) << 16) | ((r.fs & 0xffff) << 32);
    [
        (0, r.r8),
        (1, r.r9),
        (2, r.r10),
        (3, r.r11),
        (4, r.r12),
        (5, r.r13),
        (6, r.r14),
        (7, r.r15),
        (8, r.rdi),
        (9, r.rsi),
        (10, r.rbp),
        (11, r.rbx),
        (12, r.rdx),
        (13, r.rax),
        (14, r.rcx),
        (15, r.rsp),
        (16, r.rip),
        (17, r.eflags),
        (18, segments),
    ]
}

/// Sets the general purpose registers of a crash.
pub(in crate::dump) fn set_general_registers(context: &mut CrashContext, general: &GeneralRegisterSet) {
    for (index, value) in context_registers(general) {
        context.context.uc_mcontext.gregs[index] = value.cast_signed();
    }
}

/// Sets the floating point and vector registers of a crash.
pub(in crate::dump) fn set_floating_registers(context: &mut CrashContext, floating: &FloatingRegisterSet) {
    let state = &mut context.float_state;
    state.cwd = floating.cwd;
    state.swd = floating.swd;
    state.ftw = floating.ftw;
    state.fop = floating.fop;
    state.rip = floating.rip;
    state.rdp = floating.rdp;
    state.mxcsr = floating.mxcsr;
    state.mxcr_mask = floating.mxcr_mask;
    state.st_space = floating.st_space;
    state.xmm_space = floating.xmm_space;
}
