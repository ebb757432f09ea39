//! Register layouts and system call numbers on aarch64.

/// Floating-point and vector registers of a thread, in the kernel's layout.
pub use libc::user_fpsimd_struct as FloatingRegisters;
/// General-purpose registers of a thread, in the kernel's layout.
pub use libc::user_regs_struct as GeneralRegisters;

use super::repeated_exec::ExecCall;

/// `mov x0, x9; mov x8, #SYS_execve; svc #0; mov x0, #127; mov x8, #SYS_exit_group; svc #0`. The process is
/// stopped in a system call, and the kernel will write the result to x0. Setting x0 as a register would
/// therefore have no effect.
pub(super) const EXEC_INSTRUCTIONS: [u8; 24] = [
    0xe0, 0x03, 0x09, 0xaa, 0xa8, 0x1b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xe0, 0x0f, 0x80, 0xd2, 0xc8,
    0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4,
];

/// Sets the arguments for [`EXEC_INSTRUCTIONS`].
pub(super) fn set_exec_call(registers: &mut GeneralRegisters, call: ExecCall) {
    registers.regs[9] = call.path;
    registers.regs[1] = call.argv;
    registers.regs[2] = call.envp;
}

pub(super) fn stack_pointer(registers: &GeneralRegisters) -> u64 {
    registers.sp
}

pub(super) fn instruction_pointer(registers: &GeneralRegisters) -> u64 {
    registers.pc
}

/// This architecture has only the system calls that all architectures have.
pub(super) const OLD_WAITING_SYSCALLS: &[(libc::c_long, &str)] = &[];
