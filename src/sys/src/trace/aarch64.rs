//! Layouts of registers and numbers of system calls on aarch64.

/// Floating point and vector registers of a thread, in the kernel's layout.
pub use libc::user_fpsimd_struct as FloatingRegisters;
/// General purpose registers of a thread, in the kernel's layout.
pub use libc::user_regs_struct as GeneralRegisters;

/// The architecture has no system calls but those that all architectures have.
pub(super) const OLD_WAITING_SYSCALLS: &[(libc::c_long, &str)] = &[];
