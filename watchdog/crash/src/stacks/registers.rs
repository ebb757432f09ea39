//! Registers of a thread as plain values, with the kernel's names. Other modules read them from a thread.

use heeler_sys::process::Pid;

use crate::arch::{FloatingRegisterSet, GeneralRegisterSet};

/// Registers of one stopped thread.
#[derive(Debug, Clone, Default)]
pub struct RegisterSet {
    /// General-purpose registers, instruction pointer, flags and segments.
    pub general: GeneralRegisterSet,
    /// Floating-point and vector registers, if they could be read.
    pub floating: Option<Box<FloatingRegisterSet>>,
}

/// One thread to unwind.
#[derive(Debug, Clone)]
pub struct ThreadRegisters {
    pub tid: Pid,
    /// Registers at the top of the thread's stack: now, or at its crash.
    pub registers: RegisterSet,
    /// Name of the thread in the kernel (`comm`).
    pub name: String,
}
