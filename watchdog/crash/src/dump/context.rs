//! Converts crash facts to a minidump's crash record, a type of the crate `crash_context`.

use crash_context::CrashContext;
use heeler_sys::process::Pid;
use minidump_writer::CrashContextExt;

use super::{arch, request::CrashFacts};

pub(super) fn crash_context(pid: Pid, facts: &CrashFacts) -> CrashContextExt {
    let zeroes = [0; size_of::<CrashContext>()];
    let mut context = CrashContext::from_bytes(&zeroes).expect("the bytes are as many as asked for");
    context.pid = pid.0;
    context.tid = facts.tid.0;
    context.siginfo.ssi_signo = facts.signal.0.cast_unsigned();
    context.siginfo.ssi_code = facts.code;
    context.siginfo.ssi_addr = facts.address;
    arch::set_general_registers(&mut context, &facts.registers.general);
    if let Some(floating) = &facts.registers.floating {
        arch::set_floating_registers(&mut context, floating);
    }
    CrashContextExt { inner: context }
}
