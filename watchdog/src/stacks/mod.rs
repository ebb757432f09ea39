//! Stacks of threads as people read them: unwound while a process stands still, named at leisure, when it may be gone.
//! Nothing here stops, traces or waits for a process, and nothing here decides what is reported.
//!
//! - `registers`: a thread's registers, from whoever stopped it.
//! - `memory`, `maps`, `image`: what a process has in memory, where its programs are mapped, what these say of themselves.
//! - [`unwind`]: from registers to code addresses.
//! - [`name`]: from code addresses to functions, files and lines.
//! - `text`: what people read.

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
