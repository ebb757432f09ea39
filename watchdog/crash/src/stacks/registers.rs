//! The registers of a thread as plain values, with the kernel's names. Reading them from a thread belongs to
//! other modules.

use heeler_sys::process::Pid;

/// The registers of one stopped thread (x86-64).
#[derive(Debug, Clone, Default)]
pub struct RegisterSet {
    /// General-purpose registers, instruction pointer, flags and segments.
    pub general: GeneralRegisterSet,
    /// Floating-point and vector registers, if they could be read.
    pub floating: Option<Box<FloatingRegisterSet>>,
}

/// The kernel's `user_regs_struct`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct GeneralRegisterSet {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// The kernel's `user_fpregs_struct`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct FloatingRegisterSet {
    pub cwd: u16,
    pub swd: u16,
    pub ftw: u16,
    pub fop: u16,
    pub rip: u64,
    pub rdp: u64,
    pub mxcsr: u32,
    pub mxcr_mask: u32,
    pub st_space: [u32; 32],
    pub xmm_space: [u32; 64],
}

/// One thread to unwind.
#[derive(Debug, Clone)]
pub struct ThreadRegisters {
    pub tid: Pid,
    /// The registers at the top of its stack: now, or at the moment of its crash.
    pub registers: RegisterSet,
    /// Its name as the kernel knows it (`comm`).
    pub name: String,
}
