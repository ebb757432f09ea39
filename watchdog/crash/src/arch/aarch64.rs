//! aarch64: thread registers, and the layout of signal frames.

use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64};
use heeler_sys::trace;

use crate::stacks::MemoryReader;

pub(crate) use framehop::aarch64::{
    CacheAarch64 as UnwindCache, UnwindRegsAarch64 as UnwindRegisters, UnwinderAarch64 as Unwinder,
};

/// `mov x8, #139; svc #0`: the code that a signal handler returns to.
pub(crate) const TRAMPOLINE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// Offset of the interrupted registers in a signal frame: after `siginfo_t` (128 bytes), the members of
/// `ucontext_t` before its `sigcontext`, which is aligned to 16 bytes (176), and the fault address (8).
const SAVED_REGISTERS: u64 = 128 + 176 + 8;
/// Indexes of the frame pointer and the link register.
const FRAME_POINTER: usize = 29;
const LINK_REGISTER: usize = 30;
/// Index of the register that contains a system call number.
const SYSTEM_CALL: usize = 8;
/// Bits of an address. The remaining bits may contain a pointer authentication code.
const ADDRESS_BITS: PtrAuthMask = PtrAuthMask(u64::MAX >> 16);

/// The kernel's `user_regs_struct`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct GeneralRegisterSet {
    pub regs: [u64; 31],
    pub sp: u64,
    pub pc: u64,
    pub pstate: u64,
}

/// The kernel's `user_fpsimd_struct`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct FloatingRegisterSet {
    pub vregs: [u128; 32],
    pub fpsr: u32,
    pub fpcr: u32,
}

/// Point in a stack where an unwind continues.
pub(crate) struct UnwindStart {
    pub(crate) address: u64,
    pub(crate) registers: UnwindRegisters,
}

impl GeneralRegisterSet {
    /// Returns registers with only these two pointers set.
    pub(crate) fn at(instruction_pointer: u64, stack_pointer: u64) -> Self {
        Self { pc: instruction_pointer, sp: stack_pointer, ..Self::default() }
    }

    /// Returns the address of the next instruction.
    #[must_use]
    pub fn instruction_pointer(&self) -> u64 {
        self.pc
    }

    /// Returns the stack pointer, which is the lowest address of the used part of the stack.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.sp
    }

    /// Returns the number of the thread's current system call, if the thread is in one.
    #[must_use]
    pub fn system_call(&self) -> u64 {
        self.regs[SYSTEM_CALL]
    }

    /// Returns the start for unwinding the thread.
    pub(crate) fn unwind_start(&self) -> UnwindStart {
        let (link, frame) = (self.regs[LINK_REGISTER], self.regs[FRAME_POINTER]);
        let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(ADDRESS_BITS, link, self.sp, frame);
        UnwindStart { address: self.pc, registers }
    }
}

impl From<&trace::GeneralRegisters> for GeneralRegisterSet {
    fn from(r: &trace::GeneralRegisters) -> Self {
        Self { regs: r.regs, sp: r.sp, pc: r.pc, pstate: r.pstate }
    }
}

impl From<&trace::FloatingRegisters> for FloatingRegisterSet {
    fn from(r: &trace::FloatingRegisters) -> Self {
        Self { vregs: r.vregs, fpsr: r.fpsr, fpcr: r.fpcr }
    }
}

/// Returns the caller of a function whose code is unreadable, such as a call to a null pointer. The return
/// address is in the link register.
pub(crate) fn caller(_memory: &dyn MemoryReader, registers: &UnwindRegisters) -> Option<UnwindStart> {
    let address = ADDRESS_BITS.strip_ptr_auth(registers.lr());
    Some(UnwindStart { address, registers: *registers })
}

/// Returns the registers interrupted by the signal whose frame begins at `frame`.
pub(crate) fn interrupted_registers(memory: &dyn MemoryReader, frame: u64) -> Option<UnwindStart> {
    let saved = |index: usize| memory.read_u64(frame.checked_add(SAVED_REGISTERS + 8 * index as u64)?);
    let (frame_pointer, link) = (saved(FRAME_POINTER)?, saved(LINK_REGISTER)?);
    let (stack, address) = (saved(LINK_REGISTER + 1)?, saved(LINK_REGISTER + 2)?);
    let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(ADDRESS_BITS, link, stack, frame_pointer);
    Some(UnwindStart { address, registers })
}
