//! Memory of a stopped process. Each page is read once and cached.

use std::{cell::RefCell, collections::HashMap, fs::File, io, os::unix::fs::FileExt};

use heeler_sys::process::Pid;

const PAGE_BYTES: usize = 4096;

/// Memory addressed by the virtual addresses of a process.
pub(crate) trait MemoryReader {
    /// Fills `buffer` from `address` on. Returns `false` if any byte is unreadable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// Returns the eight bytes at `address` as a number.
    fn read_u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

type MemoryPage = Option<Box<[u8; PAGE_BYTES]>>;

/// Memory of a live process. The process must stay stopped, because pages are cached.
pub(crate) struct ProcessMemory {
    file: File,
    pages: RefCell<HashMap<u64, MemoryPage>>,
}

impl ProcessMemory {
    /// Opens the memory of `pid`. The kernel requires permission to trace the process.
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self { file, pages: RefCell::default() })
    }

    fn read_page(&self, number: u64) -> MemoryPage {
        let mut page = Box::new([0; PAGE_BYTES]);
        let address = number.checked_mul(PAGE_BYTES as u64)?;
        self.file.read_exact_at(&mut page[..], address).ok()?;
        Some(page)
    }
}

impl MemoryReader for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut pages = self.pages.borrow_mut();
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else { return false };
            let (number, offset) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let Some(page) = pages.entry(number).or_insert_with(|| self.read_page(number)) else {
                return false;
            };
            let length = (buffer.len() - done).min(PAGE_BYTES - offset);
            buffer[done..done + length].copy_from_slice(&page[offset..offset + length]);
            done += length;
        }
        true
    }
}
