//! Readable stack traces of threads. Stacks are unwound while the process is stopped, and symbolized later,
//! when the process may be gone. Other modules stop, trace and wait for processes, and decide what to report.
//!
//! - `registers`: a thread's registers, provided by the caller that stopped it.
//! - `memory`, `maps`, `image`: the memory of a process, its mapped programs, and their ELF files.
//! - [`unwind`]: from registers to code addresses.
//! - [`symbolize`]: from code addresses to functions, files and lines.
//! - [`buffered_stdout`]: output that the process has printed but not written.
//! - `text`: stack traces as text.
//! - [`read_program`]: reads a program like a crash does, for fuzzing.

mod buffered_output;
mod image;
mod maps;
mod memory;
mod program_reader;
mod registers;
mod symbolize;
mod text;
mod unwind;

pub use crate::arch::{FloatingRegisterSet, GeneralRegisterSet};
pub use buffered_output::buffered_stdout;
pub use program_reader::read_program;
pub use registers::{RegisterSet, ThreadRegisters};
pub use symbolize::{
    ProcessStacks, StackFrame, SymbolSource, ThreadStack, symbolize, symbolize_all, symbolize_from,
};
pub use text::StackTexts;
pub use unwind::{RawStacks, StacksError, unwind};

pub(crate) use memory::MemoryReader;
// For reading minidumps.
#[cfg(feature = "minidump")]
pub(crate) use {
    image::{ImageSource, to_hex},
    maps::{MemoryMapping, parse_maps},
    unwind::{AddressSpace, unwind_in},
};
