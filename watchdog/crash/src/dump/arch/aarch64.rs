//! aarch64: thread registers in a minidump.

use crash_context::CrashContext;
use minidump::{MinidumpRawContext, system_info::Cpu};

use crate::stacks::{FloatingRegisterSet, GeneralRegisterSet};

/// Processor named in dumps.
pub(in crate::dump) const CPU: Cpu = Cpu::Arm64;

/// Returns the thread registers recorded in a dump.
pub(in crate::dump) fn from_dump(context: &MinidumpRawContext) -> Option<GeneralRegisterSet> {
    let MinidumpRawContext::Arm64(raw) = context else { return None };
    Some(GeneralRegisterSet { regs: raw.iregs, sp: raw.sp, pc: raw.pc, pstate: u64::from(raw.cpsr) })
}

/// Sets the general purpose registers of a crash.
pub(in crate::dump) fn set_general_registers(context: &mut CrashContext, general: &GeneralRegisterSet) {
    let state = &mut context.context.uc_mcontext;
    state.regs = general.regs;
    state.sp = general.sp;
    state.pc = general.pc;
    state.pstate = general.pstate;
}

/// Sets the floating point and vector registers of a crash.
pub(in crate::dump) fn set_floating_registers(context: &mut CrashContext, floating: &FloatingRegisterSet) {
    let state = &mut context.float_state;
    state.vregs = floating.vregs;
    state.fpsr = floating.fpsr;
    state.fpcr = floating.fpcr;
}
