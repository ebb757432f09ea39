//! Layouts of registers and numbers of system calls on x86-64.

/// Floating point and vector registers of a thread, in the kernel's layout.
pub use libc::user_fpregs_struct as FloatingRegisters;
/// General purpose registers of a thread, in the kernel's layout.
pub use libc::user_regs_struct as GeneralRegisters;

/// System calls that wait and that newer architectures do not have.
pub(super) const OLD_WAITING_SYSCALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_poll, "poll"),
    (libc::SYS_select, "select"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_pause, "pause"),
];
