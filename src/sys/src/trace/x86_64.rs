//! Register layouts and system call numbers on x86-64.

/// Floating-point and vector registers of a thread, in the kernel's layout.
pub use libc::user_fpregs_struct as FloatingRegisters;
/// General-purpose registers of a thread, in the kernel's layout.
pub use libc::user_regs_struct as GeneralRegisters;

use super::repeated_exec::ExecCall;

/// `mov eax, SYS_execve; syscall; mov edi, 127; mov eax, SYS_exit_group; syscall`. The process is stopped in
/// a system call, and the kernel will write the result to rax. Setting rax as a register would therefore have
/// no effect.
pub(super) const EXEC_INSTRUCTIONS: [u8; 24] = [
    0xb8, 59, 0, 0, 0, 0x0f, 0x05, 0xbf, 127, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05, 0x90, 0x90, 0x90,
    0x90, 0x90,
];

/// Sets the arguments for [`EXEC_INSTRUCTIONS`].
pub(super) fn set_exec_call(registers: &mut GeneralRegisters, call: ExecCall) {
    registers.rdi = call.path;
    registers.rsi = call.argv;
    registers.rdx = call.envp;
    // The thread is not in a system call that the kernel could restart.
    registers.orig_rax = u64::MAX;
}

pub(super) fn stack_pointer(registers: &GeneralRegisters) -> u64 {
    registers.rsp
}

pub(super) fn instruction_pointer(registers: &GeneralRegisters) -> u64 {
    registers.rip
}

/// System calls that wait and that newer architectures lack.
pub(super) const OLD_WAITING_SYSCALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_poll, "poll"),
    (libc::SYS_select, "select"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_pause, "pause"),
];
