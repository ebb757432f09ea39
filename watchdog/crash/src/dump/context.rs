//! The crash record of a minidump, as a type of the crate `crash_context`.

use crash_context::CrashContext;
use heeler_sys::process::Pid;
use minidump_writer::CrashContextExt;

use super::write::CrashFacts;
use crate::stacks::{FloatingRegisterSet, GeneralRegisterSet};

/// The index of each register in a context: the values of `REG_R8` and the constants next to it.
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

/// Returns the facts as a crash context.
pub(super) fn crash_context(pid: Pid, facts: &CrashFacts) -> CrashContextExt {
    let zeroes = [0; size_of::<CrashContext>()];
    let mut context = CrashContext::from_bytes(&zeroes).expect("the bytes are as many as asked for");
    context.pid = pid.0;
    context.tid = facts.tid.0;
    context.siginfo.ssi_signo = facts.signal.0.cast_unsigned();
    context.siginfo.ssi_code = facts.code;
    context.siginfo.ssi_addr = facts.address;
    for (index, value) in context_registers(&facts.registers.general) {
        context.context.uc_mcontext.gregs[index] = value.cast_signed();
    }
    if let Some(floating) = &facts.registers.floating {
        set_floating_registers(&mut context, floating);
    }
    CrashContextExt { inner: context }
}

fn set_floating_registers(context: &mut CrashContext, floating: &FloatingRegisterSet) {
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
