//! The registers of a thread as plain values, with the kernel's names. Reading them from a thread belongs to
//! other modules.

use heeler_sys::process::Pid;

use crate::arch::{FloatingRegisterSet, GeneralRegisterSet};

/// The registers of one stopped thread.
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
    /// The registers at the top of its stack: now, or at the moment of its crash.
    pub registers: RegisterSet,
    /// Its name as the kernel knows it (`comm`).
    pub name: String,
}
