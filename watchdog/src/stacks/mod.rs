//! Readable thread stacks: unwound while the process is stopped, and symbolized later, when the process may
//! be gone. This module does not stop, trace or wait for a process, and does not decide what is reported.
//!
//! - `registers`: a thread's registers, provided by the caller that stopped it.
//! - `memory`, `maps`, `image`: the memory of a process, its mapped programs, and their ELF files.
//! - [`unwind`]: from registers to code addresses.
//! - [`name`]: from code addresses to functions, files and lines (symbolization).
//! - `text`: stacks formatted as text.

mod image;
mod maps;
mod memory;
mod name;
mod registers;
mod text;
mod unwind;

pub use name::{Frame, Stacks, ThreadStack, name, name_all};
pub use registers::{FloatingRegisters, GeneralRegisters, Registers, ThreadRegisters};
pub use unwind::{RawStacks, StacksError, unwind};

pub(crate) use image::{Content, hexadecimal};
pub(crate) use maps::{Mapping, parse as parse_maps};
pub(crate) use memory::Memory;
pub(crate) use unwind::{Layout, unwind_in};
