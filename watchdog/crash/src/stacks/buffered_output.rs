//! Recovers output that a process has printed but not written yet, from the C library's standard output
//! buffer. A program whose standard output is a pipe writes in blocks, so a crash would lose the test's last
//! output.

use std::{ffi::OsStr, path::Path};

use heeler_sys::process::Pid;

use super::{
    maps::{self, MemoryMapping},
    memory::{MemoryReader, ProcessMemory},
    unwind::open_live_image,
};

/// Symbol of the standard output object in the GNU C library.
const STDOUT_OBJECT: &str = "_IO_2_1_stdout_";
/// Upper half of the object's first member.
const MAGIC: u32 = 0xfbad_0000;
/// Offsets of the object's members, the same on all 64-bit systems since version 2.1.
const WRITE_BASE: u64 = 32;
const WRITE_END_OF_DATA: u64 = 40;
const FILE_DESCRIPTOR: u64 = 112;
/// Maximum plausible size of the unwritten output. More is ignored and lost, even if the program has set a
/// larger buffer.
const MAX_BUFFER_BYTES: u64 = 1 << 20;

/// Returns the bytes in a stopped process's standard output buffer, if the process uses the GNU C library and
/// its standard output is still descriptor 1. Does not change the process.
#[must_use]
pub fn buffered_stdout(pid: Pid) -> Option<Vec<u8>> {
    let memory = ProcessMemory::open(pid).ok()?;
    let text = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let groups = maps::group_by_module(maps::parse_maps(&text));
    let is_candidate = |path: &OsStr| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libc.so")
            || name.starts_with("libc-2")
            || program.as_deref() == Some(Path::new(path))
    };
    let modules = groups.iter().filter(|group| group.first().is_some_and(|first| is_candidate(&first.path)));
    let address_of_stdout = |group: &Vec<MemoryMapping>| {
        let mapping = group.iter().find(|mapping| mapping.is_executable)?;
        open_live_image(pid, mapping, &memory)?.symbol_address(STDOUT_OBJECT, mapping)
    };
    let address = modules.filter_map(address_of_stdout).next()?;
    read_buffer(&memory, address)
}

fn read_buffer(memory: &dyn MemoryReader, object: u64) -> Option<Vec<u8>> {
    let member = |offset| memory.read_u64(object.checked_add(offset)?);
    // Each value is the lower half of eight bytes.
    let [flags, descriptor] = [0, FILE_DESCRIPTOR].map(|offset| Some(member(offset)? & 0xffff_ffff));
    if flags? & 0xffff_0000 != u64::from(MAGIC) || descriptor? != 1 {
        return None;
    }
    let (base, end) = (member(WRITE_BASE)?, member(WRITE_END_OF_DATA)?);
    let length = end.checked_sub(base).filter(|length| (1..=MAX_BUFFER_BYTES).contains(length))?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read(base, &mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory starting at address 0.
    struct Bytes(Vec<u8>);

    impl MemoryReader for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let start = usize::try_from(address).unwrap();
            let found = self.0.get(start..start.saturating_add(buffer.len()));
            found.is_some_and(|found| {
                buffer.copy_from_slice(found);
                true
            })
        }
    }

    fn memory(magic: u32, descriptor: u32, base: u64, end: u64) -> Bytes {
        let mut bytes = vec![0; 128];
        bytes[..4].copy_from_slice(&(magic | 0x2a84).to_le_bytes());
        bytes[32..40].copy_from_slice(&base.to_le_bytes());
        bytes[40..48].copy_from_slice(&end.to_le_bytes());
        bytes[112..116].copy_from_slice(&descriptor.to_le_bytes());
        bytes.extend(b"last words");
        Bytes(bytes)
    }

    #[test]
    fn only_a_plausible_buffer_is_read() {
        let read = |magic, descriptor, base, end| read_buffer(&memory(magic, descriptor, base, end), 0);
        assert_eq!(read(MAGIC, 1, 128, 138).as_deref(), Some(&b"last words"[..]));
        assert_eq!(read(MAGIC, 1, 128, 128), None, "empty");
        assert_eq!(read(MAGIC, 1, 138, 128), None, "damaged");
        assert_eq!(read(MAGIC, 1, 128, u64::MAX), None);
        assert_eq!(read(MAGIC, 1, 128, 139), None, "beyond the memory");
        assert_eq!(read(MAGIC, 3, 128, 138), None, "reopened");
        assert_eq!(read(0x1234_0000, 1, 128, 138), None);
        assert_eq!(read_buffer(&Bytes(vec![0; 20]), 0), None);
    }
}
