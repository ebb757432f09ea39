//! Reads a program like a crash does, but from its bytes alone: unwinds stacks whose frames cover the whole
//! program, and symbolizes these frames. No process is involved. The fuzz target and its seeds use this to
//! try damaged programs.

use std::io::{self, Write};

use heeler_sys::{io::memory_file, process::Pid};

use super::{
    image::ImageSource,
    maps::MemoryMapping,
    memory::MemoryReader,
    registers::{RegisterSet, ThreadRegisters},
    symbolize::{ProcessStacks, symbolize},
    unwind::{AddressSpace, unwind_in},
};
use crate::arch::GeneralRegisterSet;

/// Address of the program in memory.
const PROGRAM_ADDRESS: u64 = 0x40_0000;
/// Address of the stacks.
const STACK_ADDRESS: u64 = 0x7fff_0000_0000;
const STACK_BYTES: u64 = 4096;
/// Number of simulated threads. Their instruction pointers are spread evenly over the program.
const THREADS: u64 = 16;

/// Unwinds and symbolizes stacks in a program.
///
/// # Errors
/// If the bytes cannot be stored in a file in memory.
pub fn read_program(bytes: &[u8]) -> io::Result<ProcessStacks> {
    let mut file = memory_file("program")?;
    file.write_all(bytes)?;
    let length = bytes.len() as u64;
    let mapping = MemoryMapping {
        range: PROGRAM_ADDRESS..PROGRAM_ADDRESS + length,
        offset: 0,
        path: "/program".into(),
        is_executable: true,
    };
    let open = |_: &MemoryMapping| file.try_clone().ok().map(ImageSource::File);
    let threads: Vec<ThreadRegisters> = (0..THREADS)
        .map(|number| ThreadRegisters {
            tid: Pid::own(),
            registers: RegisterSet {
                general: GeneralRegisterSet::at(
                    PROGRAM_ADDRESS + length * number / THREADS,
                    STACK_ADDRESS + 64,
                ),
                floating: None,
            },
            name: String::new(),
        })
        .collect();
    let layout = AddressSpace { mappings: vec![mapping], open: &open };
    Ok(symbolize(unwind_in(layout, &ProgramStack { length }, &threads)))
}

/// A stack whose words are addresses in the program or in the stack.
struct ProgramStack {
    length: u64,
}

impl MemoryReader for ProgramStack {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(place) = address.checked_sub(STACK_ADDRESS).filter(|place| *place < STACK_BYTES) else {
            return false;
        };
        let word = if place % 16 == 0 {
            STACK_ADDRESS + (place + 32) % STACK_BYTES
        } else {
            PROGRAM_ADDRESS + place.wrapping_mul(7919) % self.length.max(1)
        };
        let bytes = word.to_ne_bytes();
        buffer.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, byte)| *to = *byte);
        true
    }
}
