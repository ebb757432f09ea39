//! x86-64: thread registers, and the layout of signal frames.

use framehop::x86_64::UnwindRegsX86_64;
use heeler_sys::trace;

use crate::stacks::MemoryReader;

pub(crate) use framehop::x86_64::{
    CacheX86_64 as UnwindCache, UnwindRegsX86_64 as UnwindRegisters, UnwinderX86_64 as Unwinder,
};

/// `mov $15, %rax; syscall`: the code that a signal handler returns to.
pub(crate) const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Offset of the interrupted registers in a signal frame.
const SAVED_REGISTERS: u64 = 40;

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

/// Point in a stack where an unwind continues.
pub(crate) struct UnwindStart {
    pub(crate) address: u64,
    pub(crate) registers: UnwindRegisters,
}

impl GeneralRegisterSet {
    /// Returns registers with only these two pointers set.
    pub(crate) fn at(instruction_pointer: u64, stack_pointer: u64) -> Self {
        Self { rip: instruction_pointer, rsp: stack_pointer, ..Self::default() }
    }

    /// Returns the address of the next instruction.
    #[must_use]
    pub fn instruction_pointer(&self) -> u64 {
        self.rip
    }

    /// Returns the stack pointer, which is the lowest address of the used part of the stack.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.rsp
    }

    /// Returns the number of the thread's current system call, if the thread is in one.
    #[must_use]
    pub fn system_call(&self) -> u64 {
        self.orig_rax
    }

    /// Returns the start for unwinding the thread.
    pub(crate) fn unwind_start(&self) -> UnwindStart {
        UnwindStart { address: self.rip, registers: UnwindRegsX86_64::new(self.rip, self.rsp, self.rbp) }
    }
}

impl From<&trace::GeneralRegisters> for GeneralRegisterSet {
    fn from(r: &trace::GeneralRegisters) -> Self {
        Self {
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
}

impl From<&trace::FloatingRegisters> for FloatingRegisterSet {
    fn from(r: &trace::FloatingRegisters) -> Self {
        Self {
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
}

/// Returns the caller of a function whose code is unreadable, such as a call to a null pointer. The return
/// address is on top of the stack.
pub(crate) fn caller(memory: &dyn MemoryReader, registers: &UnwindRegisters) -> Option<UnwindStart> {
    let address = memory.read_u64(registers.sp())?;
    let stack = registers.sp().wrapping_add(8);
    Some(UnwindStart { address, registers: UnwindRegsX86_64::new(address, stack, registers.bp()) })
}

/// Returns the registers interrupted by the signal whose frame begins at `frame`.
pub(crate) fn interrupted_registers(memory: &dyn MemoryReader, frame: u64) -> Option<UnwindStart> {
    let saved = |index: u64| memory.read_u64(frame.checked_add(SAVED_REGISTERS + 8 * index)?);
    let (rbp, rsp, rip) = (saved(10)?, saved(15)?, saved(16)?);
    Some(UnwindStart { address: rip, registers: UnwindRegsX86_64::new(rip, rsp, rbp) })
}
